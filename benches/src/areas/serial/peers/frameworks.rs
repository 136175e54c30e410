//! Actors of frameworks, written as in their manuals, with the same mailbox where it can be configured.

use std::convert::Infallible;
use std::sync::mpsc;
use std::thread;

use actix::Actor as _;
use kameo::actor::Spawn as _;
use ractor::{ActorProcessingErr, RpcReplyPort};

use super::{MAILBOX_CAPACITY, Serial};
use crate::measure::Spin;

/// The state, for frameworks in which it also handles the messages.
#[derive(Default)]
pub(super) struct Counter {
    value: u64,
}

/// A message that is answered with the new value.
pub(super) struct Operate(Spin);

pub(super) type Kameo = kameo::actor::ActorRef<Counter>;

impl kameo::Actor for Counter {
    type Args = Self;
    type Error = Infallible;

    async fn on_start(counter: Self, _actor: Kameo) -> Result<Self, Infallible> {
        Ok(counter)
    }
}

impl kameo::message::Message<Operate> for Counter {
    type Reply = u64;

    async fn handle(
        &mut self,
        Operate(spin): Operate,
        _context: &mut kameo::message::Context<Self, u64>,
    ) -> u64 {
        spin.apply(&mut self.value)
    }
}

impl Serial for Kameo {
    fn start() -> Self {
        Counter::spawn_with_mailbox(
            Counter::default(),
            kameo::mailbox::bounded(MAILBOX_CAPACITY),
        )
    }

    async fn operate(&self, spin: Spin) -> u64 {
        self.ask(Operate(spin)).await.expect("the actor replies")
    }

    async fn post(&self, spin: Spin) {
        self.tell(Operate(spin)).await.expect("the actor lives");
    }
}

pub(super) type Ractor = ractor::ActorRef<Request>;

/// The message handler, for a framework in which the state is separate.
pub(super) struct Handler;

/// An [`Operate`] with the port for its answer.
pub(super) struct Request {
    spin: Spin,
    reply: Option<RpcReplyPort<u64>>,
}

impl ractor::Actor for Handler {
    type Msg = Request;
    type State = u64;
    type Arguments = ();

    async fn pre_start(
        &self,
        _actor: Ractor,
        (): Self::Arguments,
    ) -> Result<u64, ActorProcessingErr> {
        Ok(0)
    }

    async fn handle(
        &self,
        _actor: Ractor,
        Request { spin, reply }: Request,
        state: &mut u64,
    ) -> Result<(), ActorProcessingErr> {
        let value = spin.apply(state);
        if let Some(reply) = reply {
            reply.send(value)?;
        }
        Ok(())
    }
}

impl Serial for Ractor {
    fn start() -> Self {
        let spawned = ractor::ActorRuntime::spawn_instant(None, Handler, ());
        spawned.expect("an actor without a name can be spawned").0
    }

    async fn operate(&self, spin: Spin) -> u64 {
        let request = |reply| Request {
            spin,
            reply: Some(reply),
        };
        let answer = self.call(request, None).await.expect("the actor lives");
        answer.expect("the actor replies")
    }

    async fn post(&self, spin: Spin) {
        self.cast(Request { spin, reply: None })
            .expect("the actor lives");
    }
}

pub(super) type Actix = actix::Addr<Counter>;

impl actix::Actor for Counter {
    type Context = actix::Context<Self>;

    fn started(&mut self, context: &mut Self::Context) {
        context.set_mailbox_capacity(MAILBOX_CAPACITY);
    }

    /// Ends its thread, which has nothing else to do.
    fn stopped(&mut self, _context: &mut Self::Context) {
        actix::System::current().stop();
    }
}

impl actix::Message for Operate {
    type Result = u64;
}

impl actix::Handler<Operate> for Counter {
    type Result = u64;

    fn handle(&mut self, Operate(spin): Operate, _context: &mut Self::Context) -> u64 {
        spin.apply(&mut self.value)
    }
}

impl Serial for Actix {
    /// An actor stays on the thread that starts it, in the single-threaded runtime of its system.
    fn start() -> Self {
        let (sender, started) = mpsc::channel();
        thread::spawn(move || {
            let system = actix::System::new();
            let address = system.block_on(async { Counter::default().start() });
            sender.send(address).expect("the caller waits");
            system.run().expect("the system ends well");
        });
        started.recv().expect("the system starts")
    }

    async fn operate(&self, spin: Spin) -> u64 {
        self.send(Operate(spin)).await.expect("the actor replies")
    }

    async fn post(&self, spin: Spin) {
        self.do_send(Operate(spin));
    }
}
