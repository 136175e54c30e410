//! The same work as that of the pipeline, by the same functions, on one thread and without
//! `throng`: what is between the two is what running in parallel brings, and what it costs.
//!
//! It stands beside the module `indexer`, wherever that is included.

use std::io;
use std::path::Path;
use std::sync::Arc;

use super::indexer::blocks::{Blocks, End};
use super::indexer::index::Index;
use super::indexer::postings::Builder;
use super::indexer::reading::{Parsed, Reading};
use super::indexer::source::{Disk, Source};
use super::indexer::walk::{Found, Walk};

/// Builds the index of the tree at `dir`, without what cannot be read.
///
/// # Errors
///
/// A directory cannot be listed, or the index is full.
pub(crate) fn build(dir: &Path) -> io::Result<Index> {
    let mut index = Index::default();
    let mut walk = Walk::new(dir.to_owned(), Arc::new(Disk));
    while !walk.is_over() {
        let batch = walk.next_batch(256);
        for found in batch.found {
            add(&mut index, found)?;
        }
        if let Some((_, error)) = batch.refused {
            return Err(error);
        }
    }
    Ok(index)
}

fn add(index: &mut Index, found: Found) -> io::Result<()> {
    let Found::File(path) = found else {
        return Ok(());
    };
    let Ok(parsed) = read(&path) else {
        return Ok(());
    };
    let added = index.add(path.into(), parsed.postings);
    added.map_err(|full| io::Error::other(full.to_string()))
}

fn read(path: &Path) -> Reading {
    let mut blocks = Blocks::new(Disk.open(path)?)?;
    let mut builder = Builder::default();
    loop {
        let chunk = blocks.next_chunk()?;
        builder.add(&chunk)?;
        if chunk.end != End::More {
            return Ok(Parsed::new(builder, &blocks));
        }
    }
}
