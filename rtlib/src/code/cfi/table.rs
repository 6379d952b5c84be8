//! Search for the FDE of an address in the table of `.eh_frame_hdr`, or one like it.

use core::sync::atomic::{AtomicU64, Ordering};

use abi::segment::TableRow;

use super::cursor::{AHEAD, Cursor, Region};
use crate::os::hash::bucket;

/// A frame description entry with the data of its CIE.
#[derive(Clone, Copy, Debug)]
pub struct Fde {
    /// First address that the entry covers.
    pub start: u64,
    /// Address after the last one that the entry covers.
    pub end: u64,
    /// True if a signal handler returns to this frame. Its pc is then no return address.
    pub signal_frame: bool,
    pub(super) code_align: u64,
    pub(super) data_align: i64,
    pub(super) initial: Cursor,
    pub(super) instructions: Cursor,
}

/// The data of a common information entry.
struct Cie {
    code_align: u64,
    data_align: i64,
    pointer_encoding: u8,
    augmented: bool,
    signal_frame: bool,
    instructions: Cursor,
}

/// A cache of words by key, in which a newer entry replaces an older one. A value may be stale or
/// torn, so it is checked like any other input.
struct Lately<const LEN: usize>([[AtomicU64; 2]; LEN]);

impl<const LEN: usize> Lately<LEN> {
    const fn new() -> Self {
        Self([const { [const { AtomicU64::new(0) }; 2] }; LEN])
    }

    fn pair(&self, key: u64) -> Option<&[AtomicU64; 2]> {
        self.0.get(bucket(key, LEN.ilog2()))
    }

    fn get(&self, key: u64) -> Option<u64> {
        let [known, value] = self.pair(key)?;
        (known.load(Ordering::Relaxed) == key).then(|| value.load(Ordering::Relaxed))
    }

    fn put(&self, key: u64, new: u64) {
        if let Some([known, value]) = self.pair(key) {
            value.store(new, Ordering::Relaxed);
            known.store(key, Ordering::Relaxed);
        }
    }
}

/// The addresses of FDEs by program counter.
static FOUND: Lately<512> = Lately::new();
/// First offsets of table entries by entry address. Every search of a table starts with the same
/// entries.
static PASSED: Lately<1024> = Lately::new();

/// The FDE that covers `pc`, found through the sorted table of the `.eh_frame_hdr` at `header`.
/// `region` bounds the header and the entries it points to. `None` if no FDE covers `pc`, or the
/// table is malformed.
pub fn find_fde(region: Region, header: u64, pc: u64) -> Option<Fde> {
    if let Some(at) = FOUND.get(pc)
        && let Some(fde) = parse(region, at)
        && fde.start <= pc
        && pc < fde.end
    {
        return Some(fde);
    }
    // Searches with the cached offsets of the table, and if those are stale with the table itself.
    let by = |first: fn(Region, u64) -> Option<i32>| search(region, header, pc, first);
    let (at, fde) = by(remembered_first).or_else(|| by(first))?;
    FOUND.put(pc, at);
    Some(fde)
}

/// The first offset of the table entry at `at`, in bytes from the table's header; `None` if it
/// cannot be read.
fn first(region: Region, at: u64) -> Option<i32> {
    region.cursor(at)?.i32()
}

/// The first offset of the table entry at `at`, from the cache if it has the entry, otherwise as
/// [`first`] reads it.
fn remembered_first(region: Region, at: u64) -> Option<i32> {
    if let Some(offset) = PASSED.get(at) {
        return Some(offset as i32);
    }
    let first = first(region, at)?;
    PASSED.put(at, u64::from(first as u32));
    Some(first)
}

/// The FDE that covers `pc` and its address, by binary search of the table. `first` returns the
/// first offset of the table entry at an address. `None` as for [`find_fde`].
fn search(
    region: Region,
    header: u64,
    pc: u64,
    first: impl Fn(Region, u64) -> Option<i32>,
) -> Option<(u64, Fde)> {
    const SORTED_DATAREL_SDATA4: u8 = 0x3b;
    /// Bytes of an entry of the sorted table: two offsets.
    const ENTRY: u64 = 8;
    let mut c = region.cursor(header)?;
    if c.u8()? != 1 {
        return None;
    }
    let (frame_encoding, count_encoding, table_encoding) = (c.u8()?, c.u8()?, c.u8()?);
    c.pointer(frame_encoding, header)?;
    let count = c.pointer(count_encoding, header)?;
    if table_encoding != SORTED_DATAREL_SDATA4 {
        return None;
    }
    let table = c.at();
    let entry = |index: u64| table.checked_add(index.checked_mul(ENTRY)?);
    // Each step of a binary search costs a read, so entries that fit into one read are scanned
    // linearly.
    const AT_ONCE: u64 = AHEAD as u64 / ENTRY;
    let (mut low, mut high) = (0, count);
    while high - low > AT_ONCE {
        let middle = low + (high - low) / 2;
        let offset = i64::from(first(region, entry(middle)?)?);
        if header.wrapping_add(offset as u64) <= pc {
            low = middle;
        } else {
            high = middle;
        }
    }
    let mut found = None;
    let mut c = region.cursor(entry(low)?)?;
    for _ in low..high {
        let (start, fde) = (c.i32()?, c.i32()?);
        if header.wrapping_add(i64::from(start) as u64) > pc {
            break;
        }
        found = Some(header.wrapping_add(i64::from(fde) as u64));
    }
    covering(region, found?, pc)
}

/// The FDE at `at` and its address; `None` if it does not cover `pc`. FDEs of empty ranges are
/// skipped: LLVM's basic block sections may be empty, and lld's table keeps only the first entry
/// per address. The wanted FDE follows it.
fn covering(region: Region, mut at: u64, pc: u64) -> Option<(u64, Fde)> {
    /// The maximum number of entries to inspect.
    const MAX_ENTRIES: usize = 4;
    for _ in 0..MAX_ENTRIES {
        let fde = parse(region, at)?;
        if fde.start <= pc && pc < fde.end {
            return Some((at, fde));
        }
        if fde.start != fde.end {
            return None;
        }
        at = next_entry(region, at)?;
    }
    None
}

/// The address of the entry after the one at `at`; `None` after the last one.
fn next_entry(region: Region, at: u64) -> Option<u64> {
    let mut c = region.cursor(at)?;
    let len = entry_len(&mut c)?;
    c.at().checked_add(len)
}

/// The FDE that covers `pc`, found in `rows` of first addresses and entries, sorted by address.
/// `region` bounds the entries. `None` if no FDE covers `pc`.
pub fn find_fde_in(region: Region, rows: &[TableRow], pc: u64) -> Option<Fde> {
    let after = rows.partition_point(|row| row.start.load(Ordering::Relaxed) <= pc);
    let row = rows.get(after.checked_sub(1)?)?;
    let fde = parse(region, row.value.load(Ordering::Relaxed))?;
    (fde.start <= pc && pc < fde.end).then_some(fde)
}

/// The FDE at `at`; `None` for a CIE, the terminator and malformed entries.
fn parse(region: Region, at: u64) -> Option<Fde> {
    let mut c = entry_body(region, at)?;
    let id_at = c.at();
    let id = c.u32()?;
    if id == 0 {
        return None;
    }
    let cie = parse_cie(region, id_at.checked_sub(u64::from(id))?)?;
    let start = c.pointer(cie.pointer_encoding, 0)?;
    let len = c.pointer(cie.pointer_encoding & 0x0f, 0)?;
    if cie.augmented {
        let bytes = c.uleb()?;
        c.skip(bytes)?;
    }
    Some(Fde {
        start,
        end: start.checked_add(len)?,
        signal_frame: cie.signal_frame,
        code_align: cie.code_align,
        data_align: cie.data_align,
        initial: cie.instructions,
        instructions: c,
    })
}

/// The contents of the entry at `at` after its length. `None` for the terminator, or if the entry
/// exceeds the region.
fn entry_body(region: Region, at: u64) -> Option<Cursor> {
    let mut c = region.cursor(at)?;
    let len = entry_len(&mut c)?;
    c.split(len)
}

/// The length field of an entry, in bytes; `None` for the terminator, or if it cannot be read.
fn entry_len(c: &mut Cursor) -> Option<u64> {
    const LENGTH_IS_64_BIT: u32 = 0xffff_ffff;
    match c.u32()? {
        0 => None,
        LENGTH_IS_64_BIT => c.u64(),
        len => Some(u64::from(len)),
    }
}

/// The CIE at `at`; `None` for an FDE, the terminator, and entries that are malformed or not
/// supported.
fn parse_cie(region: Region, at: u64) -> Option<Cie> {
    let mut c = entry_body(region, at)?;
    if c.u32()? != 0 {
        return None;
    }
    let version = c.u8()?;
    if version != 1 && version != 3 {
        return None;
    }
    let mut augmentation = c;
    while c.u8()? != 0 {}
    let code_align = c.uleb()?;
    let data_align = c.sleb()?;
    let return_column = if version == 1 {
        u64::from(c.u8()?)
    } else {
        c.uleb()?
    };
    if return_column != unwind::arch::register::RA as u64 {
        return None;
    }
    let mut cie = Cie {
        code_align,
        data_align,
        pointer_encoding: 0,
        augmented: false,
        signal_frame: false,
        instructions: c,
    };
    let first = augmentation.u8()?;
    if first == b'z' {
        let len = c.uleb()?;
        let mut data = c.split(len)?;
        cie.augmented = true;
        cie.instructions = c;
        loop {
            match augmentation.u8()? {
                0 => break,
                b'R' => cie.pointer_encoding = data.u8()?,
                b'L' => data.skip(1)?,
                b'P' => {
                    let encoding = data.u8()?;
                    data.pointer(encoding & 0x0f, 0)?;
                }
                b'S' => cie.signal_frame = true,
                _ => return None,
            }
        }
    } else if first != 0 {
        return None;
    }
    Some(cie)
}
