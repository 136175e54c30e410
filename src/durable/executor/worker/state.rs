//! [`Worker`]: the state of a worker, which the other files of this folder work on.

use std::collections::HashSet;
use std::pin::Pin;
use std::sync::Arc as StdArc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::queue_session::QueueSession;
use super::shares::Shares;
use crate::durable::TaskId;
use crate::durable::clock::since_boot;
use crate::durable::engine::Engine;
use crate::durable::executor::app_guard::AppGuard;
use crate::durable::executor::claims::Claims;
use crate::durable::executor::message::Message;
use crate::durable::executor::metrics::Tally;
use crate::durable::executor::open_sessions::session_of;
use crate::durable::executor::pending_verdicts::PendingVerdicts;
use crate::durable::executor::permits::Permits;
use crate::durable::executor::progress_reports::ProgressReports;
use crate::durable::executor::served_queue::QueueShare;
use crate::durable::executor::timeouts::Timeouts;
use crate::durable::failure::Failure;
use crate::durable::schedule::name::ScheduleName;
use crate::durable::store::{Claim, RenewAnswer, SessionId, Turn, TurnAnswer};
use crate::sync::Number;

/// Claims tasks, has the user's runtime run them, and reports to the store how they ended.
pub(crate) struct Worker {
    pub(super) engine: StdArc<Engine>,
    pub(super) app: AppGuard,
    pub(super) settings: Settings,
    pub(super) runtime: Handle,
    pub(super) tally: StdArc<Tally>,
    /// The sessions, one for each queue, in the order of the queues.
    pub(super) sessions: Vec<QueueSession>,
    pub(super) shares: Shares,
    /// The index of the session that the last turn belongs to. It changes only when that turn is answered, and its claim is
    /// confirmed if necessary.
    pub(super) current: usize,
    pub(super) sender: mpsc::UnboundedSender<Message>,
    pub(super) messages: mpsc::UnboundedReceiver<Message>,
    pub(super) claims: Claims,
    pub(super) timeouts: Timeouts,
    pub(super) pending_verdicts: PendingVerdicts,
    pub(super) progress: ProgressReports,
    /// The requests in flight that report progress.
    pub(super) reporting: Option<InFlight<Vec<TaskId>>>,
    pub(super) turn: Option<InFlight<TurnAnswer>>,
    pub(super) opening: Option<InFlight<SessionId>>,
    /// A claim with tasks that were lost before, until it is confirmed.
    pub(super) confirming: Option<InFlight<Confirmed>>,
    /// A turn that the store has not answered, and that will be sent again.
    pub(super) unanswered: Option<StdArc<Turn>>,
    /// `true` if the turn was sent more than once. Its answer then does not say which verdicts were refused.
    pub(super) resent: bool,
    /// The number of turns that have failed in a row.
    pub(super) failures: u32,
    /// The end of the pause after a failure.
    pub(super) pause: Option<Instant>,
    pub(super) renewal: Option<InFlight<RenewAnswer>>,
    pub(super) next_renewal: Option<Instant>,
    /// The time since which the runtime has not run the probe.
    pub(super) probed: Option<Duration>,
    /// The requests that fire due schedules.
    pub(super) firing: Option<InFlight<Fired>>,
    /// The time at which a schedule is due, as far as the worker knows.
    pub(super) next_tick: Option<Instant>,
    /// The time at which the worker asks for due schedules even if it knows of none.
    pub(super) next_look: Instant,
    /// Until then, the worker does not ask for due schedules, because the store has not answered.
    pub(super) tick_pause: Instant,
    /// The schedules that this worker could not fire the last time.
    pub(super) unfired: HashSet<ScheduleName>,
    /// Tasks that are to be cancelled, and may be in the claim that is in flight.
    pub(super) early_cancels: HashSet<TaskId>,
    /// The number of runs that await durable handles.
    pub(super) waiting: StdArc<Number>,
    /// The time since which all permits are taken and none was given back.
    pub(super) full_since: Option<Instant>,
    /// The time at which the remaining runs are aborted. Set once the worker claims no more tasks.
    pub(super) stopping: Option<Instant>,
}

/// The settings of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The queues that the worker serves: at least one.
    pub(crate) queues: Vec<QueueShare>,
    pub(crate) max_running: usize,
    pub(crate) lease: Duration,
    pub(crate) stall_limit: Duration,
}

/// A request that the store has not answered yet.
pub(super) struct InFlight<T> {
    /// When it was sent, measured since the machine was started.
    pub(super) sent: Duration,
    pub(super) answer: Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>,
}

/// A claim, the time at which its request was sent, and whether its delivery is confirmed.
pub(super) struct Confirmed {
    pub(super) claim: Claim,
    pub(super) sent: Duration,
    pub(super) confirmed: bool,
}

/// The schedules that the store has handed out.
#[derive(Debug)]
pub(super) struct Fired {
    /// For each of them, the reason why this process could not fire it, if there is one.
    pub(super) outcomes: Vec<(ScheduleName, Option<String>)>,
    /// The time until the next schedule is due.
    pub(super) next: Option<Duration>,
}

impl<T> InFlight<T> {
    pub(super) fn new(answer: impl Future<Output = Result<T, Failure>> + Send + 'static) -> Self {
        Self {
            sent: since_boot(),
            answer: Box::pin(answer),
        }
    }
}

impl Worker {
    pub(crate) fn new(
        engine: StdArc<Engine>,
        app: AppGuard,
        settings: Settings,
        runtime: Handle,
        sessions: Vec<SessionId>,
        (sender, messages): (
            mpsc::UnboundedSender<Message>,
            mpsc::UnboundedReceiver<Message>,
        ),
        tally: StdArc<Tally>,
    ) -> Self {
        let (queues, runner) = (&settings.queues, app.runner());
        let sessions = queues.iter().zip(sessions);
        let sessions =
            sessions.map(|(share, id)| QueueSession::new(session_of(&**runner, share), id));
        let limits = queues.iter().map(|it| it.max_running);
        Self {
            sessions: sessions.collect(),
            shares: Shares::new(queues.iter().map(|it| it.weight)),
            current: 0,
            claims: Claims::new(Permits::new(settings.max_running, limits)),
            timeouts: Timeouts::default(),
            engine,
            app,
            settings,
            runtime,
            tally,
            sender,
            messages,
            pending_verdicts: PendingVerdicts::default(),
            progress: ProgressReports::new(),
            reporting: None,
            turn: None,
            opening: None,
            confirming: None,
            unanswered: None,
            resent: false,
            failures: 0,
            pause: None,
            renewal: None,
            next_renewal: None,
            probed: None,
            firing: None,
            next_tick: None,
            next_look: Instant::now(),
            tick_pause: Instant::now(),
            unfired: HashSet::new(),
            early_cancels: HashSet::new(),
            waiting: StdArc::default(),
            full_since: None,
            stopping: None,
        }
    }
}
