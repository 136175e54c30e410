//! The audit: compares what the subscribers have done with what the topic still holds.

use std::collections::BTreeSet;
use std::fmt;

use super::topic::{Id, Left, Number, Subscription, Topic};
use super::{Result, ensure};

/// One connection of a subscriber, as it saw it.
#[derive(Clone, Debug)]
pub(crate) struct Life {
    id: Id,
    first: Number,
    pub(crate) acknowledged: Vec<Number>,
    /// The state that it left behind when it disconnected. `None` if it did not disconnect.
    pub(crate) dropped: Option<Left>,
}

impl Life {
    pub(crate) fn new(subscription: &Subscription) -> Self {
        Self {
            id: subscription.id,
            first: subscription.first,
            acknowledged: Vec::new(),
            dropped: None,
        }
    }
}

/// The numbers of deliveries by outcome.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Balance {
    pub(crate) lives: usize,
    acknowledged: usize,
    in_flight: usize,
    queued: usize,
    dropped: usize,
}

impl fmt::Display for Balance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            acknowledged,
            in_flight,
            queued,
            dropped,
            ..
        } = self;
        let all = acknowledged + in_flight + queued + dropped;
        write!(
            f,
            "{all}: {acknowledged} acknowledged, {in_flight} in flight, {queued} queued, {dropped} dropped"
        )
    }
}

/// Checks that each message which was published while a subscriber was connected is, for that subscriber, exactly one of
/// acknowledged, in flight, queued, or dropped by its disconnection, and that no other message is.
pub(crate) fn audit(lives: &[Life], topic: &Topic) -> Result<Balance> {
    let mut balance = Balance::default();
    let mut connected: BTreeSet<Id> = topic.connected().collect();
    for life in lives {
        let left = topic.left_by(life.id);
        let is_connected = connected.remove(&life.id);
        ensure(is_connected == life.dropped.is_none(), || {
            format!("connected or not: {life:?}")
        })?;
        let left = left.or_else(|| life.dropped.clone()).unwrap_or_default();
        check(life, &left)?;
        balance.add(life, &left);
    }
    ensure(connected.is_empty(), || {
        format!("unknown subscribers: {connected:?}")
    })?;
    Ok(balance)
}

fn check(life: &Life, left: &Left) -> Result<()> {
    let mut all = [&*life.acknowledged, &left.in_flight, &left.queued].concat();
    all.sort_unstable();
    ensure(all.iter().copied().eq(life.first..left.until), || {
        format!("lost, duplicated or misdirected: {life:?}, {left:?}")
    })
}

impl Balance {
    fn add(&mut self, life: &Life, left: &Left) {
        self.lives += 1;
        self.acknowledged += life.acknowledged.len();
        if life.dropped.is_some() {
            self.dropped += left.in_flight.len() + left.queued.len();
        } else {
            self.in_flight += left.in_flight.len();
            self.queued += left.queued.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two messages without a subscriber, two for a subscriber that disconnects and for one that stays, and one more for
    /// the one that stays.
    fn history() -> (Vec<Life>, Topic) {
        let mut topic = Topic::default();
        let publish = |topic: &mut Topic| _ = topic.publish("text".into());
        publish(&mut topic);
        publish(&mut topic);
        let lives = [topic.subscribe(), topic.subscribe()];
        let mut lives = lives.map(|subscription| Life::new(&subscription)).to_vec();
        publish(&mut topic);
        publish(&mut topic);
        for life in &mut lives {
            topic.take(life.id, 2).unwrap();
            assert!(topic.acknowledge(life.id, 3));
            life.acknowledged.push(3);
        }
        lives[0].dropped = topic.disconnect(lives[0].id);
        publish(&mut topic);
        (lives, topic)
    }

    #[test]
    fn a_history_that_balances_is_summed_up() {
        let (lives, topic) = history();
        let balance = audit(&lives, &topic).unwrap();
        let expected = Balance {
            lives: 2,
            acknowledged: 2,
            in_flight: 1,
            queued: 1,
            dropped: 1,
        };
        assert_eq!(balance, expected);
        let text = "5: 2 acknowledged, 1 in flight, 1 queued, 1 dropped";
        assert_eq!(balance.to_string(), text);
    }

    #[test]
    fn a_history_that_does_not_balance_is_an_error() {
        type Spoil = fn(&mut Vec<Life>, &mut Topic);
        let spoil: [(&str, Spoil); 7] = [
            ("lost", |lives, _| lives[0].acknowledged.clear()),
            ("lost", |lives, _| lives[1].acknowledged.push(2)),
            ("lost", |lives, _| lives[1].first = 1),
            ("lost", |_, topic| assert!(topic.acknowledge(1, 2))),
            ("connected or not", |lives, _| lives[0].dropped = None),
            ("connected or not", |_, topic| drop(topic.disconnect(1))),
            ("unknown subscribers", |lives, _| drop(lives.pop())),
        ];
        for (what, spoil) in spoil {
            let (mut lives, mut topic) = history();
            spoil(&mut lives, &mut topic);
            let error = audit(&lives, &topic).unwrap_err().to_string();
            assert!(error.starts_with(what), "{what}: {error}");
        }
    }
}
