//! What a redis-server says about itself.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// The scripts that a server has run for clients that have opened their store read-only, such as those of dashboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReadScripts {
    pub(crate) count: u64,
    pub(crate) time: Duration,
}

impl ReadScripts {
    pub(crate) fn of(socket: &Path) -> io::Result<Self> {
        let text = info(socket, "commandstats")?;
        let number = |line: &str, field| {
            line.split(',')
                .find_map(|it| it.strip_prefix(field)?.parse().ok())
        };
        let scripts = text.lines().find_map(|line| {
            let numbers = line.strip_prefix("cmdstat_evalsha_ro:")?;
            Some((number(numbers, "calls=")?, number(numbers, "usec=")?))
        });
        let (count, micros) = scripts.unwrap_or_default();
        let time = Duration::from_micros(micros);
        Ok(Self { count, time })
    }
}

/// Returns a section of the server's description.
pub(crate) fn info(socket: &Path, section: &str) -> io::Result<String> {
    command(socket, &format!("INFO {section}"))
}

/// Sends a command to a server. Returns its answer, in the format of the protocol.
pub(crate) fn command(socket: &Path, command: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    // The server closes the connection, which ends the text.
    write!(stream, "{command}\r\nQUIT\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}
