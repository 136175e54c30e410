//! The same index, made of durable tasks: what is done once need not be done again, also after
//! `kill -9`.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`survey`], [`batch`], [`name`] | what is in the tree, cut into batches, each with an id of its own |
//! | [`task`] | what is done for a batch: its files are read, tokenised, and written as a segment |
//! | [`segment`], [`folder`] | what a segment holds, and how one gets to its place as a whole |
//! | [`state`] | what stays between two runs: the store of tasks, in a file or in a server, and the segments |
//! | [`build`], [`feed`] | the whole: what is there is loaded, what is missing is spawned and awaited |
//! | [`ledger`] | what there is to say of it in the end |
//!
//! A batch is done when its segment is there, under the name that is derived from its files: their
//! paths, sizes and times. The store need not remember what has ended; it sees to it that what was
//! begun is brought to its end.
//!
//! It stands beside the module `indexer`, wherever that is included.

pub(crate) mod batch;
pub(crate) mod build;
pub(crate) mod feed;
pub(crate) mod folder;
pub(crate) mod ledger;
pub(crate) mod name;
pub(crate) mod segment;
pub(crate) mod state;
pub(crate) mod survey;
pub(crate) mod task;

/// An error that says what it is about.
pub(crate) type Fault = Box<dyn std::error::Error + Send + Sync>;

/// A store is asked for that this program does not have.
#[cfg(not(all(feature = "postgres", feature = "redis", feature = "sqlite")))]
fn without(store: &str, feature: &str) -> Fault {
    format!("this program was built without {store}: run it with `cargo run --features {feature}`")
        .into()
}
