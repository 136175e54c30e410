//! The scanner and the index of the example without any executor: what the threads and the hand-overs are worth.

use std::fs;
use std::io;
use std::path::Path;

use super::Indexed;
use super::example::index::Index;
use super::example::postings::Postings;
use super::example::text;

/// Indexes the files below a directory, one after the other, on this thread.
///
/// # Errors
///
/// What the file system says.
pub(super) fn build(dir: &Path) -> io::Result<(Index, Indexed)> {
    let (mut index, mut indexed) = (Index::default(), Indexed::default());
    let mut later = vec![dir.to_owned()];
    while let Some(dir) = later.pop() {
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_dir() {
                later.push(entry.path());
            } else if kind.is_file() {
                add(&mut index, &mut indexed, &entry.path())?;
            }
        }
    }
    Ok((index, indexed))
}

fn add(index: &mut Index, indexed: &mut Indexed, path: &Path) -> io::Result<()> {
    let bytes = fs::read(path)?;
    let Ok(text) = text::decode(&bytes) else {
        return Ok(());
    };
    let added = index.add(path.into(), Postings::of(text));
    added.map_err(|_| io::Error::other("the index is full"))?;
    indexed.files += 1;
    indexed.bytes += bytes.len() as u64;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_indexes_what_is_text_and_only_that() {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("below")).expect("a directory");
        for (name, bytes) in [
            ("below/a", &b"one two"[..]),
            ("b", b"two\0"),
            ("c", b"\xff"),
            ("d", b""),
        ] {
            fs::write(dir.path().join(name), bytes).expect("a file");
        }
        let (index, indexed) = build(dir.path()).expect("files");
        assert_eq!(indexed, Indexed { files: 2, bytes: 7 });
        assert_eq!(index.len(), 2);
    }
}
