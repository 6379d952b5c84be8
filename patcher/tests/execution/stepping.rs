//! Runs that stop after every instruction, to record which are executed, and to move a thread.

use std::io::Write;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The trap flag, which makes the processor raise SIGTRAP after every instruction.
pub const TRAP: u64 = 1 << 8;

/// The maximum number of instructions in a run.
const MOST_STEPS: usize = 1 << 14;

/// `pushfq`
const PUSH_FLAGS: u8 = 0x9c;

/// Allows one run at a time, because there is only one handler.
static ONE: Mutex<()> = Mutex::new(());
/// The first address of the code to step through.
static START: AtomicU64 = AtomicU64::new(0);
/// The address after the code to step through.
static END: AtomicU64 = AtomicU64::new(0);
/// The addresses of the instructions executed, in order; the first `COUNT` are valid.
static EXECUTED: [AtomicU64; MOST_STEPS] = [const { AtomicU64::new(0) }; MOST_STEPS];
/// The number of instructions executed.
static COUNT: AtomicUsize = AtomicUsize::new(0);
/// True if the next instruction pushes the flags.
static PUSHES: AtomicBool = AtomicBool::new(false);

static MOVE_FROM: AtomicU64 = AtomicU64::new(0);
static MOVE_TO: AtomicU64 = AtomicU64::new(0);
/// The new contents of `TEXT_AT` for the move; null before a move is requested and after it is
/// done.
static NEW_TEXT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());
static TEXT_LEN: AtomicUsize = AtomicUsize::new(0);
static TEXT_AT: AtomicPtr<u8> = AtomicPtr::new(std::ptr::null_mut());

/// The right to run code with [`TRAP`].
pub struct Stepping {
    /// The bytes that `NEW_TEXT` points to.
    text: Vec<u8>,
    _one: MutexGuard<'static, ()>,
}

impl Stepping {
    /// Steps through code in `range`, until control leaves the range.
    pub fn within(range: Range<u64>) -> Self {
        let one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        START.store(range.start, Relaxed);
        END.store(range.end, Relaxed);
        COUNT.store(0, Relaxed);
        PUSHES.store(false, Relaxed);
        let handler: extern "C" fn(i32, *const libc::siginfo_t, *mut libc::ucontext_t) = step;
        // SAFETY: all zeroes are a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handler as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: `action` is initialized. Its handler has the parameters that SA_SIGINFO requires
        // and is async-signal-safe.
        let done = unsafe { libc::sigaction(libc::SIGTRAP, &action, std::ptr::null_mut()) };
        assert_eq!(done, 0, "sigaction");
        Self {
            text: Vec::new(),
            _one: one,
        }
    }

    /// When control first reaches `from`, replaces the code at `at` by `text` and continues at
    /// `to`.
    ///
    /// # Safety
    /// `at` must be valid for writes of `text.len()` bytes until this value is dropped.
    pub unsafe fn move_thread(&mut self, from: u64, to: u64, at: *mut u8, text: Vec<u8>) {
        self.text = text;
        MOVE_FROM.store(from, Relaxed);
        MOVE_TO.store(to, Relaxed);
        TEXT_AT.store(at, Relaxed);
        TEXT_LEN.store(self.text.len(), Relaxed);
        NEW_TEXT.store(self.text.as_mut_ptr(), Relaxed);
    }

    /// True if the requested move has been done, or if none was requested.
    pub fn has_moved(&self) -> bool {
        NEW_TEXT.load(Relaxed).is_null()
    }

    /// The addresses of the instructions executed in the range, in order.
    pub fn executed(&mut self) -> Vec<u64> {
        let count = COUNT.load(Relaxed);
        assert!(count < MOST_STEPS, "runs that end");
        let executed = &EXECUTED[..count];
        executed.iter().map(|pc| pc.load(Relaxed)).collect()
    }
}

impl Drop for Stepping {
    fn drop(&mut self) {
        NEW_TEXT.store(std::ptr::null_mut(), Relaxed);
    }
}

/// Runs between any two instructions, and before the first.
extern "C" fn step(_: i32, info: *const libc::siginfo_t, context: *mut libc::ucontext_t) {
    // SAFETY: the kernel passes both, valid while the handler runs.
    let (code, context) = unsafe { ((*info).si_code, &mut *context) };
    if code == libc::SI_KERNEL {
        // A breakpoint (arch/x86/kernel/traps.c, do_int3_user), which control should never reach.
        let pc = context.uc_mcontext.gregs[libc::REG_RIP as usize];
        let _ = writeln!(std::io::stderr(), "SIGTRAP of code {code} at {pc:#x}");
        // SAFETY: takes no argument.
        unsafe { libc::abort() };
    }
    let registers = &mut context.uc_mcontext.gregs;
    let mut pc = registers[libc::REG_RIP as usize] as u64;
    let text = NEW_TEXT.load(Relaxed);
    if !text.is_null() && pc == MOVE_FROM.load(Relaxed) {
        pc = MOVE_TO.load(Relaxed);
        registers[libc::REG_RIP as usize] = pc as i64;
        // SAFETY: `text` has this length, and the caller of `move_thread` guarantees the
        // destination.
        unsafe {
            TEXT_AT
                .load(Relaxed)
                .copy_from(text, TEXT_LEN.load(Relaxed))
        };
        NEW_TEXT.store(std::ptr::null_mut(), Relaxed);
    }
    if PUSHES.swap(false, Relaxed) {
        let pushed = registers[libc::REG_RSP as usize] as *mut u64;
        // SAFETY: the instruction just executed has pushed the flags there.
        unsafe { *pushed &= !TRAP };
    }
    let count = COUNT.load(Relaxed);
    if (START.load(Relaxed)..END.load(Relaxed)).contains(&pc) {
        if let Some(executed) = EXECUTED.get(count) {
            executed.store(pc, Relaxed);
            COUNT.store(count + 1, Relaxed);
        }
        // SAFETY: about to be executed, so it is readable.
        let opcode = unsafe { *(pc as *const u8) };
        PUSHES.store(opcode == PUSH_FLAGS, Relaxed);
    } else if count > 0 {
        registers[libc::REG_EFL as usize] &= !(TRAP as i64);
    }
}
