//! Signal frames as the kernel lays them down (arch/x86/include/asm/sigframe.h `struct rt_sigframe`,
//! arch/x86/kernel/signal_64.c), and which of them cannot be in use any more.

use std::ops::Range;

use patcher::Avma;

use crate::process::Extent;

/// CS, GS, FS and SS of 64-bit code, which follow rip and rflags.
pub(super) const SEGMENTS: [u8; 8] = [0x33, 0, 0, 0, 0, 0, 0x2b, 0];

/// Where they are, from the frame's first byte, its return address: that, `uc_flags`, `uc_link`, `uc_stack`, and
/// `struct sigcontext_64` from r8 on.
const RSP: u64 = REGISTERS + 15 * WORD;
const RIP: u64 = RSP + WORD;
pub(super) const AT_SEGMENTS: u64 = RIP + 2 * WORD;
const STATE: u64 = AT_SEGMENTS + 5 * WORD;
const ALTERNATE: u64 = 3 * WORD;
const ALTERNATE_SIZE: u64 = ALTERNATE + 2 * WORD;
const REGISTERS: u64 = 6 * WORD;
const WORD: u64 = size_of::<u64>() as u64;
/// A flag of `uc_stack` (include/uapi/linux/signal.h).
const SS_AUTODISARM: u64 = 1 << 31;
/// Bytes from the frame's first to the end of the pointer to the extended state.
const HEAD: u64 = STATE + WORD;

/// Bytes from the frame's first to the extended state: the frame, and what its alignment takes.
const TO_STATE: u64 = 440 + 16;

/// FXSAVE's area and XSAVE's header (Intel SDM volume 1, 13.4).
const LEGACY: u64 = 576;
/// Bytes from a frame's first to the end of those that tell whether another was laid over it.
pub(super) const TELLING: u64 = TO_STATE + LEGACY;

/// A frame that is on the stack it has interrupted begins at most so far below: AMX has 11 KiB of state.
const MOST: u64 = 64 << 10;

/// A signal frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignalFrame {
    /// Its first byte.
    pub(super) at: Avma,
    /// What it returns to: a call of rt_sigreturn.
    pub(super) restorer: Avma,
    /// The interrupted stack pointer.
    pub(super) rsp: Avma,
    /// The interrupted program counter.
    pub(super) rip: Avma,
    /// True if the segments are those of 64-bit code.
    is_64_bit: bool,
    /// The extended state.
    state: Avma,
    /// The alternate stack there was.
    alternate: Extent,
    /// True if that is given up while a handler runs on it.
    is_disarmed: bool,
}

impl SignalFrame {
    /// What stands `at` bytes from the first of `bytes`, which is at `from`, taken for a frame.
    pub(super) fn parse(bytes: &[u8], from: Avma, at: usize) -> Option<Self> {
        let word = |offset: u64| word(bytes, at + offset as usize);
        Some(Self {
            at: from.plus(at as u64),
            restorer: Avma(word(0)?),
            rsp: Avma(word(RSP)?),
            rip: Avma(word(RIP)?),
            is_64_bit: word(AT_SEGMENTS)? == u64::from_le_bytes(SEGMENTS),
            state: Avma(word(STATE)?),
            alternate: Extent::from((word(ALTERNATE)?, word(ALTERNATE_SIZE)?)),
            is_disarmed: word(ALTERNATE + WORD)? & SS_AUTODISARM != 0,
        })
    }

    /// True if it is on the alternate stack.
    fn is_on_alternate(&self) -> bool {
        self.alternate.contains(self.at)
    }

    /// True if it is on an alternate stack that its handler returns on. From one that is given up meanwhile a
    /// handler may go on elsewhere, and leave it: sigaltstack(2), SS_AUTODISARM.
    pub(super) fn returns_on_alternate(&self) -> bool {
        self.is_on_alternate() && !self.is_disarmed
    }

    /// True if it can be on the stack that it has interrupted.
    fn is_on_its_own(&self) -> bool {
        self.at < self.rsp && self.rsp.0 - self.at.0 < MOST
    }

    /// True if a handler that was called on it can be under way at `sp`. The frame of one that has returned stays,
    /// and may lie above another thread's stack in the same mapping, as in Go's heap. The kernel puts a frame below the
    /// interrupted stack pointer, or on the alternate stack, which it notes (arch/x86/kernel/signal.c
    /// `get_sigframe`).
    pub(super) fn may_be_left_to(&self, sp: Avma) -> bool {
        match self.is_on_alternate() {
            true => sp >= self.alternate.start,
            false => self.is_on_its_own(),
        }
    }

    /// Was the other one laid down later, over a part of this one? Then the handler that was called on this one has
    /// returned. It was where a word of its own still stands, of those that have one value alone, that this one
    /// would have overwritten.
    pub(super) fn is_overwritten_by(&self, other: &Self) -> bool {
        let telling = [AT_SEGMENTS, STATE].map(|offset| other.at.plus(offset));
        let written = self.written();
        let is_whole = other.restorer == self.restorer
            && other.is_64_bit
            && other.is_on_its_own()
            && other.has_state();
        self.at < other.at
            && other.at < self.rsp
            && is_whole
            && telling
                .iter()
                .any(|at| written.iter().any(|r| r.contains(at)))
    }

    /// The extended state is aligned to 64 bytes, and the frame's first word to 16 but for a return address.
    fn has_state(&self) -> bool {
        self.state == self.at.plus(TO_STATE) && self.state.0.is_multiple_of(64)
    }

    /// What the kernel certainly writes of one: all but reserved words, gaps, and `struct siginfo`, which not
    /// every handler is given.
    fn written(&self) -> [Range<Avma>; 4] {
        /// Of the legacy area, reserved.
        const RESERVED: Range<u64> = 416..464;
        /// The mask of signals.
        const MASK: Range<u64> = HEAD + 8 * WORD..HEAD + 9 * WORD;
        let from = |at: Avma, range: Range<u64>| at.plus(range.start)..at.plus(range.end);
        let of_state = |range| match self.has_state() {
            true => from(self.state, range),
            false => Avma(0)..Avma(0),
        };
        [
            from(self.at, 0..HEAD),
            from(self.at, MASK),
            of_state(0..RESERVED.start),
            of_state(RESERVED.end..LEGACY),
        ]
    }
}

/// The word at an index of these bytes.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size_of::<u64>())?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESTORER: u64 = 0x7000;

    /// A stack of 4096 bytes from here on, and a frame on it with this state.
    const FROM: u64 = 0x10_0000;

    fn lay(stack: &mut [u8], at: u64, rsp: u64, rip: u64) {
        let mut set = |at: u64, to: u64| {
            let at = (at - FROM) as usize;
            stack[at..at + 8].copy_from_slice(&to.to_le_bytes());
        };
        let state = at + TO_STATE;
        for offset in (0..HEAD).step_by(8) {
            set(at + offset, 0);
        }
        set(at + HEAD + 64, 0);
        for offset in (0..576).step_by(8) {
            set(state + offset, 0);
        }
        set(at, RESTORER);
        set(at + RSP, rsp);
        set(at + RIP, rip);
        set(at + AT_SEGMENTS, u64::from_le_bytes(SEGMENTS));
        set(at + STATE, state);
    }

    fn frame(stack: &[u8], at: u64) -> SignalFrame {
        SignalFrame::parse(stack, Avma(FROM), (at - FROM) as usize).expect("on the stack")
    }

    /// Offsets by offsetof() on the kernel's structures.
    #[test]
    fn words_are_where_the_kernel_puts_them() {
        assert_eq!((RSP, RIP, AT_SEGMENTS, STATE), (168, 176, 192, 232));
        assert_eq!((ALTERNATE, ALTERNATE_SIZE, HEAD), (24, 40, 240));
    }

    #[test]
    fn a_later_frame_over_another_is_told() {
        // As seen: the second signal came while less was on the stack.
        for distance in (64..1024).step_by(64) {
            let mut stack = vec![0xa5; 4096];
            let (old, new) = (FROM + 0x178, FROM + 0x178 + distance);
            lay(&mut stack, old, FROM + 0xf00, 1);
            lay(&mut stack, new, FROM + 0xfd8, 2);
            let (old, new) = (frame(&stack, old), frame(&stack, new));
            // Elsewhere both telling words lie in what is not always written.
            let is_told = (256..=832).contains(&distance);
            assert_eq!(old.is_overwritten_by(&new), is_told, "{distance}");
            assert!(!new.is_overwritten_by(&old), "{distance}");
        }
    }

    #[test]
    fn what_is_left_of_an_earlier_frame_tells_nothing() {
        for distance in (64..1024).step_by(64) {
            let mut stack = vec![0xa5; 4096];
            let (new, old) = (FROM + 0x178, FROM + 0x178 + distance);
            lay(&mut stack, old, FROM + 0xfd8, 2);
            lay(&mut stack, new, FROM + 0xf00, 1);
            let (old, new) = (frame(&stack, old), frame(&stack, new));
            assert!(!new.is_overwritten_by(&old), "{distance}");
        }
    }

    #[test]
    fn handlers_within_handlers_are_told_apart() {
        let mut stack = vec![0; 4096];
        let (outer, inner) = (FROM + 0x980, FROM + 0x100);
        lay(&mut stack, outer, FROM + 0xf00, 1);
        lay(&mut stack, inner, FROM + 0x900, 2);
        let (outer, inner) = (frame(&stack, outer), frame(&stack, inner));
        assert!(!outer.is_overwritten_by(&inner) && !inner.is_overwritten_by(&outer));
    }

    #[test]
    fn handlers_that_can_be_under_way() {
        let mut frame = frame(&[0; 512], FROM);
        (frame.rsp, frame.alternate) = (Avma(FROM + 0x800), Extent::default());
        assert!(frame.may_be_left_to(Avma(FROM - 64)));
        frame.rsp = Avma(FROM - 8);
        assert!(!frame.may_be_left_to(Avma(FROM - 64)));
        frame.alternate = Extent::from((FROM - 0x1000, 0x2000));
        assert!(frame.is_on_alternate() && frame.may_be_left_to(Avma(FROM - 64)));
        assert!(!frame.may_be_left_to(Avma(FROM - 0x2000)));
    }
}
