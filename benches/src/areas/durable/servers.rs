//! Servers that end with the child that has started them.

use std::io;
use std::net::TcpListener;

/// Returns a port that was free a moment ago.
pub(super) fn free_port() -> io::Result<u16> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    Ok(listener.local_addr()?.port())
}

/// Runs in a new process, which gets the signal when its parent ends: a child that is killed leaves no server behind.
pub(super) fn end_with_parent(signal: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes two numbers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
