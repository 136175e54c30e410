//! Executes the threads of a child one instruction at a time, and enters what they access into the model.

use std::collections::HashMap;
use std::ptr;
use std::thread;
use std::time::{Duration, Instant};

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedMemory,
};
use libc::{c_int, c_void, pid_t, user_regs_struct};

use crate::Result;
use crate::model::{Caches, Counts, MAX_THREADS};

/// The longest instruction.
const MAX_BYTES: usize = 15;

/// The time for which an instruction of one thread lasts. It tells the child's clock how fast to advance.
const PS_PER_STEP: u64 = 400;

/// The most instructions that a thread executes in a turn. The number is random, so that threads do not run in step.
const MAX_QUANTUM: u64 = 8;

/// The time after which a workload is given up.
const MAX_TIME: Duration = Duration::from_secs(600);

/// A child that is traced.
pub(crate) struct Tracer {
    main: pid_t,
    /// The address of the function with which the child reads clocks.
    clock: u64,
    threads: Vec<Thread>,
    caches_in_use: usize,
    decoded: HashMap<u64, Decoded>,
    caches: Caches,
    turns: u64,
    seed: u64,
    epoch_ns: u64,
}

struct Thread {
    id: pid_t,
    /// Its cache in the model.
    cache: usize,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits for its next step.
    Stopped,
    /// It is in a call of the system, and will stop after it.
    InCall,
    Ended,
}

/// An instruction that was decoded before.
#[derive(Clone)]
struct Decoded {
    accesses: Vec<(UsedMemory, bool)>,
    locked: bool,
    calls_system: bool,
}

/// What a thread reports.
enum Event {
    Step,
    Signal(c_int),
    Cloned,
    Ended,
}

impl Tracer {
    /// Attaches to a process that has one thread.
    pub(crate) fn attach(main: pid_t, clock: u64) -> Result<Self> {
        let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        trace(libc::PTRACE_SEIZE, main, 0, options as u64)?;
        Ok(Self {
            main,
            clock,
            threads: Vec::new(),
            caches_in_use: 0,
            decoded: HashMap::new(),
            caches: Caches::default(),
            turns: 0,
            seed: 1,
            epoch_ns: 0,
        })
    }

    /// Lets the child run up to its first mark, and counts up to its second one.
    pub(crate) fn run(mut self) -> Result<Counts> {
        self.run_to_mark()?;
        self.stop_all()?;
        self.epoch_ns = now_ns();
        trace(libc::PTRACE_CONT, self.main, 0, 0)?;
        let begin = Instant::now();
        while !self.main_has_marked()? {
            if begin.elapsed() > MAX_TIME {
                return Err(format!("not done after {MAX_TIME:?}: use fewer --tasks"));
            }
            self.turn()?;
        }
        Ok(self.caches.finish())
    }

    fn run_to_mark(&mut self) -> Result<()> {
        loop {
            let (id, event) = wait(-1, 0)?.ok_or("nothing can be waited for")?;
            match event {
                Event::Signal(libc::SIGUSR1) if id == self.main => return Ok(()),
                Event::Signal(signal) => trace(libc::PTRACE_CONT, id, 0, signal as u64)?,
                Event::Ended if id == self.main => return Err("it has failed".to_owned()),
                Event::Ended => self.threads.retain(|thread| thread.id != id),
                Event::Step | Event::Cloned => {
                    self.add(id);
                    trace(libc::PTRACE_CONT, id, 0, 0)?;
                }
            }
        }
    }

    /// Notes a thread, unless it only waits for the others.
    fn add(&mut self, id: pid_t) {
        let known = self.threads.iter().any(|thread| thread.id == id);
        if id != self.main && !known {
            self.threads.push(Thread {
                id,
                cache: self.caches_in_use % MAX_THREADS,
                state: State::InCall,
            });
            self.caches_in_use += 1;
        }
    }

    fn stop_all(&mut self) -> Result<()> {
        for thread in &mut self.threads {
            trace(libc::PTRACE_INTERRUPT, thread.id, 0, 0)?;
            loop {
                match wait(thread.id, 0)? {
                    Some((_, Event::Step)) => break,
                    Some((_, Event::Ended)) => {
                        thread.state = State::Ended;
                        break;
                    }
                    _ => trace(libc::PTRACE_CONT, thread.id, 0, 0)?,
                }
            }
            // Its first step may begin a call of the system again that was interrupted.
            if thread.state != State::Ended {
                trace(libc::PTRACE_SINGLESTEP, thread.id, 0, 0)?;
            }
        }
        Ok(())
    }

    fn main_has_marked(&mut self) -> Result<bool> {
        if !self.turns.is_multiple_of(64) {
            return Ok(false);
        }
        match wait(self.main, libc::WNOHANG)? {
            None => Ok(false),
            Some((_, Event::Signal(libc::SIGUSR1))) => Ok(true),
            Some((_, Event::Ended)) => Err("it has failed".to_owned()),
            Some((_, event)) => {
                let signal = if let Event::Signal(signal) = event {
                    signal
                } else {
                    0
                };
                trace(libc::PTRACE_CONT, self.main, 0, signal as u64)?;
                Ok(false)
            }
        }
    }

    /// Each thread executes a few instructions.
    fn turn(&mut self) -> Result<()> {
        self.turns += 1;
        let mut idle = true;
        for index in 0..self.threads.len() {
            if self.threads[index].state == State::InCall {
                self.poll(index, libc::WNOHANG)?;
            }
            for _ in 0..self.quantum() {
                if self.threads[index].state == State::Stopped {
                    idle = false;
                    self.step(index)?;
                }
            }
        }
        self.threads.retain(|thread| thread.state != State::Ended);
        if idle {
            thread::sleep(Duration::from_micros(20));
        }
        Ok(())
    }

    /// A random number (xorshift), the same in each run.
    fn quantum(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        1 + self.seed % MAX_QUANTUM
    }

    /// Asks whether a thread has executed its instruction, which can be a call of the system that waits.
    fn poll(&mut self, index: usize, options: c_int) -> Result<()> {
        let id = self.threads[index].id;
        match wait(id, options)? {
            None => {}
            Some((_, Event::Ended)) => self.threads[index].state = State::Ended,
            Some((_, Event::Signal(signal))) => {
                trace(libc::PTRACE_SINGLESTEP, id, 0, signal as u64)?
            }
            Some((_, Event::Cloned)) => {
                self.add(new_thread(id)?);
                trace(libc::PTRACE_SINGLESTEP, id, 0, 0)?;
            }
            Some((_, Event::Step)) => self.threads[index].state = State::Stopped,
        }
        Ok(())
    }

    fn step(&mut self, index: usize) -> Result<()> {
        let id = self.threads[index].id;
        let mut registers = registers(id)?;
        if registers.rip == self.clock {
            return self.read_clock(id, &mut registers);
        }
        let decoded = self.decode(id, registers.rip)?;
        self.count(index, &decoded, &registers);
        if decoded.calls_system && waits_with_timeout(&registers) {
            registers.r10 = 0;
            set_registers(id, &mut registers)?;
        }
        trace(libc::PTRACE_SINGLESTEP, id, 0, 0)?;
        self.threads[index].state = State::InCall;
        if !decoded.calls_system {
            while self.threads[index].state == State::InCall {
                self.poll(index, 0)?;
            }
        }
        Ok(())
    }

    fn count(&mut self, index: usize, decoded: &Decoded, registers: &user_regs_struct) {
        let cache = self.threads[index].cache;
        let counts = self.caches.counts();
        counts.instructions += 1;
        counts.locked += u64::from(decoded.locked);
        for (memory, writes) in &decoded.accesses {
            let address = memory.virtual_address(0, |register, _, _| value(register, registers));
            if let Some(address) = address {
                let bytes = memory.memory_size().size() as u64;
                self.caches.access(cache, address, bytes, *writes);
            }
        }
    }

    fn decode(&mut self, id: pid_t, address: u64) -> Result<Decoded> {
        if let Some(decoded) = self.decoded.get(&address) {
            return Ok(decoded.clone());
        }
        let bytes = read_code(id, address)?;
        let mut decoder = Decoder::with_ip(64, &bytes, address, DecoderOptions::NONE);
        let decoded = Decoded::of(&decoder.decode());
        self.decoded.insert(address, decoded.clone());
        Ok(decoded)
    }

    /// Returns from the function that reads a clock, with the time of the model.
    fn read_clock(&self, id: pid_t, registers: &mut user_regs_struct) -> Result<()> {
        let mean_quantum = (1 + MAX_QUANTUM) / 2;
        let ns = self.epoch_ns + self.turns * mean_quantum * PS_PER_STEP / 1_000;
        trace(libc::PTRACE_POKEDATA, id, registers.rsi, ns / 1_000_000_000)?;
        trace(
            libc::PTRACE_POKEDATA,
            id,
            registers.rsi + 8,
            ns % 1_000_000_000,
        )?;
        registers.rip = peek(id, registers.rsp)?;
        registers.rsp += 8;
        registers.rax = 0;
        set_registers(id, registers)
    }
}

impl Decoded {
    fn of(instruction: &Instruction) -> Self {
        let mut factory = InstructionInfoFactory::new();
        let info = factory.info(instruction);
        let accesses = info.used_memory().iter().filter_map(|memory| {
            let writes = match memory.access() {
                OpAccess::Read | OpAccess::CondRead => false,
                // A processor takes the line, whether or not it then writes.
                OpAccess::Write
                | OpAccess::CondWrite
                | OpAccess::ReadWrite
                | OpAccess::ReadCondWrite => true,
                _ => return None,
            };
            Some((*memory, writes))
        });
        let accesses: Vec<_> = accesses.collect();
        let exchanges = instruction.mnemonic() == Mnemonic::Xchg && !accesses.is_empty();
        Self {
            locked: instruction.has_lock_prefix() || exchanges,
            calls_system: instruction.code() == Code::Syscall,
            accesses,
        }
    }
}

/// Returns `true` if a call waits for a thread or a time. The time would be over at once, since the clock of the child is
/// much slower than that of the system. In the few milliseconds of a workload, no time is over, so there is none.
fn waits_with_timeout(registers: &user_regs_struct) -> bool {
    let operation = registers.rsi as c_int & libc::FUTEX_CMD_MASK;
    let waits = operation == libc::FUTEX_WAIT || operation == libc::FUTEX_WAIT_BITSET;
    registers.rax == libc::SYS_futex as u64 && waits
}

/// The value of a register in an address.
fn value(register: Register, registers: &user_regs_struct) -> Option<u64> {
    let full = match register.full_register() {
        Register::RAX => registers.rax,
        Register::RBX => registers.rbx,
        Register::RCX => registers.rcx,
        Register::RDX => registers.rdx,
        Register::RSI => registers.rsi,
        Register::RDI => registers.rdi,
        Register::RBP => registers.rbp,
        Register::RSP => registers.rsp,
        Register::R8 => registers.r8,
        Register::R9 => registers.r9,
        Register::R10 => registers.r10,
        Register::R11 => registers.r11,
        Register::R12 => registers.r12,
        Register::R13 => registers.r13,
        Register::R14 => registers.r14,
        Register::R15 => registers.r15,
        Register::FS => registers.fs_base,
        Register::GS => registers.gs_base,
        Register::CS | Register::DS | Register::ES | Register::SS => 0,
        _ => return None,
    };
    Some(if register.is_gpr32() {
        full & 0xffff_ffff
    } else {
        full
    })
}

/// Waits for an event of a thread, or of any with -1. Returns `None` if there is none, and the options say not to wait.
fn wait(id: pid_t, options: c_int) -> Result<Option<(pid_t, Event)>> {
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

fn trace(request: libc::c_uint, id: pid_t, address: u64, data: u64) -> Result<()> {
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
fn new_thread(id: pid_t) -> Result<pid_t> {
    let mut new = 0_u64;
    let request = libc::PTRACE_GETEVENTMSG;
    trace(request, id, 0, ptr::from_mut(&mut new) as u64)?;
    pid_t::try_from(new).map_err(|error| error.to_string())
}

fn registers(id: pid_t) -> Result<user_regs_struct> {
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

fn set_registers(id: pid_t, registers: &mut user_regs_struct) -> Result<()> {
    trace(libc::PTRACE_SETREGS, id, 0, ptr::from_mut(registers) as u64)
}

fn peek(id: pid_t, address: u64) -> Result<u64> {
    let mut word = [0; 8];
    match read(id, address, &mut word) {
        8 => Ok(u64::from_le_bytes(word)),
        _ => Err(format!("memory at {address:#x} cannot be read")),
    }
}

/// The bytes of an instruction, which may be the last one before a page that is not mapped.
fn read_code(id: pid_t, address: u64) -> Result<Vec<u8>> {
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

fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is ours, and of the type that the call writes.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
