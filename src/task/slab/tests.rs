//! Cells by where they come from and where they go. Miri runs these, too.

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use super::super::{Call, Ran, Task};
use super::{BLOCK, HEAD, SIZES, SPARE, allocate, flush, free};

/// Memory that is given back when it is dropped.
struct Cell<C>(NonNull<C>, super::Place);

// SAFETY: memory that nobody else has.
unsafe impl<C> Send for Cell<C> {}

impl<C> Cell<C> {
    fn new() -> Self {
        let (cell, place) = allocate::<C>();
        assert!(cell.is_aligned());
        // SAFETY: the memory is this cell's.
        unsafe { cell.cast::<MaybeUninit<C>>().write(MaybeUninit::zeroed()) };
        Self(cell, place)
    }

    fn is_boxed(&self) -> bool {
        self.1 == 0
    }
}

impl<C> Drop for Cell<C> {
    fn drop(&mut self) {
        // SAFETY: it came from `allocate`, and is given back once.
        unsafe { free(self.0, self.1) };
    }
}

type Small = [u64; SIZES[0] / 8];
type Large = [u64; SIZES[1] / 8];

/// How many cells a block has.
fn cells<C>() -> usize {
    (BLOCK - HEAD) / size_of::<C>()
}

#[test]
fn what_is_too_large_or_too_aligned_is_boxed() {
    #[repr(align(128))]
    struct Aligned(#[allow(dead_code, reason = "only its layout matters")] u8);
    #[repr(align(64))]
    struct Line(#[allow(dead_code, reason = "only its layout matters")] u8);

    assert!(!Cell::<Small>::new().is_boxed());
    assert!(!Cell::<[u8; SIZES[0] + 1]>::new().is_boxed());
    assert!(!Cell::<Large>::new().is_boxed());
    assert!(Cell::<[u8; SIZES[1] + 1]>::new().is_boxed());
    assert!(!Cell::<Line>::new().is_boxed());
    assert!(Cell::<Aligned>::new().is_boxed());
}

#[test]
fn live_cells_do_not_overlap() {
    let small: Vec<_> = (0..3 * cells::<Small>())
        .map(|_| Cell::<Small>::new())
        .collect();
    let large: Vec<_> = (0..3 * cells::<Large>())
        .map(|_| Cell::<Large>::new())
        .collect();
    let span = |cell: usize, size: usize| (cell, cell + size);
    let mut spans: Vec<_> = small
        .iter()
        .map(|cell| span(cell.0.addr().get(), SIZES[0]))
        .chain(large.iter().map(|cell| span(cell.0.addr().get(), SIZES[1])))
        .collect();
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

/// A block is used again once all of its cells have ended, and not before.
#[test]
fn a_block_comes_home_with_its_last_cell() {
    let fresh = || {
        thread::spawn(whole_block)
            .join()
            .expect("it does not panic")
    };
    let (first, rest, again) = fresh();
    assert!(!again.contains(&first), "while one of its cells lived");
    assert!(rest.iter().all(|cell| !again.contains(cell)));
}

/// Carves a block, frees all but its first cell, and carves a block again; then frees that cell, too, and
/// finds it again.
fn whole_block() -> (usize, Vec<usize>, Vec<usize>) {
    let mut block: Vec<_> = (0..cells::<Small>())
        .map(|_| Cell::<Small>::new())
        .collect();
    let address = |cell: &Cell<Small>| cell.0.addr().get();
    let all: HashSet<usize> = block.iter().map(address).collect();
    let (first, rest) = (address(&block[0]), block[1..].iter().map(address).collect());
    block.truncate(1);
    flush();
    let other: Vec<_> = (0..cells::<Small>())
        .map(|_| Cell::<Small>::new())
        .collect();
    let again = other.iter().map(address).collect();
    drop(block);
    flush();
    assert!(
        all.contains(&address(&Cell::new())),
        "the block has come home"
    );
    (first, rest, again)
}

/// Cells that end on another thread bring their block home, also while nobody there counts them off.
#[test]
fn cells_that_end_elsewhere_come_home() {
    let (send, cells_of_ours) = mpsc::channel::<Cell<Small>>();
    let other = thread::spawn(move || cells_of_ours.into_iter().count());
    let mine: Vec<_> = (0..cells::<Small>())
        .map(|_| Cell::<Small>::new())
        .collect();
    let addresses: HashSet<_> = mine.iter().map(|cell| cell.0.addr()).collect();
    mine.into_iter()
        .for_each(|cell| send.send(cell).expect("it counts"));
    drop(send);
    // It has ended, so it has counted off what it had gathered.
    assert_eq!(other.join().expect("it does not panic"), addresses.len());
    assert!(addresses.contains(&Cell::<Small>::new().0.addr()));
}

/// Cells may outlive their thread: whoever ends the last one frees the block (Miri reports it if not).
#[test]
fn cells_outlive_their_thread() {
    let cells: Vec<Cell<Large>> = thread::spawn(|| (0..40).map(|_| Cell::new()).collect())
        .join()
        .expect("it does not panic");
    drop(cells);
}

/// A home keeps so many blocks. Those that it does not keep are freed, and it goes on.
#[test]
fn a_home_keeps_some_blocks() {
    thread::spawn(|| {
        let flood: Vec<_> = (0..(SPARE + 8) * cells::<Large>())
            .map(|_| Cell::<Large>::new())
            .collect();
        let addresses: HashSet<_> = flood.iter().map(|cell| cell.0.addr()).collect();
        drop(flood);
        flush();
        let kept = super::LOCAL.with(|local| {
            let local = local.borrow();
            let home = local.shelves[1].home.as_ref().expect("it has made cells");
            home.spare.get()
        });
        assert_eq!(kept, SPARE);
        assert!(addresses.contains(&Cell::<Large>::new().0.addr()));
    })
    .join()
    .expect("it does not panic");
}

/// When a thread's storage is gone, cells can still be made and ended.
#[test]
fn a_thread_without_storage_makes_and_ends_cells() {
    struct Late(RefCell<Vec<Cell<Small>>>, mpsc::Sender<Cell<Small>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let gone = super::LOCAL.try_with(|_| ()).is_err();
            assert!(gone, "the test is about what comes after");
            self.0.get_mut().clear();
            drop(Cell::<Small>::new());
            self.1.send(Cell::new()).expect("the test waits for it");
        }
    }
    thread_local! {
        static LATE: RefCell<Option<Late>> = const { RefCell::new(None) };
    }

    let (send, last) = mpsc::channel();
    thread::spawn(move || {
        // Storage that is used first is dropped last.
        LATE.with(|late| *late.borrow_mut() = Some(Late(RefCell::default(), send)));
        let cells = (0..3).map(|_| Cell::new()).collect();
        LATE.with(|late| {
            late.borrow()
                .as_ref()
                .expect("put there above")
                .0
                .replace(cells)
        });
    })
    .join()
    .expect("it does not panic");
    drop(last.recv().expect("one was made"));
}

/// An abort that comes when the task has ended, and others were made, maybe in the same memory, does
/// nothing to them.
#[test]
fn a_late_abort_ends_no_other_task() {
    let (task, join_ref) = Task::joinable(Call(|(): &mut ()| 1));
    let abort = join_ref.abort_ref();
    assert_eq!(task.run(&mut ()), Ran::Returned);
    drop(join_ref);
    for round in 0..3 * cells::<Small>() {
        let (task, join_ref) = Task::joinable(Call(move |(): &mut ()| round));
        abort.abort();
        assert!(abort.is_complete());
        assert_eq!(task.run(&mut ()), Ran::Returned);
        assert_eq!(join_ref.into_outcome().expect("nobody aborted it"), round);
    }
}

/// Cells that one thread makes and another ends, against boxes of the same size: run it with
/// `cargo test --release --lib -- --ignored --nocapture cells_against_boxes`.
#[test]
#[ignore = "it measures, on a quiet machine: `scripts/test --long` runs it"]
fn cells_against_boxes_that_end_elsewhere() {
    let cells = measure(Cell::<Small>::new);
    let boxes = measure(|| Box::new(Small::default()));
    println!(
        "a cell {cells:.1} ns, a box {boxes:.1} ns: {:.1} times",
        boxes / cells
    );
    assert!(cells < boxes);
}

/// Nanoseconds for each of many values that this thread makes and another drops, a thousand at a time.
fn measure<T: Send + 'static>(make: impl Fn() -> T) -> f64 {
    const WINDOWS: usize = 5_000;
    let (send, windows) = mpsc::channel::<Vec<T>>();
    let (empty, empties) = mpsc::channel();
    let other = thread::spawn(move || {
        for mut window in windows {
            window.clear();
            // The maker may have all that it needs.
            let _ = empty.send(window);
        }
    });
    let begun = std::time::Instant::now();
    for _ in 0..WINDOWS {
        let mut window = empties
            .try_recv()
            .unwrap_or_else(|_| Vec::with_capacity(1_000));
        window.extend((0..1_000).map(|_| make()));
        send.send(window).expect("it drops them");
    }
    drop(send);
    other.join().expect("it does not panic");
    begun.elapsed().as_nanos() as f64 / (WINDOWS * 1_000) as f64
}

/// Closures of every size around the sizes of cells, that run, are dropped, or panic.
#[test]
fn closures_of_all_sizes_run_alone() {
    fn check<const N: usize>() {
        let witness = Arc::new([0_u8; 1]);
        let task = |panics: bool| {
            let (captured, witness) = ([7_u8; N], witness.clone());
            Task::<()>::detached_closure(move || {
                assert!(captured.iter().all(|&byte| byte == 7));
                assert!(!panics, "as the test wants it");
                drop(witness);
            })
        };
        assert_eq!(task(false).run(&mut ()), Ran::Returned);
        drop(task(false));
        let quiet = std::panic::take_hook();
        std::panic::set_hook(Box::new(|_| ()));
        assert_eq!(task(true).run(&mut ()), Ran::Panicked);
        std::panic::set_hook(quiet);
        assert_eq!(Arc::strong_count(&witness), 1);
    }
    check::<0>();
    check::<31>();
    check::<32>();
    check::<33>();
    check::<95>();
    check::<96>();
    check::<97>();
    check::<500>();
}
