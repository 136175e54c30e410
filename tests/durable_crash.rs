//! The fate of tasks when processes die, hang or are told to exit, and when their server does.
//!
//! Each test starts processes of its own, on a store in a folder or a server of its own, and kills some
//! of them. They all run the [child]; what their tasks did, each has written into a ledger in the folder.
//!
//! `THRONG_LONG=1` makes the soaks go on for longer, and servers and workers be away for longer.
#![cfg(all(feature = "redis", feature = "sqlite", feature = "test-util"))]

mod support;

#[path = "support/ledger.rs"]
mod ledger;
#[macro_use]
#[path = "support/redis_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod redis_server;

#[path = "durable_crash/child.rs"]
mod child;
#[path = "durable_crash/job.rs"]
mod job;
#[path = "durable_crash/keys.rs"]
mod keys;
#[path = "durable_crash/load.rs"]
mod load;
#[path = "durable_crash/process.rs"]
mod process;
#[path = "durable_crash/proxy.rs"]
mod proxy;
#[path = "durable_crash/store_address.rs"]
mod store_address;
#[path = "durable_crash/site.rs"]
#[macro_use]
mod site;

#[path = "durable_crash/busy.rs"]
mod busy;
#[path = "durable_crash/close.rs"]
mod close;
#[path = "durable_crash/damage.rs"]
mod damage;
#[path = "durable_crash/family.rs"]
mod family;
#[path = "durable_crash/handle.rs"]
mod handle;
#[path = "durable_crash/hung.rs"]
mod hung;
#[path = "durable_crash/killed.rs"]
mod killed;
#[path = "durable_crash/operator.rs"]
mod operator;
#[path = "durable_crash/outbox.rs"]
mod outbox;
#[path = "durable_crash/points.rs"]
mod points;
#[path = "durable_crash/poison.rs"]
mod poison;
#[path = "durable_crash/server.rs"]
mod server;
#[path = "durable_crash/shutdown.rs"]
mod shutdown;
#[path = "durable_crash/soak.rs"]
mod soak;
#[path = "durable_crash/stepped.rs"]
mod stepped;
#[path = "durable_crash/torture.rs"]
mod torture;
