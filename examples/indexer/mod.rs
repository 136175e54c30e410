//! A full-text index of a directory tree, built in parallel and searched.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`text`] | the rules for tokens of a text |
//! | [`terms`], [`postings`] | the words of one file, and their lines: made in parallel |
//! | [`index`], [`query`] | the postings of all files, and what a query finds in them |
//! | [`disk`], [`source`], [`walk`] | where files come from, and what keeps one out of the index |
//! | [`blocks`] | the text of a file, a chunk at a time |
//! | [`pipeline`], [`listing`], [`feed`], [`reading`], [`gather`] | the way of a file through the parts of `throng` |
//! | [`options`] | how that can be set |
//! | [`escape`] | paths as a terminal may get them |
//!
//! Nothing here knows a terminal or a command line.

pub(crate) mod blocks;
pub(crate) mod disk;
pub(crate) mod escape;
pub(crate) mod feed;
pub(crate) mod gather;
pub(crate) mod index;
pub(crate) mod listing;
pub(crate) mod options;
pub(crate) mod pipeline;
pub(crate) mod postings;
pub(crate) mod query;
pub(crate) mod reading;
pub(crate) mod source;
pub(crate) mod terms;
pub(crate) mod text;
pub(crate) mod walk;
