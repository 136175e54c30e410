//! Properties of types that the compiler checks: auto traits, layout, and recursion.

use std::cell::Cell;
use std::error::Error;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::rc::Rc;

use throng::blocking::{self, Overflow};
use throng::completion::{self, Completed, Submitter};
use throng::serial;
use throng::{
    AbortHandle, AbortOnDropHandle, BlockingPool, CompletionStream, Id, JoinError, JoinHandle,
    Permit, SerialExecutor, Slot, TrySpawnError, Work, spawn_blocking,
};

use crate::inline;
use crate::support::{join, ready};

/// Checks, when this file is compiled, that a type has traits, or (`!`) that it has not.
macro_rules! assert_type {
    ($type:ty: $($(!$not:ident)? $($has:ident)?)&+) => {
        $($(assert_type!(@has $type, $has);)? $(assert_type!(@not $type, $not);)?)+
    };
    (@has $type:ty, $trait:ident) => {
        const _: fn() = || {
            fn has<T: ?Sized + $trait>() {}
            has::<$type>();
        };
    };
    (@not $type:ty, $trait:ident) => {
        const _: fn() = || {
            // If the type has the trait there are two candidates, and inference fails.
            trait Ambiguous<A> {
                fn candidate() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            #[allow(dead_code, reason = "it is the second candidate")]
            struct Second;
            impl<T: ?Sized + $trait> Ambiguous<Second> for T {}
            <$type as Ambiguous<_>>::candidate();
        };
    };
}

/// Can be sent and shared.
type Both = u8;
/// Can be sent, and not shared.
type Sent = Cell<u8>;
/// Neither.
type Neither = Rc<u8>;

// As Tokio's.
assert_type!(JoinHandle<Both>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(JoinHandle<Sent>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(JoinHandle<Neither>: !Send & !Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(AbortOnDropHandle<Both>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(AbortOnDropHandle<Sent>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);
assert_type!(AbortOnDropHandle<Neither>: !Send & !Sync & Unpin);
assert_type!(AbortHandle: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone);
assert_type!(JoinError: Send & Sync & Unpin & Error);
assert_type!(Id: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Copy);

assert_type!(TrySpawnError<Both>: Send & Sync & Unpin & Error);
assert_type!(TrySpawnError<Sent>: Send & Sync & Unpin & Error);
assert_type!(TrySpawnError<Neither>: !Send & Sync & Unpin & Error);

assert_type!(Slot<Both, Both>: Send & Sync & Unpin);
assert_type!(Slot<Sent, Sent>: Send & Sync & Unpin);
assert_type!(Slot<Neither, Both>: !Send & !Sync);
assert_type!(Slot<Both, Neither>: !Send & !Sync);
assert_type!(Work: Send & Sync & Unpin);

// A state that cannot be shared is fine; one that cannot be sent is not.
assert_type!(SerialExecutor<Both>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone);
assert_type!(SerialExecutor<Sent>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone);
assert_type!(SerialExecutor<Neither>: !Send & !Sync & Unpin & Clone);
assert_type!(serial::Builder<Sent>: Send & Sync & Unpin);
assert_type!(serial::WeakSerialExecutor<Sent>: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone);
assert_type!(serial::Metrics: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone & Eq);

assert_type!(CompletionStream<Both, Both>: Send & Unpin);
assert_type!(CompletionStream<Sent, Sent>: Send & Unpin);
assert_type!(CompletionStream<Neither, Both>: !Send & !Sync & Unpin);
assert_type!(CompletionStream<Both, Neither>: !Send & !Sync & Unpin);
assert_type!(Submitter<Both, Both>: Send & Sync & Unpin & Clone);
assert_type!(Submitter<Sent, Sent>: Send & Sync & Unpin & Clone);
assert_type!(Submitter<Neither, Both>: !Send & !Sync & Unpin & Clone);
assert_type!(Completed<Both, Both>: Send & Sync & Unpin);
assert_type!(Completed<Sent, Both>: Send & !Sync & Unpin);
assert_type!(Completed<Neither, Both>: !Send & !Sync & Unpin);
assert_type!(completion::Builder<Neither, Neither>: Send & Sync & Unpin & UnwindSafe);

assert_type!(BlockingPool: Send & Sync & Unpin & Clone);
assert_type!(Permit<'static, BlockingPool>: Send & Sync & Unpin);
assert_type!(blocking::Histogram: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone & Eq);
assert_type!(blocking::Builder: Send & Sync & Unpin & Clone);
assert_type!(blocking::Metrics: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe & Clone & Eq);
assert_type!(Overflow: Send & Sync & Unpin & UnwindSafe & RefUnwindSafe);

/// Futures of this crate can be spawned, also if what they carry cannot be shared. Never called.
#[allow(dead_code, reason = "it is enough that it compiles")]
fn futures_can_be_sent(
    executor: SerialExecutor<Sent>,
    jobs: &Submitter<Sent, Sent>,
    done: &mut CompletionStream<Sent, Sent>,
    pool: &BlockingPool,
) {
    fn sent(_: impl Send) {}
    sent(executor.into_inner());
    sent(jobs.slot(Cell::new(0)));
    sent(jobs.submit(Cell::new(0), async { Cell::new(0) }));
    sent(jobs.submit_blocking(pool, Cell::new(0), || Cell::new(0)));
    sent(done.next());
    sent(pool.reserve());
    sent(pool.closed());
}

// ===== Layout =====

/// A state machine whose state is the output of the task that it waits for, as in `cacache`.
enum State {
    Idle(Vec<u8>),
    Busy(JoinHandle<Self>),
}

impl State {
    fn start(self) -> Self {
        match self {
            Self::Idle(mut bytes) => Self::Busy(spawn_blocking(move || {
                bytes.push(1);
                Self::Idle(bytes)
            })),
            busy @ Self::Busy(_) => busy,
        }
    }

    fn finish(self) -> Vec<u8> {
        match self {
            Self::Idle(bytes) => bytes,
            Self::Busy(handle) => join(handle).unwrap().finish(),
        }
    }
}

#[test]
fn a_type_can_contain_a_handle_of_itself() {
    let state = State::Idle(vec![0]).start();
    assert!(matches!(state, State::Busy(_)));
    assert_eq!(state.finish(), [0, 1]);
}

#[test]
fn the_size_of_a_handle_does_not_depend_on_its_output() {
    #[repr(align(128))]
    struct Aligned;

    const WORDS: usize = size_of::<Id>() + 3 * size_of::<usize>();
    assert_eq!(size_of::<JoinHandle<u8>>(), WORDS);
    assert_eq!(size_of::<JoinHandle<[u8; 65_536]>>(), WORDS);
    assert_eq!(
        align_of::<JoinHandle<Aligned>>(),
        align_of::<JoinHandle<u8>>()
    );
    assert_eq!(size_of::<Option<AbortOnDropHandle<String>>>(), WORDS);
}

#[test]
fn outputs_of_every_size_and_alignment_are_returned() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    #[repr(align(128))]
    struct Aligned(u8);

    fn returns<T: Clone + PartialEq + std::fmt::Debug + Send + 'static>(output: T) {
        assert_eq!(ready(inline(output.clone())).unwrap(), output);
        assert_eq!(inline(output.clone()).blocking_join().unwrap(), output);
        assert_eq!(
            ready(inline(output.clone()).abort_on_drop()).unwrap(),
            output
        );
        assert_eq!(
            join(spawn_blocking({
                let output = output.clone();
                move || output
            }))
            .unwrap(),
            output
        );
        // Not awaited.
        let handle = inline(output);
        assert!(handle.is_finished() && handle.abort_handle().is_finished());
        handle.abort();
    }
    returns(());
    returns(7_u8);
    returns((1_u64, 2_u64));
    returns("two words");
    returns(String::from("three words"));
    returns([7_u8; 17]);
    returns(vec![[1_u8; 1024]; 3]);
    returns([7_u64; 64]);
    returns(Aligned(7));
}
