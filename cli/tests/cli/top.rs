//! `throng top` in a pseudo-terminal.

use rustix::process::{Pid, Signal, kill_process};

use super::Result;
use super::scene::{fill, filled, id};
use super::store::{TestStore, end_of};
use super::terminal::Terminal;

#[tokio::test]
async fn the_terminal_is_restored() -> Result {
    let store = filled().await?;
    for killed_by in [None, Some(Signal::TERM), Some(Signal::INT)] {
        let mut terminal = Terminal::open()?;
        let mut child = terminal.spawn(store.command(&["top"]))?;
        terminal.wait_for("reports")?;
        assert!(terminal.screen().alternate_screen());
        assert!(!terminal.is_restored()?);
        match killed_by {
            None => terminal.type_keys("q")?,
            Some(signal) => kill_process(Pid::from_child(&child), signal)?,
        }
        terminal.wait_until("shell", |screen| !screen.alternate_screen())?;
        assert!(end_of(&mut child)?.success());
        assert!(terminal.is_restored()?);
    }
    Ok(())
}

#[tokio::test]
async fn a_dead_letter_is_replayed_on_the_screen() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    fill(&client).await?;
    let mut terminal = Terminal::open()?;
    let mut child = terminal.spawn(store.command(&["top", "--operate"]))?;
    terminal.wait_for("reports")?;
    terminal.type_keys("3")?;
    terminal.wait_for(&id(4).to_string())?;
    terminal.type_keys("/mailbox\r")?;
    terminal.wait_for("no such mailbox")?;
    terminal.type_keys("r")?;
    terminal.wait_for("y: yes")?;
    terminal.type_keys("y")?;
    terminal.wait_for("replayed")?;
    terminal.type_keys("q")?;
    assert!(end_of(&mut child)?.success());
    assert_eq!(client.counts().await?.dead, 2);
    Ok(client.close().await?)
}

/// A script gets an error, and no escape sequences.
#[test]
fn a_pipe_is_refused() -> Result {
    let store = TestStore::sqlite()?;
    let output = store.run(&["top"])?;
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stderr)?.contains("throng status"));
    Ok(())
}
