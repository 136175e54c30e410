//! A store that is written outside of throng: the data belongs to a thread, and processes send it their requests.
//!
//! [`ThreadStore`] answers each request from another thread, and the engine of a client runs on that thread. The rules of a store are
//! those of the model in throng, whose source this package compiles as its own: it has no other access to throng than any user. So this
//! package proves that the public items suffice to read each request, and to make each answer.

pub use self::connection::ThreadStore;

mod connection;
mod fault;
#[cfg(test)]
mod tests;
mod worker;

/// The rules of a store.
#[path = "../../../src/durable/store/memory/model"]
mod model {
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
}

/// The public items, under the paths by which the source of the model names them.
mod durable {
    pub(crate) use throng::durable::*;

    pub(crate) mod admin {
        pub(crate) mod detail {
            pub(crate) use throng::durable::{KeyState, Runner};
        }
        pub(crate) mod excerpt {
            pub(crate) use throng::durable::Excerpt;
        }
        pub(crate) mod overview {
            pub(crate) use throng::durable::store::{MAX_OVERVIEW_ROWS, OverviewDraft, QueueDraft};
        }
        pub(crate) mod page {
            pub(crate) use throng::durable::store::MAX_LISTED_ERROR_BYTES;
        }
    }
    pub(crate) mod clock {
        pub(crate) use throng::durable::store::{Clock, millis};
    }
    pub(crate) mod envelope {
        pub(crate) use throng::durable::store::run_time_of;
    }
    pub(crate) mod failure {
        pub(crate) use throng::durable::store::{Cause, Effect, Failure};
    }
    pub(crate) mod key {
        pub(crate) use throng::durable::store::{Conflict, KeyHash, NewKey};
    }
    pub(crate) mod queue {
        pub(crate) use throng::durable::{Priority, QueueInfo, QueueSettings};
        pub(crate) mod group {
            pub(crate) use throng::durable::store::GroupName;
        }
        pub(crate) mod name {
            pub(crate) use throng::durable::store::QueueName;
        }
        pub(crate) mod priority {
            pub(crate) use throng::durable::store::PriorityTurns;
        }
    }
    pub(crate) mod schedule {
        pub(crate) mod name {
            pub(crate) use throng::durable::store::ScheduleName;
        }
        pub(crate) mod when {
            pub(crate) use throng::durable::store::{COMPUTES, COMPUTES_CRON, COMPUTES_EVERY};
        }
    }
    pub(crate) mod store {
        pub(crate) use throng::durable::DeadReason;
        pub(crate) use throng::durable::store::*;
        pub(crate) mod kind {
            pub(crate) use throng::durable::store::{Kind, TypeSet};
        }
    }
}
