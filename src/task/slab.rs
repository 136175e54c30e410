//! Slabs: where the memory of cells comes from, and how it is recycled.
//!
//! Memory that one thread allocates and another frees is the largest single cost of a tiny task: with the system's
//! allocator several times that of everything else. So cells of three sizes are allocated from *pages*, and it is pages, not
//! cells, that return to their thread:
//!
//! ```text
//! Page   [ link | live | returns | .. ][ cell ][ cell ] .. [ cell ]
//! ```
//!
//! A thread has a *slab* for each size. A slab allocates the cells of a page from front to back, and then forgets the page.
//! Each cell that is freed, on any thread, is *counted off* its page. The thread that counts off the last one owns the page,
//! which is *free* now, and pushes it to the list of returns of its slab: one compare-and-swap for all of its cells. A
//! thread that frees cells gathers the counts of a few pages, so that the cells of one page cost one subtraction together.
//!
//! - A slab keeps a limited number of free pages. The thread that returns one too many frees it, so a burst of millions of
//!   tasks does not keep their memory, even if the slab's thread does nothing more.
//! - A thread that exits seals its lists of returns. A page that returns later is freed by the thread that returns it.
//! - A thread whose thread-local storage is gone allocates one cell from a page of its own.
//! - Cells that are larger than the largest size, or aligned to more than a cache line, are boxed.
//!
//! The price: a cell that lives long keeps its page.

use std::alloc::{self, Layout, handle_alloc_error};
use std::cell::RefCell;
use std::mem;
use std::ptr::NonNull;

use crate::inbox::{Batch, FifoList, Inbox, Link, Linked, Tags};
use crate::sync::{Arc, AtomicUsize, Number, Ordering};

/// The alignment of pages and cells.
const CACHE_LINE: usize = 64;
/// The size of a page in bytes. It is small, since a page lives as long as any of its cells.
const PAGE_SIZE: usize = if cfg!(all(test, throng_loom)) {
    HEADER_SIZE + 2 * CELL_SIZES[2]
} else {
    4096
};
/// The sizes of cells in bytes. Atomics and cells of models are larger than real ones.
const CELL_SIZES: [usize; 3] = if cfg!(all(test, throng_loom)) {
    [512, 1024, 1536]
} else {
    [CACHE_LINE, 2 * CACHE_LINE, 4 * CACHE_LINE]
};
/// The offset of the first cell of a page.
const HEADER_SIZE: usize = size_of::<Page>().next_multiple_of(CACHE_LINE);
/// The most free pages that a slab keeps: 128 KiB.
const MAX_FREE_PAGES: usize = if cfg!(all(test, throng_loom)) { 1 } else { 32 };
/// The number of pages for which a thread gathers counts. Models have one: which pages share an entry depends on their addresses, and models
/// must do the same each time.
const GATHERED_PAGES: usize = if cfg!(all(test, throng_loom)) { 1 } else { 4 };

/// The thread of a slab has exited.
const SEALED: Tags = Tags::bit(0);

crate::sync::thread_local! {
    static LOCAL: RefCell<Local> = RefCell::new(Local::new());
}

/// The offset of a cell in its page, in bytes, or 0 if the cell is boxed.
pub(super) type Offset = u32;

/// Allocates memory for a `C`. Returns it with its offset, which [`free`] needs.
#[inline]
pub(super) fn allocate<C>() -> (NonNull<C>, Offset) {
    let Some(class) = class(Layout::new::<C>()) else {
        return (NonNull::from(Box::leak(Box::<C>::new_uninit())).cast(), 0);
    };
    let (cell, offset) = LOCAL
        .try_with(|local| local.borrow_mut().slabs[class].allocate(class))
        .unwrap_or_else(|_| Slab::new().allocate(class));
    (cell.cast(), offset)
}

/// Frees a cell. Its contents have been dropped.
///
/// # Safety
///
/// The memory and the offset came from [`allocate`] of the same type, and are used for this once.
#[inline]
pub(super) unsafe fn free<C>(cell: NonNull<C>, offset: Offset) {
    if offset == 0 {
        // SAFETY: an offset of 0 means that the memory came from a box (rule 9).
        drop(unsafe { Box::from_raw(cell.cast::<mem::MaybeUninit<C>>().as_ptr()) });
        return;
    }
    // SAFETY: the cell lies at this offset in its page, which lives until the cell is counted off (rule 9).
    let page = unsafe { cell.byte_sub(offset as usize) }.cast::<Page>();
    let gathered = LOCAL.try_with(|local| local.borrow_mut().gather(page));
    if gathered.is_err() {
        // SAFETY: the cell is the caller's to give up.
        unsafe { count_off(page, 1) };
    }
}

/// Returns `true` if a `C` lies in a page, and not in a box.
pub(super) fn is_recycled<C>() -> bool {
    class(Layout::new::<C>()).is_some()
}

/// Counts off the cells that this thread has gathered. A thread calls this before it goes idle, so that it holds no page
/// back.
pub(crate) fn flush() {
    // Without thread-local storage nothing is gathered.
    let _ = LOCAL.try_with(|local| local.borrow_mut().flush());
}

/// Returns the size class of a layout, or `None` if such a value is boxed.
#[inline]
fn class(layout: Layout) -> Option<usize> {
    if layout.align() > CACHE_LINE || !recycles() {
        return None;
    }
    match layout.size() {
        size if size <= CELL_SIZES[0] => Some(0),
        size if size <= CELL_SIZES[1] => Some(1),
        size if size <= CELL_SIZES[2] => Some(2),
        _ => None,
    }
}

/// The slabs and the gathered counts of a thread.
struct Local {
    slabs: [Slab; CELL_SIZES.len()],
    /// Pages, each with the number of cells that were freed and not counted off yet.
    gathered: [Option<(NonNull<Page>, usize)>; GATHERED_PAGES],
}

impl Local {
    fn new() -> Self {
        Self {
            slabs: std::array::from_fn(|_| Slab::new()),
            gathered: [None; GATHERED_PAGES],
        }
    }

    /// Gathers a freed cell. If the cells of another page are in the way, they are counted off now.
    #[inline]
    fn gather(&mut self, page: NonNull<Page>) {
        let slot = page.addr().get() / PAGE_SIZE % self.gathered.len();
        let entry = &mut self.gathered[slot];
        let before = match entry {
            Some((gathered, cells)) if *gathered == page => {
                *cells += 1;
                return;
            }
            other => other.replace((page, 1)),
        };
        if let Some((page, cells)) = before {
            // SAFETY: this number of cells was gathered.
            unsafe { count_off(page, cells) };
        }
    }

    fn flush(&mut self) {
        for entry in &mut self.gathered {
            if let Some((page, cells)) = entry.take() {
                // SAFETY: this number of cells was gathered.
                unsafe { count_off(page, cells) };
            }
        }
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A thread's pages of one size.
struct Slab {
    /// `None` before the first page.
    returns: Option<Arc<Returns>>,
    /// Pages that have returned.
    free_pages: FifoList<FreePage>,
    /// The page from which cells are allocated, and the offset of the next one.
    current: Option<(NonNull<Page>, usize)>,
}

impl Slab {
    fn new() -> Self {
        Self {
            returns: None,
            free_pages: FifoList::new(),
            current: None,
        }
    }

    /// Returns the next cell of the current page.
    #[inline]
    fn allocate(&mut self, class: usize) -> (NonNull<u8>, Offset) {
        let (page, offset) = match self.current {
            Some(current) => current,
            None => (self.next_page(class).start(), HEADER_SIZE),
        };
        let next = offset + CELL_SIZES[class];
        self.current = (next + CELL_SIZES[class] <= PAGE_SIZE).then_some((page, next));
        // SAFETY: the offset lies in the page.
        let cell = unsafe { page.cast::<u8>().byte_add(offset) };
        (cell, offset as Offset)
    }

    /// Returns a page that has returned, or a new one.
    #[cold]
    fn next_page(&mut self, class: usize) -> FreePage {
        let returns = self
            .returns
            .get_or_insert_with(|| Arc::new(Returns::new(class)));
        if self.free_pages.is_empty() {
            self.free_pages = returns.pages.take();
        }
        match self.free_pages.pop_front() {
            Some(page) => {
                returns.kept.subtract(1);
                page
            }
            None => FreePage::new(Arc::clone(returns)),
        }
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let Some(returns) = &self.returns else { return };
        // First, so that pages that return from now on are freed.
        returns.pages.retag(SEALED, Tags::NONE);
        drop(returns.pages.take());
        if let Some((page, offset)) = self.current.take() {
            let unused = (PAGE_SIZE - offset) / CELL_SIZES[returns.class];
            // SAFETY: these cells were never allocated.
            unsafe { count_off(page, unused) };
        }
    }
}

/// The list of the pages that have returned to a slab. Each page keeps it alive.
struct Returns {
    pages: Inbox<FreePage>,
    /// The number of pages here and in the slab's list of free pages.
    kept: Number,
    class: usize,
}

impl Returns {
    fn new(class: usize) -> Self {
        Self {
            pages: Inbox::new(),
            kept: Number::new(0),
            class,
        }
    }

    /// Keeps a page, or frees it if there are enough, or if the thread has exited.
    fn recycle(&self, page: FreePage) {
        if self.kept.add(1) < MAX_FREE_PAGES {
            let unsealed = |tags: Tags| (!tags.has(SEALED)).then_some(tags);
            // A refused page is freed. The count stays too high, but nobody reads it any more.
            drop(self.pages.push(Batch::of(page), |head| unsealed(head.tags)));
        } else {
            self.kept.subtract(1);
        }
    }
}

/// The header of a page.
#[repr(C, align(64))]
struct Page {
    link: Link,
    /// The number of cells that are not counted off: in use, or not allocated yet.
    live: AtomicUsize,
    returns: Arc<Returns>,
}

const LAYOUT: Layout = match Layout::from_size_align(PAGE_SIZE, align_of::<Page>()) {
    Ok(layout) => layout,
    Err(_) => panic!("the layout of a page is valid"),
};

/// Counts cells off their page. With the last one, the page returns to its slab.
///
/// # Safety
///
/// This number of live cells of the page is the caller's to give up.
unsafe fn count_off(page: NonNull<Page>, cells: usize) {
    // SAFETY: the caller's cells keep the page alive.
    let live = unsafe { &page.as_ref().live };
    // Ordering: Release pairs with the Acquire below: each use of the cells comes before their memory is used again.
    if live.fetch_sub(cells, Ordering::Release) != cells {
        return;
    }
    // Ordering: Acquire pairs with the Release of all other subtractions.
    live.load(Ordering::Acquire);
    let page = FreePage(page);
    // A clone, which outlives the page: the slab's thread may exit, and free the page, as soon as it has returned.
    let returns = Arc::clone(page.returns());
    returns.recycle(page);
}

/// A page without cells, and its ownership.
struct FreePage(NonNull<Page>);

// SAFETY: an owned page is memory and an `Arc` that is Send.
unsafe impl Send for FreePage {}

impl FreePage {
    fn new(returns: Arc<Returns>) -> Self {
        // SAFETY: the layout is not empty.
        let memory = unsafe { alloc::alloc(LAYOUT) };
        let Some(page) = NonNull::new(memory.cast::<Page>()) else {
            handle_alloc_error(LAYOUT);
        };
        let header = Page {
            link: Link::new(),
            live: AtomicUsize::new(0),
            returns,
        };
        // SAFETY: the memory is new, and large enough.
        unsafe { page.write(header) };
        Self(page)
    }

    /// Begins to allocate from the page: all of its cells count as live from now on.
    fn start(self) -> NonNull<Page> {
        let page = mem::ManuallyDrop::new(self).0;
        // SAFETY: the page is owned, and its header initialised.
        let page_ref = unsafe { page.as_ref() };
        let cells = (PAGE_SIZE - HEADER_SIZE) / CELL_SIZES[page_ref.returns.class];
        // Relaxed is enough: nobody else has the page. A thread that passes a cell on publishes it.
        page_ref.live.store(cells, Ordering::Relaxed);
        page
    }

    fn returns(&self) -> &Arc<Returns> {
        // SAFETY: the page is owned, and its header initialised.
        unsafe { &self.0.as_ref().returns }
    }
}

impl Drop for FreePage {
    fn drop(&mut self) {
        // SAFETY: the page is owned, has no cells, and was allocated by `new`.
        unsafe {
            self.0.drop_in_place();
            alloc::dealloc(self.0.cast().as_ptr(), LAYOUT);
        }
    }
}

// SAFETY: the link is the first field of the page, which stays where it is.
unsafe impl Linked for FreePage {
    fn into_link(self) -> NonNull<Link> {
        mem::ManuallyDrop::new(self).0.cast()
    }

    unsafe fn from_link(link: NonNull<Link>) -> Self {
        Self(link.cast())
    }
}

/// Returns `true`, except in models that are not about recycling and need not explore it.
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
