//! The records in a perf event's ring, as laid out in include/uapi/linux/perf_event.h.

use perf_event_open_sys::bindings as perf;

use crate::arch::{REGISTERS, Registers};

/// The fields of every sample besides [`Sample::number`]. Other records end with them, except for
/// the stack.
const EACH: u64 = perf::PERF_SAMPLE_IDENTIFIER as u64
    | perf::PERF_SAMPLE_TID as u64
    | perf::PERF_SAMPLE_TIME as u64
    | perf::PERF_SAMPLE_REGS_USER as u64
    | perf::PERF_SAMPLE_STACK_USER as u64;

/// The fields of samples of the clock. [`Sample::number`] is the CPU time that the sample stands
/// for, in nanoseconds.
pub(super) const OF_CLOCK: u64 = EACH | perf::PERF_SAMPLE_PERIOD as u64;

/// The fields of samples of switches. [`Sample::number`] is the count of the thread's switches
/// since the event was opened. With the fields of the clock, the kernel would sample each switch,
/// regardless of the period (kernel/events/core.c, perf_swevent_event).
pub(super) const OF_SWITCHES: u64 = EACH | perf::PERF_SAMPLE_READ as u64;

/// The bytes at the end of a record that is no sample: thread, time and event.
const TRAILER: usize = 24;
/// The bytes before the registers in a sample.
const BEFORE_REGISTERS: usize = 32;

/// A record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Record<'r> {
    /// The state of a thread at an event.
    Sample(Sample<'r>),
    /// The thread was switched off or onto a processor.
    Switch {
        /// CLOCK_MONOTONIC, in nanoseconds.
        time: u64,
        /// The direction.
        way: Way,
    },
    /// This many records were lost for lack of room.
    Lost(u64),
    /// A record without use here.
    Other,
}

/// The direction of a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Onto a processor.
    In,
    /// Off the processor, to wait.
    Waits,
    /// Off the processor, although the thread could continue.
    Preempted,
}

impl Way {
    /// [`Way::Preempted`] instead of [`Way::Waits`] if ipath may have stopped the thread at that
    /// time.
    pub(super) fn unless_stopped(self, is_stopped: bool) -> Self {
        match self {
            Self::Waits if is_stopped => Self::Preempted,
            other => other,
        }
    }
}

/// A sample.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sample<'r> {
    /// The id of the event.
    pub(super) event: u64,
    /// CLOCK_MONOTONIC, in nanoseconds.
    pub(super) time: u64,
    /// See [`OF_CLOCK`] and [`OF_SWITCHES`].
    pub(super) number: u64,
    /// The user-mode registers. `None` if the thread has none or runs 32-bit code.
    pub(super) registers: Option<Registers>,
    /// The bytes from the stack pointer upwards. Empty if the kernel copied none.
    pub(super) stack: &'r [u8],
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at.checked_add(8)?)?;
    bytes.try_into().ok().map(u64::from_le_bytes)
}

/// Parses a record from the `type` and `misc` of its header and the `body` after the header. `None`
/// if it is truncated.
pub(super) fn parse(kind: u32, misc: u16, body: &[u8]) -> Option<Record<'_>> {
    match kind {
        perf::PERF_RECORD_SAMPLE => sample(body).map(Record::Sample),
        perf::PERF_RECORD_LOST => Some(Record::Lost(word(body, 8)?)),
        perf::PERF_RECORD_SWITCH => {
            let trailer = body.len().checked_sub(TRAILER)?;
            let time = word(body, trailer + 8)?;
            let is = |flag: u32| u32::from(misc) & flag != 0;
            let way = match (
                is(perf::PERF_RECORD_MISC_SWITCH_OUT),
                is(perf::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT),
            ) {
                (false, _) => Way::In,
                (true, false) => Way::Waits,
                (true, true) => Way::Preempted,
            };
            Some(Record::Switch { time, way })
        }
        _ => Some(Record::Other),
    }
}

fn sample(body: &[u8]) -> Option<Sample<'_>> {
    let (event, time, number) = (word(body, 0)?, word(body, 16)?, word(body, 24)?);
    let mut at = BEFORE_REGISTERS;
    let abi = word(body, at)?;
    at += 8;
    let mut registers = None;
    if abi != u64::from(perf::PERF_SAMPLE_REGS_ABI_NONE) {
        let mut words = [0; REGISTERS];
        for (index, place) in words.iter_mut().enumerate() {
            *place = word(body, at + 8 * index)?;
        }
        at += 8 * REGISTERS;
        registers =
            (abi == u64::from(perf::PERF_SAMPLE_REGS_ABI_64)).then(|| Registers::of(&words));
    }
    let room = word(body, at)? as usize;
    at += 8;
    let stack = match room {
        0 => &[][..],
        _ => {
            let all = body.get(at..at.checked_add(room)?)?;
            let filled = word(body, at + room)? as usize;
            all.get(..filled)?
        }
    };
    Some(Sample {
        event,
        time,
        number,
        registers,
        stack,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|w| w.to_le_bytes()).collect()
    }

    #[test]
    fn a_sample_has_registers_and_as_much_of_the_stack_as_was_filled() {
        let mut all = vec![7, 42 << 32 | 41, 1000, 3, 2];
        all.extend((0..REGISTERS as u64).map(|n| 100 + n));
        all.extend([16, 0xaaaa, 0xbbbb, 8]);
        let bytes = words(&all);
        let Some(Record::Sample(sample)) = parse(perf::PERF_RECORD_SAMPLE, 0, &bytes) else {
            panic!("no sample");
        };
        assert_eq!((sample.event, sample.time, sample.number), (7, 1000, 3));
        assert_eq!(sample.stack, 0xaaaa_u64.to_le_bytes());
        let registers = sample.registers.unwrap();
        // By number of linux/perf_regs.h: bp 6, sp 7, ip 8.
        assert_eq!(
            (registers.fp(), registers.sp(), registers.pc()),
            (106, 107, 108)
        );
        for len in 0..bytes.len() {
            assert_eq!(
                parse(perf::PERF_RECORD_SAMPLE, 0, &bytes[..len]),
                None,
                "{len}"
            );
        }
    }

    #[test]
    fn a_thread_without_user_mode_has_no_registers() {
        let bytes = words(&[7, 0, 1000, 3, 0, 0]);
        let Some(Record::Sample(sample)) = parse(perf::PERF_RECORD_SAMPLE, 0, &bytes) else {
            panic!("no sample");
        };
        assert_eq!((sample.registers, sample.stack), (None, &[][..]));
    }

    #[test]
    fn switches_are_told_apart() {
        let bytes = words(&[42 << 32 | 41, 5000, 7]);
        let (out, preempted) = (
            perf::PERF_RECORD_MISC_SWITCH_OUT as u16,
            perf::PERF_RECORD_MISC_SWITCH_OUT_PREEMPT as u16,
        );
        for (misc, way) in [
            (0, Way::In),
            (out, Way::Waits),
            (out | preempted, Way::Preempted),
        ] {
            let expected = Some(Record::Switch { time: 5000, way });
            assert_eq!(parse(perf::PERF_RECORD_SWITCH, misc, &bytes), expected);
        }
        assert_eq!(parse(perf::PERF_RECORD_SWITCH, 0, &bytes[..23]), None);
    }
}
