//! Calls of one path that are kept apart: by phase, by a value, or because they take long
//! ([`abi::apart`]).
//!
//! The walk of a call leads to the record of its path. If the call is kept apart, its record has a
//! longer path: with the parts that are known when the call begins. Those that are known when it
//! ends lengthen the path once more. Then the call moves to that record.

use abi::apart::{By, PARTS, Part, TEXT_BYTES, TEXT_LEN};
use abi::schema::Schema;
use abi::segment::RecordHead;
use abi::shortage::Shortage;
use core::sync::atomic::Ordering;

use super::activation::Activation;
use super::cost;
use super::list::{self, Calls};
use super::meter::{Meter, Values};
use super::values::argument;
use crate::ledger::{Ledger, record};
use crate::os::{foreign, parameters, shared};

/// The record of a call that begins, if the path alone leads to `record`. `None` if only the slow
/// path can find it.
///
/// # Safety
/// The ledger belongs to the caller. `values` are the locations of the call's values, if it is a
/// call of a function and no part of one.
#[inline(always)]
pub unsafe fn find_at_entry(
    ledger: &Ledger,
    phase: u32,
    function: u32,
    record: &'static RecordHead,
    values: &Values,
) -> Option<&'static RecordHead> {
    let schema = parameters::schema(record::schema(record));
    if !is_divided(schema) {
        return Some(record);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { find_divided(ledger, phase, function, record, values) }
}

/// True if calls of one path by this schema are kept apart when they begin.
#[inline(always)]
fn is_divided(schema: &Schema) -> bool {
    shared::keeps_phases() || schema.divides_at_entry()
}

/// [`find_at_entry`] for calls that are kept apart.
///
/// # Safety
/// As for [`find_at_entry`].
#[inline(never)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
unsafe fn find_divided(
    ledger: &Ledger,
    phase: u32,
    function: u32,
    record: &'static RecordHead,
    values: &Values,
) -> Option<&'static RecordHead> {
    let schema = parameters::schema(record::schema(record));
    let first = if shared::keeps_phases() {
        Part::Phase(phase).encode()
    } else {
        0
    };
    let (mut second, mut third) = (0, 0);
    if schema.divides_at_entry() && !parameters::is_span(function) {
        let By::Argument(number) = By::decode(schema.by.load(Ordering::Relaxed))? else {
            // The value is in memory that may not be readable.
            return None;
        };
        // SAFETY: guaranteed by the caller.
        let number = unsafe { argument(function, number, values) };
        (second, third) = sites(number);
    }
    ledger.find_longer(record, (first, second, third))
}

/// The sites of a number, the outermost first. The first one is 0 if one is enough.
#[inline(always)]
fn sites(number: i64) -> (u64, u64) {
    match Part::of_number(number) {
        (part, None) => (0, part.encode()),
        (lower, Some(upper)) => (upper.encode(), lower.encode()),
    }
}

/// The parts of a path, the outermost first.
struct Parts {
    sites: [u64; PARTS],
    len: usize,
}

impl Parts {
    fn new() -> Self {
        Self {
            sites: [0; PARTS],
            len: 0,
        }
    }

    fn push(&mut self, site: u64) {
        if site != 0
            && let Some(free) = self.sites.get_mut(self.len)
        {
            *free = site;
            self.len += 1;
        }
    }

    fn push_number(&mut self, number: i64) {
        let (outer, inner) = sites(number);
        self.push(outer);
        self.push(inner);
    }

    /// Adds the text at an address.
    fn push_text(&mut self, at: u64) {
        let mut bytes = [0; TEXT_LEN];
        let read = foreign::try_read(at, &mut bytes).unwrap_or(0);
        let known = bytes.get(..read).unwrap_or_default();
        let end = known.iter().position(|&byte| byte == 0);
        let (len, is_whole) = match end {
            Some(len) => (len, true),
            None if read == TEXT_LEN => (read, false),
            None => return self.push(Part::Unread.encode()),
        };
        // The first bytes are innermost.
        let pieces = len.div_ceil(TEXT_BYTES).max(1);
        for number in (0..pieces).rev() {
            let mut piece = [0; TEXT_BYTES];
            for (to, from) in piece.iter_mut().zip(bytes.iter().skip(number * TEXT_BYTES)) {
                *to = *from;
            }
            let part = match (number + 1 == pieces, is_whole) {
                (false, _) => Part::Text(piece),
                (true, true) => Part::TextEnd(piece),
                (true, false) => Part::TextCut(piece),
            };
            self.push(part.encode());
        }
    }

    /// Adds the integer at an address.
    fn push_field(&mut self, at: u64, width: u8, is_signed: bool) {
        let bytes = 1 << (width & 3);
        let mut word = [0; 8];
        let read = match word.get_mut(..bytes) {
            Some(to) => foreign::try_read(at, to).unwrap_or(0),
            None => 0,
        };
        if read != bytes {
            return self.push(Part::Unread.encode());
        }
        let unused = 64 - 8 * bytes as u32;
        let word = u64::from_le_bytes(word) << unused;
        let number = if is_signed {
            word as i64 >> unused
        } else {
            (word >> unused) as i64
        };
        self.push_number(number);
    }

    /// The sites.
    fn get(&self) -> &[u64] {
        self.sites.get(..self.len).unwrap_or_default()
    }
}

/// The record of a call that begins, as [`find_at_entry`] finds it, created if necessary.
///
/// # Errors
/// There is no room for it, nor for that of the function's overflow path.
///
/// # Safety
/// As for [`find_at_entry`]; the vector registers are stored.
pub unsafe fn find_or_make_at_entry(
    ledger: &mut Ledger,
    phase: u32,
    function: u32,
    record: &'static RecordHead,
    values: Option<&Values>,
) -> Result<&'static RecordHead, Shortage> {
    let schema = parameters::schema(record::schema(record));
    if !is_divided(schema) {
        return Ok(record);
    }
    let (mut parts, mut others) = (Parts::new(), Parts::new());
    if shared::keeps_phases() {
        parts.push(Part::Phase(phase).encode());
        others.push(Part::Phase(phase).encode());
    }
    let by = By::decode(schema.by.load(Ordering::Relaxed));
    if let (Some(by), Some(values)) = (by, values) {
        // SAFETY: guaranteed by the caller.
        let argument = |number| unsafe { argument(function, number, values) };
        match by {
            By::Argument(number) => parts.push_number(argument(number)),
            By::Text(number) => parts.push_text(argument(number) as u64),
            By::Field {
                argument: number,
                width,
                is_signed,
                offset,
            } => {
                let at = argument(number).wrapping_add(offset.into());
                parts.push_field(at as u64, width, is_signed);
            }
            By::Return => {}
        }
        if by != By::Return {
            others.push(Part::Others.encode());
        }
    }
    ledger.find_or_make_apart(record, parts.get(), others.get())
}

/// Moves a call that ends to the record for what is known of it now, if its function's calls are
/// kept apart by that. False if there is no such record yet, unless `ALL`: then it is created.
///
/// # Safety
/// The activation is on the caller's list, and the meter has begun.
#[inline(always)]
pub unsafe fn at_exit<const ALL: bool>(
    calls: *const Calls,
    ledger: &mut Ledger,
    meter: &Meter,
    activation: *mut Activation,
) -> bool {
    // SAFETY: guaranteed by the caller; records stay valid.
    unsafe {
        let begun = &*(*activation).record;
        let schema = parameters::schema(record::schema(begun));
        if !schema.divides_at_exit() {
            true
        } else if ALL {
            move_at_exit::<true>(ledger, meter, activation)
        } else {
            list::is_at_home(calls) && ipath_part_at_home(ledger, meter, activation)
        }
    }
}

/// [`move_at_exit`] on a stack with more room. It is exported so that a test can find its address.
///
/// # Safety
/// As for [`at_exit`].
#[unsafe(no_mangle)]
#[cfg_attr(ipath_image, unsafe(link_section = ".text.fast"))]
#[inline(never)]
unsafe extern "C" fn ipath_part_at_home(
    ledger: *mut Ledger,
    meter: *const Meter,
    activation: *mut Activation,
) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe { move_at_exit::<false>(&mut *ledger, &*meter, activation) }
}

/// [`at_exit`] for calls that are kept apart.
///
/// # Safety
/// As for [`at_exit`].
#[inline(always)]
unsafe fn move_at_exit<const ALL: bool>(
    ledger: &mut Ledger,
    meter: &Meter,
    activation: *mut Activation,
) -> bool {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let begun = &*(*activation).record;
        if !list::is_current(activation) || !ledger.owns(begun) || has_moved(begun) {
            return true;
        }
        let schema = parameters::schema(record::schema(begun));
        let (mut first, mut second, mut third) = (0, 0, 0);
        let returned = schema.by.load(Ordering::Relaxed) == By::Return.encode();
        if returned && !parameters::is_span((*activation).function) {
            (first, second) = match meter.returned((*activation).function) {
                Some(number) => sites(number),
                None => (0, Part::Unread.encode()),
            };
        }
        let long = schema.long.load(Ordering::Relaxed);
        if long != 0 && meter.ticks(activation) >= long {
            third = Part::Long.encode();
        }
        if second | third == 0 {
            return true;
        }
        let known = if ALL {
            make_at_exit(ledger, begun, (first, second, third))
        } else {
            ledger.find_longer(begun, (first, second, third))
        };
        if let Some(known) = known {
            if !cost::is_decided_at_exit(begun) {
                record::move_call(begun, known);
            }
            (*activation).record = known;
        }
        ALL || known.is_some()
    }
}

/// The record of [`move_at_exit`], created if necessary. `None` if there is no room.
fn make_at_exit(
    ledger: &mut Ledger,
    begun: &RecordHead,
    (first, second, third): (u64, u64, u64),
) -> Option<&'static RecordHead> {
    let (mut parts, mut others) = (Parts::new(), Parts::new());
    parts.push(first);
    parts.push(second);
    parts.push(third);
    if second != 0 {
        others.push(Part::Others.encode());
    }
    others.push(third);
    ledger
        .find_or_make_apart(begun, parts.get(), others.get())
        .ok()
}

/// True if the record is one to which [`at_exit`] moves calls.
fn has_moved(record: &RecordHead) -> bool {
    let innermost = record::innermost_part(record).and_then(Part::decode);
    let schema = parameters::schema(record::schema(record));
    match innermost {
        None | Some(Part::Phase(_)) => false,
        Some(Part::Long) => true,
        Some(_) => schema.by.load(Ordering::Relaxed) == By::Return.encode(),
    }
}
