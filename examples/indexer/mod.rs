//! A full-text index of a directory tree, built in parallel and searched.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`text`] | the rules: what a text is, and what its tokens are |
//! | [`terms`], [`postings`] | the words of one file, and their lines: made where the file is read |
//! | [`index`], [`query`] | the postings of all files, and what a query finds in them |
//! | [`source`], [`walk`] | where files come from, and what keeps one out of the index |
//! | [`pipeline`], [`feed`], [`attempt`] | the way of a file through the three parts of `throng` |
//! | [`options`] | how that can be set |
//!
//! Nothing here knows a terminal or a command line.

pub mod attempt;
pub mod feed;
pub mod index;
pub mod options;
pub mod pipeline;
pub mod postings;
pub mod query;
pub mod source;
pub mod terms;
pub mod text;
pub mod walk;
