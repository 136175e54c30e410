//! The topic: a plain state and its operations, without threads and tasks.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use tokio::sync::Notify;

/// The number of a message, in the order of publication.
pub(crate) type Number = u64;

/// Identifies a subscriber while it is connected.
pub(crate) type Id = u64;

#[derive(Clone, Debug)]
pub(crate) struct Message {
    pub(crate) number: Number,
    pub(crate) text: Arc<str>,
}

#[derive(Debug, Default)]
pub(crate) struct Topic {
    published: Number,
    /// The number of subscribers so far.
    subscribed: Id,
    subscribers: BTreeMap<Id, Subscriber>,
}

#[derive(Debug, Default)]
struct Subscriber {
    /// Messages that it has not taken.
    queue: VecDeque<Message>,
    /// Messages that it has taken and not acknowledged.
    in_flight: BTreeMap<Number, Message>,
    arrived: Arc<Notify>,
}

/// The result of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    pub(crate) number: Number,
    /// The length of the longest queue.
    pub(crate) longest_queue: usize,
}

/// The result of a subscription.
#[derive(Clone, Debug)]
pub(crate) struct Subscription {
    pub(crate) id: Id,
    /// The number of the first message that it receives.
    pub(crate) first: Number,
    /// Notified when a message arrives in its empty queue.
    pub(crate) arrived: Arc<Notify>,
}

/// The messages that a subscriber has left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Left {
    /// The number of the first message that it did not receive any more.
    pub(crate) until: Number,
    pub(crate) in_flight: Vec<Number>,
    pub(crate) queued: Vec<Number>,
}

impl Topic {
    /// Adds a message to the queues of all subscribers.
    pub(crate) fn publish(&mut self, text: Arc<str>) -> Published {
        let number = self.published;
        let mut longest_queue = 0;
        self.published += 1;
        for subscriber in self.subscribers.values_mut() {
            let text = Arc::clone(&text);
            subscriber.queue.push_back(Message { number, text });
            if subscriber.queue.len() == 1 {
                subscriber.arrived.notify_one();
            }
            longest_queue = longest_queue.max(subscriber.queue.len());
        }
        Published {
            number,
            longest_queue,
        }
    }

    pub(crate) fn subscribe(&mut self) -> Subscription {
        let subscriber = Subscriber::default();
        let subscription = Subscription {
            id: self.subscribed,
            first: self.published,
            arrived: Arc::clone(&subscriber.arrived),
        };
        self.subscribers.insert(subscription.id, subscriber);
        self.subscribed += 1;
        subscription
    }

    /// Takes the oldest messages, which are in flight then. Returns `None` if the subscriber is not connected.
    pub(crate) fn take(&mut self, id: Id, limit: usize) -> Option<Vec<Message>> {
        let subscriber = self.subscribers.get_mut(&id)?;
        let count = limit.min(subscriber.queue.len());
        let messages: Vec<_> = subscriber.queue.drain(..count).collect();
        let in_flight = messages.iter().map(|it| (it.number, it.clone()));
        subscriber.in_flight.extend(in_flight);
        Some(messages)
    }

    /// Removes a message that is in flight. Returns `false` if it is not in flight.
    pub(crate) fn acknowledge(&mut self, id: Id, number: Number) -> bool {
        let subscriber = self.subscribers.get_mut(&id);
        subscriber.is_some_and(|it| it.in_flight.remove(&number).is_some())
    }

    /// Removes a subscriber, and returns the messages that it has left. Returns `None` if it is not connected.
    pub(crate) fn disconnect(&mut self, id: Id) -> Option<Left> {
        let left = self.left_by(id);
        self.subscribers.remove(&id);
        left
    }

    /// The messages that a connected subscriber would leave now.
    pub(crate) fn left_by(&self, id: Id) -> Option<Left> {
        let subscriber = self.subscribers.get(&id)?;
        Some(Left {
            until: self.published,
            in_flight: subscriber.in_flight.keys().copied().collect(),
            queued: subscriber.queue.iter().map(|it| it.number).collect(),
        })
    }

    pub(crate) fn published(&self) -> Number {
        self.published
    }

    /// The connected subscribers.
    pub(crate) fn connected(&self) -> impl Iterator<Item = Id> + '_ {
        self.subscribers.keys().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn publish(topic: &mut Topic, count: u64) {
        for _ in 0..count {
            topic.publish("text".into());
        }
    }

    fn numbers(messages: Option<Vec<Message>>) -> Vec<Number> {
        messages.unwrap().iter().map(|it| it.number).collect()
    }

    #[test]
    fn a_subscriber_receives_later_messages_in_order() {
        let mut topic = Topic::default();
        publish(&mut topic, 2);
        let subscription = topic.subscribe();
        assert_eq!(subscription.first, 2);
        publish(&mut topic, 3);
        assert_eq!(numbers(topic.take(subscription.id, 2)), [2, 3]);
        assert_eq!(numbers(topic.take(subscription.id, 2)), [4]);
        assert!(numbers(topic.take(subscription.id, 2)).is_empty());
        assert_eq!(topic.published(), 5);
    }

    #[test]
    fn a_publisher_learns_the_length_of_the_longest_queue() {
        let mut topic = Topic::default();
        let publish = |topic: &mut Topic| topic.publish("text".into());
        assert_eq!(publish(&mut topic).longest_queue, 0);
        let quick = topic.subscribe().id;
        publish(&mut topic);
        topic.subscribe();
        topic.take(quick, 1).unwrap();
        let published = Published {
            number: 2,
            longest_queue: 1,
        };
        assert_eq!(publish(&mut topic), published);
        assert_eq!(publish(&mut topic).longest_queue, 2);
    }

    #[test]
    fn a_taken_message_is_in_flight_until_it_is_acknowledged() {
        let mut topic = Topic::default();
        let id = topic.subscribe().id;
        publish(&mut topic, 3);
        assert!(!topic.acknowledge(id, 0));
        assert_eq!(numbers(topic.take(id, 2)), [0, 1]);
        assert!(topic.acknowledge(id, 1));
        assert!(!topic.acknowledge(id, 1));
        let left = Left {
            until: 3,
            in_flight: vec![0],
            queued: vec![2],
        };
        assert_eq!(topic.left_by(id).as_ref(), Some(&left));
        assert_eq!(topic.disconnect(id), Some(left));
    }

    #[test]
    fn a_disconnected_subscriber_receives_nothing() {
        let mut topic = Topic::default();
        let (gone, stays) = (topic.subscribe().id, topic.subscribe().id);
        publish(&mut topic, 1);
        topic.disconnect(gone).unwrap();
        publish(&mut topic, 1);
        assert!(topic.take(gone, 1).is_none());
        assert!(!topic.acknowledge(gone, 0));
        assert!(topic.disconnect(gone).is_none());
        assert_eq!(topic.connected().collect::<Vec<_>>(), [stays]);
        assert_eq!(numbers(topic.take(stays, 9)), [0, 1]);
    }

    #[tokio::test]
    async fn a_waiting_subscriber_is_notified_once() {
        let mut topic = Topic::default();
        let Subscription { id, arrived, .. } = topic.subscribe();
        publish(&mut topic, 2);
        arrived.notified().await;
        assert_eq!(numbers(topic.take(id, 9)), [0, 1]);
        publish(&mut topic, 1);
        arrived.notified().await;
    }
}
