//! Where a thread pushes to: its own lane, if it is a worker, else one whose worker is awake.

use std::cell::Cell;

use super::lane::Lane;
use super::shared::Shared;
use crate::inbox::Batch;
use crate::join::RunContext;
use crate::sync::thread_local;
use crate::task::Task;

thread_local! {
    /// The shared and the lane whose worker this thread is.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static WORKER: Cell<(usize, usize)> = Cell::new((0, 0));
}
thread_local! {
    /// The shared and the lane that this thread has pushed to before.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom knows no such form")]
    static STICKY: Cell<(usize, usize)> = Cell::new((0, 0));
}

impl Shared {
    /// Queues tasks for which there is room. `Err`: the pool is closed.
    #[inline]
    pub(super) fn push(
        &self,
        batch: Batch<Task<RunContext>>,
        count: usize,
    ) -> Result<(), Batch<Task<RunContext>>> {
        if let Some(lane) = self.own_lane() {
            self.lanes[lane].push_own(batch, count)?;
            // The worker, which would share, is in a task: this one.
            if let Some(undrained) = self.lanes[lane].undrained(count) {
                self.share(lane, undrained, false);
            }
            return Ok(());
        }
        let lane = self.sticky_lane();
        if self.lanes[lane].push(batch, count)? > 1 {
            // Others push here, too: somewhere else next time.
            self.stick_to(self.awake_lane(lane + 1).unwrap_or(lane));
        }
        Ok(())
    }

    /// The lane of this thread, if it is a worker of this shared.
    #[inline]
    pub(super) fn own_lane(&self) -> Option<usize> {
        let (shared, lane) = WORKER.try_with(Cell::get).unwrap_or_default();
        (shared == self.address()).then_some(lane)
    }

    /// This thread is a worker from now on.
    pub(super) fn enlist(&self, lane: usize) {
        WORKER.with(|worker| worker.set((self.address(), lane)));
        self.lanes[lane].man();
    }

    /// This thread is nobody's worker any more: there may be another shared at this address one day.
    pub(super) fn discharge(&self) {
        WORKER.with(Cell::take);
    }

    /// A lane to push to: that of the last time, if its worker is awake, another that is, or one whose
    /// worker must be woken.
    #[inline]
    fn sticky_lane(&self) -> usize {
        let (shared, lane) = STICKY.try_with(Cell::get).unwrap_or_default();
        // An address may have been that of another shared before, with more lanes.
        if shared == self.address() && self.lanes.get(lane).is_some_and(is_awake) {
            return lane;
        }
        self.new_lane()
    }

    #[cold]
    fn new_lane(&self) -> usize {
        let lanes = self.lanes.len();
        let first = self.next.add(1) % lanes;
        let lane = self
            .awake_lane(first)
            .or_else(|| {
                (first..first + lanes)
                    .map(|lane| lane % lanes)
                    .find(|&lane| !self.lanes[lane].is_stuck())
            })
            .unwrap_or(first);
        self.stick_to(lane);
        lane
    }

    fn stick_to(&self, lane: usize) {
        // Without thread-local storage it begins anew each time.
        let _ = STICKY.try_with(|sticky| sticky.set((self.address(), lane)));
    }

    /// A lane, from `first` on, whose worker is awake.
    fn awake_lane(&self, first: usize) -> Option<usize> {
        let lanes = self.lanes.len();
        (first..first + lanes)
            .map(|lane| lane % lanes)
            .find(|&lane| is_awake(&self.lanes[lane]))
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

#[inline]
fn is_awake(lane: &Lane) -> bool {
    !lane.is_parked() && !lane.is_stuck()
}
