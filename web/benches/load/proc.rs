//! Reads facts about processes from `/proc`.

use std::time::Duration;
use std::{fs, io};

/// Returns the CPU time of all threads of a process that still run.
pub(crate) fn cpu_time(process: u32) -> io::Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir(format!("/proc/{process}/task"))? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += number(text.split_whitespace().next())?;
    }
    Ok(Duration::from_nanos(nanos))
}

/// Returns the largest amount of memory that this process has had.
pub(crate) fn peak_memory_mib() -> io::Result<f64> {
    let text = fs::read_to_string("/proc/self/status")?;
    let peak = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = number(peak.and_then(|it| it.split_whitespace().next()))?;
    Ok(kib as f64 / 1024.0)
}

fn number(text: Option<&str>) -> io::Result<u64> {
    let number = text.and_then(|text| text.parse().ok());
    number.ok_or_else(|| {
        io::Error::other("the system does not describe the process: this needs Linux")
    })
}
