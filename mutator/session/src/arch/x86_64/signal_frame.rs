//! Signal frames in the kernel's layout (arch/x86/include/asm/sigframe.h `struct rt_sigframe`,
//! arch/x86/kernel/signal_64.c). Determines which of them can no longer be in use.

use std::arch::x86_64::__cpuid_count;
use std::ops::Range;

use abi::arch::signal_frame::SEGMENTS as AT_SEGMENTS;
use abi::arch::signal_frame::extended::{FXSAVE, LEGACY, MAGIC1, MAGIC2, SOFTWARE};
use abi::arch::signal_frame::{ALTERNATE, FLAGS, LEN, PC, REGISTERS, SP, STATE};
use abi::arch::stack::RED_ZONE;
use patcher::Avma;

use ipath_target::process::Extent;

/// CS, GS, FS and SS of 64-bit code, which follow rip and rflags.
const SEGMENTS: [u8; 8] = [0x33, 0, 0, 0, 0, 0, 0x2b, 0];

/// The mark of a frame: the segments of 64-bit code.
pub const MARK: [u8; 8] = SEGMENTS;
/// Bytes from the start of a frame to its mark.
pub const AT_MARK: u64 = AT_SEGMENTS;
/// Bytes from the program counter to the mark.
pub const PC_TO_MARK: u64 = AT_SEGMENTS - PC;

/// The offset in a frame of the size of the alternate stack, in bytes.
const ALTERNATE_SIZE: u64 = ALTERNATE + 2 * WORD;
const WORD: u64 = size_of::<u64>() as u64;
/// A flag of `uc_stack` (include/uapi/linux/signal.h).
const SS_AUTODISARM: u64 = 1 << 31;
/// Bytes from the start of a frame to the end of its pointer to the extended state.
const HEAD: u64 = STATE + WORD;

/// Bytes from the start of a frame to the extended state: the frame and its alignment.
const TO_STATE: u64 = LEN + 16;

/// Bytes of the FXSAVE area that nothing writes.
const RESERVED: Range<u64> = 416..SOFTWARE;
/// Bytes of the FXSAVE area with the registers of x87 and SSE.
const REGISTERS_OF_STATE: Range<u64> = 32..416;
const MAGIC2_LEN: u64 = size_of::<u32>() as u64;

/// The maximum distance from a frame up to the stack that it has interrupted, in bytes. AMX has 11
/// KiB of state.
const MAX_FRAME_BYTES: u64 = 64 << 10;
/// An upper bound for the size of a frame, in bytes.
pub const FRAME: u64 = 16 << 10;

/// A signal frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalFrame {
    /// The run-time address of the frame's first byte.
    pub at: Avma,
    /// `uc_flags`.
    flags: u64,
    /// The frame's return address, which leads to a call of rt_sigreturn.
    pub restorer: Avma,
    /// The interrupted stack pointer.
    pub sp: Avma,
    /// The interrupted program counter.
    pub pc: Avma,
    /// cs, gs, fs and ss.
    segments: [u8; 8],
    /// The address of the extended state.
    state: Avma,
    /// The kernel's description of the extended state. `None` if it is not intact.
    extended: Option<Extended>,
    /// The end of the extended state, if the word that marks it is intact. Otherwise `None`.
    end: Option<Avma>,
    /// The alternate stack when the signal was delivered.
    alternate: Extent,
    /// True if the alternate stack is given up while a handler runs on it.
    is_disarmed: bool,
}

impl SignalFrame {
    /// Parses the signal frame at index `at` of `bytes`, which were read at the address `from`.
    /// `None` if they are too short for it.
    pub fn parse(bytes: &[u8], from: Avma, at: usize) -> Option<Self> {
        let word = |offset: u64| word(bytes, at + offset as usize);
        let extended = Extended::parse(word);
        let end = extended.filter(|extended| {
            let word = word(TO_STATE + extended.len);
            word.is_some_and(|w| w as u32 == MAGIC2)
        });
        let at = from.plus(at as u64);
        Some(Self {
            at,
            flags: word(FLAGS)?,
            restorer: Avma(word(0)?),
            sp: Avma(word(SP)?),
            pc: Avma(word(PC)?),
            segments: word(AT_SEGMENTS)?.to_le_bytes(),
            state: Avma(word(STATE)?),
            extended,
            end: end.map(|extended| at.plus(TO_STATE + extended.len)),
            alternate: Extent::from((word(ALTERNATE)?, word(ALTERNATE_SIZE)?)),
            is_disarmed: word(ALTERNATE + WORD)? & SS_AUTODISARM != 0,
        })
    }

    /// True if the frame is on the alternate stack.
    fn is_on_alternate(&self) -> bool {
        self.alternate.contains(self.at)
    }

    /// True if the frame is on an alternate stack on which its handler returns. If the stack is
    /// given up meanwhile, the handler may continue elsewhere and leave the stack: sigaltstack(2),
    /// SS_AUTODISARM.
    pub fn returns_on_alternate(&self) -> bool {
        self.is_on_alternate() && !self.is_disarmed
    }

    /// True if the frame can be on the stack that the signal interrupted.
    fn is_on_its_own(&self) -> bool {
        self.at < self.sp && self.sp.0 - self.at.0 < MAX_FRAME_BYTES
    }

    /// True if a handler that was called on it can be running at the stack pointer `sp`. After a
    /// handler has returned, its frame remains, and may lie above another thread's stack in the
    /// same mapping, as in Go's heap. The kernel puts a frame below the interrupted stack pointer,
    /// or on the alternate stack, which it records in the frame (arch/x86/kernel/signal.c
    /// `get_sigframe`).
    pub fn may_be_left_to(&self, sp: Avma) -> bool {
        if self.is_on_alternate() {
            sp >= self.alternate.start
        } else {
            self.is_on_its_own()
        }
    }

    /// The address at which 64-bit code continues when the handler has returned; `None` for other
    /// code. rt_sigreturn takes the code segment from the frame (arch/x86/kernel/signal_64.c
    /// `restore_sigcontext`). So this holds for every frame in use, even if it was changed or
    /// copied.
    pub fn goes_on_at(&self) -> Option<Avma> {
        /// `__USER_CS`, and the segment with which Xen returns to a guest's program.
        const CODE: [u16; 2] = [0x33, 0xe033];
        /// The privilege bits of a code segment selector, which the kernel sets.
        const PRIVILEGE: u16 = 3;
        let [low, high, ..] = self.segments;
        let segment = u16::from_le_bytes([low, high]) | PRIVILEGE;
        CODE.contains(&segment).then_some(self.pc)
    }

    /// True if the other frame was written later, over a part of this one. The handler that was
    /// called on this one has then returned: until then, its frame is part of the stack.
    ///
    /// The marks of both frames decide this. Marks are words that have the same value in each frame
    /// of the kernel. A word that both frames write has the value of the later one. Therefore:
    ///
    /// * While this frame is in use, all of its marks are intact. If one of them is intact where
    ///   the other frame certainly writes, this frame is the later one.
    /// * A mark of the other frame must be intact where this frame would have overwritten it. A
    ///   second such mark is needed, or the other frame's return address, which `is_restorer`
    ///   accepts. A frame in use contains values of registers there. To look like marks, these
    ///   would have to belong to code about to copy just that frame, at just that distance.
    ///
    /// Of a copy of a frame elsewhere, only the registers count, which every copy has.
    ///
    /// If the state of AMX is not in use, or the processor has protection keys and no AVX-512,
    /// there is a gap before the word after the extended state. Possibly none of the other frame's
    /// marks lies in the rest. This frame is then recognized by the words that the other one has
    /// overwritten ([`Self::torn`]). If its last word is intact in the other frame's gap, neither
    /// frame proves to be the later one by it, so marks in registers do not count.
    pub fn is_overwritten_by(&self, other: &Self, is_restorer: impl Fn(Avma) -> bool) -> bool {
        if other.at == self.at || !other.is_of_kernel() {
            return false;
        }
        // The frames of a process are alike, and either may have lost its description.
        let extended = other.extended.or(self.extended);
        let (of_this, of_other) = (self.written(extended), other.written(extended));
        let is_in = |mark: &Range<Avma>, written: &[Range<Avma>]| {
            let mut written = written.iter();
            written.any(|w| w.start <= mark.start && mark.end <= w.end)
        };
        let [returns, other_returns] = [self, other].map(|f| is_restorer(f.restorer));
        if self.marks(returns).any(|mark| is_in(&mark, &of_other)) {
            return false;
        }
        let marks = other.marks(other_returns);
        let is_spared = self
            .end
            .is_some_and(|end| other.at < end && Some(end) < other.end);
        let in_registers = [
            (REGISTERS, SP),
            (
                TO_STATE + REGISTERS_OF_STATE.start,
                TO_STATE + REGISTERS_OF_STATE.end,
            ),
        ];
        let in_registers = in_registers.map(|(from, to)| self.at.plus(from)..self.at.plus(to));
        let counts = |mark: &Range<Avma>| {
            is_in(mark, &of_this) && !(is_spared && is_in(mark, &in_registers))
        };
        let standing = marks.filter(counts).count();
        let is_torn = || self.torn().any(|word| is_in(&word, &of_other));
        standing > 0 && standing + usize::from(other_returns) >= 2 || is_torn()
    }

    /// The words that this frame should have but lacks. A frame in use that the kernel has put here
    /// with extended state has the word after that state, and the flag for it.
    fn torn(&self) -> impl Iterator<Item = Range<Avma>> {
        /// UC_FP_XSTATE (arch/x86/include/uapi/asm/ucontext.h).
        const HAS_STATE: u64 = 1;
        /// The mask of all flags.
        const ALL: u64 = 0xff;
        let extended = self.extended.filter(|&extended| self.is_in_place(extended));
        let of = move |stands: bool, at: u64, len: u64| {
            (!stands).then(|| self.at.plus(at)..self.at.plus(at + len))
        };
        let words = extended.map(|extended| {
            let is_flagged = self.flags & HAS_STATE != 0 && self.flags <= ALL;
            let end = of(self.end.is_some(), TO_STATE + extended.len, MAGIC2_LEN);
            [end, of(is_flagged, FLAGS, WORD)]
        });
        words.into_iter().flatten().flatten()
    }

    /// True if the frame looks like one that the kernel has put on the interrupted stack.
    fn is_of_kernel(&self) -> bool {
        self.segments == SEGMENTS && self.is_on_its_own() && self.has_state()
    }

    /// True if the pointer to the extended state is right. That state is aligned to 64 bytes. The
    /// frame's first word is a return address, 8 bytes below a multiple of 16.
    fn has_state(&self) -> bool {
        self.state == self.at.plus(TO_STATE) && self.state.0.is_multiple_of(64)
    }

    /// True if the kernel puts a frame with this extended state here, on the interrupted stack.
    /// False for a copy of a frame.
    fn is_in_place(&self, extended: Extended) -> bool {
        let taken = RED_ZONE + extended.len + MAGIC2_LEN;
        let state = self.sp.0.saturating_sub(taken) / 64 * 64;
        self.is_on_its_own() && state == self.at.plus(TO_STATE).0
    }

    /// The address ranges of those marks of the frame that are intact: the return address (if
    /// `returns`), the segment registers, the pointer to the extended state, the description of
    /// that state, and the 4-byte magic number at its end.
    fn marks(&self, returns: bool) -> impl Iterator<Item = Range<Avma>> {
        let of = |stands: bool, at: u64, len: u64| {
            stands.then(|| self.at.plus(at)..self.at.plus(at).plus(len))
        };
        let has_state = self.has_state();
        let marks = [
            of(returns, 0, WORD),
            of(self.segments == SEGMENTS, AT_SEGMENTS, WORD),
            of(has_state, STATE, WORD),
            of(self.extended.is_some(), TO_STATE + SOFTWARE, 2 * WORD),
            self.end.map(|end| end..end.plus(MAGIC2_LEN)),
        ];
        marks.into_iter().flatten()
    }

    /// The ranges that the kernel certainly writes for a frame with this extended state: all except
    /// reserved words, gaps, and `struct siginfo`, which not every handler is given. For a possible
    /// copy, only the registers.
    fn written(&self, extended: Option<Extended>) -> Vec<Range<Avma>> {
        /// The mask of signals.
        const MASK: Range<u64> = HEAD + 8 * WORD..HEAD + 9 * WORD;
        const COPIED: Range<u64> = REGISTERS..AT_SEGMENTS + WORD;
        let mut written = vec![COPIED];
        let is_in_place = extended.is_some_and(|extended| self.is_in_place(extended));
        if self.has_state() || is_in_place {
            let extended = extended.into_iter().flat_map(Extended::written);
            let state = [0..RESERVED.start, RESERVED.end..FXSAVE].into_iter();
            let state = state.chain(extended);
            written.extend([0..HEAD, MASK]);
            written.extend(state.map(|r| r.start + TO_STATE..r.end + TO_STATE));
        }
        let written = written.into_iter();
        written
            .map(|r| self.at.plus(r.start)..self.at.plus(r.end))
            .collect()
    }
}

/// The kernel's description of the extended state after FXSAVE's area (`struct _fpx_sw_bytes`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Extended {
    /// XSAVE's components.
    features: u64,
    /// The bytes of the extended state up to the magic number that marks its end.
    len: u64,
}

impl Extended {
    /// Reads the description from the words of a frame. `None` if it is not intact.
    fn parse(word: impl Fn(u64) -> Option<u64>) -> Option<Self> {
        let at = |index: u64| word(TO_STATE + SOFTWARE + index * WORD);
        let (first, features) = (at(0)?, at(1)?);
        let len = at(2)? & u64::from(u32::MAX);
        let is_one = first as u32 == MAGIC1 && first >> 32 == len + MAGIC2_LEN;
        let is_sized = (LEGACY..FRAME - TO_STATE - MAGIC2_LEN).contains(&len);
        (is_one && is_sized).then_some(Self { features, len })
    }

    /// The ranges that are written after FXSAVE's area: XSAVE's header, the vector registers, and
    /// the mark of the end. XSAVE without compaction (arch/x86/kernel/fpu/xstate.h
    /// `xsave_to_user_sigframe`) writes vector registers whatever their contents, but tiles of AMX
    /// only when they are in use. The ranges are offsets from the start of the extended state.
    fn written(self) -> impl Iterator<Item = Range<u64>> {
        /// AVX, and the mask registers, upper halves and upper registers of AVX-512.
        const VECTORS: [u32; 4] = [2, 5, 6, 7];
        let saved = VECTORS
            .into_iter()
            .filter(move |n| self.features & 1 << n != 0);
        let saved = saved.map(|number| {
            // CPUID leaf 13: size and offset of a component in the standard form.
            let leaf = __cpuid_count(0xd, number);
            u64::from(leaf.ebx)..u64::from(leaf.ebx) + u64::from(leaf.eax)
        });
        let end = self.len..self.len + MAGIC2_LEN;
        let saved = saved.filter(move |r| r.end <= self.len);
        saved.chain([FXSAVE..LEGACY, end])
    }
}

/// The 8-byte word at index `at` of `bytes`. `None` if it extends beyond them.
pub fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(size_of::<u64>())?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests;
