use std::arch::asm;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// The size in bytes of the stack for signals, and of the part that a handler may need below its
/// frame.
const STACK: u64 = 128 << 10;
const SPARE: u64 = 32 << 10;
/// The step between addresses of frames on one stack: extended states are aligned to it.
const STEP: u64 = 64;

/// The signal.
const SIGNAL: i32 = libc::SIGUSR2;

/// The offset of the lower one of two frames on the stack.
const LOW: u64 = STACK / 2;

/// The address of the `ucontext_t` of the last handler.
static LAST: AtomicU64 = AtomicU64::new(0);

/// Lets one test at a time handle signals.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

extern "C" fn handle(_: i32, _: *mut libc::siginfo_t, context: *mut libc::c_void) {
    LAST.store(context as u64, Ordering::Relaxed);
}

/// A stack on which the kernel puts frames of a signal.
struct Signalled {
    stack: memmap2::MmapMut,
    /// The return address of its frames.
    restorer: Avma,
}

impl Signalled {
    fn new(flags: i32) -> Self {
        // SAFETY: plain data, for which zero is a value.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = flags;
        // SAFETY: the action is whole, and its handler only stores a number.
        let result = unsafe { libc::sigaction(SIGNAL, &action, std::ptr::null_mut()) };
        assert_eq!(result, 0);
        let stack = memmap2::MmapMut::map_anon(STACK as usize).expect("memory");
        let restorer = Avma(0);
        let mut on = Self { stack, restorer };
        let first = on.get(LOW, 0);
        on.restorer = on.frame(first).restorer;
        on
    }

    fn is_over(&self, later: &SignalFrame, earlier: &SignalFrame) -> bool {
        is_over(later, earlier, self.restorer)
    }

    fn start(&self) -> u64 {
        self.stack.as_ptr() as u64
    }

    /// Raises the signal with the stack pointer `rsp` bytes up the stack, and `filling` in vector
    /// registers. Returns the address of the frame.
    fn get(&mut self, rsp: u64, filling: u8) -> u64 {
        assert!((SPARE..=STACK).contains(&rsp) && rsp.is_multiple_of(16));
        let filling = [filling; 16];
        // SAFETY: the stack pointer is on a stack with room for the frame and the handler, and is
        // restored before anything else uses it. A signal that a thread sends to itself arrives
        // before tgkill returns.
        unsafe {
            asm!(
                "movdqu xmm1, [{filling}]",
                "movdqu xmm3, [{filling}]",
                "xchg rsp, {rsp}",
                "syscall",
                "xchg rsp, {rsp}",
                filling = in(reg) filling.as_ptr(),
                rsp = inout(reg) self.start() + rsp => _,
                inlateout("rax") libc::SYS_tgkill => _,
                in("rdi") libc::getpid(),
                in("rsi") libc::gettid(),
                in("rdx") SIGNAL,
                out("rcx") _,
                out("r11") _,
                out("xmm1") _,
                out("xmm3") _,
            );
        }
        // The return address is before it.
        LAST.load(Ordering::Relaxed) - WORD
    }

    fn frame(&self, at: u64) -> SignalFrame {
        let index = (at - self.start()) as usize;
        SignalFrame::parse(&self.stack, Avma(self.start()), index).expect("is there")
    }

    /// Raises two signals on a fresh stack, and returns their frames.
    fn get_two(&mut self, first: u64, second: u64, filling: u8) -> [SignalFrame; 2] {
        self.stack.fill(0xa5);
        let at = [self.get(first, filling), self.get(second, !filling)];
        at.map(|at| self.frame(at))
    }
}

/// True if a part of the extended state is not written, so that a frame may lie in it without
/// overwriting anything of another one.
fn has_gap(frame: &SignalFrame) -> bool {
    let extended = frame.extended.expect("is whole");
    let written = extended.written().map(|range| range.end);
    let vectors = written.filter(|&end| end <= extended.len).max();
    vectors.is_some_and(|end| end + 64 < extended.len)
}

/// The distances at which two frames of the kernel overlap.
fn distances(on: &mut Signalled) -> impl Iterator<Item = u64> + use<> {
    let at = on.get(LOW, 0);
    let end = on.frame(at).end.expect("has extended state");
    assert!(end.0 - at > TO_STATE + LEGACY);
    (STEP..end.0 - at).step_by(STEP as usize)
}

/// Uses frames of the kernel, at every distance at which they overlap, with and without
/// `siginfo_t`.
#[test]
fn a_later_frame_over_another_is_told() {
    let _alone = alone();
    for flags in [0, libc::SA_SIGINFO] {
        let mut on = Signalled::new(flags);
        for distance in distances(&mut on) {
            for filling in [0, 0x33, 0xa5] {
                let [old, new] = on.get_two(LOW, LOW + distance, filling);
                assert_eq!(new.at.0 - old.at.0, distance);
                let is_told = on.is_over(&new, &old);
                assert!(is_told || has_gap(&new), "{distance}: {old:x?} {new:x?}");
                assert!(!on.is_over(&old, &new), "{distance}");
                assert_eq!(new.goes_on_at(), Some(new.pc), "{distance}");
                let extended = new.extended.expect("is whole");
                assert!(new.has_state() && new.is_in_place(extended));
            }
        }
    }
}

#[test]
fn what_is_left_of_an_earlier_frame_tells_nothing() {
    let _alone = alone();
    for flags in [0, libc::SA_SIGINFO] {
        let mut on = Signalled::new(flags);
        for distance in distances(&mut on) {
            let [old, new] = on.get_two(LOW + distance, LOW, 0x33);
            assert_eq!(old.at.0 - new.at.0, distance);
            assert!(!on.is_over(&old, &new), "{distance}");
            // The kernel may have left, in gaps of the later frame, the parts by which the earlier
            // one is recognized.
            let is_frame = old.segments == SEGMENTS && old.has_state();
            let is_told = on.is_over(&new, &old);
            assert!(!is_frame || is_told || has_gap(&new), "{distance}");
            assert_eq!(new.goes_on_at(), Some(new.pc), "{distance}");
        }
    }
}

/// Like the previous test, but the signal interrupted code that had every possible part of the
/// earlier frame in its registers. Code that copies frames may have them.
#[test]
fn registers_that_hold_an_earlier_frame_tell_nothing() {
    let _alone = alone();
    let mut on = Signalled::new(0);
    for distance in distances(&mut on) {
        on.stack.fill(0xa5);
        let old = on.get(LOW + distance, 0);
        let left = on.stack.to_vec();
        let new = on.get(LOW, 0);
        // r8 to rcx, then the registers of x87 and the sixteen of SSE.
        for (offset, len) in [(REGISTERS, SP - REGISTERS), (TO_STATE + 32, 384)] {
            let at = (new + offset - on.start()) as usize;
            let range = at..at + len as usize;
            on.stack[range.clone()].copy_from_slice(&left[range]);
        }
        let (old, new) = (on.frame(old), on.frame(new));
        assert!(!on.is_over(&old, &new), "{distance}");
        assert_eq!(new.goes_on_at(), Some(new.pc), "{distance}");
    }
}

const RESTORER: u64 = 0x7000;

/// The start of a stack of 4096 bytes, with a frame without extended state on it.
const FROM: u64 = 0x10_0000;

fn set(stack: &mut [u8], at: u64, to: u64) {
    let at = (at - FROM) as usize;
    stack[at..at + 8].copy_from_slice(&to.to_le_bytes());
}

fn lay(stack: &mut [u8], at: u64, rsp: u64) {
    let state = at + TO_STATE;
    for offset in (0..HEAD).step_by(8) {
        set(stack, at + offset, 0);
    }
    set(stack, at + HEAD + 64, 0);
    for offset in (0..576).step_by(8) {
        set(stack, state + offset, 0);
    }
    set(stack, at, RESTORER);
    set(stack, at + SP, rsp);
    set(stack, at + AT_SEGMENTS, u64::from_le_bytes(SEGMENTS));
    set(stack, at + STATE, state);
}

/// True if `later` was written over `earlier`. `restorer` is the return address of frames.
fn is_over(later: &SignalFrame, earlier: &SignalFrame, restorer: Avma) -> bool {
    earlier.is_overwritten_by(later, |at| at == restorer)
}

fn frame(stack: &[u8], at: u64) -> SignalFrame {
    SignalFrame::parse(stack, Avma(FROM), (at - FROM) as usize).expect("on the stack")
}

/// The offsets are from offsetof() on the kernel's structures.
#[test]
fn words_are_where_the_kernel_puts_them() {
    assert_eq!((SP, PC, AT_SEGMENTS, STATE), (168, 176, 192, 232));
    assert_eq!((ALTERNATE, ALTERNATE_SIZE, HEAD), (24, 40, 240));
}

#[test]
fn handlers_within_handlers_are_told_apart() {
    let mut stack = vec![0; 4096];
    let (outer, inner) = (FROM + 0x978, FROM + 0x138);
    lay(&mut stack, outer, FROM + 0xf00);
    lay(&mut stack, inner, FROM + 0x900);
    let (outer, inner) = (frame(&stack, outer), frame(&stack, inner));
    let restorer = Avma(RESTORER);
    assert!(!is_over(&inner, &outer, restorer) && !is_over(&outer, &inner, restorer));
}

/// rt_sigreturn takes the code segment from the frame.
#[test]
fn other_code_is_not_gone_on_with() {
    let mut stack = vec![0; 4096];
    lay(&mut stack, FROM + 0x178, FROM + 0xf00);
    let goes_on = |segments: u64, stack: &mut [u8]| {
        set(stack, FROM + 0x178 + AT_SEGMENTS, segments);
        frame(stack, FROM + 0x178).goes_on_at().is_some()
    };
    // 64-bit code natively and under Xen, 32-bit code, and an invalid segment.
    for (segments, expected) in [(0x33, true), (0xe033, true), (0x23, false), (0x7000, false)] {
        assert_eq!(goes_on(segments, &mut stack), expected, "{segments:x}");
    }
}

#[test]
fn handlers_that_can_be_under_way() {
    let mut frame = frame(&[0; 2048], FROM);
    (frame.sp, frame.alternate) = (Avma(FROM + 0x800), Extent::default());
    assert!(frame.may_be_left_to(Avma(FROM - 64)));
    frame.sp = Avma(FROM - 8);
    assert!(!frame.may_be_left_to(Avma(FROM - 64)));
    frame.alternate = Extent::from((FROM - 0x1000, 0x2000));
    assert!(frame.is_on_alternate() && frame.may_be_left_to(Avma(FROM - 64)));
    assert!(!frame.may_be_left_to(Avma(FROM - 0x2000)));
}
