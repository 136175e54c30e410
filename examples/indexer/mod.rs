//! A full-text index of a directory tree, built in parallel and searched.
//!
//! | module | what it is |
//! | --- | --- |
//! | [`text`] | the rules: what a text is, and what its tokens are |
//! | [`terms`], [`postings`] | the words of one file, counted where the file was read |
//! | [`index`], [`query`] | the postings of all files, and the lines that a query finds in them |
//! | [`source`], [`walk`] | where files come from, why one is skipped, and what comes next |
//! | [`pipeline`], [`feed`] | the three parts of `throng` put together |
//!
//! Nothing here knows a terminal or a command line.

pub mod feed;
pub mod index;
pub mod pipeline;
pub mod postings;
pub mod query;
pub mod source;
pub mod terms;
pub mod text;
pub mod walk;
