//! [`Case`]: an order, its answer, and what must become of it.

use std::collections::BTreeMap;

use super::order::{Answer, Card, Order, Outcome};

/// A way in which an order can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Case {
    Paid,
    Approved,
    Cancelled,
    Unpaid,
    Declined,
    Returned,
}

impl Case {
    pub(crate) const ALL: [Self; 6] = [
        Self::Paid,
        Self::Approved,
        Self::Cancelled,
        Self::Unpaid,
        Self::Declined,
        Self::Returned,
    ];

    pub(crate) fn order(self) -> Order {
        Order {
            customer: format!("{self:?}"),
            card: match self {
                Self::Declined => Card::Blocked,
                _ => Card::Good,
            },
            address: match self {
                Self::Returned => String::new(),
                _ => "an address".into(),
            },
        }
    }

    pub(crate) fn answer(self) -> Option<Answer> {
        match self {
            Self::Paid | Self::Returned => Some(Answer::Paid),
            Self::Approved => Some(Answer::Approved),
            Self::Cancelled => Some(Answer::Cancelled),
            Self::Unpaid | Self::Declined => None,
        }
    }

    pub(crate) fn outcome(self) -> Outcome {
        match self {
            Self::Paid | Self::Approved => Outcome::Shipped,
            Self::Cancelled => Outcome::Cancelled,
            Self::Unpaid => Outcome::Unpaid,
            Self::Declined => Outcome::Declined,
            Self::Returned => Outcome::Returned,
        }
    }

    /// Returns `true` if the order waits for an answer.
    pub(crate) fn waits(self) -> bool {
        self != Self::Declined
    }

    /// Returns the effects of the order, in their order. Workers may ship the parcels in another order.
    pub(crate) fn effects(self) -> &'static [&'static str] {
        match self {
            Self::Paid | Self::Approved => &[
                "reserve",
                "charge",
                "ship parcel 1",
                "ship parcel 2",
                "ship parcel 3",
            ],
            Self::Cancelled | Self::Unpaid => &["reserve", "charge", "refund", "restock"],
            Self::Declined => &["reserve", "restock"],
            Self::Returned => &[
                "reserve",
                "charge",
                "ship parcel 1",
                "ship parcel 3",
                "recall parcel 3",
                "recall parcel 1",
                "refund",
                "restock",
            ],
        }
    }

    /// Asserts that the order has had all its effects and no others, each once, in the right order, apart from repetitions. Returns the
    /// number of repetitions of each effect that was repeated.
    #[track_caller]
    pub(crate) fn assert_effects(self, effects: &[String]) -> BTreeMap<String, usize> {
        let mut repeated = BTreeMap::new();
        let mut first = Vec::new();
        for effect in effects {
            match first.contains(effect) {
                true => *repeated.entry(effect.clone()).or_default() += 1,
                false => first.push(effect.clone()),
            }
        }
        let is_parcel = |effect: &String| effect.starts_with("ship parcel");
        if let Some(parcels) = first.iter().position(is_parcel) {
            let end = parcels
                + first[parcels..]
                    .iter()
                    .take_while(|it| is_parcel(it))
                    .count();
            first[parcels..end].sort();
        }
        assert_eq!(first, self.effects(), "{self:?}: {effects:?}");
        repeated
    }
}
