//! Landing pads from the language-specific data area: Itanium C++ ABI, Exception Handling Tables.

use std::ops::Range;

use gimli::{EndianSlice, LittleEndian, Reader};

use super::unwind::Fde;
use crate::addr::Svma;
use crate::elf::ElfFile;

/// The landing pads of the function that `fde` describes, ascending. The second value is `Some` if
/// there is no area, or if it could be read to its end.
pub(crate) fn landing_pads(file: &ElfFile<'_>, fde: &Fde) -> (Vec<Svma>, Option<()>) {
    let (sites, end) = exception_sites(file, fde);
    let mut pads: Vec<Svma> = sites.into_iter().map(|(_, pad)| pad).collect();
    pads.sort_unstable();
    pads.dedup();
    (pads, end)
}

/// The call sites of the function that `fde` describes whose exceptions arrive at a landing pad,
/// each with the pad. The second value is as for [`landing_pads`].
pub(crate) fn exception_sites(
    file: &ElfFile<'_>,
    fde: &Fde,
) -> (Vec<(Range<Svma>, Svma)>, Option<()>) {
    let mut sites = Vec::new();
    let end = fde
        .lsda
        .map_or(Some(()), |lsda| read(file, lsda, &fde.range, &mut sites));
    (sites, end)
}

fn read(
    file: &ElfFile<'_>,
    lsda: Svma,
    function: &Range<Svma>,
    found: &mut Vec<(Range<Svma>, Svma)>,
) -> Option<()> {
    let bytes = file.bytes_from(lsda)?;
    let len = bytes.len() as u64;
    let mut at = Cursor {
        reader: EndianSlice::new(bytes, LittleEndian),
        lsda,
        len,
    };
    let start_encoding = at.byte()?;
    let base = at.pointer(start_encoding)?.unwrap_or(function.start.0);
    if at.byte()? != OMIT {
        at.reader.read_uleb128().ok()?;
    }
    let encoding = at.byte()?;
    let table = at.reader.read_uleb128().ok()?;
    let mut sites = at.split(table)?;
    let len = function.end.0 - function.start.0;
    let mut covered = 0;
    while !sites.reader.is_empty() {
        let start = sites.pointer(encoding)??;
        let end = start.checked_add(sites.pointer(encoding)??)?;
        // The sites are in order. LLVM emits the tables of a function's sections one after the
        // other. The length of each table includes all following ones.
        if start < covered || end > len {
            break;
        }
        covered = end;
        let pad = sites.pointer(encoding)??;
        sites.reader.read_uleb128().ok()?;
        if pad != 0 {
            let range = function.start.plus(start)..function.start.plus(end);
            found.push((range, Svma(base.wrapping_add(pad))));
        }
    }
    Some(())
}

const OMIT: u8 = 0xff;

struct Cursor<'d> {
    reader: EndianSlice<'d, LittleEndian>,
    /// The address of the start of the area.
    lsda: Svma,
    /// The distance from the start of the area to the reader's end, in bytes.
    len: u64,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Option<u8> {
        self.reader.read_u8().ok()
    }

    fn split(&mut self, len: u64) -> Option<Self> {
        let passed = self.len - self.reader.len() as u64;
        let reader = self.reader.split(usize::try_from(len).ok()?).ok()?;
        Some(Self {
            reader,
            lsda: self.lsda,
            len: passed + len,
        })
    }

    /// Reads a pointer in an encoding of LSB 5, section 10.5.1; `Some(None)` if it is omitted,
    /// `None` if it cannot be read.
    fn pointer(&mut self, encoding: u8) -> Option<Option<u64>> {
        if encoding == OMIT {
            return Some(None);
        }
        let at = self
            .lsda
            .0
            .wrapping_add(self.len - self.reader.len() as u64);
        // Indirect pointers and other bases do not occur in call-site tables.
        let base = match encoding & 0xf0 {
            0 => 0,
            0x10 => at,
            _ => return None,
        };
        let value = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.reader.read_u64().ok()?,
            0x01 => self.reader.read_uleb128().ok()?,
            0x02 => u64::from(self.reader.read_u16().ok()?),
            0x03 => u64::from(self.reader.read_u32().ok()?),
            0x09 => self.reader.read_sleb128().ok()? as u64,
            0x0a => i64::from(self.reader.read_i16().ok()?) as u64,
            0x0b => i64::from(self.reader.read_i32().ok()?) as u64,
            _ => return None,
        };
        Some(Some(base.wrapping_add(value)))
    }
}
