//! Each test has a timer of its own, whose thread stays until the process exits.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::{Duration, Instant};

use super::{NextAction, Tick, Timer, TimerHeap};

/// The time that a test waits for an event.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Longer than any test.
const FAR: Duration = Duration::from_secs(3600);

/// A tick that calls a closure.
struct OnTick<F>(Mutex<F>);

impl<F: FnMut(Instant) -> Option<Instant> + Send + 'static> Tick for OnTick<F> {
    fn tick(&self, now: Instant) -> Option<Instant> {
        (self.0.lock().unwrap())(now)
    }
}

fn on_tick<F>(call: F) -> Arc<dyn Tick>
where
    F: FnMut(Instant) -> Option<Instant> + Send + 'static,
{
    Arc::new(OnTick(Mutex::new(call)))
}

/// A tick that sends a value when it is called, and is not called again.
fn sends<T: Clone + Send + 'static>(sender: &Sender<T>, value: T) -> Arc<dyn Tick> {
    let sender = sender.clone();
    on_tick(move |_| {
        sender.send(value.clone()).unwrap();
        None
    })
}

#[track_caller]
fn receive<T>(receiver: &Receiver<T>) -> T {
    receiver
        .recv_timeout(TEST_TIMEOUT)
        .expect("a message comes")
}

#[track_caller]
fn assert_nothing<T: Debug>(receiver: &Receiver<T>) {
    let come: Vec<T> = receiver.try_iter().collect();
    assert!(come.is_empty(), "{come:?}");
}

impl Timer {
    #[track_caller]
    fn arm_at(&'static self, at: Instant, tick: &Arc<dyn Tick>) {
        self.arm(at, Arc::downgrade(tick)).unwrap();
    }

    /// Keeps the timer busy until the sender is used or dropped.
    #[track_caller]
    fn hold(&'static self) -> Sender<()> {
        let (release, released) = channel::<()>();
        let (entered, has_entered) = channel();
        let holds = on_tick(move |_| {
            entered.send(()).unwrap();
            released.recv_timeout(TEST_TIMEOUT).ok();
            None
        });
        self.arm_at(Instant::now(), &holds);
        receive(&has_entered);
        release
    }

    /// Waits until the timer has called all ticks that were due before.
    #[track_caller]
    fn catch_up(&'static self) {
        let (sender, receiver) = channel();
        let last = sends(&sender, ());
        self.arm_at(Instant::now(), &last);
        receive(&receiver);
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().heap.len()
    }
}

#[test]
fn ticks_that_are_due_are_called_by_time() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let release = TIMER.hold();
    let (sender, receiver) = channel();
    let base = Instant::now();
    let ticks: Vec<_> = [3, 0, 4, 1, 2]
        .map(|n| (n, sends(&sender, n)))
        .into_iter()
        .collect();
    for (n, tick) in &ticks {
        TIMER.arm_at(base + Duration::from_millis(*n), tick);
    }
    drop(release);
    let order = [(); 5].map(|()| receive(&receiver));
    assert_eq!(order, [0, 1, 2, 3, 4]);
}

#[test]
fn no_tick_is_called_before_its_time() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let tick = on_tick(move |now| {
        sender.send((now, Instant::now())).unwrap();
        None
    });
    for millis in [0, 1, 20] {
        let at = Instant::now() + Duration::from_millis(millis);
        TIMER.arm_at(at, &tick);
        let (now, clock) = receive(&receiver);
        assert!(at <= now && now <= clock);
    }
}

#[test]
fn a_tick_is_called_again_at_the_time_it_returns() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let mut left = 5;
    let tick = on_tick(move |now| {
        left -= 1;
        let again = now + Duration::from_millis(3);
        sender.send((now, again)).unwrap();
        (left > 0).then_some(again)
    });
    TIMER.arm_at(Instant::now(), &tick);
    let mut due = Instant::now();
    for n in 0..5 {
        let (now, again) = receive(&receiver);
        assert!(n == 0 || now >= due);
        due = again;
    }
    TIMER.catch_up();
    assert_eq!(TIMER.len(), 0);
    // It can be armed again.
    assert_nothing(&receiver);
    TIMER.arm_at(Instant::now(), &tick);
    receive(&receiver);
}

#[test]
fn a_tick_that_is_always_due_does_not_starve_others() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let past = Instant::now();
    let greedy = on_tick(move |_| Some(past));
    TIMER.arm_at(past, &greedy);
    for _ in 0..100 {
        TIMER.catch_up();
    }
    drop(greedy);
    TIMER.catch_up();
}

#[test]
fn an_earlier_tick_that_is_added_later_wakes_the_timer() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let [far, near, now] = ["far", "near", "now"].map(|name| sends(&sender, name));
    TIMER.arm_at(Instant::now() + FAR, &far);
    TIMER.arm_at(Instant::now() + Duration::from_millis(5), &near);
    assert_eq!(receive(&receiver), "near");
    TIMER.arm_at(Instant::now(), &now);
    assert_eq!(receive(&receiver), "now");
    assert_eq!(TIMER.len(), 1);
}

#[test]
fn only_the_earliest_tick_wakes_the_timer() {
    let mut heap = TimerHeap::new();
    let tick = on_tick(|_| None);
    let now = Instant::now();
    let wakes = [5, 7, 5, 6, 4, 4, 0].map(|n| {
        let at = now + Duration::from_secs(n);
        heap.add(at, Arc::downgrade(&tick))
    });
    assert_eq!(wakes, [true, false, false, false, true, false, true]);
    assert!(matches!(heap.next(now), NextAction::Due(_)));
    let next = now + Duration::from_secs(4);
    assert!(matches!(heap.next(now), NextAction::At(at) if at == next));
    assert!(matches!(heap.next(next), NextAction::Due(_)));
}

#[test]
fn a_panic_disarms_only_the_tick_that_panics() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let release = TIMER.hold();
    let panics = on_tick(|_| panic!("on purpose"));
    let other = sends(&sender, ());
    let now = Instant::now();
    TIMER.arm_at(now, &panics);
    TIMER.arm_at(now + Duration::from_millis(1), &other);
    drop(release);
    receive(&receiver);
    TIMER.catch_up();
    assert_eq!(TIMER.len(), 0);
    assert_eq!(Arc::weak_count(&panics), 0);
}

#[test]
fn a_dropped_tick_is_not_called() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let release = TIMER.hold();
    let [gone, stays] = ["gone", "stays"].map(|name| sends(&sender, name));
    let now = Instant::now();
    TIMER.arm_at(now, &gone);
    TIMER.arm_at(now + Duration::from_millis(1), &stays);
    drop(gone);
    drop(release);
    assert_eq!(receive(&receiver), "stays");
    TIMER.catch_up();
    assert_nothing(&receiver);
    assert_eq!(TIMER.len(), 0);
}

#[test]
fn dropped_ticks_take_no_memory_although_tsuccessor_time_is_far_away() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let stay: Vec<_> = (0..10).map(|_| on_tick(|_| None)).collect();
    for tick in &stay {
        TIMER.arm_at(Instant::now() + FAR, tick);
    }
    for _ in 0..10_000 {
        TIMER.arm_at(Instant::now() + FAR, &on_tick(|_| None));
        assert!(TIMER.len() <= 100);
    }
    assert!(TIMER.len() >= stay.len());
    assert!(stay.iter().all(|tick| Arc::weak_count(tick) == 1));
}

/// A tick that arms another when it is dropped, and panics then.
struct Last {
    entered: Sender<()>,
    released: Mutex<Receiver<()>>,
    successor: Arc<dyn Tick>,
    timer: &'static Timer,
}

impl Tick for Last {
    fn tick(&self, now: Instant) -> Option<Instant> {
        self.entered.send(()).unwrap();
        self.released
            .lock()
            .unwrap()
            .recv_timeout(TEST_TIMEOUT)
            .ok();
        Some(now)
    }
}

impl Drop for Last {
    fn drop(&mut self) {
        self.timer.arm_at(Instant::now(), &self.successor);
        panic!("on purpose");
    }
}

#[test]
fn the_timer_may_drop_the_last_reference() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let successor = sends(&sender, ());
    let (entered, has_entered) = channel();
    let (release, released) = channel();
    let last: Arc<dyn Tick> = Arc::new(Last {
        entered,
        released: Mutex::new(released),
        successor: Arc::clone(&successor),
        timer: &TIMER,
    });
    TIMER.arm_at(Instant::now(), &last);
    receive(&has_entered);
    drop(last);
    release.send(()).unwrap();
    receive(&receiver);
    TIMER.catch_up();
    assert_eq!(TIMER.len(), 0);
}

#[test]
fn a_tick_may_arm_others() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let second = sends(&sender, ());
    let first = on_tick(move |now| {
        TIMER.arm_at(now, &second);
        None
    });
    TIMER.arm_at(Instant::now(), &first);
    receive(&receiver);
}

#[test]
fn without_a_thread_nothing_is_armed_and_the_next_call_tries_again() {
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let tick = sends(&sender, ());
    for _ in 0..3 {
        let none = || Err(io::Error::other("out of threads"));
        let error = TIMER.arm_with(Instant::now(), Arc::downgrade(&tick), none);
        assert_eq!(error.unwrap_err().to_string(), "out of threads");
        assert_eq!((TIMER.len(), Arc::weak_count(&tick)), (0, 0));
    }
    TIMER.arm_at(Instant::now(), &tick);
    receive(&receiver);
    // The thread has been there since, and no other is started.
    let another = || panic!("there is a thread");
    let weak: Weak<dyn Tick> = Arc::downgrade(&tick);
    TIMER.arm_with(Instant::now(), weak, another).unwrap();
    receive(&receiver);
}

#[test]
fn one_thread_calls_a_thousand_ticks() {
    const TICKS: u64 = 1_000;
    const TIMES: u32 = 3;
    static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
    let (sender, receiver) = channel();
    let ticks: Vec<_> = (0..TICKS)
        .map(|n| {
            let sender = sender.clone();
            let mut left = TIMES;
            on_tick(move |now| {
                left -= 1;
                sender.send((n, std::thread::current().id())).unwrap();
                (left > 0).then(|| now + Duration::from_micros(n % 7 * 100))
            })
        })
        .collect();
    for (n, tick) in (0..).zip(&ticks) {
        TIMER.arm_at(Instant::now() + Duration::from_micros(n % 11 * 300), tick);
    }
    let (mut times, mut threads) = (BTreeMap::new(), Vec::new());
    for _ in 0..TICKS * u64::from(TIMES) {
        let (n, thread) = receive(&receiver);
        *times.entry(n).or_insert(0) += 1;
        threads.push(thread);
    }
    threads.dedup();
    assert_eq!(threads.len(), 1);
    assert!((0..TICKS).all(|n| times[&n] == TIMES));
    TIMER.catch_up();
    assert_nothing(&receiver);
    assert_eq!(TIMER.len(), 0);
}

#[cfg(target_os = "linux")]
mod switches {
    use std::fs;
    use std::path::{Path, PathBuf};
    use std::sync::LazyLock;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{FAR, TEST_TIMEOUT, Timer, on_tick, receive};

    /// Returns the number of context switches of a thread.
    fn switches(thread: &Path) -> u64 {
        let status = fs::read_to_string(thread.join("status")).unwrap();
        let counts = status.lines().filter_map(|line| line.split_once(':'));
        counts
            .filter(|(key, _)| key.ends_with("ctxt_switches"))
            .map(|(_, count)| count.trim().parse::<u64>().unwrap())
            .sum()
    }

    /// The folder of the timer's thread in `/proc`.
    fn folder(timer: &'static Timer) -> PathBuf {
        let (sender, receiver) = channel();
        let tells = on_tick(move |_| {
            let thread = fs::canonicalize("/proc/thread-self").unwrap();
            sender.send(thread).unwrap();
            None
        });
        timer.arm_at(Instant::now(), &tells);
        receive(&receiver)
    }

    #[track_caller]
    fn assert_comes_to_rest(thread: &Path) {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            let before = switches(thread);
            thread::sleep(Duration::from_millis(300));
            if switches(thread) == before {
                return;
            }
            assert!(Instant::now() < deadline, "the timer does not rest");
        }
    }

    #[test]
    fn an_idle_timer_uses_no_processor_time() {
        static TIMER: LazyLock<Timer> = LazyLock::new(Timer::new);
        let thread = folder(&TIMER);
        let name = fs::read_to_string(thread.join("comm")).unwrap();
        assert_eq!(name.trim(), "throng-timer");
        assert_comes_to_rest(&thread);
        // The same holds while armed ticks are far away, or dropped.
        let far = on_tick(|_| None);
        TIMER.arm_at(Instant::now() + FAR, &far);
        TIMER.arm_at(Instant::now() + 2 * FAR, &on_tick(|_| None));
        assert_comes_to_rest(&thread);
    }
}
