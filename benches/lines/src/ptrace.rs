//! Calls of `ptrace`.

use std::ptr;

use libc::{c_int, c_void, pid_t, user_regs_struct};

use crate::Result;

/// The longest instruction.
const MAX_BYTES: usize = 15;

/// What a thread reports.
pub(crate) enum Event {
    Step,
    Signal(c_int),
    Cloned,
    Ended,
}

/// Waits for an event of a thread, or of any with -1. Returns `None` if there is none, and the options say not to wait.
pub(crate) fn wait(id: pid_t, options: c_int) -> Result<Option<(pid_t, Event)>> {
    let mut status = 0;
    // SAFETY: `status` is ours, and of the type that the call writes.
    let id = unsafe { libc::waitpid(id, &raw mut status, options | libc::__WALL) };
    let event = match id {
        0 => return Ok(None),
        -1 => return Err(format!("waitpid: {}", std::io::Error::last_os_error())),
        _ if !libc::WIFSTOPPED(status) => Event::Ended,
        _ if status >> 16 == libc::PTRACE_EVENT_CLONE => Event::Cloned,
        _ if status >> 16 != 0 => Event::Step,
        _ => match libc::WSTOPSIG(status) {
            libc::SIGTRAP => Event::Step,
            signal => Event::Signal(signal),
        },
    };
    Ok(Some((id, event)))
}

/// Waits for all threads of a child that was killed: its first thread is the last one that can be waited for.
pub(crate) fn reap() {
    while wait(-1, 0).is_ok() {}
}

pub(crate) fn trace(request: libc::c_uint, id: pid_t, address: u64, data: u64) -> Result<()> {
    // SAFETY: the requests of this file touch the memory of the child, except for some, whose `data` is the address of a
    // variable of the caller: of registers, or of the number that `PTRACE_GETEVENTMSG` writes.
    let failed = unsafe { libc::ptrace(request, id, address as *mut c_void, data as *mut c_void) };
    match failed {
        -1 => Err(format!(
            "ptrace request {request}: {}",
            std::io::Error::last_os_error()
        )),
        _ => Ok(()),
    }
}

/// The thread that a thread has just started.
pub(crate) fn new_thread(id: pid_t) -> Result<pid_t> {
    let mut new = 0_u64;
    let request = libc::PTRACE_GETEVENTMSG;
    trace(request, id, 0, ptr::from_mut(&mut new) as u64)?;
    pid_t::try_from(new).map_err(|error| error.to_string())
}

pub(crate) fn registers(id: pid_t) -> Result<user_regs_struct> {
    // SAFETY: the registers are integers, for which zero is a value.
    let mut registers: user_regs_struct = unsafe { std::mem::zeroed() };
    trace(
        libc::PTRACE_GETREGS,
        id,
        0,
        ptr::from_mut(&mut registers) as u64,
    )?;
    Ok(registers)
}

pub(crate) fn set_registers(id: pid_t, registers: &mut user_regs_struct) -> Result<()> {
    trace(libc::PTRACE_SETREGS, id, 0, ptr::from_mut(registers) as u64)
}

pub(crate) fn peek(id: pid_t, address: u64) -> Result<u64> {
    let mut word = [0; 8];
    match read(id, address, &mut word) {
        8 => Ok(u64::from_le_bytes(word)),
        _ => Err(format!("memory at {address:#x} cannot be read")),
    }
}

/// The bytes of an instruction, which may be the last one before a page that is not mapped.
pub(crate) fn read_code(id: pid_t, address: u64) -> Result<Vec<u8>> {
    let mut bytes = vec![0; MAX_BYTES];
    let mut read_bytes = read(id, address, &mut bytes);
    if read_bytes <= 0 {
        let left = 4_096 - address as usize % 4_096;
        bytes.truncate(left);
        read_bytes = read(id, address, &mut bytes);
    }
    let read_bytes = usize::try_from(read_bytes).unwrap_or(0);
    bytes.truncate(read_bytes);
    match bytes.is_empty() {
        true => Err(format!("code at {address:#x} cannot be read")),
        false => Ok(bytes),
    }
}

/// Reads memory of the child, and returns the number of bytes, or -1.
fn read(id: pid_t, address: u64, into: &mut [u8]) -> isize {
    let local = libc::iovec {
        iov_base: into.as_mut_ptr().cast(),
        iov_len: into.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: into.len(),
    };
    // SAFETY: the call writes at most as many bytes as `into` has.
    unsafe { libc::process_vm_readv(id, &raw const local, 1, &raw const remote, 1, 0) }
}
