//! Executes code in its own mapping, with a full register state before and after.

use std::arch::naked_asm;

use iced_x86::code_asm::*;

use super::program::{DATA, LOG, SIZE, TEXT, TRAMPOLINES};
use super::stepping;

/// The general registers in the order of their numbers, and the flags. The stack pointer is not
/// loaded. Its change by the code is stored for it: 0 for code that keeps the stack balanced.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineState {
    pub registers: [u64; 16],
    pub flags: u64,
}

/// The carry, parity, adjust, zero, sign and overflow flags.
const STATUS: u64 = 0x8d5;

/// The index of `rbx`, which addresses the data page.
const RBX: usize = 3;
const RSP: usize = 4;

impl MachineState {
    /// A state derived from `seed`.
    pub fn random(mut seed: u64) -> Self {
        let mut next = || {
            // xorshift64*, with a constant for a seed of 0
            seed = if seed == 0 {
                0x9e37_79b9_7f4a_7c15
            } else {
                seed
            };
            seed ^= seed >> 12;
            seed ^= seed << 25;
            seed ^= seed >> 27;
            seed.wrapping_mul(0x2545_f491_4f6c_dd1d)
        };
        let registers = std::array::from_fn(|_| {
            let value = next();
            if value & 3 == 0 { value >> 60 } else { value }
        });
        Self {
            registers,
            flags: next() & STATUS,
        }
    }
}

/// The address of the remaining number of backward branches.
pub const FUEL: u64 = DATA + 0xff8;

/// The maximum run time, in seconds.
const LIMIT: u32 = 20;

/// A bit more than the reach of a jump with a 32-bit displacement, in bytes.
const REACH: usize = (1 << 31) + (1 << 16);

/// The address of the cell that hooks of entries call through.
pub const ENTRY_CELL: u64 = TRAMPOLINES;
/// The address of the cell that hooks of returns call through.
pub const EXIT_CELL: u64 = TRAMPOLINES + 8;
/// The address of the cell that hooks of points call through.
pub const POINT_CELL: u64 = TRAMPOLINES + 16;
/// The address of the cell that hooks of tail calls call through.
pub const TAIL_CELL: u64 = TRAMPOLINES + 24;
/// The size of each stub, and of all cells together, in bytes.
const STUB: u64 = 0x80;
/// The address of the first trampoline.
pub const FIRST: u64 = TRAMPOLINES + 5 * STUB;

/// The value that hooks of entries append to the log.
pub const ENTERED: u8 = 0xe0;
/// The value that hooks of returns append to the log.
pub const LEFT: u8 = 0xe1;
/// The value that hooks of tail calls append to the log.
pub const TAILED: u8 = 0xe2;

/// The length of a stepping stone, in bytes.
const STONE: u64 = patcher::emit::STONE;

/// A program in executable memory, with nothing else within reach of its jumps. Addresses are those
/// in the file, except for those of stepping stones.
pub struct Machine {
    /// The start of the reserved memory.
    reserved: *mut u8,
    /// The place at which offset 0 of the file is mapped.
    base: *mut u8,
    /// The addresses of stepping stones in this process.
    stones: Vec<u64>,
}

impl Machine {
    /// Maps `file`.
    pub fn new(file: &[u8]) -> Self {
        // SAFETY: a fresh anonymous mapping, at no address that is given.
        let reserved = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                2 * REACH + SIZE,
                libc::PROT_NONE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        assert_ne!(reserved, libc::MAP_FAILED, "mmap");
        let reserved = reserved.cast::<u8>();
        let mut machine = Self {
            reserved,
            base: reserved.wrapping_add(REACH),
            stones: Vec::new(),
        };
        machine.open(machine.base(), SIZE as u64);
        machine.load(file);
        machine
    }

    /// Makes the pages that contain `len` bytes at `at` in this process readable, writable and
    /// executable.
    fn open(&mut self, at: u64, len: u64) {
        const PAGE: u64 = 4096;
        let start = at & !(PAGE - 1);
        let len = (at + len - start).next_multiple_of(PAGE);
        let reserved = self.reserved as u64;
        assert!(reserved <= start && start + len <= reserved + (2 * REACH + SIZE) as u64);
        // SAFETY: the range is within the reserved memory, by the assertion. No reference to it
        // exists.
        let done = unsafe {
            libc::mprotect(
                start as *mut libc::c_void,
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            )
        };
        assert_eq!(done, 0, "mprotect");
    }

    /// Chooses an address in `targets`, a range in this process, for a stepping stone. `None` if
    /// there is no room.
    pub fn stone(&mut self, targets: std::ops::Range<u64>) -> Option<u64> {
        let program = self.base()..self.base() + SIZE as u64;
        let taken = self.stones.iter().map(|&stone| stone..stone + STONE);
        let taken: Vec<_> = taken.chain([program]).collect();
        let ends = taken.iter().map(|t| t.end);
        let at = std::iter::once(targets.start).chain(ends).find(|&at| {
            let free = |t: &std::ops::Range<u64>| t.end <= at || at + STONE <= t.start;
            targets.contains(&at) && taken.iter().all(free)
        })?;
        self.stones.push(at);
        Some(at)
    }

    /// Writes a stepping stone to an address that [`Machine::stone`] has returned.
    pub fn write_stone(&mut self, at: u64, code: &[u8]) {
        assert!(self.stones.contains(&at) && code.len() as u64 == STONE);
        self.open(at, STONE);
        // SAFETY: mapped and writable, as opened above; nothing refers to it.
        unsafe { (at as *mut u8).copy_from_nonoverlapping(code.as_ptr(), code.len()) };
    }

    /// Restores all contents from `file`, and writes the cells and stubs for the hooks.
    pub fn load(&mut self, file: &[u8]) {
        self.write(TEXT, &file[TEXT as usize..DATA as usize + 0x1000]);
        let cells = [
            (ENTRY_CELL, Some(ENTERED)),
            (EXIT_CELL, Some(LEFT)),
            (POINT_CELL, None),
            (TAIL_CELL, Some(TAILED)),
        ];
        for (index, (cell, tag)) in cells.into_iter().enumerate() {
            let at = TRAMPOLINES + STUB * (1 + index as u64);
            self.write(cell, &(self.base() + at).to_le_bytes());
            let code = stub(self.base() + LOG, tag).expect("assembles");
            assert!(code.len() as u64 <= STUB);
            self.write(at, &code);
        }
        self.reset(file);
    }

    /// Restores the data from `file`, refills the fuel, and clears the log of hooks.
    pub fn reset(&mut self, file: &[u8]) {
        self.write(DATA, &file[DATA as usize..][..0x1000]);
        self.write(FUEL, &[5]);
        self.write(LOG, &(self.base() + LOG + 8).to_le_bytes());
    }

    /// The address in this process at which offset 0 of the file is mapped.
    pub fn base(&self) -> u64 {
        self.base as u64
    }

    /// The `len` bytes at `at`.
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        assert!(at as usize + len <= SIZE, "in the mapping");
        // SAFETY: in the mapping, by the assertion; nothing else refers to it.
        unsafe { std::slice::from_raw_parts(self.base.add(at as usize), len).to_vec() }
    }

    /// Writes `bytes` at `at`.
    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= SIZE, "in the mapping");
        // SAFETY: in the mapping, by the assertion; `bytes` is outside of it.
        unsafe {
            self.base
                .add(at as usize)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// The hooks that have run, in order: [`ENTERED`], [`LEFT`] or [`TAILED`], and the numbers of
    /// points.
    pub fn hooks_run(&self) -> Vec<u8> {
        let end = self.read(LOG, 8).try_into().expect("eight bytes");
        let len = u64::from_le_bytes(end) - self.base() - LOG - 8;
        self.read(LOG + 8, len as usize)
    }

    /// Like [`Machine::run`], but moves the thread: when it reaches `from`, the text becomes
    /// `text`, and the thread continues at `to`. `None` if it never reaches `from`.
    pub fn run_moved(
        &mut self,
        at: u64,
        state: &MachineState,
        (from, to): (u64, u64),
        text: Vec<u8>,
    ) -> Option<MachineState> {
        assert!(text.len() as u64 <= DATA - TEXT);
        let mut stepping = stepping::Stepping::within(self.base()..self.base() + SIZE as u64);
        let text_at = self.base.wrapping_add(TEXT as usize);
        // SAFETY: the mapping holds the text, by the assertion, and outlives `stepping`.
        unsafe { stepping.move_thread(from, to, text_at, text) };
        let mut stepped = state.clone();
        stepped.flags |= stepping::TRAP;
        let after = self.run(at, &stepped);
        stepping.has_moved().then_some(after)
    }

    /// Like [`Machine::run`], but also returns the addresses in the file of all executed
    /// instructions, in order.
    pub fn step(&mut self, at: u64, state: &MachineState) -> (MachineState, Vec<u64>) {
        let mut stepping = stepping::Stepping::within(self.base()..self.base() + SIZE as u64);
        let mut stepped = state.clone();
        stepped.flags |= stepping::TRAP;
        let after = self.run(at, &stepped);
        let executed = stepping.executed().into_iter();
        (after, executed.map(|pc| pc - self.base()).collect())
    }

    /// Calls the function at `at` with `state`, and returns the state after the call.
    pub fn run(&mut self, at: u64, state: &MachineState) -> MachineState {
        let mut state = state.clone();
        state.registers[RBX] = self.base() + DATA;
        // Faulty code may loop forever. SAFETY: takes no pointer; the signal ends this process.
        unsafe { libc::alarm(LIMIT) };
        // SAFETY: the test made the code at `at`. The code ends with a return, keeps the stack
        // balanced, and writes only its stack and the data page.
        unsafe { enter(&mut state, self.base.add(at as usize)) };
        // SAFETY: as above.
        unsafe { libc::alarm(0) };
        state
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the mapping was made in `new`, and no reference to it is left.
        unsafe { libc::munmap(self.reserved.cast(), 2 * REACH + SIZE) };
    }
}

/// A stub that appends `tag`, otherwise the value of `al`, to the log at `log`.
///
/// It preserves the flags and all registers. It overwrites as many bytes of the stack as the red
/// zone has.
fn stub(log: u64, tag: Option<u8>) -> Result<Vec<u8>, iced_x86::IcedError> {
    let mut a = CodeAssembler::new(64)?;
    a.push(rcx)?;
    a.push(rdx)?;
    for _ in 0..16 {
        a.push(rcx)?;
    }
    a.lea(rsp, rsp + 128)?;
    a.mov(rcx, log)?;
    a.mov(rdx, qword_ptr(rcx))?;
    match tag {
        Some(tag) => a.mov(byte_ptr(rdx), u32::from(tag))?,
        None => a.mov(byte_ptr(rdx), al)?,
    }
    a.lea(rdx, rdx + 1)?;
    a.mov(qword_ptr(rcx), rdx)?;
    a.pop(rdx)?;
    a.pop(rcx)?;
    a.ret()?;
    a.assemble(0)
}

/// Loads the registers and flags from `state`, calls `code`, and stores them.
///
/// # Safety
/// `code` must be callable in any register state with the given `rbx`, and must not unwind.
#[unsafe(naked)]
unsafe extern "sysv64" fn enter(state: &mut MachineState, code: *const u8) {
    naked_asm!(
        // The callee-saved registers of the caller.
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi", // state, for afterwards
        "push rsi", // code, called through the stack
        // The stack pointer, for comparison afterwards.
        "mov [rdi + 32], rsp",
        // The flags come first, because loading registers leaves them alone.
        "push qword ptr [rdi + 128]",
        "popfq",
        "mov rax, [rdi]",
        "mov rcx, [rdi + 8]",
        "mov rdx, [rdi + 16]",
        "mov rbx, [rdi + 24]",
        "mov rbp, [rdi + 40]",
        "mov rsi, [rdi + 48]",
        "mov r8, [rdi + 64]",
        "mov r9, [rdi + 72]",
        "mov r10, [rdi + 80]",
        "mov r11, [rdi + 88]",
        "mov r12, [rdi + 96]",
        "mov r13, [rdi + 104]",
        "mov r14, [rdi + 112]",
        "mov r15, [rdi + 120]",
        "mov rdi, [rdi + 56]",
        "call qword ptr [rsp]",
        // rdi is needed for the state; its value is kept in the slot of the code's address.
        "mov [rsp], rdi",
        "mov rdi, [rsp + 8]",
        "mov [rdi], rax",
        "mov [rdi + 8], rcx",
        "mov [rdi + 16], rdx",
        "mov [rdi + 24], rbx",
        "mov [rdi + 40], rbp",
        "mov [rdi + 48], rsi",
        "mov [rdi + 64], r8",
        "mov [rdi + 72], r9",
        "mov [rdi + 80], r10",
        "mov [rdi + 88], r11",
        "mov [rdi + 96], r12",
        "mov [rdi + 104], r13",
        "mov [rdi + 112], r14",
        "mov [rdi + 120], r15",
        "pop qword ptr [rdi + 56]",
        "pushfq",
        "pop qword ptr [rdi + 128]",
        // The change of the stack pointer. The slot of the code's address has been popped.
        "lea rax, [rsp - 8]",
        "sub rax, [rdi + 32]",
        "mov [rdi + 32], rax",
        "pop rdi",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

const _: () = assert!(std::mem::offset_of!(MachineState, flags) == 128);
const _: () = assert!(RSP * 8 == 32);
