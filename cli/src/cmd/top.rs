//! `throng top`: shows the store in the terminal, and updates it every second.

mod data;
mod draw;
mod keys;
mod model;
mod tab;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::panic;
use std::thread;
use std::time::Duration;

use clap::Args;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};
use throng::durable::{Changed, TaskChange, TaskId};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Interval, MissedTickBehavior, interval};

use self::data::TopData;
use self::keys::TopAction;
use self::model::TopModel;
use self::tab::TopTab;
use super::task::show;
use crate::failure::Failure;
use crate::store::{Session, StoreArgs};

#[derive(Args, Debug)]
pub(crate) struct TopArgs {
    /// Allows replaying and cancelling tasks
    #[arg(long)]
    operate: bool,
}

/// The time between two requests for the data.
const PERIOD: Duration = Duration::from_secs(1);

/// The answer to a request for the data.
type Answer = Result<TopData, Failure>;

/// Shows the store until `q` is pressed.
pub(crate) async fn run(store: &StoreArgs, args: TopArgs) -> Result<(), Failure> {
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        let how = "`throng top` needs a terminal: use `throng status` in scripts";
        return Err(Failure::Usage(how.into()));
    }
    let session = if args.operate {
        store.open().await?
    } else {
        store.observe().await?
    };
    // A store that does not answer is reported before the screen changes.
    let data = data::read(&session, TopTab::Queues).await?;
    let mut model = TopModel::new(args.operate, data);
    let show = async |terminal: &mut DefaultTerminal| watch(&session, &mut model, terminal).await;
    let result = on_screen(show).await;
    session.close().await;
    result
}

/// Uses the whole terminal, and restores it at the end, even after a panic.
async fn on_screen(
    show: impl AsyncFnOnce(&mut DefaultTerminal) -> Result<(), Failure>,
) -> Result<(), Failure> {
    // This sets a panic hook that restores the terminal before the message of the panic is printed.
    let mut terminal = ratatui::try_init()?;
    let result = show(&mut terminal).await;
    ratatui::try_restore()?;
    result
}

/// Draws and updates the screen until it is over.
async fn watch(
    session: &Session,
    model: &mut TopModel,
    terminal: &mut DefaultTerminal,
) -> Result<(), Failure> {
    let (mut events, mut tick) = (events(), ticks());
    let mut terminate = signal(SignalKind::terminate())?;
    // Ctrl-C is a key here. This is the signal that another process sends.
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut request: Option<JoinHandle<Answer>> = None;
    loop {
        terminal.draw(|frame| draw::draw(frame, model))?;
        tokio::select! {
            _ = terminate.recv() => return Ok(()),
            _ = interrupt.recv() => return Ok(()),
            event = events.recv() => match event {
                None => return Ok(()),
                Some(event) => match react(session, model, event).await {
                    ControlFlow::Break(()) => return Ok(()),
                    ControlFlow::Continue(false) => {}
                    ControlFlow::Continue(true) => {
                        // The answer to this request may be about another tab.
                        request.take().inspect(JoinHandle::abort);
                        tick.reset_immediately();
                    }
                },
            },
            answer = answer(&mut request) => {
                request = None;
                model.update(answer);
            }
            _ = tick.tick(), if !model.is_frozen && request.is_none() => {
                let (session, tab) = (session.clone(), model.tab);
                request = Some(tokio::spawn(async move { data::read(&session, tab).await }));
            }
        }
    }
}

/// Reacts to a key. Returns `true` if the data may have changed, or breaks if the key quits.
async fn react(session: &Session, model: &mut TopModel, event: Event) -> ControlFlow<(), bool> {
    let action = match event {
        Event::Key(key) if key.kind == KeyEventKind::Press => model.press(key),
        _ => None,
    };
    match action {
        None => ControlFlow::Continue(false),
        Some(TopAction::Quit) => ControlFlow::Break(()),
        Some(action) => {
            act(session, model, action).await;
            ControlFlow::Continue(true)
        }
    }
}

/// Waits for the answer to a request, or forever if there is none.
async fn answer(request: &mut Option<JoinHandle<Answer>>) -> Answer {
    match request {
        None => std::future::pending().await,
        Some(request) => match request.await {
            Ok(answer) => answer,
            // The panic hook has restored the terminal, so the command cannot go on drawing.
            Err(error) => match error.try_into_panic() {
                Ok(panic) => panic::resume_unwind(panic),
                Err(error) => Err(Failure::Failed(error.to_string())),
            },
        },
    }
}

/// Does what a key asks for.
async fn act(session: &Session, model: &mut TopModel, action: TopAction) {
    match action {
        TopAction::Refresh | TopAction::Quit => {}
        TopAction::Show(id) => match session.ask(session.client.admin().task(id)).await {
            Ok(Some(detail)) => model.show(show::lines(&detail)),
            Ok(None) => model.message = Some(show::absent(id).to_string()),
            Err(failure) => model.message = Some(failure.to_string()),
        },
        TopAction::Change(id, change) => {
            let admin = session.client.admin();
            let changed = session.ask(admin.change(id, change.clone())).await;
            model.message = Some(match changed {
                Ok(changed) => describe(id, changed, &change),
                Err(failure) => failure.to_string(),
            });
        }
    }
}

fn describe(id: TaskId, changed: Changed, change: &TaskChange) -> String {
    format!("{id}: {}", super::task::effect_of(changed, change))
}

fn ticks() -> Interval {
    let mut ticks = interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// Reads the events of the terminal on a thread, which ends with the process.
fn events() -> mpsc::UnboundedReceiver<Event> {
    let (sender, events) = mpsc::unbounded_channel();
    thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    events
}
