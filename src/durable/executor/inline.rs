//! [`InlineExecutor`]: runs tasks on the caller, for tests.

use std::fmt;
use std::future::poll_fn;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::time::timeout;

use super::registry::Runs;
use super::scope::{Rule, RunScope};
use crate::durable::context::Stop;
use crate::durable::resend::STORE_TIMEOUT;
use crate::durable::store::{MAX_BATCH_BYTES, SessionId, Turn, Verdicts};
use crate::durable::{DurableClient, DurableError};

/// Runs tasks on the caller, one at a time, when the caller says so: for tests.
///
/// # Examples
///
/// ```
/// # use serde::{Deserialize, Serialize};
/// # use throng::durable::{DurableTask, Run, SpawnOptions, TaskContext, TaskError};
/// # #[derive(Serialize, Deserialize)] struct Remind;
/// # impl DurableTask for Remind { const NAME: &'static str = "remind"; type Output = u32; }
/// # struct App;
/// # impl Run<App> for Remind {
/// #     async fn run(self, cx: TaskContext<App>) -> Result<u32, TaskError> { Ok(cx.attempt()) }
/// # }
/// use std::time::Duration;
/// use throng::durable::{Clock, DurableClient, DurableExecutor, MemoryStore};
///
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let clock = Clock::manual();
/// let client = DurableClient::open(MemoryStore::with_clock(&clock));
/// let mut executor = DurableExecutor::builder(client.clone())
///     .register::<Remind>()
///     .start_inline(App)
///     .await?;
///
/// let tomorrow = SpawnOptions::new().delay(Duration::from_secs(24 * 3600));
/// let handle = client.spawn_with(Remind, tomorrow).await?;
/// assert_eq!(executor.run_due().await?, 0);
///
/// clock.advance(Duration::from_secs(24 * 3600));
/// assert_eq!(executor.run_due().await?, 1);
/// assert_eq!(handle.await?, 1);
/// # Ok(()) }
/// ```
pub struct InlineExecutor {
    client: DurableClient,
    runs: StdArc<dyn Runs>,
    session: SessionId,
    number: u64,
    /// What the store does not know yet.
    verdicts: Vec<Verdicts>,
}

/// Long enough for whatever a test does while it looks at a task.
const LEASE: Duration = Duration::from_secs(24 * 3600);

impl InlineExecutor {
    pub(super) async fn start(
        client: DurableClient,
        runs: impl Runs + 'static,
    ) -> Result<Self, DurableError> {
        let set = runs.set();
        let session = client
            .ask(None, |store| store.open_session(Some(set.clone())))
            .await?;
        Ok(Self {
            client,
            runs: StdArc::new(runs),
            session,
            number: 0,
            verdicts: Vec::new(),
        })
    }

    /// Runs what is due, also what becomes due meanwhile, until there is nothing. Returns how many
    /// runs there were.
    ///
    /// # Errors
    ///
    /// The store does not answer.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the task that was running is held by this executor for a day, unless
    /// the executor is dropped, too.
    pub async fn run_due(&mut self) -> Result<usize, DurableError> {
        let mut runs = 0;
        loop {
            let request = self.next_turn();
            let turned = self
                .client
                .ask(None, |store| store.turn(request.clone()))
                .await?;
            let told = std::mem::take(&mut self.verdicts);
            let ended = told.iter().flat_map(|it| &it.tasks).map(|task| task.0);
            self.client.engine().waiters.check(ended);
            let Some(claim) = turned.claim else {
                return Ok(runs);
            };
            self.client.engine().received(claim.epoch);
            for task in claim.tasks {
                runs += 1;
                let id = task.id;
                let mut run = self.runs.begin(task, claim.epoch, Stop::default());
                // The tasks that it awaits would have to run here.
                let scope = RunScope::new(Rule::Refuse, StdArc::default());
                let verdict = poll_fn(|cx| scope.enter(|| run.as_mut().poll(cx))).await;
                self.verdicts.push(Verdicts {
                    epoch: claim.epoch,
                    tasks: vec![(id, verdict)],
                });
            }
        }
    }

    /// A turn that claims one task.
    fn next_turn(&mut self) -> StdArc<Turn> {
        self.number += 1;
        StdArc::new(Turn {
            session: self.session,
            number: self.number,
            verdicts: self.verdicts.clone(),
            // The verdicts say so.
            received: None,
            floor: self.client.engine().floor(),
            want: 1,
            want_bytes: MAX_BATCH_BYTES,
            quarantined: true,
            lease: LEASE,
            park: false,
        })
    }
}

impl Drop for InlineExecutor {
    /// Gives back what it holds.
    fn drop(&mut self) {
        let (store, session) = (StdArc::clone(&self.client.engine().store), self.session);
        self.client.engine().run_to_end(async move {
            let closed = store.close_session(session);
            timeout(STORE_TIMEOUT, closed).await.ok();
        });
    }
}

impl fmt::Debug for InlineExecutor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InlineExecutor")
            .field("client", &self.client)
            .finish_non_exhaustive()
    }
}
