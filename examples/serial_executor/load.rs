//! The load: publishers that hardly wait, and subscribers that come and go.

use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use tokio::task::{JoinSet, yield_now};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::audit::Life;
use super::broker::Broker;
use super::topic::{Message, Number, Subscription};
use super::{Args, Result, ensure};

/// How many messages a subscriber takes at once.
const BATCH: usize = 16;
/// How many messages a subscriber takes before it disconnects; some take a few more.
const LIFE: u64 = 500;
/// How many messages wait for a subscriber when publishers let it go first.
const LONG: usize = 100;
/// One message in so many is never acknowledged.
const FORGOTTEN: u64 = 23;
/// How often the bar changes.
const INTERVAL: Duration = Duration::from_millis(50);

/// Has all messages published, and then stops the subscribers, wherever they are; those that are
/// connected stay so. Returns the lives of all subscribers.
pub(crate) async fn run(broker: &Broker, args: &Args) -> Result<Vec<Life>> {
    let stop = CancellationToken::new();
    // Also if something fails.
    let stopper = stop.clone().drop_guard();
    let mut subscribers = JoinSet::new();
    for _ in 0..args.subscribers {
        subscribers.spawn(subscriber(broker.clone(), stop.clone()));
    }
    let mut publishers = JoinSet::new();
    for publisher in 0..args.publishers {
        publishers.spawn(publish(broker.clone(), publisher, args.messages));
    }
    let screen = tokio::spawn(watch(broker.clone(), args.all_messages(), stop));

    while let Some(published) = publishers.join_next().await {
        published??;
    }
    drop(stopper);
    let mut lives = Vec::new();
    while let Some(subscriber) = subscribers.join_next().await {
        lives.extend(subscriber??);
    }
    screen.await??;
    Ok(lives)
}

async fn publish(broker: Broker, publisher: u64, messages: u64) -> Result<()> {
    let mut last = None;
    for message in 0..messages {
        let text = format!("message {message} of publisher {publisher}");
        let published = broker.publish(text.into()).await?;
        let number = Some(published.number);
        ensure(number > last, || format!("{number:?} after {last:?}"))?;
        last = number;
        if published.longest_queue > LONG {
            yield_now().await;
        }
    }
    Ok(())
}

/// The lives of a subscriber, one after the other.
async fn subscriber(broker: Broker, stop: CancellationToken) -> Result<Vec<Life>> {
    let mut lives = Vec::new();
    while !stop.is_cancelled() {
        lives.push(live(&broker, &stop).await?);
    }
    Ok(lives)
}

/// Subscribes, takes and acknowledges messages, and disconnects when there were enough.
async fn live(broker: &Broker, stop: &CancellationToken) -> Result<Life> {
    let subscription = broker.subscribe().await?;
    let mut life = Life::new(&subscription);
    let mut last = None;
    let end = LIFE + subscription.id * 37 % LIFE;
    let mut taken = 0;
    while taken < end {
        let messages = broker.take(subscription.id, BATCH).await?;
        if messages.is_empty() && !has_arrived(&subscription, stop).await {
            return Ok(life);
        }
        for message in messages {
            receive(&mut last, &message)?;
            taken += 1;
            if stop.is_cancelled() {
                return Ok(life);
            }
            if message.number % FORGOTTEN != subscription.id % FORGOTTEN {
                broker.acknowledge(subscription.id, message.number).await?;
                life.acknowledged.push(message.number);
            }
        }
    }
    life.dropped = Some(broker.disconnect(subscription.id).await?);
    Ok(life)
}

/// Waits until there is something to take; `false`: it is over.
async fn has_arrived(subscription: &Subscription, stop: &CancellationToken) -> bool {
    let arrived = subscription.arrived.notified();
    stop.run_until_cancelled(arrived).await.is_some()
}

/// What a subscriber does with a message: it looks whether it comes in its turn.
fn receive(last: &mut Option<Number>, message: &Message) -> Result<()> {
    let number = Some(message.number);
    let in_turn = number > *last && message.text.starts_with("message ");
    ensure(in_turn, || format!("{message:?} after {last:?}"))?;
    *last = number;
    Ok(())
}

/// Shows how far the publishers have come, if standard error is a terminal.
async fn watch(broker: Broker, messages: u64, stop: CancellationToken) -> Result<()> {
    let style = ProgressStyle::with_template("[{bar:30}] {pos} of {len} messages, {msg}");
    let bar = ProgressBar::new(messages);
    bar.set_style(style.expect("the template is right").progress_chars("=> "));
    while stop.run_until_cancelled(sleep(INTERVAL)).await.is_some() {
        bar.set_position(broker.published().await?);
        bar.set_message(format!("{} jobs queued", broker.metrics().queue_length));
    }
    bar.finish_and_clear();
    Ok(())
}
