//! The route of a submitted task: to the lane of the current thread if that is a worker, and else to a lane whose worker is
//! awake.

use std::cell::Cell;

use super::lane::Lane;
use super::shared::Shared;
use crate::inbox::Batch;
use crate::join::RunContext;
use crate::sync::thread_local;
use crate::task::Task;

thread_local! {
    /// The address of a pool's `Shared`, and the lane whose worker this thread is.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom has no such form")]
    static WORKER: Cell<(usize, usize)> = Cell::new((0, 0));
}
thread_local! {
    /// The address of a pool's `Shared`, and the lane that this thread has last pushed to.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom has no such form")]
    static STICKY: Cell<(usize, usize)> = Cell::new((0, 0));
}

impl Shared {
    /// Queues tasks that have permits. Returns the batch if the pool is closed.
    #[inline]
    pub(super) fn push(
        &self,
        batch: Batch<Task<RunContext>>,
        tasks: usize,
    ) -> Result<(), Batch<Task<RunContext>>> {
        if let Some(lane) = self.own_lane() {
            self.lanes[lane].push_own(batch, tasks)?;
            // The worker, which usually shares, is in a task: this one.
            if let Some(undrained) = self.lanes[lane].undrained(tasks) {
                self.share(lane, undrained, false);
            }
            return Ok(());
        }
        let lane = self.sticky_lane();
        if self.lanes[lane].push(batch, tasks)? > 1 {
            // Others push here, too: use another lane next time.
            self.stick_to(self.awake_lane(lane + 1).unwrap_or(lane));
        }
        Ok(())
    }

    /// Returns the lane of this thread if it is a worker of this pool.
    #[inline]
    pub(super) fn own_lane(&self) -> Option<usize> {
        let (shared, lane) = WORKER.try_with(Cell::get).unwrap_or_default();
        (shared == self.address()).then_some(lane)
    }

    /// Makes this thread the worker of a lane.
    pub(super) fn attach_worker(&self, lane: usize) {
        WORKER.with(|worker| worker.set((self.address(), lane)));
        self.lanes[lane].attach_thread();
    }

    /// Undoes `attach_worker`: another pool may get this address later.
    pub(super) fn detach_worker(&self) {
        WORKER.with(Cell::take);
    }

    /// Returns the lane to push to: the last one if its worker is awake, another whose worker is awake, or one whose
    /// worker must be woken.
    #[inline]
    fn sticky_lane(&self) -> usize {
        let (shared, lane) = STICKY.try_with(Cell::get).unwrap_or_default();
        // The address may have been that of another pool before, with more lanes.
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
        // Without thread-local storage, each push chooses a lane.
        let _ = STICKY.try_with(|sticky| sticky.set((self.address(), lane)));
    }

    /// Returns the first lane, from `first` on, whose worker is awake.
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
