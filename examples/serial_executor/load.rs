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

/// The messages that a subscriber takes at once.
const BATCH_SIZE: usize = 16;
/// The messages that a subscriber takes before it disconnects. Some take a few more.
const MESSAGES_PER_LIFE: u64 = 500;
/// The length of a queue at which publishers yield to the subscriber.
const LONG_QUEUE: usize = 100;
/// One message in this many is never acknowledged.
const MESSAGES_PER_LOSS: u64 = 23;
/// The time between two updates of the progress bar.
const UPDATE_INTERVAL: Duration = Duration::from_millis(50);

/// Publishes all messages, and then stops the subscribers, which may stay connected. Returns the lives of all
/// subscribers.
pub(crate) async fn run(broker: &Broker, args: &Args) -> Result<Vec<Life>> {
    let stop = CancellationToken::new();
    // Stops them also if something fails.
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
        if published.longest_queue > LONG_QUEUE {
            yield_now().await;
        }
    }
    Ok(())
}

/// Runs a subscriber, and returns its lives.
async fn subscriber(broker: Broker, stop: CancellationToken) -> Result<Vec<Life>> {
    let mut lives = Vec::new();
    while !stop.is_cancelled() {
        lives.push(live(&broker, &stop).await?);
    }
    Ok(lives)
}

/// Subscribes, takes and acknowledges messages, and disconnects after enough of them.
async fn live(broker: &Broker, stop: &CancellationToken) -> Result<Life> {
    let subscription = broker.subscribe().await?;
    let mut life = Life::new(&subscription);
    let mut last = None;
    let end = MESSAGES_PER_LIFE + subscription.id * 37 % MESSAGES_PER_LIFE;
    let mut taken = 0;
    while taken < end {
        let messages = broker.take(subscription.id, BATCH_SIZE).await?;
        if messages.is_empty() && !has_arrived(&subscription, stop).await {
            return Ok(life);
        }
        for message in messages {
            receive(&mut last, &message)?;
            taken += 1;
            if stop.is_cancelled() {
                return Ok(life);
            }
            if message.number % MESSAGES_PER_LOSS != subscription.id % MESSAGES_PER_LOSS {
                broker.acknowledge(subscription.id, message.number).await?;
                life.acknowledged.push(message.number);
            }
        }
    }
    life.dropped = Some(broker.disconnect(subscription.id).await?);
    Ok(life)
}

/// Waits for messages. Returns `false` if the subscriber is stopped.
async fn has_arrived(subscription: &Subscription, stop: &CancellationToken) -> bool {
    let arrived = subscription.arrived.notified();
    stop.run_until_cancelled(arrived).await.is_some()
}

/// Checks that a message arrives in order.
fn receive(last: &mut Option<Number>, message: &Message) -> Result<()> {
    let number = Some(message.number);
    let in_turn = number > *last && message.text.starts_with("message ");
    ensure(in_turn, || format!("{message:?} after {last:?}"))?;
    *last = number;
    Ok(())
}

/// Shows the progress of the publishers, if standard error is a terminal.
async fn watch(broker: Broker, messages: u64, stop: CancellationToken) -> Result<()> {
    let style = ProgressStyle::with_template("[{bar:30}] {pos} of {len} messages, {msg}");
    let bar = ProgressBar::new(messages);
    bar.set_style(style.expect("the template is right").progress_chars("=> "));
    while stop
        .run_until_cancelled(sleep(UPDATE_INTERVAL))
        .await
        .is_some()
    {
        bar.set_position(broker.published().await?);
        bar.set_message(format!("{} jobs queued", broker.metrics().queue_length));
    }
    bar.finish_and_clear();
    Ok(())
}
