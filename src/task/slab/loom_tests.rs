//! Models of blocks that come home. A block has two cells here, and a home keeps one block.

use std::mem::MaybeUninit;
use std::ptr::NonNull;

use loom::sync::Arc;
use loom::thread;

use super::super::{Call, Task};
use super::{allocate, flush, free};
use crate::sync::{Plain, RECYCLING};

/// What is a cell of the larger size here.
type Large = MaybeUninit<[u8; 600]>;

/// A cell that is given back when it is dropped.
struct Cell(NonNull<Large>, super::Place);

// SAFETY: memory that nobody else has.
unsafe impl Send for Cell {}

impl Cell {
    fn new() -> Self {
        let (cell, place) = allocate::<Large>();
        assert_ne!(place, 0, "boxed");
        Self(cell, place)
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        // SAFETY: it came from `allocate`, and is given back once.
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

/// Cells end elsewhere while their home thread ends. Loom reports the home as leaked if the block is
/// freed by nobody, and the block is freed twice if by both.
#[test]
fn loom_return_against_thread_exit() {
    check(|| {
        let (send, cells) = loom::sync::mpsc::channel();
        let home = thread::spawn(move || {
            // The block is carved to its end, and a second one begun.
            for _ in 0..3 {
                send.send(Cell::new()).unwrap();
            }
        });
        for _ in 0..3 {
            drop(cells.recv().unwrap());
            flush();
        }
        home.join().unwrap();
    });
}

/// Who gets a block again sees all that was done with its cells before.
#[test]
fn loom_a_block_comes_home_with_all_its_cells() {
    check(|| {
        let used = Arc::new(Plain::new(0));
        let (first, second) = (Cell::new(), Cell::new());
        let block = first.0;
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
        if again.0 == block {
            assert_eq!(used.get(), 1);
        }
        other.join().unwrap();
    });
}

/// More blocks come home than it keeps, by two threads at once, while it takes one: the surplus is
/// freed by who brings it.
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

/// An abort that comes late, when other tasks have been made and maybe in the same memory, ends none of
/// them: whoever may abort keeps the cell from being used again.
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
