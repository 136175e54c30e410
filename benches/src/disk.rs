//! Measures disks: how often a child has waited for one, and which disk a file is on.

use std::ffi::c_int;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

static SYNCS: AtomicU64 = AtomicU64::new(0);

/// Returns how often this process has waited for a disk so far.
pub(crate) fn syncs() -> u64 {
    SYNCS.load(Relaxed)
}

/// Takes the place of the function of this name in the C library, and counts.
///
/// # Safety
///
/// None is needed: whatever the number, the system looks at it.
// SAFETY: the name is that of the function of POSIX whose contract this one keeps.
#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(file: c_int) -> c_int {
    sync(libc::SYS_fsync, file)
}

/// As [`fsync`].
///
/// # Safety
///
/// As for [`fsync`].
// SAFETY: as above.
#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(file: c_int) -> c_int {
    sync(libc::SYS_fdatasync, file)
}

fn sync(call: libc::c_long, file: c_int) -> c_int {
    SYNCS.fetch_add(1, Relaxed);
    // SAFETY: these calls take any number for a file.
    let result = unsafe { libc::syscall(call, file) };
    result as c_int
}

/// The kind of the file system that holds `path`, and the device it is on.
pub(crate) fn file_system(path: &Path) -> Option<(String, String)> {
    let path = path.canonicalize().ok()?;
    let mounts = fs::read_to_string("/proc/mounts").ok()?;
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let (device, root, kind) = (fields.next()?, fields.next()?, fields.next()?);
        path.starts_with(root)
            .then(|| (root.len(), kind.to_owned(), device.to_owned()))
    });
    // Of those that hold it, the innermost; of those at one place, the last.
    let innermost = mounts.max_by_key(|(depth, ..)| *depth);
    innermost.map(|(_, kind, device)| (kind, device))
}

/// Returns `true` if such a file system loses its files when the machine is switched off.
pub(crate) fn is_memory(kind: &str) -> bool {
    ["tmpfs", "ramfs", "devtmpfs"].contains(&kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_the_disk_are_counted() {
        let before = syncs();
        let file = tempfile::tempfile().expect("a file can be made");
        file.sync_all().expect("it can be written");
        file.sync_data().expect("it can be written");
        assert!(syncs() >= before + 2);
    }

    #[test]
    fn the_file_system_of_a_file_is_found() {
        let (kind, _) = file_system(Path::new("/proc/self")).expect("it is mounted");
        assert_eq!(kind, "proc");
        assert!(is_memory("tmpfs") && !is_memory("ext4"));
    }
}
