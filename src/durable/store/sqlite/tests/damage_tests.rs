//! Stored data that cannot be read: it costs the tasks whose data it is, and everything else goes on.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use super::{
    Backend, Clock, DeadFilter, DeadReason, Duration, File, NewTask, Seen, SqliteStore, TaskId,
    TypeSet, Verdict, Verdicts, Worker, done, id, task,
};
use crate::durable::error::{Cause, Effect};
use crate::durable::store::Turn;

/// How long an end is kept: longer than any of these tests goes on.
const KEPT: Duration = Duration::from_secs(1_000_000);
const DELAY: Duration = Duration::from_secs(50);

/// A store with tasks in every state, a worker that holds some of them, and another.
struct Scene {
    file: File,
    clock: Clock,
    holder: Worker,
    other: Worker,
    /// The tasks that run: their epoch and ids.
    held: Verdicts,
    all: Vec<TaskId>,
}

/// The state of a task at the beginning.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Initial {
    Waiting,
    Delayed,
    Running,
    Kept,
    Dead,
}

const INITIALS: [Initial; 5] = [
    Initial::Kept,
    Initial::Dead,
    Initial::Running,
    Initial::Waiting,
    Initial::Delayed,
];

impl Scene {
    /// With so many tasks in each state, every third of them with data that is not in its row.
    async fn new(each: u64) -> Self {
        let file = File::new();
        let clock = Clock::manual();
        let [holder, other] = [0; 2].map(|_| SqliteStore::open_with(&file.path, clock.clone()));
        let (holder, other) = (
            Arc::new(holder.await.unwrap()),
            Arc::new(other.await.unwrap()),
        );
        let (holder, other) = (Worker::new(&holder).await, Worker::new(&other).await);
        let mut held = None;
        for (n, initial) in INITIALS.into_iter().enumerate() {
            let ids = (0..each).map(|i| 1000 * (n as u64 + 1) + i);
            for batch in ids.collect::<Vec<_>>().chunks(200) {
                holder
                    .enqueue(batch.iter().map(|&id| new_task(id, initial)))
                    .await;
            }
            for _ in 0..each.div_ceil(200) {
                match initial {
                    Initial::Waiting | Initial::Delayed => {}
                    Initial::Kept => {
                        let claim = holder.claim(200).await;
                        holder.turn(super::verdicts(&claim, output), 0).await;
                    }
                    Initial::Dead => {
                        let claim = holder.claim(200).await;
                        holder
                            .turn(super::verdicts(&claim, |_| dead(DeadReason::Fatal)), 0)
                            .await;
                    }
                    Initial::Running => {
                        let claim = holder.claim(each as usize).await;
                        held = done(&claim, vec![]).pop();
                        break;
                    }
                }
            }
        }
        let all =
            (1..=INITIALS.len() as u64).flat_map(|n| (0..each).map(move |i| id(1000 * n + i)));
        let failed = "INSERT INTO throng_error (id, attempt, at, error)
            SELECT id, 1, 0, 'it has failed before' FROM throng_task;
            UPDATE throng_task SET failures = 1";
        file.connect().execute_batch(failed).unwrap();
        Self {
            file,
            clock,
            holder,
            other,
            held: held.expect("some run"),
            all: all.collect(),
        }
    }

    /// Runs all tasks, and returns how each of them has ended.
    async fn work_to_the_end(&mut self) -> BTreeMap<TaskId, Seen> {
        for _ in 0..3 {
            for worker in [&self.holder, &self.other] {
                worker.store.maintain(1000).await.unwrap();
            }
        }
        let held = Verdicts {
            epoch: self.held.epoch,
            tasks: self.held.tasks.clone(),
        };
        self.holder.sound_turn(vec![held], 0).await;
        // Claims without a live session are taken back.
        for wait in [DELAY, DELAY, DELAY, DELAY] {
            self.other.claim_all().await;
            self.clock.advance(wait);
        }
        self.other.claim_all().await;
        let mut ends = BTreeMap::new();
        for ids in self.all.chunks(200) {
            let seen = self.other.store.look(ids.to_vec()).await.unwrap();
            ends.extend(ids.iter().copied().zip(seen));
        }
        ends
    }

    /// The store does what a sound one does.
    async fn assert_sound(&mut self) {
        let store = Arc::clone(&self.other.store);
        assert!(!store.maintain(1000).await.unwrap());
        for &id in &self.all {
            let errors = store.errors(id).await;
            assert!(errors.is_ok_and(|errors| errors.len() <= 1), "{id}");
        }
        let found = store.damage();
        for n in [1, 600] {
            let new = task(90_000 + n).payload(vec![1; n as usize * 5]).0;
            self.other.sound_enqueue(new).await;
        }
        assert_eq!(self.other.claim_all().await, 2);
        store.dead(DeadFilter::all(), 10_000).await.unwrap();
        store.maintain(1000).await.unwrap();
        assert_eq!(store.damage(), found, "nothing more is found");
        let counts = store.counts().await.unwrap();
        assert_eq!((counts.waiting, counts.delayed, counts.running), (0, 0, 0));
        let ends = counts.done + counts.retried + counts.snoozed + counts.died + counts.released;
        let ends = ends + counts.crashed + counts.lost + counts.cancelled;
        assert_eq!(counts.claimed, ends, "{counts:?}");
        for (sql, count) in [("state = 4", counts.dead), ("state IN (3, 5)", counts.kept)] {
            let sql = format!("SELECT count(*) FROM throng_task WHERE {sql}");
            assert_eq!(self.file.number(&sql), count as i64);
        }
    }
}

impl Worker {
    /// A turn; in a new session if the store has lost the old one.
    async fn sound_turn(&mut self, verdicts: Vec<Verdicts>, want: usize) -> Option<super::Claim> {
        let mut request = self.request_turn(verdicts, want, false);
        loop {
            match self.store.turn(Arc::new(request.clone())).await {
                Ok(turned) => return turned.claim,
                Err(failure) => assert_eq!(failure.cause, Cause::NoSession, "{failure}"),
            }
            self.reopen().await;
            request = Turn {
                session: self.session,
                number: self.next(),
                ..request
            };
        }
    }

    async fn sound_enqueue(&mut self, task: NewTask) {
        while let Err(failure) = self.try_enqueue([task.clone()]).await {
            assert_eq!(failure.cause, Cause::NoSession, "{failure}");
            self.reopen().await;
        }
    }

    async fn reopen(&mut self) {
        self.session = self.store.open_session(TypeSet::of_tests()).await.unwrap();
    }

    /// Claims and ends all that waits. How many tasks.
    async fn claim_all(&mut self) -> usize {
        let (mut count, mut verdicts) = (0, vec![]);
        loop {
            let Some(claim) = self.sound_turn(std::mem::take(&mut verdicts), 200).await else {
                return count;
            };
            count += claim.tasks.len();
            let ends = claim.tasks.iter().map(|task| match &task.payload {
                Ok(_) => (task.id, output(task.id)),
                Err(_) => (task.id, dead(DeadReason::Damaged)),
            });
            verdicts.push(Verdicts {
                epoch: claim.epoch,
                tasks: ends.collect(),
            });
        }
    }
}

fn new_task(n: u64, initial: Initial) -> NewTask {
    let delay = if initial == Initial::Delayed {
        DELAY
    } else {
        Duration::ZERO
    };
    let payload = vec![7; if n.is_multiple_of(3) { 700 } else { 10 }];
    NewTask {
        delay,
        payload,
        retention: KEPT,
        ..task(n).0
    }
}

fn output(id: TaskId) -> Verdict {
    let len = if id.to_bytes()[15].is_multiple_of(3) {
        700
    } else {
        10
    };
    Verdict::Done(vec![8; len])
}

fn dead(reason: DeadReason) -> Verdict {
    let error = String::from("as intended");
    Verdict::Dead { reason, error }
}

fn is_damaged(seen: &Seen) -> bool {
    matches!(
        seen,
        Seen::Dead {
            reason: DeadReason::Damaged,
            ..
        }
    )
}

fn is_final(seen: &Seen) -> bool {
    matches!(seen, Seen::Done(_) | Seen::Dead { .. } | Seen::Absent)
}

// ===== Rows =====

const GARBAGE: [&str; 4] = [
    "x'00ff'",
    "CAST(x'ff' AS TEXT)",
    "-1",
    "9223372036854775807",
];

/// Garbles a column of a few rows in each way.
async fn garble(table: &str, column: &str) {
    for garbage in GARBAGE {
        let mut scene = Scene::new(4).await;
        let name = format!("{table}.{column} = {garbage}");
        let is_one = match table {
            "throng_task" => "id IN (SELECT min(id) FROM throng_now GROUP BY now)",
            _ => "true",
        };
        let sql = format!("SELECT hex(id) FROM {table} WHERE {is_one}");
        let garbled: Vec<String> = match table {
            "throng_task" => scene.file.texts(&sql),
            _ => vec![],
        };
        let rows = match table {
            "throng_line" | "throng_body" | "throng_error" => format!(
                "UPDATE OR IGNORE {table} SET {column} = {garbage}
                 WHERE id = (SELECT min(id) FROM {table})"
            ),
            _ => format!("UPDATE OR IGNORE {table} SET {column} = {garbage} WHERE {is_one}"),
        };
        // Not every value can be written into every column.
        if scene.file.connect().execute(&rows, []).unwrap_or(0) == 0 {
            continue;
        }
        let ends = scene.work_to_the_end().await;
        for (id, end) in &ends {
            let is_garbled = garbled.iter().any(|it| it.eq_ignore_ascii_case(&hex(*id)));
            // A time far away and a type that nobody knows make sense.
            let is_sense = matches!(
                (column, end),
                ("at", Seen::Delayed) | ("name" | "kind", Seen::Waiting)
            );
            assert!(is_final(end) || is_sense, "{name}: {id} {end:?}");
            let is_sound = !is_damaged(end) && *end != Seen::Absent;
            let may_be_lost = is_garbled || table == "throng_body";
            assert!(is_sound || may_be_lost, "{name}: {id} {end:?}");
        }
        if ends.values().all(is_final) {
            scene.assert_sound().await;
        }
    }
}

fn hex(id: TaskId) -> String {
    id.to_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

async fn garble_all(table: &str, but: &[&str]) {
    let file = File::new();
    drop(file.open().await);
    let columns = file.texts(&format!("SELECT name FROM pragma_table_info('{table}')"));
    for column in columns.iter().filter(|it| !but.contains(&&***it)) {
        garble(table, column).await;
    }
}

#[tokio::test]
async fn garbled_tasks_are_dead_letters_and_the_others_go_on() {
    garble_all("throng_task", &[]).await;
}

#[tokio::test]
async fn garbled_entries_of_the_line_cost_nothing() {
    garble_all("throng_line", &[]).await;
}

#[tokio::test]
async fn garbled_sessions_and_claims_cost_nothing() {
    garble_all("throng_session", &[]).await;
    garble_all("throng_claim", &[]).await;
}

#[tokio::test]
async fn garbled_payloads_and_outputs_cost_their_own_task() {
    garble_all("throng_body", &[]).await;
}

#[tokio::test]
async fn garbled_errors_cost_nothing() {
    garble_all("throng_error", &[]).await;
}

#[tokio::test]
async fn a_garbled_row_about_the_store_costs_nothing() {
    // Without these two, nobody knows what the rest means.
    garble_all("throng_meta", &["layout", "birth"]).await;
}

// ===== Pages =====

/// Overwrites a page of the file.
fn overwrite(file: &File, page: i64, random: &mut fastrand::Rng) {
    let size = file.number("PRAGMA page_size") as usize;
    let bytes: Vec<_> = std::iter::repeat_with(|| random.u8(..))
        .take(size)
        .collect();
    let opened = OpenOptions::new().write(true).open(&file.path).unwrap();
    opened
        .write_all_at(&bytes, (page as u64 - 1) * size as u64)
        .unwrap();
}

/// The pages of a tree: its root, and its leaves.
fn pages(file: &File, tree: &str) -> (i64, Vec<i64>) {
    let pages = |leaves: &str| {
        file.numbers(&format!(
            "SELECT pageno FROM dbstat WHERE name = '{tree}' AND {leaves} ORDER BY path"
        ))
    };
    (pages("path = '/'")[0], pages("pagetype = 'leaf'"))
}

/// A tree of the database, and whether one of its pages may cost tasks.
const TREES: [(&str, bool); 11] = [
    ("throng_task", true),
    ("throng_task_at", false),
    ("throng_line", false),
    ("throng_claim", false),
    ("throng_claim_session", false),
    ("throng_claim_until", false),
    ("throng_session", false),
    ("throng_session_endpoint", false),
    ("throng_body", true),
    ("sqlite_autoindex_throng_body_1", false),
    ("throng_error", false),
];

/// Overwrites a page of each tree, while the file is open or closed.
async fn overwrite_each(is_open: bool, which: impl Fn(i64, &[i64]) -> i64) {
    let mut random = fastrand::Rng::with_seed(7);
    for (tree, may_cost) in TREES {
        let mut scene = Scene::new(180).await;
        scene.checkpoint().await;
        if !is_open {
            scene.close().await;
        }
        let (root, leaves) = pages(&scene.file, tree);
        let page = which(root, &leaves);
        overwrite(&scene.file, page, &mut random);
        match is_open {
            true => scene.forget_pages().await,
            false => scene.reopen().await,
        }
        let ends = scene.work_to_the_end().await;
        let lost = ends
            .values()
            .filter(|end| is_damaged(end) || **end == Seen::Absent);
        let lost = lost.count();
        for (id, end) in &ends {
            assert!(is_final(end), "{tree}: {id} {end:?}");
        }
        assert!(may_cost || lost == 0, "{tree}: {lost} lost");
        // The rows of one page, unless that is the one which leads to all others.
        assert!(lost < 100 || page == root, "{tree}: {lost} lost");
        // An index that nobody reads may be damaged unnoticed.
        let is_named = scene.other.store.damage().is_some();
        assert!(lost == 0 || is_named, "{tree}: {lost} lost");
        scene.assert_sound().await;
    }
}

impl Scene {
    /// Everything is in the file, and nothing in its log.
    async fn checkpoint(&self) {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let moved = self.file.connect().query_row(sql, [], |row| row.get(0));
        assert_eq!(moved, Ok(0));
    }

    /// No process has the file open.
    async fn close(&self) {
        for worker in [&self.holder, &self.other] {
            worker.store.close().await.unwrap();
        }
        let folder = self.file.path.parent().unwrap();
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    }

    /// Both processes have the file open again.
    async fn reopen(&mut self) {
        for worker in [&mut self.holder, &mut self.other] {
            let store = SqliteStore::open_with(&self.file.path, self.clock.clone()).await;
            *worker = Worker::new(&Arc::new(store.unwrap())).await;
        }
    }

    /// Nobody has a page of the file in memory.
    async fn forget_pages(&self) {
        for worker in [&self.holder, &self.other] {
            worker.pragma("cache_size = 1").await;
            worker.pragma("shrink_memory").await;
            let ask = worker.store.reader.ask(|desk| {
                desk.snapshot(|db| {
                    Ok(db.execute_batch("PRAGMA cache_size = 1; PRAGMA shrink_memory")?)
                })
            });
            ask.await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_root_of_each_table_can_be_lost() {
    overwrite_each(true, |root, _| root).await;
}

#[tokio::test]
async fn the_first_page_of_each_table_can_be_lost() {
    overwrite_each(true, |_, leaves| leaves[0]).await;
}

#[tokio::test]
async fn the_last_page_of_each_table_can_be_lost() {
    overwrite_each(true, |_, leaves| leaves[leaves.len() - 1]).await;
}

#[tokio::test]
async fn a_page_in_the_middle_of_each_table_can_be_lost() {
    overwrite_each(true, |_, leaves| leaves[leaves.len() / 2]).await;
}

#[tokio::test]
async fn the_root_of_each_table_can_be_lost_while_the_file_is_closed() {
    overwrite_each(false, |root, _| root).await;
}

/// SQLite cannot remove such data: the tasks end all the same.
#[tokio::test]
async fn pages_of_large_data_cost_the_task_whose_data_it_is() {
    let mut random = fastrand::Rng::with_seed(7);
    let file = File::new();
    let mut worker = Worker::new(&file.open().await).await;
    let large = |n| NewTask {
        retention: KEPT,
        ..task(n).payload(vec![1; 20_000]).0
    };
    worker
        .enqueue([large(1), large(2), large(3), large(4)])
        .await;
    let held = worker.claim(2).await;
    let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
    assert_eq!(file.number(sql), 0);
    let pages = file.numbers(
        "SELECT max(pageno) FROM dbstat WHERE name = 'throng_body' AND pagetype = 'overflow'
         GROUP BY substr(path, 1, 5) ORDER BY path",
    );
    // The data of the second and of the third.
    for &page in &pages[1..3] {
        overwrite(&file, page - 1, &mut random);
    }
    worker.sound_turn(done(&held, vec![1]), 0).await;
    assert_eq!(worker.claim_all().await, 2);
    let seen = worker.store.look((1..=4).map(id).collect()).await.unwrap();
    assert!(seen.iter().all(is_final), "{seen:?}");
    let damaged: Vec<_> = seen.iter().map(is_damaged).collect();
    assert_eq!(damaged, [false, false, true, false]);
}

/// A repair finds nothing about it, and must still be made when it is needed.
#[tokio::test]
async fn a_page_can_be_lost_just_after_the_data_of_a_task() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut scene = Scene::new(60).await;
    let large = task(9000).payload(vec![1; 20_000]).0;
    scene.other.enqueue([large]).await;
    scene.checkpoint().await;
    let data =
        "SELECT max(pageno) FROM dbstat WHERE name = 'throng_body' AND pagetype = 'overflow'";
    let data = scene.file.number(data);
    // The last of them leads nowhere: it could be anything.
    overwrite(&scene.file, data - 1, &mut random);
    scene.forget_pages().await;
    assert_eq!(scene.other.claim_all().await, 61);
    let seen = scene.other.store.look(vec![id(9000)]).await.unwrap();
    assert!(is_damaged(&seen[0]), "{seen:?}");

    for tree in ["throng_task", "throng_claim_until", "throng_session"] {
        scene.checkpoint().await;
        let (root, _) = pages(&scene.file, tree);
        overwrite(&scene.file, root, &mut random);
        scene.forget_pages().await;
        scene.other.sound_enqueue(task(9001).0).await;
        scene.other.claim_all().await;
    }
    let ends = scene.work_to_the_end().await;
    assert!(ends.values().all(is_final), "{ends:?}");
    scene.assert_sound().await;
}

/// It is not lost if only the way to it is.
#[tokio::test]
async fn an_output_is_read_though_its_index_is_lost() {
    let mut random = fastrand::Rng::with_seed(7);
    for tree in ["throng_body", "sqlite_autoindex_throng_body_1"] {
        let scene = Scene::new(180).await;
        scene.checkpoint().await;
        let (root, _) = pages(&scene.file, tree);
        // Whoever reads next, reads it from the file.
        scene.file.sql("UPDATE throng_meta SET layout = layout");
        overwrite(&scene.file, root, &mut random);
        // These are kept, every third of them outside of its row.
        let ids: Vec<_> = (1000..1180).map(id).collect();
        let seen = scene.other.store.look(ids).await.unwrap();
        let lost = seen.iter().filter(|seen| !matches!(seen, Seen::Done(_)));
        let most = if tree == "throng_body" { 60 } else { 0 };
        assert!(lost.count() <= most, "{tree}");
        assert!(scene.other.store.damage().is_some());
    }
}

/// The names of the tables are there, and what the file is.
#[tokio::test]
async fn without_its_first_page_a_store_says_what_to_do_and_goes_on_when_it_is_back() {
    let mut random = fastrand::Rng::with_seed(7);
    let mut scene = Scene::new(20).await;
    scene.checkpoint().await;
    let copy = std::fs::read(&scene.file.path).unwrap();
    // Whoever reads next, reads it from the file.
    scene.file.sql("UPDATE throng_meta SET layout = layout");
    overwrite(&scene.file, 1, &mut random);
    let failures = [
        scene.other.try_enqueue([task(9000).0]).await.unwrap_err(),
        scene.other.try_turn(vec![], 1, true).await.unwrap_err(),
        scene.other.store.look(vec![id(1000)]).await.unwrap_err(),
        scene.other.store.maintain(100).await.unwrap_err(),
    ];
    for failure in failures {
        assert_eq!(
            (&failure.cause, failure.effect),
            (&Cause::Corrupt, Effect::None)
        );
        assert!(failure.to_string().contains("put a copy"), "{failure}");
    }
    std::fs::write(&scene.file.path, &copy).unwrap();
    let ends = scene.work_to_the_end().await;
    assert!(
        ends.values().all(|end| is_final(end) && !is_damaged(end)),
        "{ends:?}"
    );

    scene.checkpoint().await;
    scene.close().await;
    let copy = std::fs::read(&scene.file.path).unwrap();
    for page in scene
        .file
        .numbers("SELECT pageno FROM dbstat WHERE name = 'sqlite_schema'")
    {
        overwrite(&scene.file, page, &mut random);
        let error = SqliteStore::open(&scene.file.path).await.unwrap_err();
        assert!(error.is_corrupt(), "page {page}: {error}");
        assert!(
            error.to_string().contains("put a copy"),
            "page {page}: {error}"
        );
        std::fs::write(&scene.file.path, &copy).unwrap();
    }
    scene.reopen().await;
    scene.assert_sound().await;
}
