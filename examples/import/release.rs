//! The task of both releases, and their workers.
//!
//! In a real project, [`two`] would replace [`one`] in the next commit. Here, one program contains both.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use throng::durable::{DurableClient, DurableExecutor, TaskContext, TaskError};
use tokio::io::{AsyncReadExt, stdin};
use tokio::time::sleep;

use super::Result;

/// The number of rows that are imported together.
pub(crate) const BATCH: usize = 50;
/// The time for which the import of a batch takes.
const BATCH_TIME: Duration = Duration::from_millis(60);
/// The time for which running tasks may continue when the process is told to end.
const GRACE: Duration = Duration::from_secs(5);

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Summary {
    pub(crate) imported: usize,
    /// Only release 2 rejects wrong addresses.
    #[serde(default)]
    pub(crate) rejected: usize,
}

/// The progress of an import.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The number of batches that are imported.
    pub(crate) batches: usize,
    /// The number of all batches.
    pub(crate) of: usize,
    pub(crate) summary: Summary,
}

/// The import of release 1.
pub(crate) mod one {
    use super::*;
    use throng::durable::{DurableTask, Run};

    /// Imports a file.
    #[derive(Serialize, Deserialize)]
    pub(crate) struct Import {
        pub(crate) file: PathBuf,
    }

    impl DurableTask for Import {
        const NAME: &'static str = "import";
        type Output = Summary;
    }

    impl Run<()> for Import {
        async fn run(self, cx: TaskContext<()>) -> Result<Summary, TaskError> {
            import(&cx, &[self.file], |_| true).await
        }
    }
}

/// The import of release 2.
pub(crate) mod two {
    use super::*;
    use std::error::Error;
    use throng::durable::{DurableTask, Run};

    /// Imports several files, and rejects wrong addresses.
    #[derive(Serialize, Deserialize)]
    pub(crate) struct Import {
        pub(crate) files: Vec<PathBuf>,
    }

    impl DurableTask for Import {
        const NAME: &'static str = "import";
        const VERSION: u8 = 2;
        type Output = Summary;

        fn migrate(_: u8, bytes: &[u8]) -> Result<Self, Box<dyn Error + Send + Sync>> {
            let one::Import { file } = serde_json::from_slice(bytes)?;
            Ok(Self { files: vec![file] })
        }
    }

    impl Run<()> for Import {
        async fn run(self, cx: TaskContext<()>) -> Result<Summary, TaskError> {
            import(&cx, &self.files, |row| row.contains('@')).await
        }
    }
}

/// Imports the addresses that are accepted, and continues after the last batch that this run or an earlier one has reported.
async fn import(
    cx: &TaskContext<()>,
    files: &[PathBuf],
    accepts: fn(&str) -> bool,
) -> Result<Summary, TaskError> {
    let batches = batches_of(files)?;
    let last: Option<Progress> = cx.last_progress().await?;
    let mut summary = last.map_or_else(Summary::default, |last| last.summary);
    let first = last.map_or(0, |last| last.batches);
    for (number, (file, rows)) in batches.iter().enumerate().skip(first) {
        if let Some(reason) = cx.stop_reason() {
            return Err(TaskError::retry(format!("stopped: {reason:?}")));
        }
        // A real import would write the rows to a database here, in such a way that the same batch can be written again: if this
        // process is killed, its last reports are lost.
        sleep(BATCH_TIME).await;
        let accepted = rows.iter().filter(|row| accepts(row)).count();
        summary.imported += accepted;
        summary.rejected += rows.len() - accepted;
        cx.progress(&Progress {
            batches: number + 1,
            of: batches.len(),
            summary,
        });
        say(format_args!("{file} {number}"));
    }
    Ok(summary)
}

/// Returns the batches of all files, each with the name of its file.
fn batches_of(files: &[PathBuf]) -> Result<Vec<(String, Vec<String>)>, TaskError> {
    let mut batches = Vec::new();
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let text = fs::read_to_string(file)?;
        let rows: Vec<_> = text.lines().map(str::to_owned).collect();
        batches.extend(
            rows.chunks(BATCH)
                .map(|rows| (name.to_string(), rows.to_vec())),
        );
    }
    Ok(batches)
}

/// Runs the tasks of a release until standard input ends.
pub(crate) async fn work(client: DurableClient, release: u32) -> Result<()> {
    let mut builder = DurableExecutor::builder(client);
    match release {
        1 => builder.register::<one::Import>(),
        _ => builder.register::<two::Import>(),
    };
    let executor = builder.start(()).await?;
    say("began");
    stdin().read_to_end(&mut Vec::new()).await?;
    executor.shutdown(GRACE).await;
    Ok(())
}

/// Reports an event to the main process.
fn say(what: impl std::fmt::Display) {
    // If nobody reads the lines any more, the tasks run all the same.
    writeln!(io::stdout(), "{what}").ok();
}
