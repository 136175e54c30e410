//! How the progress of an import is watched, from any process.

use indicatif::{ProgressBar, ProgressStyle};
use throng::durable::{DurableClient, DurableHandle, TaskId};

use super::Result;
use super::release::{Progress, Summary, two};

/// Shows the progress of a task on standard error, if that is a terminal, until it ends. Then prints its output.
pub(crate) async fn watch(client: &DurableClient, id: TaskId) -> Result<()> {
    let task = client.attach::<two::Import>(id);
    let bar = ProgressBar::new(0).with_style(ProgressStyle::with_template(
        "{msg:10} [{bar:40}] {pos}/{len} batches",
    )?);
    bar.set_message("import");
    let mut reports = task.progress::<Progress>();
    while let Some(report) = reports.next().await {
        let Progress { batches, of, .. } = report?;
        bar.set_length(of as u64);
        bar.set_position(batches as u64);
    }
    bar.finish_and_clear();
    let Summary { imported, rejected } = task.await?;
    println!(
        "The import has ended: {imported} addresses are imported, and {rejected} are rejected."
    );
    Ok(())
}

/// Waits until half of the batches of an import are done.
pub(crate) async fn half_done(import: &DurableHandle<Summary>) -> Result<()> {
    let mut reports = import.progress::<Progress>();
    while let Some(report) = reports.next().await {
        let Progress { batches, of, .. } = report?;
        if 2 * batches >= of {
            return Ok(());
        }
    }
    Err("the import has ended before release 2 was deployed".into())
}
