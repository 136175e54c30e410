//! Commands in a pseudo-terminal.

use std::time::Duration;

use throng::durable::{DurableClient, Status, TaskFilter, TaskInfo};

use super::Result;
use super::scene::{filled, id};
use super::store::end_of;
use super::terminal::{COLUMNS, Terminal};

/// Each row of a table is one line of the terminal, whose end shows that something is missing.
#[tokio::test]
async fn a_table_fits_into_the_terminal() -> Result {
    let store = filled().await?;
    let mut terminal = Terminal::open()?;
    let mut child = terminal.spawn(store.command(&["dead", "ls"]))?;
    terminal.wait_for("no such")?;
    assert!(end_of(&mut child)?.success());
    let lines: Vec<_> = terminal.screen().rows(0, COLUMNS.get()).collect();
    assert!(
        lines[0].starts_with("ID ") && lines[4].is_empty(),
        "{lines:?}"
    );
    assert!(terminal.screen().cell(0, 0).is_some_and(vt100::Cell::bold));
    Ok(())
}

/// The person must type the number of dead letters.
#[tokio::test]
async fn a_person_is_asked_before_something_is_deleted() -> Result {
    let store = filled().await?;
    for (answer, code, dead) in [("yes\n", 2, 3), ("3\n", 0, 0)] {
        let mut terminal = Terminal::open()?;
        let mut child = terminal.spawn(store.command(&["dead", "delete", "--all"]))?;
        terminal.wait_for("This will delete 3 dead letters. Type 3 to confirm:")?;
        terminal.type_keys(answer)?;
        assert_eq!(end_of(&mut child)?.code(), Some(code));
        let client = store.open().await?;
        assert_eq!(client.counts().await?.dead, dead);
        client.close().await?;
    }
    Ok(())
}

#[tokio::test]
async fn raw_bytes_are_not_printed_to_a_terminal() -> Result {
    let store = filled().await?;
    let mut terminal = Terminal::open()?;
    let id = id(4).to_string();
    let mut child = terminal.spawn(store.command(&["task", "payload", &id, "--raw"]))?;
    terminal.wait_for("write it to a file or a pipe")?;
    assert_eq!(end_of(&mut child)?.code(), Some(2));
    Ok(())
}

/// The shortest time for which dead letters are kept.
const SHORT: Duration = Duration::from_secs(1);

/// Waits until all dead letters are older than the shortest retention.
async fn dead_for_long(client: &DurableClient) -> Result {
    let dead = TaskFilter::new(Status::Dead);
    let is_young = |task: &TaskInfo| task.age.is_some_and(|age| age <= SHORT);
    while client
        .admin()
        .tasks(&dead, None, 9)
        .await?
        .tasks
        .iter()
        .any(is_young)
    {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

/// A retention that is shorter than the age of dead letters deletes them.
#[tokio::test]
async fn a_person_is_asked_before_a_retention_deletes_something() -> Result {
    let store = filled().await?;
    let client = store.open().await?;
    tokio::time::timeout(Duration::from_secs(30), dead_for_long(&client)).await??;
    let before = client.admin().retention().await?;
    let after = before.dead_for(SHORT);
    for (answer, code, expected) in [("no\n", 2, before), ("3\n", 0, after)] {
        let mut terminal = Terminal::open()?;
        let command = store.command(&["retention", "--dead-for", "1s"]);
        let mut child = terminal.spawn(command)?;
        terminal.wait_for("This will delete up to 3 dead letters. Type 3 to confirm:")?;
        terminal.type_keys(answer)?;
        assert_eq!(end_of(&mut child)?.code(), Some(code));
        assert_eq!(client.admin().retention().await?, expected);
    }
    Ok(client.close().await?)
}
