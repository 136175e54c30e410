//! [`Cli`]: the command line.

use clap::{Parser, Subcommand};

use crate::cmd;
use crate::out::OutputArgs;
use crate::store::StoreArgs;

/// Shows and changes the durable tasks in a store
#[derive(Debug, Parser)]
#[command(name = "throng", version, max_term_width = 100, after_help = EXIT_STATUS)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) store: StoreArgs,

    #[command(flatten)]
    pub(crate) output: OutputArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXIT_STATUS: &str = "Exit status: 0: done; 1: failed; 2: wrong usage, or not confirmed; \
    3: something was not found or not changed; 4: the store cannot be reached; 5: a condition does not hold";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Summarises the store, and checks conditions
    Status(cmd::status::StatusArgs),
    /// Lists, shows and changes tasks
    #[command(subcommand)]
    Task(cmd::task::TaskCommand),
    /// Lists, replays, deletes and exports dead letters
    #[command(subcommand)]
    Dead(cmd::dead::DeadCommand),
    /// Lists, pauses and limits queues
    #[command(subcommand)]
    Queue(cmd::queue::QueueCommand),
    /// Lists, pauses and fires schedules
    #[command(subcommand)]
    Schedule(cmd::schedule::ScheduleCommand),
    /// Lists the workers
    #[command(subcommand)]
    Worker(cmd::worker::WorkerCommand),
    /// Lists and pauses the types of tasks
    #[command(subcommand)]
    Type(cmd::types::TypeCommand),
    /// Lists the namespaces of the stores in a Redis server
    Namespaces,
    /// Shows or changes how long, and how many, ended tasks are kept
    Retention(cmd::retention::RetentionArgs),
    /// Stores a task
    Spawn(cmd::spawn::SpawnArgs),
    /// Looks for what is wrong with the tasks, their workers, the store and its server
    Doctor(cmd::doctor::DoctorArgs),
    /// Raises the layout of the store to that of this version
    Upgrade(cmd::upgrade::UpgradeArgs),
    /// Prints or serves the numbers of the store for Prometheus
    Metrics(cmd::metrics::MetricsArgs),
    /// Shows the store in the terminal, and updates it every second
    #[cfg(feature = "top")]
    Top(cmd::top::TopArgs),
    /// Serves the dashboard for browsers
    #[cfg(feature = "web")]
    Web(cmd::web::WebArgs),
    /// Prints completions for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Writes the manual pages to a folder
    Man {
        /// The folder, which must exist
        folder: std::path::PathBuf,
    },
}
