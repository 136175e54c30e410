//! The fields of [`Counts`], by the names that stores give them.

use crate::durable::Counts;

/// A field of [`Counts`].
pub(crate) type Field = fn(&mut Counts) -> &mut u64;

/// All fields: first the numbers of tasks by state, then the totals. The totals from [`FIRST_END`] on count how claims
/// of tasks have ended.
pub(crate) const FIELDS: [(&str, Field); 16] = [
    ("waiting", |counts| &mut counts.waiting),
    ("unserved", |counts| &mut counts.unserved),
    ("delayed", |counts| &mut counts.delayed),
    ("running", |counts| &mut counts.running),
    ("results", |counts| &mut counts.kept),
    ("dead", |counts| &mut counts.dead),
    ("stored", |counts| &mut counts.stored),
    ("claimed", |counts| &mut counts.claimed),
    ("done", |counts| &mut counts.done),
    ("retried", |counts| &mut counts.retried),
    ("snoozed", |counts| &mut counts.snoozed),
    ("died", |counts| &mut counts.died),
    ("released", |counts| &mut counts.released),
    ("crashed", |counts| &mut counts.crashed),
    ("lost", |counts| &mut counts.lost),
    ("cancelled", |counts| &mut counts.cancelled),
];

/// The position of the first total that counts ends of claims.
pub(crate) const FIRST_END: usize = 8;
