//! The sections of an ELF file, decompressed where needed.

use super::bytes::{Bytes, Reader};
use flate2::{Decompress, FlushDecompress};
use gimli::{Dwarf, EndianReader, LittleEndian, Section as _, SectionId};
use ipath_base::files::FileBytes;
use ipath_base::starved::bearing;
use patcher::elf::{Compression, StoredSection, compressed, stored_sections};
use std::collections::HashMap;
use std::convert::Infallible;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

/// No section decompresses to more: what claims to be larger is not believed.
const MOST: u64 = 4 << 30;
/// Nor to more than this for each of its bytes, if it is not small: debug information shrinks to a tenth.
const EACH: u64 = 64;
const SMALL: u64 = 1 << 20;

/// The sections of one file by name.
pub(super) struct Sections<'d> {
    data: Bytes<'d>,
    headers: HashMap<String, StoredSection>,
}

/// The sections that the DWARF of one file lies in.
pub(super) struct Debug<'d> {
    data: Bytes<'d>,
    sections: HashMap<&'static str, DebugSection>,
}

/// A section and, where it is compressed, its first bytes, as many as have been asked for; none once it is seen to be broken.
struct DebugSection {
    header: StoredSection,
    packing: Packing,
    decompressed: Mutex<Option<Arc<Vec<u8>>>>,
}

/// The storage format of a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    /// Uncompressed.
    Plain,
    /// After a header with the compression method: gABI, SHF_COMPRESSED.
    Gabi,
    /// `.zdebug_*`, the older format of GNU tools (-gz=zlib-gnu): "ZLIB", the size, then the zlib
    /// stream.
    Gnu,
}

/// Where values are, what types have a unit of their own, and the index of units ([`super::units`]), which may be damaged where they are
/// not: source lines do without.
const NOT_OF_LINES: [SectionId; 4] = [
    SectionId::DebugAranges,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugTypes,
];

impl<'d> Sections<'d> {
    /// Reads the section headers of a 64-bit little-endian ELF file, and nothing else.
    pub(super) fn parse(data: Bytes<'d>) -> Option<Self> {
        let headers = stored_sections(&data)?;
        Some(Self { data, headers })
    }

    /// The bytes of a section.
    pub(super) fn get(&self, name: &str) -> Option<Bytes<'d>> {
        contents(&self.data, self.headers.get(name)?)
    }

    /// The whole file.
    pub(super) fn file(&self) -> &[u8] {
        &self.data
    }

    /// The whole file, where it is an open one.
    pub(super) fn into_file(self) -> Option<FileBytes> {
        match self.data {
            Bytes::OfFile(file, _) => Some(file),
            Bytes::Borrowed(_) | Bytes::Owned(_) => None,
        }
    }

    /// The build id in `.note.gnu.build-id`.
    pub(super) fn build_id(&self) -> Option<Vec<u8>> {
        let note = self.get(".note.gnu.build-id")?;
        let word = |at: usize| Some(u32::from_le_bytes(note.get(at..at + 4)?.try_into().ok()?));
        // Elf64_Nhdr: name size, content size, type; then the name "GNU\0", then the id.
        let (name, len) = (word(0)? as usize, word(4)? as usize);
        let start = 12usize.checked_add(name)?.checked_next_multiple_of(4)?;
        let id = note.get(start..start.checked_add(len)?)?;
        (!id.is_empty()).then(|| id.to_owned())
    }

    /// The file's DWARF, or none where it has neither functions nor lines.
    pub(super) fn debug(&self) -> Option<Debug<'d>> {
        self.debug_named(|id| Some(id.name()))
    }

    /// Like [`Self::debug`], for a `.dwo` or `.dwp` file.
    pub(super) fn split_debug(&self) -> Option<Debug<'d>> {
        self.debug_named(SectionId::dwo_name)
    }

    fn debug_named(&self, name: impl Fn(SectionId) -> Option<&'static str>) -> Option<Debug<'d>> {
        let here = |id: SectionId| {
            let name = name(id)?;
            let found = self.headers.get(name).map(|header| {
                let is_packed = header.is_compressed;
                (
                    header,
                    if is_packed {
                        Packing::Gabi
                    } else {
                        Packing::Plain
                    },
                )
            });
            let found = found.or_else(|| {
                let packed = name.replacen(".debug", ".zdebug", 1);
                Some((self.headers.get(&packed)?, Packing::Gnu))
            });
            let (header, packing) = found.filter(|(header, _)| header.range.is_some())?;
            let section = DebugSection {
                header: header.clone(),
                packing,
                decompressed: Mutex::new(Some(Arc::default())),
            };
            Some((id.name(), section))
        };
        here(gimli::DebugInfo::<Reader<'_>>::id())?;
        let ids = [
            SectionId::DebugAbbrev,
            SectionId::DebugAddr,
            SectionId::DebugCuIndex,
            SectionId::DebugTuIndex,
            SectionId::DebugInfo,
            SectionId::DebugLine,
            SectionId::DebugLineStr,
            SectionId::DebugRanges,
            SectionId::DebugRngLists,
            SectionId::DebugStr,
            SectionId::DebugStrOffsets,
        ];
        Some(Debug {
            data: self.data.clone(),
            sections: ids
                .into_iter()
                .chain(NOT_OF_LINES)
                .filter_map(here)
                .collect(),
        })
    }
}

impl<'d> Debug<'d> {
    /// The sections that lead to source lines, as gimli wants them; one that is missing or broken is empty.
    pub(super) fn dwarf(&self) -> Dwarf<Reader<'d>> {
        self.dwarf_of(|id| self.reader_of_lines(id))
    }

    /// The same with what tells of variables and types.
    pub(super) fn dwarf_with_values(&self) -> Dwarf<Reader<'d>> {
        self.dwarf_of(|id| self.reader(id, usize::MAX))
    }

    /// A section that leads to source lines; any other is empty.
    pub(super) fn reader_of_lines(&self, id: SectionId) -> Reader<'d> {
        let is_of_lines = !NOT_OF_LINES.contains(&id);
        self.reader(id, if is_of_lines { usize::MAX } else { 0 })
    }

    /// At least so many of the first bytes of a section, where it has them. One that is missing or broken is empty.
    pub(super) fn reader(&self, id: SectionId, least: usize) -> Reader<'d> {
        let section = self.sections.get(id.name()).filter(|_| least > 0);
        let bytes = section.and_then(|s| s.contents(&self.data, least));
        EndianReader::new(bytes.unwrap_or(Bytes::Borrowed(&[])), LittleEndian)
    }

    pub(super) fn dwarf_of(
        &self,
        mut section: impl FnMut(SectionId) -> Reader<'d>,
    ) -> Dwarf<Reader<'d>> {
        match Dwarf::load(|id| Ok::<_, Infallible>(section(id))) {
            Ok(dwarf) => dwarf,
            Err(never) => match never {},
        }
    }
}

impl DebugSection {
    fn contents<'d>(&self, data: &Bytes<'d>, least: usize) -> Option<Bytes<'d>> {
        let stored = stored(data, &self.header)?;
        if self.packing == Packing::Plain {
            return Some(stored);
        }
        let compressed = Compressed::parse(&stored, self.packing)?;
        let least = least.min(compressed.size);
        let known = self.decompressed.lock();
        let mut known = known.unwrap_or_else(PoisonError::into_inner);
        let have = known.as_ref()?.len();
        if have < least {
            // Twice as much as before, so that by and large no byte is decompressed more than twice.
            let first = compressed.first(least.max(2 * have).min(compressed.size));
            *known = first.map(Arc::new);
        }
        known.clone().map(Bytes::Owned)
    }
}

fn contents<'d>(data: &Bytes<'d>, header: &StoredSection) -> Option<Bytes<'d>> {
    let bytes = stored(data, header)?;
    if !header.is_compressed {
        return Some(bytes);
    }
    let compressed = Compressed::parse(&bytes, Packing::Gabi)?;
    let all = compressed.first(compressed.size)?;
    Some(Bytes::Owned(Arc::new(all)))
}

/// The bytes of a section as they are in the file.
fn stored<'d>(data: &Bytes<'d>, header: &StoredSection) -> Option<Bytes<'d>> {
    data.part(header.range.clone()?)
}

/// The largest plausible size of this many compressed bytes.
pub(super) fn believed(packed: usize) -> u64 {
    (packed as u64).saturating_mul(EACH).clamp(SMALL, MOST)
}

/// A compressed section.
struct Compressed<'b> {
    by: Compression,
    size: usize,
    packed: &'b [u8],
}

impl<'b> Compressed<'b> {
    /// None where a size is claimed that is not believed.
    fn parse(bytes: &'b [u8], packing: Packing) -> Option<Self> {
        let (by, size, packed) = match packing {
            Packing::Gnu => {
                let (size, packed) = bytes.strip_prefix(b"ZLIB")?.split_first_chunk()?;
                (Compression::Zlib, u64::from_be_bytes(*size), packed)
            }
            Packing::Gabi | Packing::Plain => compressed(bytes)?,
        };
        (size <= believed(packed.len())).then_some(Self {
            by,
            size: size as usize,
            packed,
        })
    }

    /// The first `len` bytes, or all.
    fn first(&self, len: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        bearing(|| out.try_reserve_exact(len)).ok()?;
        match self.by {
            // It fills what is reserved.
            Compression::Zlib => Decompress::new(true)
                .decompress_vec(self.packed, &mut out, FlushDecompress::Finish)
                .map(drop)
                .ok(),
            Compression::Zstd => ruzstd::decoding::StreamingDecoder::new(self.packed)
                .ok()?
                .take(len as u64)
                .read_to_end(&mut out)
                .map(drop)
                .ok(),
            Compression::Other => None,
        }?;
        out.truncate(len);
        (out.len() == len).then_some(out)
    }
}
