//! Examines the file of a SQLite store, and the file system that contains it.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access, statfs, statvfs};

use super::Diagnosis;
use crate::failure::Failure;

/// File systems on which SQLite's locks or shared memory do not work, by the number that the system gives them.
const UNFIT_FILE_SYSTEMS: [(u32, &str); 5] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x6573_5546, "FUSE"),
];

/// A larger log usually has a reader that never ends.
const MAX_LOG_BYTES: u64 = 256 << 20;
/// The percentage of free space below which there is a warning.
const MIN_FREE_PERCENT: u64 = 10;
/// The bytes of a SQLite file that say how it is written and read, and their values if it has a write-ahead log.
const JOURNAL_BYTES: (usize, [u8; 2]) = (18, [2, 2]);

/// Examines the file.
pub(super) fn examine(path: &Path, is_deep: bool) -> Result<Vec<Diagnosis>, Failure> {
    let path = fs::canonicalize(path)?;
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    let found = [
        permissions(&path, folder),
        file_system(&path),
        journal(&path)?,
        log(&log_of(&path)),
        free_space(&path),
        if is_deep { pages(&path) } else { None },
    ];
    Ok(found.into_iter().flatten().collect())
}

fn permissions(path: &Path, folder: &Path) -> Option<Diagnosis> {
    let is_writable = |path: &Path| access(path, Access::READ_OK | Access::WRITE_OK).is_ok();
    let refused = [path, folder].into_iter().find(|path| !is_writable(path))?;
    Some(Diagnosis::warn(
        "sqlite.permissions",
        format!(
            "this user may not write to {}, and can only observe the store",
            refused.display()
        ),
        "run workers as a user who may write to the file and to its folder",
    ))
}

fn file_system(path: &Path) -> Option<Diagnosis> {
    // The number is signed on some systems, and has 32 bits on all of them.
    let kind = statfs(path).ok()?.f_type as u32;
    unfit_file_system(kind)
}

fn unfit_file_system(kind: u32) -> Option<Diagnosis> {
    let (_, name) = UNFIT_FILE_SYSTEMS
        .into_iter()
        .find(|(unfit, _)| *unfit == kind)?;
    Some(Diagnosis::error(
        "sqlite.file_system",
        format!("the file is on {name}, where processes may corrupt it"),
        "move it to a local disk, or use a store in Redis",
    ))
}

fn journal(path: &Path) -> Result<Option<Diagnosis>, Failure> {
    let (start, values) = JOURNAL_BYTES;
    let mut head = Vec::new();
    File::open(path)?
        .take(start as u64 + 2)
        .read_to_end(&mut head)?;
    let has_log = head.get(start..) == Some(&values);
    Ok((!has_log).then(|| {
        Diagnosis::warn(
            "sqlite.journal",
            "the file has no write-ahead log, so readers and writers wait for each other",
            "let no other program set `journal_mode`; the next program that opens the store restores it",
        )
    }))
}

fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}

fn log(path: &Path) -> Option<Diagnosis> {
    let bytes = fs::metadata(path).ok()?.len();
    (bytes > MAX_LOG_BYTES).then(|| {
        Diagnosis::warn(
            "sqlite.log",
            format!("the log {} has {} MiB", path.display(), bytes >> 20),
            "look for a program that reads the file in a transaction that does not end",
        )
    })
}

fn free_space(path: &Path) -> Option<Diagnosis> {
    let disk = statvfs(path).ok()?;
    little_space(disk.f_bavail, disk.f_blocks)
}

fn little_space(free: u64, all: u64) -> Option<Diagnosis> {
    let percent = free.saturating_mul(100).checked_div(all)?;
    let what = format!("{percent} % of the disk is free");
    let remedy = "free some space: when the disk is full, no task can be stored";
    match percent {
        0 => Some(Diagnosis::error("sqlite.disk", what, remedy)),
        1..MIN_FREE_PERCENT => Some(Diagnosis::warn("sqlite.disk", what, remedy)),
        _ => None,
    }
}

/// Reads all pages of the file. Meanwhile, the files of the log exist beside it.
fn pages(path: &Path) -> Option<Diagnosis> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let checked = Connection::open_with_flags(path, flags).and_then(|file| {
        file.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0))
    });
    let what = match checked {
        Ok(answer) if answer == "ok" => return None,
        Ok(answer) => answer,
        Err(error) => error.to_string(),
    };
    Some(Diagnosis::error(
        "sqlite.pages",
        format!("the file is damaged: {what}"),
        "restore a backup, or let a worker open the store: tasks that it cannot read become dead letters",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_file_system_is_reported() {
        assert!(unfit_file_system(0x6969).is_some_and(|it| it.what.contains("NFS")));
        assert_eq!(unfit_file_system(0xef53), None, "ext4");
    }

    #[test]
    fn little_space_is_reported() {
        assert_eq!(little_space(10, 100), None);
        assert_eq!(little_space(0, 0), None, "a file system that has no size");
        assert!(little_space(9, 100).is_some_and(|it| it.what.starts_with("9 %")));
        assert_ne!(
            little_space(9, 100).unwrap().level,
            little_space(0, 100).unwrap().level
        );
    }

    /// A superuser may write everywhere, but not to what is not there.
    #[test]
    fn a_file_that_cannot_be_written_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let (there, missing) = (folder.path(), folder.path().join("missing"));
        assert_eq!(permissions(there, there), None);
        for (path, folder) in [(&*missing, there), (there, &*missing)] {
            let found = permissions(path, folder).unwrap();
            assert!(
                found.what.contains("missing, and can only"),
                "{}",
                found.what
            );
        }
    }

    #[test]
    fn a_file_without_a_log_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.db");
        let file = Connection::open(&path).unwrap();
        file.execute_batch("CREATE TABLE rows (id)").unwrap();
        let ids = || {
            let found = examine(&path, true).unwrap().into_iter();
            found.map(|it| it.id).collect::<Vec<_>>()
        };
        // The disk of this machine may be nearly full.
        let disk: Vec<_> = free_space(&path).into_iter().map(|it| it.id).collect();
        assert_eq!(ids(), [&["sqlite.journal"], &*disk].concat());
        let mode: String = file
            .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
            .unwrap();
        assert_eq!(mode, "wal");
        assert_eq!(ids(), disk);
    }

    #[test]
    fn a_damaged_file_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks.db");
        let file = Connection::open(&path).unwrap();
        file.execute_batch("CREATE TABLE rows (id); INSERT INTO rows VALUES (randomblob(9000))")
            .unwrap();
        drop(file);
        let mut bytes = fs::read(&path).unwrap();
        bytes[4096..4196].fill(0xff);
        fs::write(&path, bytes).unwrap();
        assert!(pages(&path).is_some_and(|it| it.id == "sqlite.pages"));
    }

    #[test]
    fn a_large_log_is_reported() {
        let folder = tempfile::tempdir().unwrap();
        let path = log_of(&folder.path().join("tasks.db"));
        let file = File::create(&path).unwrap();
        file.set_len(MAX_LOG_BYTES).unwrap();
        assert_eq!(log(&path), None);
        file.set_len(MAX_LOG_BYTES + 1).unwrap();
        assert!(log(&path).is_some_and(|it| it.what.contains("256 MiB")));
    }
}
