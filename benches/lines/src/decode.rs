//! Instructions: what they access, and how long they take.

use iced_x86::{
    Code, Decoder, DecoderOptions, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    Register, UsedMemory,
};
use libc::user_regs_struct;

/// The time of an instruction that has all its lines.
const PLAIN_PS: u64 = 300;

/// The time of an instruction that locks a line.
const LOCKED_PS: u64 = 6_000;

/// The time of an instruction that pauses a loop.
const PAUSE_PS: u64 = 30_000;

/// An instruction.
#[derive(Clone)]
pub(crate) struct Decoded {
    pub(crate) accesses: Vec<Access>,
    /// It has exclusive access to a line while it reads and writes it.
    pub(crate) locked: bool,
    pub(crate) calls_system: bool,
    /// The time that it takes once it has its lines.
    pub(crate) ps: u64,
}

/// An access of an instruction to memory.
#[derive(Clone)]
pub(crate) struct Access {
    memory: UsedMemory,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Decoded {
    pub(crate) fn of(bytes: &[u8], address: u64) -> Self {
        let mut decoder = Decoder::with_ip(64, bytes, address, DecoderOptions::NONE);
        let instruction = decoder.decode();
        let mut factory = InstructionInfoFactory::new();
        let used = factory.info(&instruction).used_memory();
        let accesses: Vec<_> = used.iter().filter_map(Access::of).collect();
        let exchanges = instruction.mnemonic() == Mnemonic::Xchg && !accesses.is_empty();
        let locked = instruction.has_lock_prefix() || exchanges;
        Self {
            accesses,
            locked,
            calls_system: instruction.code() == Code::Syscall,
            ps: time(&instruction, locked),
        }
    }
}

fn time(instruction: &Instruction, locked: bool) -> u64 {
    match instruction.mnemonic() {
        Mnemonic::Pause => PAUSE_PS,
        _ if locked => LOCKED_PS,
        _ => PLAIN_PS,
    }
}

impl Access {
    fn of(memory: &UsedMemory) -> Option<Self> {
        let (reads, writes) = match memory.access() {
            OpAccess::Read | OpAccess::CondRead => (true, false),
            OpAccess::Write | OpAccess::CondWrite => (false, true),
            // A processor takes the line, whether or not it then writes.
            OpAccess::ReadWrite | OpAccess::ReadCondWrite => (true, true),
            _ => return None,
        };
        Some(Self {
            memory: *memory,
            reads,
            writes,
        })
    }

    /// The address and the number of bytes.
    pub(crate) fn place(&self, registers: &user_regs_struct) -> Option<(u64, u64)> {
        let value = |register, _, _| value(register, registers);
        let address = self.memory.virtual_address(0, value)?;
        Some((address, self.memory.memory_size().size() as u64))
    }
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
