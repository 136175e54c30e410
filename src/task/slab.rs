//! Where cells come from, and how they come home.
//!
//! Memory that one thread allocates and another frees is the largest single cost of a tiny task: with
//! the system's allocator several times that of everything else. So cells of two sizes are carved out
//! of *blocks*, and it is blocks, not cells, that travel:
//!
//! ```text
//! Block   [ link | live | home | .. ][ cell ][ cell ] .. [ cell ]
//! ```
//!
//! A thread carves a block from front to back, and forgets it. Each cell that ends is counted off the
//! block, wherever it ends; whoever counts off the last one owns the block, and hands it back to the
//! thread that carved it, its *home*, by one compare-and-swap for all of its cells. A thread that
//! frees cells gathers the counts of a few blocks, so that cells of one block cost one subtraction
//! together.
//!
//! - A home keeps a limited number of blocks: who brings more frees them, so that a burst of millions
//!   of tasks does not keep their memory, also when the home thread does nothing more.
//! - A thread that ends seals its home; blocks that come back later are freed by who brings them.
//! - A thread whose thread-local storage is gone carves one cell out of a block of its own.
//! - What is larger than the larger size, or aligned to more than a cache line, is boxed.
//!
//! The price: a cell that lives long keeps its block.

use std::alloc::{self, Layout, handle_alloc_error};
use std::cell::RefCell;
use std::mem;
use std::ptr::NonNull;

use crate::inbox::{Batch, FifoList, Inbox, Link, Linked, Tags};
use crate::sync::{Arc, AtomicUsize, Number, Ordering};

/// What blocks and cells are aligned to: a cache line.
const LINE: usize = 64;
/// The size of a block. Small, since a block lives as long as any of its cells.
const BLOCK: usize = if cfg!(all(test, throng_loom)) {
    HEAD + 2 * SIZES[1]
} else {
    4096
};
/// The sizes of cells. Those of the models are larger than real ones.
const SIZES: [usize; 2] = if cfg!(all(test, throng_loom)) {
    [512, 1024]
} else {
    [LINE, 2 * LINE]
};
/// Where the first cell of a block lies.
const HEAD: usize = size_of::<Block>().next_multiple_of(LINE);
/// How many blocks of one size a home keeps: 128 KiB.
const SPARE: usize = if cfg!(all(test, throng_loom)) { 1 } else { 32 };
/// For how many blocks a thread gathers what it frees.
const GATHERED: usize = 4;

/// In the head of a home's inbox: the thread has ended.
const SEALED: Tags = Tags::bit(0);

crate::sync::thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::new());
}

/// Where a cell lies in its block, in bytes; 0: it is boxed.
pub(super) type Place = u32;

/// Memory for a `C`, and where it lies: what [`free`] is to be told.
#[inline]
pub(super) fn allocate<C>() -> (NonNull<C>, Place) {
    let Some(class) = class(Layout::new::<C>()) else {
        return (NonNull::from(Box::leak(Box::<C>::new_uninit())).cast(), 0);
    };
    let (cell, place) = LOCAL
        .try_with(|local| local.borrow_mut().shelves[class].carve(class))
        .unwrap_or_else(|_| Shelf::new().carve(class));
    (cell.cast(), place)
}

/// Gives memory back. What was in it has been dropped.
///
/// # Safety
///
/// The memory and the place came from [`allocate`] of the same type, and are used for this once.
#[inline]
pub(super) unsafe fn free<C>(cell: NonNull<C>, place: Place) {
    if place == 0 {
        // SAFETY: it came from a box, as its place says.
        drop(unsafe { Box::from_raw(cell.cast::<mem::MaybeUninit<C>>().as_ptr()) });
        return;
    }
    // SAFETY: a cell lies so far into its block, which lives as long as the cell is counted.
    let block = unsafe { cell.byte_sub(place as usize) }.cast::<Block>();
    let gathered = LOCAL.try_with(|local| local.borrow_mut().gather(block));
    if gathered.is_err() {
        // SAFETY: the cell is the caller's, who gives it up.
        unsafe { count_off(block, 1) };
    }
}

/// Whether a `C` lies in a block, and not in a box.
pub(super) fn is_recycled<C>() -> bool {
    class(Layout::new::<C>()).is_some()
}

/// Counts off what this thread has gathered: a thread that goes idle should hold nothing back.
pub(crate) fn flush() {
    // Without thread-local storage nothing is gathered.
    let _ = LOCAL.try_with(|local| local.borrow_mut().flush());
}

/// The size class for a layout, if there is one.
#[inline]
fn class(layout: Layout) -> Option<usize> {
    if layout.align() > LINE || !recycles() {
        return None;
    }
    match layout.size() {
        size if size <= SIZES[0] => Some(0),
        size if size <= SIZES[1] => Some(1),
        _ => None,
    }
}

/// What a thread has of blocks.
struct Local {
    shelves: [Shelf; SIZES.len()],
    /// Cells freed and not counted off yet, with their blocks.
    gathered: [Option<(NonNull<Block>, usize)>; GATHERED],
}

impl Local {
    fn new() -> Self {
        Self {
            shelves: [Shelf::new(), Shelf::new()],
            gathered: [None; GATHERED],
        }
    }

    /// Counts off a cell, later, or now with those gathered before.
    #[inline]
    fn gather(&mut self, block: NonNull<Block>) {
        let entry = &mut self.gathered[block.addr().get() / BLOCK % GATHERED];
        let before = match entry {
            Some((gathered, cells)) if *gathered == block => {
                *cells += 1;
                return;
            }
            other => other.replace((block, 1)),
        };
        if let Some((block, cells)) = before {
            // SAFETY: so many cells of it were gathered.
            unsafe { count_off(block, cells) };
        }
    }

    fn flush(&mut self) {
        for entry in &mut self.gathered {
            if let Some((block, cells)) = entry.take() {
                // SAFETY: so many cells of it were gathered.
                unsafe { count_off(block, cells) };
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A thread's blocks of one size.
struct Shelf {
    /// Made with the first block.
    home: Option<Arc<Origin>>,
    /// Blocks that have come home.
    blocks: FifoList<Whole>,
    /// The block that is being carved, and where its next cell lies.
    carved: Option<(NonNull<Block>, usize)>,
}

impl Shelf {
    fn new() -> Self {
        Self {
            home: None,
            blocks: FifoList::new(),
            carved: None,
        }
    }

    /// The next cell.
    #[inline]
    fn carve(&mut self, class: usize) -> (NonNull<u8>, Place) {
        let (block, place) = match self.carved {
            Some(carved) => carved,
            None => (self.whole(class).start(), HEAD),
        };
        let next = place + SIZES[class];
        self.carved = (next + SIZES[class] <= BLOCK).then_some((block, next));
        // SAFETY: the block is so long.
        let cell = unsafe { block.cast::<u8>().byte_add(place) };
        (cell, place as Place)
    }

    /// A block without cells: one that came home, or a new one.
    #[cold]
    fn whole(&mut self, class: usize) -> Whole {
        let home = self
            .home
            .get_or_insert_with(|| Arc::new(Origin::new(class)));
        if self.blocks.is_empty() {
            self.blocks = home.blocks.take();
        }
        match self.blocks.pop_front() {
            Some(block) => {
                home.spare.subtract(1);
                block
            }
            None => Whole::new(Arc::clone(home)),
        }
    }
}

impl Drop for Shelf {
    fn drop(&mut self) {
        let Some(home) = &self.home else { return };
        // First, so that what comes back from here on is freed.
        home.blocks.retag(SEALED, Tags::NONE);
        drop(home.blocks.take());
        if let Some((block, place)) = self.carved.take() {
            let rest = (BLOCK - place) / SIZES[home.class];
            // SAFETY: these cells were never given out.
            unsafe { count_off(block, rest) };
        }
    }
}

/// Where the blocks of a thread come back to: it lives as long as any of them.
struct Origin {
    blocks: Inbox<Whole>,
    /// How many blocks are there, or on a shelf.
    spare: Number,
    class: usize,
}

impl Origin {
    fn new(class: usize) -> Self {
        Self {
            blocks: Inbox::new(),
            spare: Number::new(0),
            class,
        }
    }

    /// Takes a block back, or frees it: there are enough, or the thread has ended.
    fn come_back(&self, block: Whole) {
        if self.spare.add(1) < SPARE {
            let unsealed = |tags: Tags| (!tags.has(SEALED)).then_some(tags);
            // A refused one is dropped: the count is nobody's any more.
            drop(
                self.blocks
                    .push(Batch::of(block), |seen| unsealed(seen.tags)),
            );
        } else {
            self.spare.subtract(1);
        }
    }
}

/// The head of a block.
#[repr(C, align(64))]
struct Block {
    link: Link,
    /// Cells that are not counted off: in use, or still to be carved.
    live: AtomicUsize,
    home: Arc<Origin>,
}

const LAYOUT: Layout = match Layout::from_size_align(BLOCK, align_of::<Block>()) {
    Ok(layout) => layout,
    Err(_) => panic!("a block is not that large"),
};

/// Counts cells off their block, which goes home with the last one.
///
/// # Safety
///
/// So many live cells of the block are the caller's, who gives them up.
unsafe fn count_off(block: NonNull<Block>, cells: usize) {
    // SAFETY: the caller's cells keep the block alive.
    let live = unsafe { &block.as_ref().live };
    // Ordering: Release, paired with the Acquire below: what was done with the cells comes before
    // their memory is used again.
    if live.fetch_sub(cells, Ordering::Release) != cells {
        return;
    }
    // Ordering: Acquire pairs with the Release of all other subtractions.
    live.load(Ordering::Acquire);
    let whole = Whole(block);
    // A clone, which outlives the block: its thread may end, and free it, as soon as it is there.
    let home = Arc::clone(whole.home());
    home.come_back(whole);
}

/// A block without cells, and owned.
struct Whole(NonNull<Block>);

// SAFETY: an owned block is memory and an `Arc` that is Send.
unsafe impl Send for Whole {}

impl Whole {
    fn new(home: Arc<Origin>) -> Self {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc::alloc(LAYOUT) };
        let Some(block) = NonNull::new(memory.cast::<Block>()) else {
            handle_alloc_error(LAYOUT);
        };
        let head = Block {
            link: Link::new(),
            live: AtomicUsize::new(0),
            home,
        };
        // SAFETY: the memory is new, and large enough.
        unsafe { block.write(head) };
        Self(block)
    }

    /// Begins to carve it: all cells count as live from now on.
    fn start(self) -> NonNull<Block> {
        let block = mem::ManuallyDrop::new(self).0;
        // SAFETY: the block is owned, and its head initialised.
        let block_ref = unsafe { block.as_ref() };
        let cells = (BLOCK - HEAD) / SIZES[block_ref.home.class];
        // Relaxed: nobody else has the block. Its cells are published by whoever sends them away.
        block_ref.live.store(cells, Ordering::Relaxed);
        block
    }

    fn home(&self) -> &Arc<Origin> {
        // SAFETY: the block is owned, and its head initialised.
        unsafe { &self.0.as_ref().home }
    }
}

impl Drop for Whole {
    fn drop(&mut self) {
        // SAFETY: the block is owned, has no cells, and came from `new`.
        unsafe {
            self.0.drop_in_place();
            alloc::dealloc(self.0.cast().as_ptr(), LAYOUT);
        }
    }
}

// SAFETY: the link is the first field of the block, which stays where it is.
unsafe impl Linked for Whole {
    fn into_link(self) -> NonNull<Link> {
        mem::ManuallyDrop::new(self).0.cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self(link.cast())
    }
}

/// A model says whether it is about this: the others need not explore it.
#[inline]
fn recycles() -> bool {
    #[cfg(all(test, throng_loom))]
    return crate::sync::RECYCLING.get();
    #[cfg(not(all(test, throng_loom)))]
    true
}

#[cfg(all(test, throng_loom))]
mod loom_tests;
#[cfg(all(test, not(any(throng_loom, throng_shuttle))))]
mod tests;
