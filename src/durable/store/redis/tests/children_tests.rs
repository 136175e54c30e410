//! Children whose parents are in other partitions, and damage.

use super::super::notes;
use super::scene::Scene;
use super::*;
use crate::durable::store::{Change, ChildEnd, MAX_STEP_BYTES, StepName};

const PARTITIONS: usize = 4;
const HOUR: Duration = Duration::from_secs(3600);

fn child(number: u64, parent: u64) -> NewTask {
    NewTask {
        parent: Some(id(parent)),
        ..task(number)
    }
}

fn key(partition: usize, name: &str) -> String {
    format!("throng:{{default:{partition}}}:{name}")
}

async fn open_divided(url: &str) -> RedisStore {
    let mut builder = RedisStore::builder(url);
    builder
        .partitions(PARTITIONS)
        .open()
        .await
        .expect("the store can be opened")
}

/// Returns the number of notes of all partitions.
fn number_of_notes(server: &Server) -> i64 {
    let notes = (0..PARTITIONS).map(|partition| server.ask(&["HLEN", &key(partition, "notes")]));
    let notes = notes.map(|n| match n {
        redis::Value::Int(n) => n,
        other => panic!("{other:?}"),
    });
    notes.sum()
}

/// Claims everything, until no task is left.
async fn claim_all(worker: &Worker) -> Vec<Claim> {
    let mut claims = Vec::new();
    while let Some(claim) = worker.turn(Vec::new(), MAX_BATCH_TASKS).await.claim {
        claims.push(claim);
    }
    claims
}

/// Returns the names of the children that have ended, in order.
async fn ended_children(store: &RedisStore, parent: u64) -> Vec<String> {
    let steps = store.steps(id(parent)).await.unwrap();
    let mut names: Vec<_> = steps.into_iter().map(|step| step.name).collect();
    names.sort();
    names
}

fn names_of(numbers: impl IntoIterator<Item = u64>) -> Vec<String> {
    let names = numbers
        .into_iter()
        .map(|number| StepName::of_child(id(number)));
    let mut names: Vec<_> = names.map(|name| name.as_str().to_owned()).collect();
    names.sort();
    names
}

/// Waits until a condition holds.
async fn eventually(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let end = Instant::now() + DEADLINE;
    while !condition().await {
        assert!(Instant::now() < end, "waited in vain until {what}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn suspended(claim: &Claim, number: u64, until: u32) -> Vec<Verdicts> {
    let verdict = Verdict::Suspend {
        after: HOUR,
        until: Some(until),
        waits_for: String::new(),
    };
    vec![Verdicts {
        epoch: claim.epoch,
        tasks: vec![(id(number), verdict)],
    }]
}

/// A parent that waits for children in all partitions, which were claimed.
struct Family {
    server: Server,
    worker: Worker,
    children: Vec<Claim>,
}

/// The parent is task 1.
const CHILDREN: std::ops::RangeInclusive<u64> = 2..=41;

impl Family {
    async fn new() -> Self {
        let server = Server::start();
        let worker = Worker::new(open_divided(&server.url()).await).await;
        worker.enqueue([task(1)]).await;
        let parent = worker.claim(1).await;
        worker
            .enqueue(CHILDREN.map(|number| child(number, 1)))
            .await;
        let children = claim_all(&worker).await;
        assert_eq!(children.len(), PARTITIONS);
        let until = CHILDREN.count() as u32;
        worker.turn(suspended(&parent, 1, until), 0).await;
        Self {
            server,
            worker,
            children,
        }
    }

    fn store(&self) -> &Arc<RedisStore> {
        &self.worker.store
    }

    fn parent_partition(&self) -> usize {
        self.store().inner.partitions.of_task(id(1))
    }

    /// Ends all children, and leaves the notes as if this process had died.
    async fn end_children(&self) {
        let inner = &self.store().inner;
        for partition in 0..PARTITIONS {
            assert!(inner.relays.begin(partition), "nobody relays notes");
        }
        for claim in &self.children {
            self.worker.turn(done(claim), 0).await;
        }
        for partition in 0..PARTITIONS {
            inner.relays.end(partition, true);
        }
    }

    async fn assert_parent_runs_again(&self) {
        eventually("the parent is ready", async || {
            self.worker.turn(Vec::new(), 0).await;
            let states = self.store().status(vec![id(1)]).await.unwrap();
            states == [TaskState::Waiting]
        })
        .await;
        let claim = self.worker.claim(1).await;
        let task = &claim.tasks[0];
        assert_eq!(task.id, id(1));
        assert_eq!(task.steps as usize, CHILDREN.count());
        assert_eq!(ended_children(self.store(), 1).await, names_of(CHILDREN));
        assert_eq!(number_of_notes(&self.server), 0);
    }
}

#[tokio::test]
async fn a_parent_in_another_partition_is_told() {
    needs_redis!();
    let family = Family::new().await;
    for claim in &family.children {
        family.worker.turn(done(claim), 0).await;
    }
    eventually("no note is left", async || {
        number_of_notes(&family.server) == 0
    })
    .await;
    family.assert_parent_runs_again().await;
}

/// The worker that has ended the children dies at once.
#[tokio::test]
async fn another_worker_relays_notes_when_it_takes_a_turn() {
    needs_redis!();
    let family = Family::new().await;
    family.end_children().await;
    assert!(number_of_notes(&family.server) > 0);
    let other = Worker::new(open_divided(&family.server.url()).await).await;
    eventually("no note is left", async || {
        other.turn(Vec::new(), 0).await;
        number_of_notes(&family.server) == 0
    })
    .await;
    family.assert_parent_runs_again().await;
}

/// No worker takes a turn where the notes are.
#[tokio::test]
async fn maintenance_relays_notes() {
    needs_redis!();
    let family = Family::new().await;
    family.end_children().await;
    // It need not be the pass that repairs damage.
    family.store().maintain(100).await.unwrap();
    let other = open_divided(&family.server.url()).await;
    eventually("no note is left", async || {
        other.maintain_every(HOUR, 100).await.unwrap();
        number_of_notes(&family.server) == 0
    })
    .await;
    family.assert_parent_runs_again().await;
}

/// A process dies after the steps were stored, and before the notes are removed.
#[tokio::test]
async fn a_note_that_is_told_twice_has_no_effect() {
    needs_redis!();
    let family = Family::new().await;
    family.end_children().await;
    let notes: Vec<_> = (0..PARTITIONS)
        .map(|partition| {
            let notes = family.server.ask(&["HGETALL", &key(partition, "notes")]);
            redis::from_redis_value::<Vec<Vec<u8>>>(notes).unwrap()
        })
        .collect();
    for partition in 0..PARTITIONS {
        notes::relay_all(&family.store().inner, partition)
            .await
            .unwrap();
    }
    assert_eq!(number_of_notes(&family.server), 0);
    let client = redis::Client::open(family.server.url()).unwrap();
    let mut connection = client.get_connection().unwrap();
    for (partition, notes) in notes.iter().enumerate().filter(|it| !it.1.is_empty()) {
        let mut again = redis::cmd("HSET");
        again.arg(key(partition, "notes")).arg(notes);
        again.query::<()>(&mut connection).unwrap();
        notes::relay_all(&family.store().inner, partition)
            .await
            .unwrap();
    }
    family.assert_parent_runs_again().await;
}

/// The partition of a parent refuses all requests for a while. Parents elsewhere are told.
#[tokio::test]
async fn notes_wait_for_a_partition_that_refuses_them() {
    needs_redis!();
    let family = Family::new().await;
    let (server, parent_partition) = (&family.server, family.parent_partition());
    let elsewhere = |number: &u64| {
        let partitions = family.store().inner.partitions;
        partitions.of_task(id(*number)) != parent_partition
    };
    let other_parent = (100..).find(elsewhere).unwrap();
    family.worker.enqueue([task(other_parent)]).await;
    family.worker.claim(1).await;
    let others = 200..220;
    let of_other = others.clone().map(|number| child(number, other_parent));
    family.worker.enqueue(of_other).await;
    let of_other = claim_all(&family.worker).await;
    family.end_children().await;
    let is_away = |key: &str| format!("{key}-away");
    let alive = key(parent_partition, "alive");
    server.ask(&["RENAME", &alive, &is_away(&alive)]);
    server.ask(&["SET", &alive, "x"]);
    for claim in &of_other {
        let partitions = family.store().inner.partitions;
        if partitions.of_claim(claim.epoch) != parent_partition {
            family.worker.turn(done(claim), 0).await;
        }
    }
    let expected = names_of(others.filter(elsewhere));
    eventually("the other parent is told", async || {
        for partition in (0..PARTITIONS).filter(|&partition| partition != parent_partition) {
            let relayed = notes::relay_all(&family.store().inner, partition).await;
            relayed.err();
        }
        ended_children(family.store(), other_parent).await == expected
    })
    .await;
    assert!(number_of_notes(server) > 0);
    server.ask(&["RENAME", &is_away(&alive), &alive]);
    eventually("no note is left", async || {
        family.worker.turn(Vec::new(), 0).await;
        number_of_notes(server) == 0
    })
    .await;
    assert_eq!(ended_children(family.store(), 1).await, names_of(CHILDREN));
}

/// The results of the children are not kept, and the notes are not relayed yet.
#[tokio::test]
async fn a_child_is_not_absent_while_there_is_a_note_of_its_end() {
    needs_redis!();
    let family = Family::new().await;
    let large = vec![7; MAX_STEP_BYTES];
    let end = |number: u64| match number % 4 {
        0 => Verdict::Done(b"out".to_vec()),
        1 => Verdict::Dead {
            reason: DeadReason::Attempts,
            error: String::from("why"),
            took: None,
        },
        2 => Verdict::Release,
        _ => Verdict::Done(large.clone()),
    };
    let away = |number: &u64| {
        let partitions = family.store().inner.partitions;
        partitions.of_task(id(*number)) != family.parent_partition()
    };
    let cancelled = CHILDREN.filter(|number| number % 4 == 2);
    let inner = &family.store().inner;
    for partition in 0..PARTITIONS {
        assert!(inner.relays.begin(partition), "nobody relays notes");
    }
    let cancelled = family.store().cancel(cancelled.map(id).collect());
    cancelled.await.unwrap();
    for claim in &family.children {
        let number = |id: TaskId| {
            let mut numbers = CHILDREN;
            numbers.find(|&it| super::id(it) == id).unwrap()
        };
        let tasks = claim
            .tasks
            .iter()
            .map(|task| (task.id, end(number(task.id))));
        let verdicts = Verdicts {
            epoch: claim.epoch,
            tasks: tasks.collect(),
        };
        family.worker.turn(vec![verdicts], 0).await;
    }
    for partition in 0..PARTITIONS {
        for name in ["results", "dead", "died"] {
            family.server.ask(&["DEL", &key(partition, name)]);
        }
    }
    for number in CHILDREN.filter(away) {
        let expected = match number % 4 {
            0 => TaskState::Done(b"out".to_vec()),
            1 => TaskState::Dead {
                reason: DeadReason::Attempts,
                error: String::from("why"),
            },
            2 => TaskState::Cancelled,
            // Its output is too large for a note.
            _ => TaskState::Running,
        };
        let states = family.store().status(vec![id(number)]).await.unwrap();
        assert_eq!(states, [expected], "{number}");
    }
    for partition in 0..PARTITIONS {
        inner.relays.end(partition, true);
    }
    // The end of a child of the same partition is a step at once.
    let beside_parent = CHILDREN.filter(|number| !away(number));
    let states = family
        .store()
        .status(beside_parent.map(id).collect())
        .await
        .unwrap();
    assert!(!states.is_empty());
    assert!(states.iter().all(|state| *state == TaskState::Absent));
}

#[tokio::test]
async fn notes_for_parents_that_have_ended_are_removed() {
    needs_redis!();
    let family = Family::new().await;
    family.store().cancel(vec![id(1)]).await.unwrap();
    for claim in &family.children {
        family.worker.turn(done(claim), 0).await;
    }
    eventually("no note is left", async || {
        number_of_notes(&family.server) == 0
    })
    .await;
    assert_eq!(ended_children(family.store(), 1).await, [""; 0]);
}

/// A client cancels the children. A worker that is woken relays the notes.
#[tokio::test]
async fn a_worker_is_woken_for_notes() {
    needs_redis!();
    let family = Family::new().await;
    for claim in &family.children {
        family
            .worker
            .turn(verdicts(claim, || Verdict::Release), 0)
            .await;
    }
    let other = open_divided(&family.server.url()).await;
    let idle = Worker::of_names(
        &Arc::new(open_divided(&family.server.url()).await),
        &["other"],
    )
    .await;
    let mut events = idle.store.events();
    assert_eq!(idle.turn(Vec::new(), 1).await.claim, None);
    other.cancel(CHILDREN.map(id).collect()).await.unwrap();
    until(&mut events, &Event::Wake(None)).await;
    eventually("no note is left", async || {
        idle.turn(Vec::new(), 1).await;
        number_of_notes(&family.server) == 0
    })
    .await;
    family.assert_parent_runs_again().await;
}

#[tokio::test]
async fn children_are_beside_their_parents() {
    needs_redis!();
    let server = Server::start();
    let store = open_divided(&server.url()).await;
    let partitions = store.inner.partitions;
    let of_parent = partitions.of_task(id(1));
    let queue = (0..).map(|number| queue_name(&format!("q{number}")));
    let partition_of = |queue: &QueueName| partitions.of_queue_or_key(queue, None).unwrap();
    let queue = queue
        .into_iter()
        .find(|queue| partition_of(queue) != of_parent);
    let queue = queue.unwrap();
    for (queue, expected) in [
        (QueueName::DEFAULT, of_parent),
        (queue.clone(), partition_of(&queue)),
    ] {
        for number in 2..100 {
            let suits = store.suits_parent(id(number), &queue, id(1));
            assert_eq!(suits, partitions.of_task(id(number)) == expected);
        }
    }
}

// ===== Damage =====

/// Claims a parent, task 1, and children, tasks 2 and 3.
async fn damaged_family(scene: &Scene) -> (Claim, Claim) {
    scene.worker.enqueue([task(1)]).await;
    let parent = scene.worker.claim(1).await;
    scene.worker.enqueue([child(2, 1), child(3, 1)]).await;
    let children = scene.worker.claim(2).await;
    (parent, children)
}

#[tokio::test]
async fn maintenance_removes_notes_that_cannot_be_read() {
    needs_redis!();
    let scene = Scene::new().await;
    let (parent, children) = damaged_family(&scene).await;
    scene.run(
        "call('HSET', 'notes', id(2), 'x', 'y', id(1) .. 'c', id(3), id(1), id(4), id(99) .. 'c', id(5), id(1) .. 'c')",
    );
    eventually("only sound notes are told", async || {
        scene.maintain().await;
        scene.run("return call('EXISTS', 'notes')") == redis::Value::Int(0)
    })
    .await;
    assert!(scene.worker.store.damage().is_some());
    assert_eq!(ended_children(&scene.worker.store, 1).await, names_of([5]));
    scene.worker.turn(done(&children), 0).await;
    assert_eq!(
        ended_children(&scene.worker.store, 1).await,
        names_of([2, 3, 5])
    );
    scene.worker.turn(done(&parent), 0).await;
    scene.check();
}

/// The steps of one parent are a value of another type. Maintenance removes it.
#[tokio::test]
async fn a_damaged_parent_holds_up_no_other() {
    needs_redis!();
    for row in ["", "call('HSET', 'steps', id(1), '\\0\\0\\0\\1')"] {
        let scene = Scene::new().await;
        scene.worker.enqueue([task(1), task(2)]).await;
        scene.worker.claim(2).await;
        scene.worker.enqueue([child(3, 1), child(4, 2)]).await;
        let children = scene.worker.claim(2).await;
        scene.run(&format!("call('SET', 'steps:' .. id(1), 'x') {row}"));
        scene.worker.turn(done(&children), 0).await;
        assert_eq!(ended_children(&scene.worker.store, 2).await, names_of([4]));
        let relayed = notes::relay_all(&scene.worker.store.inner, 0).await;
        relayed.expect("one parent is not told");
        assert_eq!(
            scene.run("return call('HLEN', 'notes')"),
            redis::Value::Int(1)
        );
        eventually("the note is told", async || {
            scene.maintain().await;
            scene.run("return call('EXISTS', 'notes')") == redis::Value::Int(0)
        })
        .await;
        assert!(scene.worker.store.damage().is_some());
        // No run repeats what is lost.
        let failure = scene.worker.store.steps(id(1)).await.unwrap_err();
        assert_eq!(failure.cause, Cause::Corrupt);
    }
}

#[tokio::test]
async fn notes_are_relayed_on_a_full_server() {
    needs_redis!();
    let server = Server::start();
    let worker = Worker::new(open(&server.url()).await).await;
    worker.enqueue([task(1)]).await;
    let parent = worker.claim(1).await;
    worker.turn(suspended(&parent, 1, 1), 0).await;
    let note = "redis.call('HSET', KEYS[1], 'steps', 2)
        local function id(n) return string.rep('\\0', 15) .. string.char(n) end
        redis.call('HSET', KEYS[2], id(2), id(1) .. 'c')";
    let (meta, notes) = ("throng:{default:0}:meta", "throng:{default:0}:notes");
    server.ask(&["EVAL", note, "2", meta, notes]);
    server.ask(&["CONFIG", "SET", "maxmemory", "1"]);
    notes::relay_all(&worker.store.inner, 0).await.unwrap();
    assert_eq!(ended_children(&worker.store, 1).await, names_of([2]));
    assert_eq!(server.ask(&["EXISTS", notes]), redis::Value::Int(0));
}

/// The parent finds out when it runs again, at the latest after some hours.
#[tokio::test]
async fn a_child_whose_entry_has_no_sound_parent_ends_alone() {
    needs_redis!();
    for damage in [
        // The parent is another task, which does not exist.
        "string.sub(entry, 1, 78) .. string.rep('\\7', 16) .. string.sub(entry, 95)",
        // The extension is too short for a parent.
        "string.sub(entry, 1, 75) .. '\\0\\1\\8' .. string.sub(entry, 95)",
        // The extension claims to be longer than the entry.
        "string.sub(entry, 1, 75) .. '\\255\\255\\8' .. string.sub(entry, 79)",
        "string.sub(entry, 1, 78)",
    ] {
        let scene = Scene::new().await;
        let (parent, children) = damaged_family(&scene).await;
        scene.run(&format!(
            "local entry = call('HGET', 'running', id(2)) call('HSET', 'running', id(2), {damage})"
        ));
        let turned = scene.worker.turn(done(&children), 0).await;
        assert_eq!(turned.refused, [], "{damage}");
        assert_eq!(
            ended_children(&scene.worker.store, 1).await,
            names_of([3]),
            "{damage}"
        );
        scene.worker.turn(done(&parent), 0).await;
        scene.maintain().await;
        scene.check();
    }
}

#[tokio::test]
async fn a_waiting_child_whose_row_has_no_sound_parent_is_cancelled_alone() {
    needs_redis!();
    for damage in [
        "string.sub(row, 1, 38)",
        "string.sub(row, 1, 39)",
        "string.sub(row, 1, 50)",
        "string.sub(row, 1, 39) .. string.rep('\\7', 16)",
        "string.sub(row, 1, 3)",
    ] {
        let scene = Scene::new().await;
        scene.worker.enqueue([task(1)]).await;
        scene.worker.claim(1).await;
        scene.worker.enqueue([child(2, 1), child(3, 1)]).await;
        scene.run(&format!(
            "local row = call('HGET', 'alive', id(2)) call('HSET', 'alive', id(2), {damage})"
        ));
        let cancelled = scene.worker.store.cancel(vec![id(2), id(3)]).await;
        assert_eq!(cancelled.unwrap(), 2, "{damage}");
        assert_eq!(
            ended_children(&scene.worker.store, 1).await,
            names_of([3]),
            "{damage}"
        );
    }
}

/// A child of which a part is lost ends, and its parent is told.
#[tokio::test]
async fn the_parent_of_a_damaged_child_is_told() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1)]).await;
    let parent = scene.worker.claim(1).await;
    let later = NewTask {
        delay: Duration::from_secs(1),
        ..child(2, 1)
    };
    scene.worker.enqueue([later]).await;
    scene.worker.turn(suspended(&parent, 1, 1), 0).await;
    scene.run("call('HDEL', 'delayed', id(2))");
    scene.clock.advance(Duration::from_secs(1));
    eventually("the parent is ready", async || {
        scene.worker.turn(Vec::new(), 0).await;
        scene.status_of(1).await == TaskState::Waiting
    })
    .await;
    let steps = scene.worker.store.steps(id(1)).await.unwrap();
    let end = ChildEnd::decode(&steps[0].value);
    assert!(
        matches!(
            end,
            Some(ChildEnd::Ended(TaskState::Dead {
                reason: DeadReason::Damaged,
                ..
            }))
        ),
        "{end:?}"
    );
    scene.check();
}

/// A child that moves to another queue keeps its parent.
#[tokio::test]
async fn a_child_that_was_moved_has_its_parent() {
    needs_redis!();
    let scene = Scene::new().await;
    scene.worker.enqueue([task(1)]).await;
    scene.worker.claim(1).await;
    let in_group = NewTask {
        parent: Some(id(1)),
        ..grouped(4, "q", "g")
    };
    let later = NewTask {
        delay: HOUR,
        ..child(3, 1)
    };
    scene.worker.enqueue([child(2, 1), later, in_group]).await;
    let ids = vec![id(2), id(3), id(4)];
    for queue in ["other", "q", ""] {
        let queue = QueueName::new(queue).unwrap_or_default();
        let moved = scene
            .worker
            .store
            .change(ids.clone(), Change::MoveTo(queue))
            .await;
        moved.unwrap();
        scene.check();
    }
    assert_eq!(scene.worker.store.cancel(ids).await.unwrap(), 3);
    assert_eq!(
        ended_children(&scene.worker.store, 1).await,
        names_of([2, 3, 4])
    );
}
