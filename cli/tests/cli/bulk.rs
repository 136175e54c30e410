//! A change of many dead letters, which Ctrl-C stops.

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::process::Stdio;
use std::time::Duration;

use rustix::pipe::fcntl_setpipe_size;
use rustix::process::{Pid, Signal, kill_process};
use throng::durable::DurableClient;

use super::Result;
use super::scene::{mail, worker};
use super::store::{TestStore, eventually};

/// Five parts.
const LETTERS: usize = 5 * 128;
/// The size of the smallest pipe.
const PIPE: usize = 4096;

async fn dead_letters(client: &DurableClient) -> Result {
    let executor = worker(client).await?;
    let handles = client
        .spawn_all((0..LETTERS).map(|_| mail(Some("no such mailbox"))))
        .await?;
    for handle in handles {
        assert!(handle.await.is_err_and(|error| error.is_dead()));
    }
    executor.shutdown(Duration::from_secs(10)).await;
    Ok(())
}

/// The command waits in the middle, since it writes its progress to a pipe that is full. So the signal arrives before the end.
#[tokio::test]
async fn ctrl_c_stops_between_two_parts_and_says_how_many() -> Result {
    let store = TestStore::sqlite()?;
    let client = store.open().await?;
    dead_letters(&client).await?;
    let (mut reader, mut writer) = std::io::pipe()?;
    fcntl_setpipe_size(&writer, PIPE)?;
    // There is room for one line of progress, and not for two.
    writer.write_all(&[b'#'; PIPE - 60])?;
    let mut command = store.command(&["dead", "replay", "--all", "-v"]);
    let child = command
        .stdout(Stdio::piped())
        .stderr(writer.try_clone()?)
        .spawn()?;
    drop((command, writer));
    wait_for_line(&reader)?;
    kill_process(Pid::from_child(&child), Signal::INT)?;
    let mut messages = String::new();
    reader.read_to_string(&mut messages)?;
    let output = child.wait_with_output()?;
    assert_eq!(output.status.code(), Some(1), "{messages}");
    let replayed: usize = String::from_utf8(output.stdout)?
        .trim_start_matches("replayed\t")
        .trim()
        .parse()?;
    assert!(
        replayed > 0 && replayed < LETTERS && replayed.is_multiple_of(128),
        "{messages}"
    );
    assert!(
        messages.contains(&format!("after {replayed} dead letters were replayed")),
        "{messages}"
    );
    assert_eq!(client.counts().await?.waiting, replayed as u64);

    // The same command continues.
    let rest = store.run(&["dead", "replay", "--all"])?;
    assert_eq!(
        String::from_utf8(rest.stdout)?,
        format!("replayed\t{}\n", LETTERS - replayed)
    );
    Ok(client.close().await?)
}

/// Waits until the command has written its first line of progress.
fn wait_for_line(reader: impl AsFd) -> Result {
    eventually("progress", || {
        let is_there = rustix::io::ioctl_fionread(&reader)? > (PIPE - 60) as u64;
        Ok(is_there.then_some(()))
    })
}
