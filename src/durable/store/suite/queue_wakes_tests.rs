//! Wake-ups of the sessions of a queue: each step that lets a task of the queue start wakes an idle session.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;

use super::Harness;
use super::process::*;
use crate::durable::queue::{QueueSettings, Rate};
use crate::durable::store::{NewTask, TaskState, Verdict};

/// The tasks that show that no wake-up came before an event: each one ends at a time that the case chooses.
const SENTINELS: std::ops::Range<u64> = 1_000..1_010;

/// The tasks whose ends show that all earlier events have arrived.
const BARRIERS: std::ops::Range<u64> = 2_000..2_040;

/// A process with a session of the queue `q`, and its events.
pub(super) struct Idle<'a> {
    process: &'a Process,
    pub(super) session: Session<'a>,
    pub(super) events: Events,
}

impl<'a> Idle<'a> {
    /// Opens a session that finds nothing to start, and is idle.
    pub(super) async fn of(process: &'a Process) -> Self {
        Self::with(process, process.session_in("q").await).await
    }

    pub(super) async fn with(process: &'a Process, session: Session<'a>) -> Self {
        let events = process.events();
        process.status(SENTINELS).await;
        let mut idle = Self {
            process,
            session,
            events,
        };
        idle.session.rest().await;
        idle.events.drain();
        idle
    }

    /// Is idle again. Earlier events, which may still be on their way, must not wake it.
    pub(super) async fn rest(&mut self, other: &Process) {
        self.session.rest().await;
        for barrier in BARRIERS {
            self.process.status([barrier]).await;
            if other.cancel([barrier]).await == 1 {
                return self.events.ended(barrier).await;
            }
        }
        panic!("no barrier is left");
    }

    /// Is woken, and claims this task.
    pub(super) async fn starts(&mut self, number: u64) {
        self.events.woken().await;
        assert_eq!(ids(&self.session.claim(1).await), [id(number)]);
    }

    /// Is not woken by what has happened so far.
    pub(super) async fn sleeps(&mut self, other: &Process, sentinel: u64) {
        assert_eq!(other.cancel([sentinel]).await, 1);
        self.events.ended_without_wake(sentinel).await;
    }
}

/// Waits until one of two sessions is woken. Returns it, and then the other one.
pub(super) async fn woken_first<'a, 'b>(
    one: &'b mut Idle<'a>,
    other: &'b mut Idle<'a>,
) -> (&'b mut Idle<'a>, &'b mut Idle<'a>) {
    let is_one = tokio::select! {
        () = one.events.woken() => true,
        () = other.events.woken() => false,
    };
    if is_one { (one, other) } else { (other, one) }
}

/// Stores the sentinels and the barriers.
pub(super) async fn prepare(process: &Process) -> Session<'_> {
    let mut session = process.session().await;
    let late = SENTINELS.chain(BARRIERS);
    session
        .enqueue(late.map(|number| delayed(number, 1_000 * HOUR)))
        .await;
    session
}

pub async fn a_new_task_wakes_a_session_of_its_queue(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    let mut other = Idle::with(&three, three.session_in("r").await).await;
    let mut idle = Idle::of(&two).await;
    for number in 1..5 {
        other.rest(&one).await;
        producer.enqueue([queued(number)]).await;
        idle.starts(number).await;
        idle.session.rest().await;
        producer.enqueue([in_queue("r", task(100 + number))]).await;
        other.starts(100 + number).await;
        idle.rest(&one).await;
    }
}

pub async fn a_new_task_wakes_nobody_while_its_queue_is_full(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    one.set_queue("q", max_running(1)).await;
    let mut busy = three.session_in("q").await;
    let mut idle = Idle::of(&two).await;
    producer.enqueue([queued(1)]).await;
    let epoch = busy.claim(1).await.epoch;
    idle.rest(&one).await;
    producer.enqueue((2..9).map(queued)).await;
    idle.sleeps(&one, 1_000).await;
    // A turn that leaves these tasks wakes nobody either.
    assert_eq!(busy.turn(wanting(1)).await.claim, None);
    assert_eq!(busy.turn(wanting(0)).await.claim, None);
    idle.sleeps(&one, 1_001).await;
    producer.turn(wanting(0).verdict(epoch, 1, done())).await;
    idle.starts(2).await;
}

pub async fn a_new_task_wakes_nobody_while_its_queue_is_paused(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    one.pause_queue("q").await;
    let mut default = Idle::with(&three, three.session().await).await;
    let mut idle = Idle::of(&two).await;
    producer.enqueue((1..9).map(queued)).await;
    idle.sleeps(&one, 1_000).await;
    // Other queues are not paused.
    default.rest(&one).await;
    producer.enqueue([task(9)]).await;
    default.starts(9).await;
    one.resume_queue("q").await;
    idle.starts(1).await;
}

/// A session of another queue reports the end, or one that wants no more tasks.
pub async fn a_freed_permit_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    let mut busy = one.session_in("q").await;
    one.set_queue("q", max_running(1)).await;
    let mut idle = Idle::of(&two).await;
    let snooze = Verdict::Snooze { after: HOUR };
    let verdicts = [done(), retry(HOUR), snooze, dead(), Verdict::Release];
    for is_own in [true, false] {
        for (round, verdict) in (0..).zip(verdicts.clone()) {
            let number = 100 * u64::from(is_own) + 10 * round;
            let is_release = verdict == Verdict::Release;
            default.enqueue([queued(number)]).await;
            let epoch = busy.claim(9).await.epoch;
            default.enqueue([queued(number + 1)]).await;
            idle.rest(&one).await;
            match is_own {
                true => busy.report(epoch, number, verdict).await,
                false => default.report(epoch, number, verdict).await,
            }
            let next = number + u64::from(!is_release);
            idle.events.woken().await;
            let claim = idle.session.claim(9).await;
            assert_eq!(ids(&claim), [id(next)]);
            idle.session.report(claim.epoch, next, done()).await;
            one.cancel([number, number + 1]).await;
        }
    }
}

pub async fn a_cancelled_run_that_ends_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    let mut busy = one.session_in("q").await;
    one.set_queue("q", max_running(1)).await;
    let mut idle = Idle::of(&two).await;
    default.enqueue([queued(1), queued(2)]).await;
    let epoch = busy.claim(9).await.epoch;
    idle.rest(&one).await;
    assert_eq!(one.cancel([1]).await, 1);
    idle.sleeps(&one, 1_000).await;
    default.report(epoch, 1, Verdict::Release).await;
    idle.starts(2).await;
}

pub async fn a_raised_limit_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut busy = prepare(&one).await;
    let mut q = one.session_in("q").await;
    one.set_queue("q", max_running(2)).await;
    let mut idle = Idle::of(&two).await;
    busy.enqueue((1..=9).map(queued)).await;
    q.claim(9).await;
    idle.rest(&one).await;
    assert!(one.set_queue("q", max_running(1)).await);
    assert!(one.set_queue("q", max_running(2)).await);
    idle.sleeps(&one, 1_000).await;
    one.set_queue("q", max_running(3)).await;
    idle.starts(3).await;
    idle.rest(&one).await;
    one.set_queue("q", QueueSettings::new()).await;
    idle.starts(4).await;
}

/// A turn starts one task of several that may start, and leaves the others.
pub async fn a_turn_that_leaves_tasks_and_room_wakes_another(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    one.pause_queue("q").await;
    one.set_queue("q", max_running(2)).await;
    let mut first = Idle::of(&two).await;
    let mut second = Idle::of(&three).await;
    first.rest(&one).await;
    producer.enqueue((1..=4).map(queued)).await;
    one.resume_queue("q").await;
    let (woken, other) = woken_first(&mut first, &mut second).await;
    assert_eq!(ids(&woken.session.claim(1).await), [id(1)]);
    other.starts(2).await;
}

/// One session knows the first task that waits, and another one knows only a later one.
pub async fn a_freed_permit_wakes_a_session_of_each_type(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    let typed = |number| in_queue("q", typed(number));
    // While no session knows the first task.
    one.pause_queue("q").await;
    let mut odd = Idle::with(&two, two.session_of_in(&["odd"], "q").await).await;
    producer.enqueue([typed(2), typed(3)]).await;
    one.resume_queue("q").await;
    odd.starts(3).await;
    // While one does.
    one.pause_queue("q").await;
    let mut even = Idle::with(&three, three.session_of_in(&["even"], "q").await).await;
    producer.enqueue([typed(5)]).await;
    odd.rest(&one).await;
    one.resume_queue("q").await;
    even.starts(2).await;
    odd.starts(5).await;
}

/// The worker that reports the ends can run none of the tasks that wait.
pub async fn verdicts_of_a_worker_wake_workers_of_other_types(it: &dyn Harness) {
    let [one, two, three] = [(); 3].map(|()| Process::of(it));
    one.set_queue("q", max_running(2)).await;
    let mut worker = one.session_of_in(&["job"], "q").await;
    worker.enqueue([queued(1), queued(2)]).await;
    let epoch = worker.claim(2).await.epoch;
    let mut even = Idle::with(&two, two.session_of_in(&["even"], "q").await).await;
    let mut odd = Idle::with(&three, three.session_of_in(&["odd"], "q").await).await;
    worker
        .enqueue([4, 5].map(|number| in_queue("q", typed(number))))
        .await;
    let ends = wanting(1)
        .verdict(epoch, 1, done())
        .verdict(epoch, 2, done());
    assert_eq!(worker.turn(ends).await.claim, None);
    even.starts(4).await;
    odd.starts(5).await;
}

pub async fn a_dead_worker_wakes_a_session(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut producer = prepare(&two).await;
    two.set_queue("q", max_running(1)).await;
    let mut busy = one.session_in("q").await;
    producer.enqueue([queued(1), queued(2)]).await;
    busy.claim(1).await;
    let mut idle = Idle::of(&three).await;
    one.kill(it);
    // If the store does not report a death, the session of another queue finds it.
    producer.turn(wanting(0)).await;
    idle.starts(1).await;
}

pub async fn a_claim_that_is_taken_back_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    one.set_queue("q", max_running(1)).await;
    let mut busy = one.session_in("q").await;
    default.enqueue([queued(1), queued(2)]).await;
    busy.claim(1).await;
    let mut idle = Idle::of(&two).await;
    // Its next turns are the last ones that find nothing.
    it.clock().advance(LEASE);
    default.turn(wanting(0)).await;
    idle.rest(&one).await;
    it.clock().advance(LEASE / 3 - Duration::from_millis(1));
    idle.rest(&one).await;
    it.clock().advance(Duration::from_millis(1));
    idle.events.drain();
    default.turn(wanting(0)).await;
    idle.starts(1).await;
}

/// No task returns to the queue, but its permit does.
pub async fn a_task_that_ends_with_its_worker_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    one.set_queue("q", max_running(1)).await;
    let mut busy = one.session_in("q").await;
    let fragile = NewTask {
        max_crashes: 0,
        ..queued(1)
    };
    default.enqueue([fragile, queued(2), queued(3)]).await;
    let mut epoch = busy.claim(1).await.epoch;
    let mut idle = Idle::of(&two).await;
    for number in [1, 2] {
        one.renew([epoch]).await;
        if number == 2 {
            one.cancel([number]).await;
        }
        it.clock().advance(LEASE);
        default.turn(wanting(0)).await;
        idle.rest(&one).await;
        it.clock().advance(LEASE / 3);
        idle.events.drain();
        default.turn(wanting(0)).await;
        idle.events.woken().await;
        if number == 1 {
            epoch = busy.claim(1).await.epoch;
        }
    }
    assert_eq!(ids(&idle.session.claim(1).await), [id(3)]);
    assert_eq!(one.status_of(2).await, TaskState::Cancelled);
}

pub async fn a_closed_session_wakes_a_session(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    one.set_queue("q", max_running(1)).await;
    let mut busy = one.session_in("q").await;
    default.enqueue([queued(1), queued(2)]).await;
    busy.claim(1).await;
    let mut idle = Idle::of(&two).await;
    busy.close().await;
    idle.starts(1).await;
}

/// A session of another queue makes it due.
pub async fn a_due_task_wakes_a_session_of_its_queue(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    default.enqueue([in_queue("q", delayed(1, SECOND))]).await;
    let mut idle = Idle::of(&two).await;
    it.clock().advance(SECOND);
    idle.events.drain();
    default.turn(wanting(9)).await;
    idle.starts(1).await;
}

/// The queue of the session has no room yet, and no message says when it has. So the session must find out how long that takes.
pub async fn a_session_that_must_wait_for_the_rate_is_woken(it: &dyn Harness) {
    let (one, two) = (Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    let rate = Rate::every(HOUR).burst(2);
    let settings = max_running(2).rate(rate);
    one.set_queue("q", settings).await;
    let mut busy = one.session_in("q").await;
    default.enqueue([queued(1), queued(2)]).await;
    let epoch = busy.claim(9).await.epoch;
    let mut idle = Idle::of(&two).await;
    let waits = async |idle: &mut Idle<'_>| {
        idle.events.woken().await;
        let turned = idle.session.turn(wanting(9).go_idle()).await;
        assert_eq!((turned.claim, turned.more), (None, false));
        let next = turned.next.expect("the rate lets a task start later");
        assert!(next < LEASE, "{next:?}");
        idle.rest(&one).await;
    };
    // A new task.
    let short = max_running(9).rate(Rate::every(SECOND).burst(2));
    one.set_queue("q", short).await;
    idle.rest(&one).await;
    default.enqueue([queued(3)]).await;
    waits(&mut idle).await;
    // A shorter interval.
    let long = max_running(9).rate(Rate::every(10 * SECOND));
    one.set_queue("q", long).await;
    idle.rest(&one).await;
    one.set_queue("q", short).await;
    waits(&mut idle).await;
    // The end of a pause.
    one.pause_queue("q").await;
    idle.rest(&one).await;
    one.resume_queue("q").await;
    waits(&mut idle).await;
    // A higher limit, and a permit that is free.
    one.set_queue("q", short.max_running(2)).await;
    idle.rest(&one).await;
    default.report(epoch, 1, done()).await;
    waits(&mut idle).await;
    it.clock().advance(SECOND);
    idle.starts(3).await;
}

/// A worker that has no free permit makes no turn when the rate lets a task start.
pub async fn a_full_worker_has_another_one_wait_for_the_rate(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut default = prepare(&one).await;
    let settings = max_running(2).rate(Rate::every(SECOND).burst(3));
    one.set_queue("q", settings).await;
    default.enqueue((1..=4).map(queued)).await;
    let mut busy = one.session_in("q").await;
    let epoch = busy.claim(2).await.epoch;
    let mut first = Idle::of(&two).await;
    let mut second = Idle::of(&three).await;
    // Permits that another queue's session gives back wake one session.
    let ends = wanting(0)
        .verdict(epoch, 1, done())
        .verdict(epoch, 2, done());
    default.turn(ends).await;
    let (full, other) = woken_first(&mut first, &mut second).await;
    assert_eq!(ids(&full.session.claim(1).await), [id(3)]);
    other.events.woken().await;
    let turned = other.session.turn(wanting(1).go_idle()).await;
    assert_eq!(turned.claim, None);
    // A store may have the worker check earlier, whether another process has died.
    assert!(turned.next.is_some_and(|next| next <= SECOND));
    it.clock().advance(SECOND);
    other.starts(4).await;
}

pub async fn a_resumed_type_wakes_a_session_of_each_queue(it: &dyn Harness) {
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    let mut producer = prepare(&one).await;
    let mut q = Idle::of(&two).await;
    let mut r = Idle::with(&three, three.session_in("r").await).await;
    one.pause("odd").await;
    let queues = ["q", "r"].into_iter().zip([1, 3]);
    producer
        .enqueue(queues.map(|(queue, number)| in_queue(queue, typed(number))))
        .await;
    for idle in [&mut q, &mut r] {
        idle.rest(&one).await;
    }
    q.sleeps(&one, 1_000).await;
    one.resume("odd").await;
    q.starts(1).await;
    r.starts(3).await;
}

/// Workers of two queues run as fast as they can. An idle worker waits for a wake-up, so it needs one for every permit that
/// is freed between its turn and its wait.
pub async fn no_wake_up_of_a_limited_queue_is_lost(it: &dyn Harness) {
    const TASKS: u64 = 60;
    const LIMIT: usize = 2;
    let (one, two, three) = (Process::of(it), Process::of(it), Process::of(it));
    one.set_queue("q", max_running(LIMIT as u32)).await;
    let (running, ended, finished) = (Cell::new(0), Cell::new(0), Notify::new());
    let store = async {
        let mut session = one.session().await;
        for number in 0..TASKS {
            let task = NewTask {
                retention: Duration::ZERO,
                ..queued(number)
            };
            session.enqueue([task]).await;
            for _ in 0..number % 5 {
                tokio::task::yield_now().await;
            }
        }
    };
    let work = async |process: &Process, want: usize| {
        let mut events = process.events();
        let mut session = process.session_in("q").await;
        while ended.get() < TASKS {
            let turned = session.turn(wanting(want).go_idle()).await;
            let Some(claim) = turned.claim else {
                if !turned.more && turned.next != Some(Duration::ZERO) {
                    tokio::select! {
                        () = events.woken() => {}
                        () = finished.notified() => {}
                    }
                }
                continue;
            };
            running.set(running.get() + claim.tasks.len());
            assert!(running.get() <= LIMIT, "{} run", running.get());
            tokio::task::yield_now().await;
            running.set(running.get() - claim.tasks.len());
            let done = ids(&claim).into_iter().map(|id| (id, done()));
            let turn = wanting(0).verdicts(claim.epoch, done.collect());
            session.turn(turn).await;
            ended.set(ended.get() + claim.tasks.len() as u64);
        }
        finished.notify_one();
    };
    tokio::join!(store, work(&two, 1), work(&three, 3));
}
