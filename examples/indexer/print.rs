//! [`print`]: what is found, on standard output.

use std::io::{self, BufWriter, IsTerminal, Write};

use super::indexer::escape::Escaped;
use super::indexer::query::Hits;

/// Prints `path:line` for each line that was found. A program gets paths as the bytes that they are,
/// which need not be text; a terminal gets them [`Escaped`].
///
/// # Errors
///
/// Standard output cannot be written.
pub(crate) fn print(hits: &[Hits<'_>]) -> io::Result<()> {
    let stdout = io::stdout().lock();
    let is_terminal = stdout.is_terminal();
    let mut out = BufWriter::new(stdout);
    for Hits { path, lines } in hits {
        let path = match is_terminal {
            true => Escaped(path).to_string().into_bytes(),
            false => path.as_os_str().as_encoded_bytes().to_vec(),
        };
        for line in lines {
            out.write_all(&path)?;
            writeln!(out, ":{line}")?;
        }
    }
    out.flush()
}
