//! [`Model`]: what a store does, in the plainest way.
//!
//! The tests hold every other store to the model: where a store differs from it, one of the two is wrong. So it is
//! meant to be checked by reading. It searches instead of keeping indices, and has no other optimization. Times are
//! whole milliseconds, as in the other stores.
//!
//! `state.rs` has the data and the steps that several requests share. Each of the other files has a group of requests.

pub(super) use self::state::Model;

mod changes;
mod clients;
mod dead_letters;
mod diagnosis;
mod enqueue;
mod find;
mod groups;
mod keys;
mod leases;
mod list;
mod overview;
mod progress;
mod queues;
mod replay_from;
mod retention;
mod row;
mod schedules;
mod select;
mod sessions;
mod state;
mod stats;
mod steps;
mod turn;
mod workers;
