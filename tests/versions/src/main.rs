//! A program that uses durable tasks. `scripts/test-versions` compiles it with two versions of the crate, and the test in
//! `tests/side_by_side` runs both programs on one store. So it uses only what both versions have.
//!
//! It is started as `throng-versions STORE FOLDER RELEASE COMMAND [ARGUMENT..]`:
//!
//! - `STORE` is the URL of a Redis server, or the path of a file.
//! - `FOLDER` contains the ledger of the runs, and the files that tasks wait for.
//! - `RELEASE` is the release of the application, 1 or 2: see `first.rs` and `second.rs`.
//! - `COMMAND` is one of these:
//!   - `configure`: sets the limits of the queue.
//!   - `work`: runs tasks until standard input ends. Prints `ready` and `stopped`.
//!   - `hold GATE NUMBER`: stores tasks that run until the file `GATE` exists. Prints `hold ID` for each.
//!   - `produce LABEL`: stores tasks of each kind. Prints `KIND ID` for each.
//!   - `change STATUS CHANGE`: changes all tasks with this status. Prints their number.
//!   - `workers`: prints the process of each worker.
//!   - `read`: awaits the tasks that standard input lists as `KIND ID`, and prints what the store tells about them.

mod application;
mod commands;
mod first;
mod read;
mod second;

use std::error::Error;
use std::path::PathBuf;

use throng::durable::{DurableClient, RedisStore, SqliteStore};

type Done = Result<(), Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> Done {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, folder, release, command, rest @ ..] = &*arguments else {
        return Err("write: throng-versions STORE FOLDER RELEASE COMMAND [ARGUMENT..]".into());
    };
    let client = open(store).await?;
    let folder = PathBuf::from(folder);
    let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
    match (&**command, &*rest) {
        ("configure", []) => commands::configure(&client).await?,
        ("work", []) => match &**release {
            "1" => commands::work::<first::Bill, first::Mail>(&client, folder, store).await?,
            _ => commands::work::<second::Bill, second::Letter>(&client, folder, store).await?,
        },
        ("hold", [gate, number]) => commands::hold(&client, gate, number.parse()?).await?,
        ("produce", [label]) => match &**release {
            "1" => commands::produce(&client, label, first::bill, first::mail).await?,
            _ => commands::produce(&client, label, second::bill, second::letter).await?,
        },
        ("change", [status, change]) => commands::change(&client, status, change).await?,
        ("workers", []) => read::workers(&client).await?,
        ("read", []) => read::read(&client).await?,
        _ => return Err(format!("there is no command {command} {rest:?}").into()),
    }
    Ok(client.close().await?)
}

async fn open(store: &str) -> Result<DurableClient, Box<dyn Error + Send + Sync>> {
    Ok(match is_server(store) {
        true => DurableClient::open(RedisStore::open(store).await?),
        false => DurableClient::open(SqliteStore::open(store).await?),
    })
}

fn is_server(store: &str) -> bool {
    store.starts_with("redis")
}
