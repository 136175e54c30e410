//! What tokio-console shows of the parts of throng: a client of its interface connects to a program.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use console_api::field::{Name, Value};
use console_api::instrument::instrument_client::InstrumentClient;
use console_api::instrument::{InstrumentRequest, Update};
use console_api::resources::resource::kind::Kind;
use console_api::{Field, Id};
use tokio::process::{Child, Command};
use tokio::time::{sleep, timeout};
use tonic::transport::Channel;

/// The time in which the program must have shown everything.
const LIMIT: Duration = Duration::from_secs(60);

type Attributes = BTreeMap<String, String>;

/// What the program has shown.
#[derive(Debug, Default)]
struct Shown {
    /// The type and the kind of each resource of throng, by its id.
    resources: BTreeMap<u64, (String, String)>,
    /// The attributes of each resource.
    attributes: BTreeMap<u64, Attributes>,
    /// The fields of each task.
    tasks: Vec<Attributes>,
    /// The names of the fields of each kind of span.
    names: BTreeMap<u64, Vec<String>>,
}

impl Shown {
    fn add(&mut self, update: Update) {
        for new in update.new_metadata.into_iter().flat_map(|it| it.metadata) {
            let (Some(id), Some(metadata)) = (new.id, new.metadata) else {
                continue;
            };
            self.names.insert(id.id, metadata.field_names);
        }
        let resources = update.resource_update.unwrap_or_default();
        for new in resources.new_resources {
            if let Some(Kind::Other(kind)) = new.kind.and_then(|it| it.kind) {
                self.resources
                    .insert(number(new.id), (new.concrete_type, kind));
            }
        }
        for (id, stats) in resources.stats_update {
            let fields = stats.attributes.into_iter().filter_map(|it| it.field);
            let attributes = self.fields(fields.collect());
            self.attributes.entry(id).or_default().extend(attributes);
        }
        for task in update.task_update.unwrap_or_default().new_tasks {
            // Its `kind` is always that of a future. The console shows the field of this name instead.
            let fields = self.fields(task.fields);
            self.tasks.push(fields);
        }
    }

    fn fields(&self, fields: Vec<Field>) -> Attributes {
        fields.into_iter().filter_map(|it| self.field(it)).collect()
    }

    fn field(&self, field: Field) -> Option<(String, String)> {
        let name = match field.name? {
            Name::StrName(name) => name,
            Name::NameIdx(index) => {
                let names = self.names.get(&field.metadata_id?.id)?;
                names.get(usize::try_from(index).ok()?)?.clone()
            }
        };
        let value = match field.value? {
            Value::DebugVal(text) | Value::StrVal(text) => text,
            Value::U64Val(number) => number.to_string(),
            Value::I64Val(number) => number.to_string(),
            Value::BoolVal(is_true) => is_true.to_string(),
        };
        Some((name, value))
    }

    /// Returns `true` if a resource is shown with these attributes, and no others.
    fn has(&self, (concrete_type, kind): (&str, &str), attributes: &[(&str, &str)]) -> bool {
        let expected = attributes.iter();
        let expected = expected.map(|&(name, value)| (name.to_owned(), value.to_owned()));
        let expected: Attributes = expected.collect();
        let mut resources = self.resources.iter();
        resources.any(|(id, (shown_type, shown_kind))| {
            (&**shown_type, &**shown_kind) == (concrete_type, kind)
                && self.attributes.get(id) == Some(&expected)
        })
    }

    fn is_complete(&self) -> bool {
        let of_pool = |task: &&Attributes| {
            task.get("kind").is_some_and(|kind| kind == "blocking")
                && task.get("task.name").is_some_and(|name| name == "db")
        };
        let pool = [("name", "db"), ("running", "1"), ("queued", "1")];
        let session = [("name", "session"), ("running", "0"), ("queued", "0")];
        self.tasks.iter().filter(of_pool).count() == 2
            && self.has(("BlockingPool", "pool"), &pool)
            && self.has(
                ("ComputePool", "pool"),
                &[("name", "parser"), ("queued", "0")],
            )
            && self.has(("SerialExecutor", "actor"), &session)
            && self.has(
                ("CompletionStream", "stream"),
                &[("name", "pages"), ("running", "0"), ("ready", "1")],
            )
            && self.has(
                ("DurableExecutor", "worker"),
                &[("name", "images"), ("running", "0")],
            )
    }
}

fn number(id: Option<Id>) -> u64 {
    id.expect("a resource has an id").id
}

/// Starts the program, which is killed if the test fails.
fn start(address: &str) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_throng-console"));
    command
        .arg(address)
        .stdin(Stdio::piped())
        .kill_on_drop(true);
    command.spawn().expect("it is built")
}

async fn connect(address: &str) -> InstrumentClient<Channel> {
    let url = format!("http://{address}");
    loop {
        match InstrumentClient::connect(url.clone()).await {
            Ok(client) => return client,
            Err(_) => sleep(Duration::from_millis(20)).await,
        }
    }
}

#[tokio::test]
#[cfg_attr(
    not(tokio_unstable),
    ignore = "needs RUSTFLAGS=\"--cfg tokio_unstable\""
)]
async fn the_console_lists_parts_and_blocking_tasks() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap().to_string();
    drop(free);
    let mut program = start(&address);
    let mut shown = Shown::default();
    let watched = timeout(LIMIT, async {
        let mut client = connect(&address).await;
        let updates = client.watch_updates(InstrumentRequest {}).await.unwrap();
        let mut updates = updates.into_inner();
        while !shown.is_complete() {
            let update = updates.message().await.unwrap();
            shown.add(update.expect("the program still runs"));
        }
    });
    let is_complete = watched.await.is_ok();
    assert!(is_complete, "{shown:#?}");
    drop(program.stdin.take());
    let ended = timeout(LIMIT, program.wait()).await;
    assert!(ended.expect("the program ends in time").unwrap().success());
}
