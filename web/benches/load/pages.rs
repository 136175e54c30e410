//! The time that each page and each answer of the API takes, and what it contains.

use std::path::Path;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use serde_json::Value;
use throng::durable::{DurableClient, TaskId};

use crate::Result;
use crate::bars::Bars;
use crate::dashboard::{get, get_json, service};
use crate::fill::Size;
use crate::redis_info::ReadScripts;

/// The cost of a page.
struct PageTimes {
    median: Duration,
    p99: Duration,
    max: Duration,
    /// The scripts that the server of the store has run, if it counts them.
    scripts: Option<u64>,
    rows: usize,
    /// The number of tasks that the store has examined.
    examined: u64,
    bytes: usize,
}

const REQUESTS: usize = 300;
const FEW_REQUESTS: usize = 30;
/// The requests that are not counted, which fill caches.
const FIRST_REQUESTS: usize = 3;

/// Prints the cost of each page.
pub(crate) async fn measure(
    size: Size,
    client: &DurableClient,
    socket: Option<&Path>,
    bars: &mut Bars,
) -> Result<()> {
    let requests = if size.is_small() {
        FEW_REQUESTS
    } else {
        REQUESTS
    };
    println!("{requests} requests for each page; times in milliseconds");
    println!(
        "{:<52} {:>7} {:>7} {:>7} {:>8} {:>5} {:>8} {:>8}",
        "page", "median", "p99", "max", "scripts", "rows", "examined", "KiB"
    );
    for path in paths(client).await? {
        let cost = cost(client, &path, requests, socket).await?;
        cost.print(&path);
        cost.check(&path, bars);
    }
    Ok(())
}

/// Returns the paths of all pages and of the API, with filters that match few tasks, and later pages of lists.
async fn paths(client: &DurableClient) -> Result<Vec<String>> {
    let service = service(client)?;
    let mut paths: Vec<String> = [
        "/queues",
        "/types",
        "/tasks/next?queue=queue-00",
        "/tasks/next?queue=absent",
        "/tasks/waiting?limit=200&name=mail.send",
        "/tasks/waiting?limit=200&name=absent",
        "/tasks/waiting?limit=200&queue=absent",
        "/tasks/delayed?limit=200&name=absent",
        "/tasks/running?limit=200&name=absent",
        "/tasks/done?limit=200&name=absent",
        "/dead?limit=200&name=absent",
        "/find?q=queue",
        "/find?q=absent",
    ]
    .map(String::from)
    .into();
    for list in [
        "/tasks/waiting?limit=200",
        "/tasks/delayed?limit=200",
        "/tasks/running?limit=200",
        "/tasks/done?limit=200",
        "/tasks/cancelled?limit=200",
        "/dead?limit=200",
        "/workers?",
        "/schedules?",
    ] {
        let answer = get_json(&service, list).await?;
        paths.push(list.to_owned());
        if let Some(next) = answer["next"].as_str() {
            paths.push(format!("{list}&after={next}"));
        }
        // The first and the last task of the page: one of them may be large.
        let tasks = answer["data"]["tasks"]
            .as_array()
            .map_or(&[][..], Vec::as_slice);
        let ids = [tasks.first(), tasks.last()].into_iter().flatten();
        paths.extend(ids.filter_map(|task| Some(format!("/task/{}", task["id"].as_str()?))));
    }
    paths.push(format!("/task/{}", TaskId::new()));
    paths.sort();
    let overview = [
        "/s/mail",
        "/s/mail?range=1h",
        "/s/mail?range=24h",
        "/api/v1/s/mail/overview",
    ];
    let others = [
        "/process",
        "/metrics",
        "/health",
        "/api/v1/process",
        "/api/v1/stores",
    ];
    let overview = overview.into_iter().chain(others).map(String::from);
    let both = paths
        .iter()
        .flat_map(|path| ["/s/mail", "/api/v1/s/mail"].map(|prefix| format!("{prefix}{path}")));
    Ok(overview.chain(both).collect())
}

/// Requests a page many times. Each request goes to a new dashboard, since a dashboard sends equal questions only once.
async fn cost(
    client: &DurableClient,
    path: &str,
    requests: usize,
    socket: Option<&Path>,
) -> Result<PageTimes> {
    for _ in 0..FIRST_REQUESTS {
        get(&service(client)?, path).await?;
    }
    let scripts = || socket.map(ReadScripts::of).transpose();
    let before = scripts()?;
    let (status, text) = get(&service(client)?, path).await?;
    let after = scripts()?;
    if !status.is_success() && status != StatusCode::NOT_FOUND {
        return Err(format!("{path}: {status}: {text}").into());
    }
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        let service = service(client)?;
        let begun = Instant::now();
        get(&service, path).await?;
        times.push(begun.elapsed());
    }
    times.sort();
    let json = serde_json::from_str(&text).unwrap_or(Value::Null);
    Ok(PageTimes {
        median: times[times.len() / 2],
        p99: times[(times.len() * 99).div_ceil(100) - 1],
        max: times[times.len() - 1],
        scripts: before
            .zip(after)
            .map(|(before, after)| after.count - before.count),
        rows: rows(&text, &json),
        examined: json["examined"].as_u64().unwrap_or_default(),
        bytes: text.len(),
    })
}

/// Returns the number of rows of the longest table of a page, or of items in the longest array of an answer of the API.
fn rows(text: &str, json: &Value) -> usize {
    match json {
        Value::Null => text
            .split("<tbody")
            .skip(1)
            .map(|table| {
                let table = table.split("</tbody").next().unwrap_or_default();
                table.matches("<tr").count()
            })
            .max()
            .unwrap_or_default(),
        json => json["data"]
            .as_object()
            .into_iter()
            .flat_map(|data| data.values())
            .filter_map(Value::as_array)
            .map(Vec::len)
            .max()
            .unwrap_or_default(),
    }
}

impl PageTimes {
    fn print(&self, path: &str) {
        let [median, p99, max] =
            [self.median, self.p99, self.max].map(|time| time.as_secs_f64() * 1_000.0);
        let scripts = self.scripts.map_or_else(|| "-".into(), |it| it.to_string());
        let kib = self.bytes as f64 / 1024.0;
        let path = short(path);
        println!(
            "{path:<52} {median:>7.2} {p99:>7.2} {max:>7.2} {scripts:>8} {:>5} {:>8} {kib:>8.1}",
            self.rows, self.examined
        );
    }

    fn check(&self, path: &str, bars: &mut Bars) {
        let path = short(path);
        bars.check(
            &format!("p99 of {path}, ms"),
            self.p99.as_secs_f64() * 1_000.0,
            50.0,
        );
        bars.check(&format!("rows of {path}"), self.rows as f64, 200.0);
        bars.check(
            &format!("examined by {path}"),
            self.examined as f64,
            2_000.0,
        );
        bars.check(
            &format!("bytes of {path}"),
            self.bytes as f64,
            f64::from(1 << 20),
        );
    }
}

/// Shortens ids and positions.
fn short(path: &str) -> String {
    let path = path.replace("/api/v1", "api").replace("/s/mail", "");
    let path = match path.split_once("after=") {
        Some((path, _)) => format!("{path}after=.."),
        None => path,
    };
    match path.split_once("/task/") {
        Some((path, id)) => format!("{path}/task/..{}", &id[id.len() - 4..]),
        None => path,
    }
}
