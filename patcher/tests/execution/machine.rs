//! Executes code in a mapping of its own, from and to a full register state.

use std::arch::naked_asm;

use super::program::{DATA, SIZE, TEXT, TRAMPOLINES};

/// The general registers in the order of their numbers, and the flags. The stack pointer is not
/// set; what is read back of it is its change.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct State {
    pub registers: [u64; 16],
    pub flags: u64,
}

/// Carry, parity, adjust, zero, sign, overflow.
const STATUS: u64 = 0x8d5;

/// `rbx` addresses the data page.
const RBX: usize = 3;
const RSP: usize = 4;

impl State {
    /// A state that `seed` determines.
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

/// Where the number of branches back stands that are taken.
pub const FUEL: u64 = DATA + 0xff8;

/// No code runs longer than this, in seconds.
const LIMIT: u32 = 20;

/// What any jump with a 32-bit displacement reaches, and a bit more.
const REACH: usize = (1 << 31) + (1 << 16);

/// The length of a stepping stone.
const STONE: u64 = patcher::emit::STONE;

/// A program in executable memory, with nothing else within reach of its jumps.
pub struct Machine {
    /// Where what is reserved begins.
    reserved: *mut u8,
    base: *mut u8,
    /// The addresses of stepping stones.
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

    /// Lets the pages that hold `len` bytes at `at` be read, written and executed.
    fn open(&mut self, at: u64, len: u64) {
        const PAGE: u64 = 4096;
        let start = at & !(PAGE - 1);
        let len = (at + len - start).next_multiple_of(PAGE);
        let reserved = self.reserved as u64;
        assert!(reserved <= start && start + len <= reserved + (2 * REACH + SIZE) as u64);
        // SAFETY: within what is reserved, by the assertion, to which no reference exists.
        let done = unsafe {
            libc::mprotect(
                start as *mut libc::c_void,
                len as usize,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
            )
        };
        assert_eq!(done, 0, "mprotect");
    }

    /// A place in `targets` for a stepping stone, if there is one.
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

    /// Writes a stepping stone to the place chosen.
    pub fn write_stone(&mut self, at: u64, code: &[u8]) {
        assert!(self.stones.contains(&at) && code.len() as u64 == STONE);
        self.open(at, STONE);
        // SAFETY: mapped and writable, as opened above; nothing refers to it.
        unsafe { (at as *mut u8).copy_from_nonoverlapping(code.as_ptr(), code.len()) };
    }

    /// Makes everything what it is in `file`, with cells for the hooks.
    pub fn load(&mut self, file: &[u8]) {
        self.write(TEXT, &file[TEXT as usize..DATA as usize + 0x1000]);
        let stubs = TRAMPOLINES + 0x20;
        for (index, cell) in [TRAMPOLINES, TRAMPOLINES + 8].into_iter().enumerate() {
            let stub = stubs + 0x40 * index as u64;
            self.write(cell, &(self.base() + stub).to_le_bytes());
            let counter = self.base() + TRAMPOLINES + 0x10 + 8 * index as u64;
            // push rcx; movabs rcx, counter; push rdx; mov rdx, [rcx]; lea rdx, [rdx + 1];
            // mov [rcx], rdx; pop rdx; pop rcx; ret: no flag changes
            let mut code = vec![0x51, 0x48, 0xb9];
            code.extend(counter.to_le_bytes());
            code.extend([0x52, 0x48, 0x8b, 0x11, 0x48, 0x8d, 0x52, 0x01]);
            code.extend([0x48, 0x89, 0x11, 0x5a, 0x59, 0xc3]);
            self.write(stub, &code);
        }
        self.reset(file);
    }

    /// Makes the data what it is in `file`, with fuel, and forgets which hooks have run.
    pub fn reset(&mut self, file: &[u8]) {
        self.write(DATA, &file[DATA as usize..][..0x1000]);
        self.write(FUEL, &[5]);
        self.write(TRAMPOLINES + 0x10, &[0; 16]);
    }

    /// Where address 0 of the file lies.
    pub fn base(&self) -> u64 {
        self.base as u64
    }

    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        assert!(at as usize + len <= SIZE, "in the mapping");
        // SAFETY: in the mapping, by the assertion; nothing else refers to it.
        unsafe { std::slice::from_raw_parts(self.base.add(at as usize), len).to_vec() }
    }

    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        assert!(at as usize + bytes.len() <= SIZE, "in the mapping");
        // SAFETY: in the mapping, by the assertion; `bytes` lies outside of it.
        unsafe {
            self.base
                .add(at as usize)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// How often the hooks for entries and exits have run.
    pub fn hooks_run(&self) -> (u64, u64) {
        let counters = self.read(TRAMPOLINES + 0x10, 16);
        let (entries, exits) = counters.split_at(8);
        let word = |c: &[u8]| u64::from_le_bytes(c.try_into().expect("eight bytes"));
        (word(entries), word(exits))
    }

    /// Calls the function at `at` with `state`.
    pub fn run(&mut self, at: u64, state: &State) -> State {
        let mut state = state.clone();
        state.registers[RBX] = self.base() + DATA;
        // Code that is not what it should be may go round for ever.
        // SAFETY: takes no pointer; the signal ends this process.
        unsafe { libc::alarm(LIMIT) };
        // SAFETY: the code at `at` was made by the test: it ends with a return, keeps the stack
        // balanced and writes only its stack and the data page.
        unsafe { enter(&mut state, self.base.add(at as usize)) };
        // SAFETY: as above.
        unsafe { libc::alarm(0) };
        state
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, to which nothing refers any more.
        unsafe { libc::munmap(self.reserved.cast(), 2 * REACH + SIZE) };
    }
}

/// Loads the registers and flags from `state`, calls `code`, and stores them again.
///
/// # Safety
/// `code` must be callable in any state of the registers that has `rbx` as given, and must not
/// unwind.
#[unsafe(naked)]
unsafe extern "sysv64" fn enter(state: &mut State, code: *const u8) {
    naked_asm!(
        // What the caller wants back.
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rdi", // state, for afterwards
        "push rsi", // code, called through the stack
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
        // rdi is needed for the state; its value waits where the code's address was.
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
        // The code must have kept the stack balanced: what is on top is the state again.
        "mov rax, rsp",
        "sub rax, rsp",
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

const _: () = assert!(std::mem::offset_of!(State, flags) == 128);
const _: () = assert!(RSP * 8 == 32);
