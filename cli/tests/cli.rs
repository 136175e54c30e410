//! Runs the command `throng` on real stores, and compares its output with the files in `tests/golden`. To accept a change, run the tests
//! with `SNAPSHOTS=overwrite`, and look at the difference.

#[path = "cli/bulk.rs"]
mod bulk;
#[path = "cli/doctor.rs"]
mod doctor;
#[path = "cli/generated.rs"]
mod generated;
#[path = "cli/metrics.rs"]
mod metrics;
#[path = "cli/postgres.rs"]
mod postgres;
#[path = "../../tests/support/postgres_server.rs"]
#[allow(dead_code, reason = "other tests need all of it")]
mod postgres_server;
#[path = "cli/prompts.rs"]
mod prompts;
#[path = "cli/safety.rs"]
mod safety;
#[path = "cli/scene.rs"]
mod scene;
#[path = "cli/server.rs"]
mod server;
#[path = "cli/steps.rs"]
mod steps;
#[path = "cli/store.rs"]
mod store;
#[path = "cli/terminal.rs"]
mod terminal;
#[cfg(feature = "top")]
#[path = "cli/top.rs"]
mod top;
#[path = "cli/transcript.rs"]
mod transcript;
#[path = "cli/transcripts.rs"]
mod transcripts;
#[path = "cli/upgrade.rs"]
mod upgrade;
#[cfg(feature = "web")]
#[path = "cli/web.rs"]
mod web;

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;
