//! Transactions, which are rolled back if they fail.

use std::panic::{panic_any, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;

use throng::serial::{ByClone, Checkpoint};
use throng::{JoinHandle, SerialExecutor};

use crate::support::{
    Drops, Gate, Numbers, PanicsOnDrop, block_on, join, message, ready, receive, rounds, wait_until,
};

/// A list whose checkpoints are counted, and panic on request.
#[derive(Default)]
struct Log {
    entries: Vec<u32>,
    saves: Arc<AtomicUsize>,
    restores: Arc<AtomicUsize>,
    save_panics: bool,
    restore_panics: bool,
}

impl Log {
    fn saves(&self) -> usize {
        self.saves.load(Ordering::SeqCst)
    }

    fn restores(&self) -> usize {
        self.restores.load(Ordering::SeqCst)
    }
}

impl Checkpoint for Log {
    /// The length of the list: a push is undone by truncating it.
    type Saved = usize;

    fn save(&mut self) -> usize {
        assert!(!self.save_panics, "in save");
        self.saves.fetch_add(1, Ordering::SeqCst);
        self.entries.len()
    }

    fn restore(&mut self, saved: usize) {
        assert!(!self.restore_panics, "in restore");
        self.restores.fetch_add(1, Ordering::SeqCst);
        self.entries.truncate(saved);
    }
}

fn push(entry: u32) -> impl FnOnce(&mut Log) -> Result<u32, &'static str> + Send + 'static {
    move |log| {
        log.entries.push(entry);
        Ok(entry)
    }
}

fn entries(executor: &SerialExecutor<Log>) -> Vec<u32> {
    ready(executor.submit(|log| log.entries.clone())).unwrap()
}

// ===== one job =====

#[test]
fn a_transaction_that_succeeds_stays() {
    let executor = SerialExecutor::new(Log::default());
    let handle = executor.transact(push(1));
    assert!(handle.is_finished());
    assert_eq!(ready(handle).unwrap(), Ok(1));
    assert_eq!(entries(&executor), [1]);
    let counts = ready(executor.submit(|log| (log.saves(), log.restores())));
    assert_eq!(counts.unwrap(), (1, 0));
}

#[test]
fn an_error_rolls_back() {
    let executor = SerialExecutor::new(Log::default());
    drop(executor.transact(push(1)));
    let failed = executor.transact(|log| {
        log.entries.extend([2, 3]);
        Err::<(), _>("no")
    });
    assert_eq!(ready(failed).unwrap(), Err("no"));
    assert_eq!(entries(&executor), [1]);
}

#[test]
fn a_panic_rolls_back_and_poisons_nothing() {
    for poisons in [true, false] {
        let executor = SerialExecutor::builder()
            .poison_on_panic(poisons)
            .build(Log::default())
            .unwrap();
        let failed: JoinHandle<Result<(), ()>> = executor.transact(|log| {
            log.entries.push(1);
            panic!("in the job");
        });
        let error = ready(failed).unwrap_err();
        assert_eq!(message(error.into_panic()), "in the job");
        assert!(!executor.is_poisoned());
        assert!(entries(&executor).is_empty());
        assert_eq!(executor.metrics().panicked, 1);
    }
}

#[test]
fn a_queued_transaction_rolls_back_as_an_inline_one() {
    let executor = SerialExecutor::new(Log::default());
    let (error, panic, good) = while_busy(&executor, |executor| {
        let error = executor.transact(|log| {
            log.entries.push(1);
            Err::<(), _>("no")
        });
        let panic: JoinHandle<Result<(), ()>> = executor.transact(|log| {
            log.entries.push(2);
            panic!("in the job");
        });
        (error, panic, executor.transact(push(3)))
    });
    assert_eq!(join(error).unwrap(), Err("no"));
    assert!(join(panic).unwrap_err().is_panic());
    assert_eq!(join(good).unwrap(), Ok(3));
    assert_eq!(entries(&executor), [3]);
}

/// Calls `f` while a job runs, and returns when all jobs have ended.
fn while_busy<S, R>(executor: &SerialExecutor<S>, f: impl FnOnce(&SerialExecutor<S>) -> R) -> R
where
    S: Send + 'static,
{
    let gate = Gate::new();
    let (entered, has_entered) = channel();
    let holder = thread::spawn({
        let (executor, gate) = (executor.clone(), gate.clone());
        move || {
            drop(executor.submit(move |_| {
                entered.send(()).unwrap();
                gate.pass();
            }));
        }
    });
    receive(&has_entered);
    let result = f(executor);
    gate.open();
    holder.join().unwrap();
    result
}

#[test]
fn a_panic_in_a_jobs_captures_rolls_back() {
    let executor = SerialExecutor::new(Log::default());
    let value = PanicsOnDrop(Drops::new().value());
    let failed = executor.transact(move |log| {
        log.entries.push(1);
        let _value = value;
        Ok::<_, ()>(())
    });
    assert!(ready(failed).unwrap_err().is_panic());
    assert!(entries(&executor).is_empty());
}

#[test]
fn a_poisoned_or_closed_executor_refuses_transactions() {
    let executor = SerialExecutor::new(Log::default());
    drop(executor.submit(|_| panic_any(())));
    let refused = ready(executor.transact(push(1))).unwrap_err();
    assert!(refused.is_poisoned());
    assert!(executor.clear_poison());
    executor.close();
    let refused = ready(executor.transact(push(1))).unwrap_err();
    assert!(refused.is_closed());
}

#[test]
fn a_job_that_a_failed_transaction_has_submitted_runs() {
    let executor = SerialExecutor::new(Log::default());
    let inner = executor.clone();
    let failed = executor.transact(move |log| {
        drop(inner.submit(|log| log.entries.push(2)));
        log.entries.push(1);
        Err::<(), _>("no")
    });
    assert_eq!(ready(failed).unwrap(), Err("no"));
    assert_eq!(entries(&executor), [2]);
}

// ===== panics of the state =====

#[test]
fn a_save_that_panics_runs_no_job_and_poisons_nothing() {
    let executor = SerialExecutor::new(Log {
        save_panics: true,
        ..Log::default()
    });
    let ran = Arc::new(AtomicUsize::new(0));
    let drops = Drops::new();
    let captured = (Arc::clone(&ran), PanicsOnDrop(drops.value()));
    let failed = executor.transact(move |_| {
        let (ran, fragile) = captured;
        std::mem::forget(fragile);
        ran.fetch_add(1, Ordering::SeqCst);
        Ok::<_, ()>(())
    });
    let error = ready(failed).unwrap_err();
    assert_eq!(message(error.into_panic()), "in save");
    assert_eq!((ran.load(Ordering::SeqCst), drops.count()), (0, 1));
    assert!(!executor.is_poisoned());
    drop(executor.submit(|log| log.save_panics = false));
    assert_eq!(ready(executor.transact(push(1))).unwrap(), Ok(1));
}

#[test]
fn a_restore_that_panics_poisons() {
    for poisons in [true, false] {
        let executor = SerialExecutor::builder()
            .poison_on_panic(poisons)
            .build(Log {
                restore_panics: true,
                ..Log::default()
            })
            .unwrap();
        let drops = Drops::new();
        let error = PanicsOnDrop(drops.value());
        let failed = executor.transact(move |_| Err::<(), _>(error));
        let error = ready(failed).map(drop).unwrap_err();
        assert_eq!(message(error.into_panic()), "in restore");
        assert_eq!(drops.count(), 1);
        assert!(executor.is_poisoned());
        assert!(ready(executor.submit(|_| ())).unwrap_err().is_poisoned());
        assert!(executor.clear_poison());
        drop(executor.submit(|log| log.restore_panics = false));
        assert_eq!(ready(executor.transact(push(1))).unwrap(), Ok(1));
    }
}

#[test]
fn a_restore_that_panics_after_a_panic_is_contained() {
    let executor = SerialExecutor::new(Log {
        restore_panics: true,
        ..Log::default()
    });
    let drops = Drops::new();
    let payload = PanicsOnDrop(drops.value());
    let failed: JoinHandle<Result<(), ()>> = executor.transact(move |_| panic_any(payload));
    let error = ready(failed).unwrap_err();
    assert_eq!(message(error.into_panic()), "in restore");
    assert_eq!(drops.count(), 1);
    assert!(executor.is_poisoned());
}

/// A state whose checkpoints panic when they are dropped.
struct Fragile(u32, Drops);

impl Checkpoint for Fragile {
    type Saved = (u32, PanicsOnDrop);

    fn save(&mut self) -> Self::Saved {
        (self.0, PanicsOnDrop(self.1.value()))
    }

    fn restore(&mut self, (saved, fragile): Self::Saved) {
        self.0 = saved;
        std::mem::forget(fragile);
    }
}

#[test]
fn a_panic_in_the_drop_of_a_checkpoint_is_contained() {
    let drops = Drops::new();
    let executor = SerialExecutor::new(Fragile(0, drops.clone()));
    let done = executor.transact(|state| {
        state.0 += 1;
        Ok::<_, ()>(state.0)
    });
    assert_eq!(ready(done).unwrap(), Ok(1));
    assert_eq!(drops.count(), 1);
    assert_eq!(ready(executor.submit(|state| state.0)).unwrap(), 1);
}

// ===== many at once =====

/// Transfers between accounts, some of which fail half-way: no money appears or is lost, and failed transfers have no
/// effect.
#[test]
fn transfers_of_many_threads_keep_the_total() {
    const ACCOUNTS: u64 = 4;
    const START: i64 = 100;
    let executor = SerialExecutor::new(ByClone([START; ACCOUNTS as usize]));
    let submitters: Vec<_> = (0..4)
        .map(|seed| {
            let executor = executor.clone();
            thread::spawn(move || transfer_at_random(&executor, Numbers::new(seed)))
        })
        .collect();
    let mut expected = [START; ACCOUNTS as usize];
    for submitter in submitters {
        for (account, change) in expected.iter_mut().zip(submitter.join().unwrap()) {
            *account += change;
        }
    }
    let accounts = block_on(executor.into_inner()).unwrap();
    assert_eq!(*accounts, expected);
    assert_eq!(expected.iter().sum::<i64>(), START * ACCOUNTS as i64);
}

/// Returns the changes of the transfers that succeeded.
fn transfer_at_random(
    executor: &SerialExecutor<ByClone<[i64; 4]>>,
    mut numbers: Numbers,
) -> [i64; 4] {
    let mut changes = [0; 4];
    for _ in 0..rounds(500, 50_000) {
        let (from, to) = (numbers.below(4) as usize, numbers.below(4) as usize);
        let amount = numbers.below(60) as i64;
        let panics = numbers.below(8) == 0;
        let handle = executor.transact(move |accounts| {
            accounts[to] += amount;
            accounts[from] -= amount;
            match accounts[from] < 0 {
                true if panics => resume_unwind(Box::new(())),
                true => Err(()),
                false => Ok(()),
            }
        });
        wait_until("the transfer has ended", || handle.is_finished());
        if let Ok(Ok(())) = handle.blocking_join() {
            changes[to] += amount;
            changes[from] -= amount;
        }
    }
    changes
}
