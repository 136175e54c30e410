//! Failures of the server, and their consequences for its tasks.

#[path = "server/cut.rs"]
mod cut;
#[path = "server/emptied.rs"]
mod emptied;
#[path = "server/failed_over.rs"]
mod failed_over;
#[path = "server/full.rs"]
mod full;
#[path = "server/killed.rs"]
mod killed;
#[path = "server/restarted.rs"]
mod restarted;
#[path = "server/rolled_back.rs"]
mod rolled_back;
#[path = "server/scripts.rs"]
mod scripts;
#[path = "server/soak.rs"]
mod soak;
#[path = "server/stopped.rs"]
mod stopped;
#[path = "server/workers.rs"]
mod workers;
