//! The indexer of `examples/`, on a copy of this repository and on made-up files.
//!
//! It is compared, as a whole, with an index that is built in the plainest way, and in samples with
//! `grep`.

// Some names of files are not possible elsewhere.
#![cfg(unix)]

#[cfg(feature = "postgres")]
#[path = "support/postgres_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod postgres_server;
#[cfg(feature = "redis")]
#[macro_use]
#[path = "support/redis_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod redis_server;
#[allow(dead_code, reason = "a part of it is there for the screen")]
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
#[path = "../examples/indexer/durable/mod.rs"]
mod durable;
#[path = "../examples/indexer/mod.rs"]
mod indexer;
#[path = "../examples/indexer/reference.rs"]
mod reference;
#[path = "../examples/indexer/sequential.rs"]
mod sequential;

#[path = "indexer/corpus.rs"]
mod corpus;
#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
#[path = "indexer/runs.rs"]
#[macro_use]
mod runs;

#[cfg(any(feature = "postgres", feature = "redis", feature = "sqlite"))]
#[path = "indexer/durable.rs"]
mod durable_program;
#[path = "indexer/faults.rs"]
mod faults;
#[cfg(target_os = "linux")]
#[path = "indexer/grep.rs"]
mod grep;
#[cfg(feature = "postgres")]
#[path = "indexer/postgres.rs"]
mod postgres;
#[path = "indexer/program.rs"]
mod program;
#[cfg(feature = "redis")]
#[path = "indexer/server.rs"]
mod server;
#[path = "indexer/terminal.rs"]
mod terminal;
#[path = "indexer/tokens.rs"]
mod tokens;
#[path = "indexer/tool.rs"]
mod tool;
#[path = "indexer/whole.rs"]
mod whole;
