//! Reads the resource usage of the process from `/proc`, where the system has it.

use std::fs;
use std::time::Duration;

/// The most memory that the process has had at once, in bytes.
pub(crate) fn peak_memory() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = peak.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// The time that all its threads have been running.
pub(crate) fn cpu_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // The name of the program, in parentheses, may hold anything. The state follows it.
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut ticks = fields.split(' ').skip(11).map(str::parse::<u64>);
    let (user, system) = (ticks.next()?.ok()?, ticks.next()?.ok()?);
    // A tick is 10 ms in this file, whatever it is in the kernel.
    Some(Duration::from_millis((user + system) * 10))
}
