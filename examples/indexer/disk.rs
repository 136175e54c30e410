//! Requests to the file system, for paths of any length.
//!
//! The system takes paths of some thousand bytes, but a tree may be deeper than that. A longer path is
//! walked in steps, each from the directory that the one before it has opened.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

/// The maximum length of the path of a step: somewhat less than the system allows.
#[cfg(target_os = "linux")]
const STEP: usize = 4000;
#[cfg(not(target_os = "linux"))]
const STEP: usize = 1000;

/// The flags to go on from a directory, which need not be readable.
#[cfg(target_os = "linux")]
const PASS: OFlags = OFlags::PATH;
#[cfg(not(target_os = "linux"))]
const PASS: OFlags = OFlags::RDONLY;

/// Opens a file to read it.
///
/// # Errors
///
/// The system does not open it.
pub(crate) fn open(path: &Path) -> io::Result<File> {
    at(path, |dir, rest| open_at(dir, rest, OFlags::RDONLY)).map(File::from)
}

/// Opens a directory to list it.
///
/// # Errors
///
/// The system does not open it, or it is no directory.
pub(crate) fn list(path: &Path) -> io::Result<Entries> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let dir = at(path, |dir, rest| open_at(dir, rest, flags))?;
    Ok(Entries(Dir::new(dir)?))
}

/// Returns the metadata of a file, or of a symbolic link.
///
/// # Errors
///
/// It says nothing.
#[allow(
    dead_code,
    reason = "only the durable build asks, and it needs a feature"
)]
pub(crate) fn look(path: &Path) -> io::Result<Stat> {
    at(path, |dir, rest| {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        match dir {
            Some(dir) => rustix::fs::statat(dir, rest, flags),
            None => rustix::fs::statat(CWD, rest, flags),
        }
    })
}

/// Returns `true` if a file of `size` bytes has a hole behind `position`, where it is being read.
pub(crate) fn has_hole(file: &File, position: u64, size: u64) -> bool {
    if size <= position {
        return false;
    }
    let hole = rustix::fs::seek(file, SeekFrom::Hole(position));
    let back = rustix::fs::seek(file, SeekFrom::Start(position));
    back.is_ok() && hole.is_ok_and(|hole| hole < size)
}

/// The entries of a directory.
pub(crate) struct Entries(Dir);

/// The type of an entry of a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Link,
    /// A pipe, a socket or a device.
    Special,
}

impl Iterator for Entries {
    type Item = io::Result<(OsString, Kind)>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let entry = match self.0.read()? {
                Ok(entry) => entry,
                Err(error) => return Some(Err(error.into())),
            };
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let kind = self.kind(entry.file_type(), name);
                let name = OsStr::from_bytes(name).to_owned();
                return Some(kind.map(|kind| (name, kind)));
            }
        }
    }
}

impl Entries {
    /// Returns the type of an entry. Some file systems do not store it in the directory.
    fn kind(&self, listed: FileType, name: &[u8]) -> io::Result<Kind> {
        let kind = match listed {
            FileType::Unknown => {
                let stat = rustix::fs::statat(self.0.fd()?, name, AtFlags::SYMLINK_NOFOLLOW)?;
                FileType::from_raw_mode(stat.st_mode)
            }
            listed => listed,
        };
        Ok(match kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            FileType::Symlink => Kind::Link,
            _ => Kind::Special,
        })
    }
}

impl fmt::Debug for Entries {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entries").finish_non_exhaustive()
    }
}

/// Calls `act` with a directory, or none for the current one, and what is left of the path from there.
fn at<T>(
    path: &Path,
    act: impl FnOnce(Option<&OwnedFd>, &[u8]) -> Result<T, Errno>,
) -> io::Result<T> {
    let mut rest = path.as_os_str().as_bytes();
    let mut dir = None;
    while rest.len() > STEP {
        let Some(slash) = rest[..STEP].iter().rposition(|&byte| byte == b'/') else {
            break;
        };
        let (step, after) = rest.split_at(slash + 1);
        dir = Some(open_at(dir.as_ref(), step, PASS | OFlags::DIRECTORY)?);
        // A slash at the start would lead to the root.
        let name = after.iter().position(|&byte| byte != b'/');
        rest = &after[name.unwrap_or(after.len())..];
    }
    match &dir {
        Some(_) if rest.is_empty() => Ok(act(dir.as_ref(), b".")?),
        _ => Ok(act(dir.as_ref(), rest)?),
    }
}

fn open_at(dir: Option<&OwnedFd>, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match dir {
        Some(dir) => rustix::fs::openat(dir, path, flags, Mode::empty()),
        None => rustix::fs::openat(CWD, path, flags, Mode::empty()),
    }
}
