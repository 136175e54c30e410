//! Models of pages that return. A page has two cells here, and a slab keeps one free page.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use loom::sync::Arc;
use loom::thread;

use super::super::{Call, Task};
use super::{Offset, allocate, flush, free};
use crate::sync::{Plain, RECYCLING};

/// A cell of the larger size here.
type Large = MaybeUninit<[u8; 600]>;

/// A cell that is freed when the value is dropped.
struct Cell(NonNull<Large>, Offset);

// SAFETY: memory that nobody else has.
unsafe impl Send for Cell {}

impl Cell {
    fn new() -> Self {
        let (cell, offset) = allocate::<Large>();
        assert_ne!(offset, 0, "boxed");
        Self(cell, offset)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // SAFETY: it came from `allocate`, and is freed once.
        unsafe { free(self.0, self.1) };
    }
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    RECYCLING.set(true);
    loom::model(move || {
        RECYCLING.set(true);
        model();
    });
    RECYCLING.set(false);
}

/// Cells are freed elsewhere while their thread exits. Loom reports a leak if nobody frees the page, and the page is
/// freed twice if both do.
#[test]
fn loom_return_against_thread_exit() {
    check(|| {
        let (send, cells) = loom::sync::mpsc::channel();
        let owner = thread::spawn(move || {
            // The first page is used up, and a second one begun.
            for _ in 0..3 {
                send.send(Cell::new()).unwrap();
            }
        });
        for _ in 0..3 {
            drop(cells.recv().unwrap());
            flush();
        }
        owner.join().unwrap();
    });
}

/// A thread that gets a page again sees everything that was done with its cells before.
#[test]
fn loom_a_page_returns_with_all_its_cells() {
    check(|| {
        let used = Arc::new(Plain::new(0));
        let (first, second) = (Cell::new(), Cell::new());
        let page = first.0;
        let other = {
            let used = used.clone();
            thread::spawn(move || {
                used.add(1);
                drop(second);
                flush();
            })
        };
        drop(first);
        flush();
        let again = Cell::new();
        if again.0 == page {
            assert_eq!(used.get(), 1);
        }
        other.join().unwrap();
    });
}

/// Two threads return more pages than the slab keeps, while it takes one: the thread that returns one too many frees it.
#[test]
fn loom_return_against_return() {
    check(|| {
        let cells: Vec<Cell> = (0..4).map(|_| Cell::new()).collect();
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for (index, cell) in cells.into_iter().enumerate() {
            if index % 2 == 0 {
                &mut left
            } else {
                &mut right
            }
            .push(cell);
        }
        let other = thread::spawn(move || {
            drop(left);
            flush();
        });
        drop(right);
        flush();
        drop([Cell::new(), Cell::new(), Cell::new()]);
        other.join().unwrap();
    });
}

/// A late abort, when other tasks were made, maybe in the same memory, aborts none of them: a reference that can abort
/// keeps the cell from being recycled.
#[test]
fn loom_late_abort_against_recycling() {
    check(|| {
        let task = || Task::joinable(Call(|(): &mut ()| 7));
        let (first, join_ref) = task();
        let abort = join_ref.abort_ref();
        let aborter = thread::spawn(move || abort.abort());
        first.run(&mut ());
        drop(join_ref);
        flush();
        for _ in 0..4 {
            let (task, join_ref) = task();
            task.run(&mut ());
            assert_eq!(join_ref.into_outcome().unwrap(), 7);
            flush();
        }
        aborter.join().unwrap();
    });
}
