//! The wall clock is set. This hastens or delays starts, and removes no end that is kept.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;
use throng::durable::{DeadFilter, DurableTask, SpawnOptions, TaskId};

use super::child::Role;
use super::job::{Job, Outcome};
use super::keys::BASE;
use super::process::{Process, until};
use super::redis_server::{Server, compile};
use super::site::{EVERYSEC, Site, outcomes};
use super::store_address::StoreAddress;
use super::support::within;

const DAY: i64 = 24 * 3600;

#[tokio::test]
async fn workers_whose_clock_is_set_remove_nothing() {
    let clock = WallClock::new();
    let site = Site::file().await;
    remove_nothing(site, &clock, Some(clock.library())).await;
}

#[tokio::test]
async fn a_server_whose_clock_is_set_removes_nothing() {
    needs_redis!();
    let clock = WallClock::new();
    let server = Server::with_library(&EVERYSEC, Some(clock.library()));
    let site = Site::of_server(server).await;
    remove_nothing(site, &clock, None).await;
}

/// Ends tasks at various times. Each time, another worker maintains the store.
async fn remove_nothing(mut site: Site, clock: &WallClock, library: Option<&Path>) {
    let delay = Duration::from_secs(10 * DAY as u64);
    let delayed = SpawnOptions::new().delay(delay);
    let mut delayed = Some(site.spawn_with(Job::Work(1), delayed).await);
    let mut ids = Vec::new();
    for ahead in [0, 40 * DAY, 0, -DAY, 0] {
        clock.set(ahead);
        assert_time(&mut site, ahead);
        let before = aged(&mut site);
        let mut worker = start(&site, library).await;
        if !ids.is_empty() {
            let is_aged = async || (aged(&mut site) != before).then_some(());
            until("the store is maintained", is_aged).await;
        }
        ids.extend(end_some(&site).await);
        if ahead > 0 {
            outcomes(delayed.take()).await;
        }
        assert_kept(&site, &ids).await;
        worker.stop(1000).await;
    }
}

async fn start(site: &Site, library: Option<&Path>) -> Process {
    let plan = site.plan(Role::Worker(site.work()));
    let worker = Process::start_with(&plan, library);
    worker.wait_for_line("ready").await;
    worker
}

/// Asserts that a server's own clock was set.
fn assert_time(site: &mut Site, ahead: i64) {
    if matches!(site.address, StoreAddress::File(_)) {
        return;
    }
    let time = site.redis().ask(&["TIME"]);
    let time: Vec<i64> = redis::from_redis_value(time).expect("a time");
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.expect("it is after 1970").as_secs() as i64;
    assert!((time[0] - now - ahead).abs() < DAY / 2, "{time:?}");
}

/// Returns the store time that maintenance has recorded.
fn aged(site: &mut Site) -> Vec<u8> {
    if matches!(site.address, StoreAddress::Server { .. }) {
        let aged = site.redis().ask(&["HGET", &format!("{BASE}meta"), "aged"]);
        return redis::from_redis_value(aged).expect("bytes");
    }
    let aged = "SELECT aged_at FROM throng_meta";
    let aged = site
        .file_connection()
        .query_row(aged, [], |row| row.get::<_, i64>(0));
    aged.expect("a number").to_be_bytes().into()
}

/// Ends some tasks. The last one becomes a dead letter.
async fn end_some(site: &Site) -> Vec<TaskId> {
    let handles = site.spawn_all(Job::Work(1), 8).await;
    let mut ids: Vec<_> = handles.iter().map(|handle| handle.id()).collect();
    outcomes(handles).await;
    let unreadable = site.client.spawn(Unreadable).await.expect("it is stored");
    ids.push(unreadable.id());
    within(unreadable).await.expect_err("it cannot be read");
    ids
}

/// Asserts that the outputs can be awaited, and that all dead letters are listed.
async fn assert_kept(site: &Site, ids: &[TaskId]) {
    let dead_letters = site.client.dead_letters();
    let dead_letters = dead_letters
        .list(DeadFilter::all(), 100)
        .await
        .expect("the store answers");
    assert_eq!(dead_letters.len(), ids.len() / 9);
    for ids in ids.chunks(9) {
        assert!(
            dead_letters
                .iter()
                .any(|dead_letter| dead_letter.id == ids[8])
        );
        outcomes(ids[..8].iter().map(|&id| site.client.attach::<Job>(id))).await;
    }
}

/// A task that no worker can decode.
#[derive(Serialize, Deserialize)]
struct Unreadable;

impl DurableTask for Unreadable {
    const NAME: &'static str = Job::NAME;
    type Output = Outcome;
}

/// The wall clock of the processes that have loaded a library.
struct WallClock {
    ahead: File,
    library: PathBuf,
    _folder: TempDir,
}

impl WallClock {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("ahead");
        let ahead = File::create(&path).expect("a file can be made");
        let source = SOURCE.replace("PATH", &path.to_string_lossy());
        let clock = Self {
            ahead,
            library: compile(folder.path(), &source),
            _folder: folder,
        };
        clock.set(0);
        clock
    }

    fn library(&self) -> &Path {
        &self.library
    }

    /// Sets the clock to this many seconds after the time of the machine.
    fn set(&self, ahead: i64) {
        let written = self.ahead.write_all_at(&ahead.to_ne_bytes(), 0);
        written.expect("the file can be written");
    }
}

/// The source of a library that reads from a file how far the wall clock is ahead.
const SOURCE: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>
static volatile int64_t *ahead;
__attribute__((constructor)) static void map(void) {
  int file = open("PATH", O_RDONLY);
  ahead = mmap(0, 8, PROT_READ, MAP_SHARED, file, 0);
  close(file);
}
int clock_gettime(clockid_t clock, struct timespec *time) {
  int failed = syscall(SYS_clock_gettime, clock, time);
  if (!failed && clock == CLOCK_REALTIME && ahead) time->tv_sec += *ahead;
  return failed;
}
int gettimeofday(struct timeval *time, void *zone) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return 0;
}
time_t time(time_t *time) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (time) *time = now.tv_sec;
  return now.tv_sec;
}
"#;
