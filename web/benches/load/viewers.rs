//! What the viewers of the overview cost.

use std::path::Path;
use std::time::Duration;

use http_body_util::BodyExt;
use throng::durable::DurableClient;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::Result;
use crate::bars::Bars;
use crate::dashboard::{open, service};
use crate::fill::Size;
use crate::proc::cpu_time;
use crate::redis_info::{ReadScripts, info};

/// The number of viewers.
const VIEWERS: usize = 10;
const TIME: Duration = Duration::from_secs(30);
const SHORT_TIME: Duration = Duration::from_secs(3);

/// CPU times since some point.
#[derive(Clone, Copy)]
struct Times {
    dashboard: Duration,
    server: Duration,
    scripts: Duration,
}

/// Prints the CPU time of the server of the store and of this process, with and without viewers.
pub(crate) async fn measure(
    size: Size,
    client: &DurableClient,
    socket: Option<&Path>,
    bars: &mut Bars,
) -> Result<()> {
    let time = if size.is_small() { SHORT_TIME } else { TIME };
    let server = socket.map(process_of).transpose()?;
    let start = times(server, socket)?;
    sleep(time).await;
    let without = times(server, socket)?;
    let events = watch(client, time).await?;
    let with = times(server, socket)?;
    sleep(time).await;
    let end = times(server, socket)?;
    println!("{VIEWERS} viewers of the overview for {time:?}, who have received {events} events");
    let percent = |cpu: Duration| cpu.as_secs_f64() / time.as_secs_f64() * 100.0;
    println!(
        "CPU of the dashboard: {:.2} % of a core",
        percent(with.dashboard - without.dashboard)
    );
    if socket.is_none() {
        return Ok(());
    }
    let idle = [without.server - start.server, end.server - with.server].map(percent);
    let busy = percent(with.server - without.server);
    println!(
        "CPU of redis-server: {busy:.2} % with viewers; {:.2} % before and {:.2} % after",
        idle[0], idle[1]
    );
    bars.at_most(
        "CPU of the dashboard's scripts in redis-server, % of a core",
        percent(with.scripts - without.scripts),
        1.0,
    );
    bars.at_most(
        "added CPU of redis-server, % of a core",
        busy - (idle[0] + idle[1]) / 2.0,
        1.0,
    );
    Ok(())
}

/// Opens the streams of all viewers, and reads them for some time. Returns the number of events.
async fn watch(client: &DurableClient, time: Duration) -> Result<usize> {
    let service = service(client)?;
    let mut viewers = JoinSet::new();
    for _ in 0..VIEWERS {
        let mut stream = open(&service, "/s/mail/events").await?;
        viewers.spawn(async move {
            let mut events = 0;
            let read = async {
                while let Some(Ok(_)) = stream.body_mut().frame().await {
                    events += 1;
                }
            };
            // This is an error, since the streams do not end.
            let _ = timeout(time, read).await;
            events
        });
    }
    Ok(viewers.join_all().await.into_iter().sum())
}

fn times(server: Option<u32>, socket: Option<&Path>) -> Result<Times> {
    let scripts = socket.map(ReadScripts::of).transpose()?;
    Ok(Times {
        dashboard: cpu_time(std::process::id())?,
        server: server.map(cpu_time).transpose()?.unwrap_or_default(),
        scripts: scripts.map(|it| it.time).unwrap_or_default(),
    })
}

/// Returns the id of the process of a server.
fn process_of(socket: &Path) -> Result<u32> {
    let text = info(socket, "server")?;
    let id = text
        .lines()
        .find_map(|line| line.strip_prefix("process_id:"));
    Ok(id
        .ok_or("the server does not say which process it is")?
        .trim()
        .parse()?)
}
