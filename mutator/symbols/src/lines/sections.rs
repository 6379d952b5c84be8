//! The sections of an ELF file, decompressed if necessary.

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

/// The maximum size of a decompressed section. A larger claimed size is rejected.
const MAX_SECTION_BYTES: u64 = 4 << 30;
/// The maximum ratio of decompressed to compressed size, except up to [`SMALL`] bytes. Debug
/// information shrinks to a tenth.
const EACH: u64 = 64;
/// The decompressed size in bytes up to which any ratio is accepted.
const SMALL: u64 = 1 << 20;

/// The sections of one file by name.
pub(super) struct Sections<'d> {
    data: Bytes<'d>,
    headers: HashMap<String, StoredSection>,
}

/// The sections with the DWARF of one file.
pub(super) struct Debug<'d> {
    data: Bytes<'d>,
    sections: HashMap<&'static str, DebugSection>,
}

/// A section with DWARF.
struct DebugSection {
    header: StoredSection,
    packing: Packing,
    /// If it is compressed, as many of its first bytes as were needed so far. `None` once it is
    /// found to be broken.
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

/// Locations of values, type units, and the index of units ([`super::units`]). Source lines do not
/// need them, so that they may be damaged.
const NOT_OF_LINES: [SectionId; 4] = [
    SectionId::DebugAranges,
    SectionId::DebugLoc,
    SectionId::DebugLocLists,
    SectionId::DebugTypes,
];

impl<'d> Sections<'d> {
    /// Reads the section headers of a 64-bit little-endian ELF file, and nothing else. `None` for
    /// any other file.
    pub(super) fn parse(data: Bytes<'d>) -> Option<Self> {
        let headers = stored_sections(&data)?;
        Some(Self { data, headers })
    }

    /// The bytes of a section, decompressed. `None` if there is no such section, or if it has no
    /// contents or is broken.
    pub(super) fn get(&self, name: &str) -> Option<Bytes<'d>> {
        contents(&self.data, self.headers.get(name)?)
    }

    /// The whole file.
    pub(super) fn file(&self) -> &[u8] {
        &self.data
    }

    /// The whole file. `None` if this was not made from an open file.
    pub(super) fn into_file(self) -> Option<FileBytes> {
        match self.data {
            Bytes::OfFile(file, _) => Some(file),
            Bytes::Borrowed(_) | Bytes::Owned(_) => None,
        }
    }

    /// The build id in `.note.gnu.build-id`. `None` if there is none.
    pub(super) fn build_id(&self) -> Option<Vec<u8>> {
        let note = self.get(".note.gnu.build-id")?;
        let word = |at: usize| Some(u32::from_le_bytes(note.get(at..at + 4)?.try_into().ok()?));
        // Elf64_Nhdr: name size, content size, type; then the name "GNU\0", then the id.
        let (name, len) = (word(0)? as usize, word(4)? as usize);
        let start = 12usize.checked_add(name)?.checked_next_multiple_of(4)?;
        let id = note.get(start..start.checked_add(len)?)?;
        (!id.is_empty()).then(|| id.to_owned())
    }

    /// The file's DWARF. `None` if it has no `.debug_info`.
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
    /// The sections for source lines, for gimli. A missing or broken section is empty.
    pub(super) fn dwarf(&self) -> Dwarf<Reader<'d>> {
        self.dwarf_of(|id| self.reader_of_lines(id))
    }

    /// As [`Self::dwarf`], with variables and types.
    pub(super) fn dwarf_with_values(&self) -> Dwarf<Reader<'d>> {
        self.dwarf_of(|id| self.reader(id, usize::MAX))
    }

    /// A section for source lines. Any other is empty.
    pub(super) fn reader_of_lines(&self, id: SectionId) -> Reader<'d> {
        let is_of_lines = !NOT_OF_LINES.contains(&id);
        self.reader(id, if is_of_lines { usize::MAX } else { 0 })
    }

    /// At least `least` of the first bytes of a section, or the whole section if it is shorter. A
    /// missing or broken section is empty.
    pub(super) fn reader(&self, id: SectionId, least: usize) -> Reader<'d> {
        let section = self.sections.get(id.name()).filter(|_| least > 0);
        let bytes = section.and_then(|s| s.contents(&self.data, least));
        EndianReader::new(bytes.unwrap_or(Bytes::Borrowed(&[])), LittleEndian)
    }

    /// The DWARF with the sections that `section` returns.
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
            // Doubles the size, so that on average no byte is decompressed more than twice.
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

/// The bytes of a section as stored in the file. `None` if it has none.
fn stored<'d>(data: &Bytes<'d>, header: &StoredSection) -> Option<Bytes<'d>> {
    data.part(header.range.clone()?)
}

/// The largest plausible decompressed size of this many compressed bytes, in bytes.
pub(super) fn believed(packed: usize) -> u64 {
    (packed as u64)
        .saturating_mul(EACH)
        .clamp(SMALL, MAX_SECTION_BYTES)
}

/// A compressed section.
struct Compressed<'b> {
    by: Compression,
    /// The claimed decompressed size, in bytes.
    size: usize,
    packed: &'b [u8],
}

impl<'b> Compressed<'b> {
    /// Parses the header of a compressed section. `None` if it is broken or the claimed size is
    /// implausible.
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

    /// The first `len` bytes, decompressed. `None` if there are fewer or they are broken.
    fn first(&self, len: usize) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        bearing(|| out.try_reserve_exact(len)).ok()?;
        match self.by {
            // It fills the reserved capacity.
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
