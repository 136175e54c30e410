//! Executes the threads of a child one instruction at a time, and enters what they access into the model.
//!
//! Each thread has a time of its own. The thread whose time is least executes its next instruction, once it has the
//! lines that the instruction needs. So the threads run as if each had a core, and the time of the model is not that of
//! this program.

use std::collections::HashMap;
use std::thread;
use std::time::{Duration, Instant};

use libc::{c_int, pid_t, user_regs_struct};

use crate::Result;
use crate::decode::Decoded;
use crate::model::{Answer, Caches, Counts, MAX_THREADS};
use crate::ptrace::{Event, new_thread, peek, read_code, registers, set_registers, trace, wait};

/// The time of a call of the system that does not wait.
const CALL_PS: u64 = 300_000;

/// The time from when a thread is woken until it runs.
const WAKE_PS: u64 = 5_000_000;

/// The time of reading a clock.
const CLOCK_PS: u64 = 20_000;

/// The most that a random number adds to the time of an instruction, so that threads do not run in step.
const JITTER_PS: u64 = 100;

/// The number of instructions after which threads in calls of the system are looked at. A call that wakes a thread is
/// followed by as many at which they are looked at each time.
const INSTRUCTIONS_PER_LOOK: u64 = 64;

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
    /// The times of the first instruction and of the latest one.
    first_ps: Option<u64>,
    now_ps: u64,
    /// Turns so far, and the turn after which threads in calls are looked at less often.
    turns: u64,
    look_until: u64,
    seed: u64,
    epoch_ns: u64,
}

struct Thread {
    id: pid_t,
    /// Its cache in the model.
    cache: usize,
    state: State,
    /// The time at which it can execute its next instruction.
    ready_ps: u64,
    /// The time at which the lines have arrived that it has written without waiting for them.
    stored_ps: u64,
    /// Its registers, if they were read since its last instruction.
    registers: Option<user_regs_struct>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// It waits for its next step.
    Stopped,
    /// It executes an instruction, and will stop after it.
    Running,
    /// It waits for another thread in a call of the system.
    Waiting,
    Ended,
}

impl Tracer {
    /// Attaches to a process that has one thread.
    pub(crate) fn attach(main: pid_t, clock: u64) -> Result<Self> {
        let options = libc::PTRACE_O_TRACECLONE | libc::PTRACE_O_EXITKILL;
        trace(libc::PTRACE_SEIZE, main, 0, options as u64)
            .map_err(|error| format!("ptrace is forbidden: {error}"))?;
        Ok(Self {
            main,
            clock,
            threads: Vec::new(),
            caches_in_use: 0,
            decoded: HashMap::new(),
            caches: Caches::default(),
            first_ps: None,
            now_ps: 0,
            turns: 0,
            look_until: 0,
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
        self.caches.counts().ps = self.now_ps - self.first_ps.unwrap_or(0);
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
                state: State::Waiting,
                ready_ps: 0,
                stored_ps: 0,
                registers: None,
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
        if !self.turns.is_multiple_of(INSTRUCTIONS_PER_LOOK) {
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

    /// The thread whose time is least executes an instruction, or waits for its lines.
    fn turn(&mut self) -> Result<()> {
        self.turns += 1;
        if self.turns < self.look_until || self.turns.is_multiple_of(INSTRUCTIONS_PER_LOOK) {
            self.look_at_waiting()?;
        }
        let threads = self.threads.iter().enumerate();
        let stopped = threads.filter(|(_, thread)| thread.state == State::Stopped);
        match stopped.min_by_key(|(_, thread)| thread.ready_ps) {
            Some((index, _)) => self.step(index),
            None => {
                thread::sleep(Duration::from_micros(20));
                self.look_at_waiting()
            }
        }
    }

    fn look_at_waiting(&mut self) -> Result<()> {
        for index in 0..self.threads.len() {
            if self.threads[index].state == State::Waiting {
                self.poll(index, libc::WNOHANG)?;
            }
        }
        self.threads.retain(|thread| thread.state != State::Ended);
        Ok(())
    }

    /// Asks whether a thread has executed its instruction.
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
            Some((_, Event::Step)) => self.stopped(index)?,
        }
        Ok(())
    }

    fn stopped(&mut self, index: usize) -> Result<()> {
        let thread = &mut self.threads[index];
        if thread.state == State::Waiting {
            let registers = registers(thread.id)?;
            if registers.rax as i64 != -i64::from(libc::EAGAIN) {
                thread.ready_ps = thread.ready_ps.max(self.now_ps + WAKE_PS);
            }
            thread.registers = Some(registers);
        }
        thread.state = State::Stopped;
        Ok(())
    }

    fn step(&mut self, index: usize) -> Result<()> {
        let thread = &mut self.threads[index];
        let (id, known) = (thread.id, thread.registers.take());
        let mut registers = known.map_or_else(|| registers(id), Ok)?;
        self.now_ps = self.now_ps.max(thread.ready_ps);
        self.first_ps.get_or_insert(thread.ready_ps);
        if registers.rip == self.clock {
            return self.read_clock(index, &mut registers);
        }
        let decoded = self.decode(id, registers.rip)?;
        let ready_ps = self.time_of_lines(index, &decoded, &registers);
        let thread = &mut self.threads[index];
        if ready_ps > thread.ready_ps {
            thread.ready_ps = ready_ps;
            thread.registers = Some(registers);
            return Ok(());
        }
        self.count(index, &decoded);
        if decoded.calls_system {
            return self.call_system(index, &mut registers);
        }
        self.execute(index)
    }

    /// The time at which a thread has the lines of its next instruction. A line that it only writes may arrive later,
    /// except for an instruction that locks, which also waits for the lines that were written before.
    fn time_of_lines(
        &mut self,
        index: usize,
        decoded: &Decoded,
        registers: &user_regs_struct,
    ) -> u64 {
        let thread = &mut self.threads[index];
        if decoded.locked && thread.stored_ps > thread.ready_ps {
            return thread.stored_ps;
        }
        let mut time = thread.ready_ps;
        for access in &decoded.accesses {
            let Some(place) = access.place(registers) else {
                continue;
            };
            let now = thread.ready_ps;
            match self.caches.access(thread.cache, place, access.writes, now) {
                Answer::Has => {}
                Answer::Arrives(at) if !access.reads => {
                    thread.stored_ps = thread.stored_ps.max(at);
                }
                Answer::Arrives(at) | Answer::Busy(at) => time = time.max(at),
            }
        }
        time
    }

    fn count(&mut self, index: usize, decoded: &Decoded) {
        let counts = self.caches.counts();
        counts.instructions += 1;
        counts.locked += u64::from(decoded.locked);
        self.threads[index].ready_ps += decoded.ps + self.random() % JITTER_PS;
    }

    fn execute(&mut self, index: usize) -> Result<()> {
        trace(libc::PTRACE_SINGLESTEP, self.threads[index].id, 0, 0)?;
        self.threads[index].state = State::Running;
        while self.threads[index].state == State::Running {
            self.poll(index, 0)?;
        }
        Ok(())
    }

    /// Calls the system. The call may wake a thread.
    fn call_system(&mut self, index: usize, registers: &mut user_regs_struct) -> Result<()> {
        self.threads[index].ready_ps += CALL_PS;
        self.look_until = self.turns + INSTRUCTIONS_PER_LOOK;
        if !waits(registers) {
            return self.execute(index);
        }
        // The time of the model is much slower than that of the system, and in the few milliseconds of a workload, no
        // timeout ends. So there is none.
        registers.r10 = 0;
        let id = self.threads[index].id;
        set_registers(id, registers)?;
        self.threads[index].state = State::Waiting;
        trace(libc::PTRACE_SINGLESTEP, id, 0, 0)
    }

    fn decode(&mut self, id: pid_t, address: u64) -> Result<Decoded> {
        if let Some(decoded) = self.decoded.get(&address) {
            return Ok(decoded.clone());
        }
        let decoded = Decoded::of(&read_code(id, address)?, address);
        self.decoded.insert(address, decoded.clone());
        Ok(decoded)
    }

    /// Returns from the function that reads a clock, with the time of the model.
    fn read_clock(&mut self, index: usize, registers: &mut user_regs_struct) -> Result<()> {
        let thread = &mut self.threads[index];
        thread.ready_ps += CLOCK_PS;
        let (id, ns) = (thread.id, self.epoch_ns + thread.ready_ps / 1_000);
        let (seconds, nanoseconds) = (ns / 1_000_000_000, ns % 1_000_000_000);
        trace(libc::PTRACE_POKEDATA, id, registers.rsi, seconds)?;
        trace(libc::PTRACE_POKEDATA, id, registers.rsi + 8, nanoseconds)?;
        registers.rip = peek(id, registers.rsp)?;
        registers.rsp += 8;
        registers.rax = 0;
        set_registers(id, registers)
    }

    /// A random number (xorshift), the same in each run.
    fn random(&mut self) -> u64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        self.seed
    }
}

/// Returns `true` if a call waits for another thread.
fn waits(registers: &user_regs_struct) -> bool {
    let operation = registers.rsi as c_int & libc::FUTEX_CMD_MASK;
    let waits = operation == libc::FUTEX_WAIT || operation == libc::FUTEX_WAIT_BITSET;
    registers.rax == libc::SYS_futex as u64 && waits
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
