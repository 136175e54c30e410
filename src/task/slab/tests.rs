//! Cells that are allocated and freed on one thread and on many; Miri runs these, too.

use std::cell::RefCell;
use std::collections::HashSet;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use super::super::{Call, Ran, Task};
use super::{CELL_SIZES, HEADER_SIZE, MAX_FREE_PAGES, Offset, PAGE_SIZE, allocate, flush, free};

/// Memory that is freed when the value is dropped.
struct Cell<C>(NonNull<C>, Offset);

// SAFETY: memory that nobody else has.
unsafe impl<C> Send for Cell<C> {}

impl<C> Cell<C> {
    fn new() -> Self {
        let (cell, offset) = allocate::<C>();
        assert!(cell.is_aligned());
        // SAFETY: the memory is this cell's.
        unsafe { cell.cast::<MaybeUninit<C>>().write(MaybeUninit::zeroed()) };
        Self(cell, offset)
    }

    fn is_boxed(&self) -> bool {
        self.1 == 0
    }
}

impl<C> Drop for Cell<C> {
    fn drop(&mut self) {
        // SAFETY: it came from `allocate`, and is freed once.
        unsafe { free(self.0, self.1) };
    }
}

type Small = [u64; CELL_SIZES[0] / 8];
type Large = [u64; CELL_SIZES[1] / 8];

/// The number of cells of a page.
fn cells<C>() -> usize {
    (PAGE_SIZE - HEADER_SIZE) / size_of::<C>()
}

#[test]
fn large_and_aligned_cells_are_boxed() {
    #[repr(align(128))]
    struct Aligned(#[allow(dead_code, reason = "only its layout matters")] u8);
    #[repr(align(64))]
    struct CacheLine(#[allow(dead_code, reason = "only its layout matters")] u8);

    assert!(!Cell::<Small>::new().is_boxed());
    assert!(!Cell::<[u8; CELL_SIZES[0] + 1]>::new().is_boxed());
    assert!(!Cell::<Large>::new().is_boxed());
    assert!(!Cell::<[u8; CELL_SIZES[2]]>::new().is_boxed());
    assert!(Cell::<[u8; CELL_SIZES[2] + 1]>::new().is_boxed());
    assert!(!Cell::<CacheLine>::new().is_boxed());
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
        .map(|cell| span(cell.0.addr().get(), CELL_SIZES[0]))
        .chain(
            large
                .iter()
                .map(|cell| span(cell.0.addr().get(), CELL_SIZES[1])),
        )
        .collect();
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].1 <= pair[1].0));
}

/// A page is used again once all of its cells are free, and not before.
#[test]
fn a_page_returns_with_its_last_cell() {
    let fresh = || {
        thread::spawn(fill_a_page_twice)
            .join()
            .expect("it does not panic")
    };
    let (first, rest, again) = fresh();
    assert!(!again.contains(&first), "while one of its cells lived");
    assert!(rest.iter().all(|cell| !again.contains(cell)));
}

/// Fills a page, frees all but its first cell, and fills a page again; then frees that cell, too, and gets the first
/// page again.
fn fill_a_page_twice() -> (usize, Vec<usize>, Vec<usize>) {
    let mut page: Vec<_> = (0..cells::<Small>())
        .map(|_| Cell::<Small>::new())
        .collect();
    let address = |cell: &Cell<Small>| cell.0.addr().get();
    let all: HashSet<usize> = page.iter().map(address).collect();
    let (first, rest) = (address(&page[0]), page[1..].iter().map(address).collect());
    page.truncate(1);
    flush();
    let other: Vec<_> = (0..cells::<Small>())
        .map(|_| Cell::<Small>::new())
        .collect();
    let again = other.iter().map(address).collect();
    drop(page);
    flush();
    assert!(
        all.contains(&address(&Cell::new())),
        "the page has returned"
    );
    (first, rest, again)
}

/// Cells that are freed on another thread return their page, also while nobody there flushes.
#[test]
fn cells_that_are_freed_elsewhere_return() {
    let (send, cells_of_ours) = mpsc::channel::<Cell<Small>>();
    let other = thread::spawn(move || cells_of_ours.into_iter().count());
    let mine: Vec<_> = (0..cells::<Small>())
        .map(|_| Cell::<Small>::new())
        .collect();
    let addresses: HashSet<_> = mine.iter().map(|cell| cell.0.addr()).collect();
    mine.into_iter()
        .for_each(|cell| send.send(cell).expect("it counts"));
    drop(send);
    // The thread has exited, so it has counted off what it had gathered.
    assert_eq!(other.join().expect("it does not panic"), addresses.len());
    assert!(addresses.contains(&Cell::<Small>::new().0.addr()));
}

/// Cells may outlive their thread: the thread that frees the last one frees the page (Miri reports it if not).
#[test]
fn cells_outlive_their_thread() {
    let cells: Vec<Cell<Large>> = thread::spawn(|| (0..40).map(|_| Cell::new()).collect())
        .join()
        .expect("it does not panic");
    drop(cells);
}

/// A slab keeps a limited number of free pages. The others are freed, and the slab stays usable.
#[test]
fn a_slab_keeps_some_pages() {
    thread::spawn(|| {
        let flood: Vec<_> = (0..(MAX_FREE_PAGES + 8) * cells::<Large>())
            .map(|_| Cell::<Large>::new())
            .collect();
        let addresses: HashSet<_> = flood.iter().map(|cell| cell.0.addr()).collect();
        drop(flood);
        flush();
        let kept = super::LOCAL.with(|local| {
            let local = local.borrow();
            let returns = local.slabs[1].returns.as_ref().expect("it has made cells");
            returns.kept.get()
        });
        assert_eq!(kept, MAX_FREE_PAGES);
        assert!(addresses.contains(&Cell::<Large>::new().0.addr()));
    })
    .join()
    .expect("it does not panic");
}

/// When a thread's storage is gone, cells can still be allocated and freed.
#[test]
fn a_thread_without_storage_allocates_and_frees_cells() {
    struct Late(RefCell<Vec<Cell<Small>>>, mpsc::Sender<Cell<Small>>);
    impl Drop for Late {
        fn drop(&mut self) {
            let gone = super::LOCAL.try_with(|_| ()).is_err();
            assert!(gone, "the test is about what follows");
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

/// An abort that comes after the task has ended, when others were made, maybe in the same memory, aborts none of them.
#[test]
fn a_late_abort_aborts_no_other_task() {
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

/// Cells that one thread allocates and another frees, against boxes of the same size: run it with
/// `cargo test --release --lib -- --ignored --nocapture cells_against_boxes`.
#[test]
#[ignore = "it measures, on a quiet machine: `scripts/test --long` runs it"]
fn cells_against_boxes_that_are_freed_elsewhere() {
    let cells = measure(Cell::<Small>::new);
    let boxes = measure(|| Box::new(Small::default()));
    println!(
        "a cell {cells:.1} ns, a box {boxes:.1} ns: {:.1} times",
        boxes / cells
    );
    assert!(cells < boxes);
}

/// Returns the nanoseconds for each value that this thread makes and another drops, a thousand at a time.
fn measure<T: Send + 'static>(make: impl Fn() -> T) -> f64 {
    const WINDOWS: usize = 5_000;
    let (send, windows) = mpsc::channel::<Vec<T>>();
    let (empty, empties) = mpsc::channel();
    let other = thread::spawn(move || {
        for mut window in windows {
            window.clear();
            // The maker may have enough of them.
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

/// Closures of sizes around those of cells run, are dropped, or panic.
#[test]
fn detached_closures_of_all_sizes_run() {
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
