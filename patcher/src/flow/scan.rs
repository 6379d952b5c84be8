//! Scans over the whole module: where anything in it may branch or point to.
//!
//! Both scans over-approximate. The text is read byte by byte, not instruction by instruction, so
//! data in code, overlapping instructions and wrong function bounds cannot hide a branch.

use crate::addr::Svma;
use crate::image::{Image, Segment};

use super::address_set::AddressSet;

/// What the text may branch and point to.
pub struct Found {
    /// The targets of `call`, `jmp` and `jcc` with a 32-bit displacement.
    pub branches: AddressSet,
    /// Those of them that more than one may have.
    pub crowded: AddressSet,
    /// The addresses that a rip-relative `lea` forms.
    pub leas: AddressSet,
}

/// Scans the text; `empty` is a set over it.
pub fn text(image: &Image<'_>, empty: &AddressSet) -> Found {
    let mut found = Found {
        branches: empty.clone(),
        crowded: empty.clone(),
        leas: empty.clone(),
    };
    let Found {
        branches,
        crowded,
        leas,
    } = &mut found;
    each_target(image, |to, kind| match kind {
        Kind::Branch if !branches.insert(to) => {
            crowded.insert(to);
        }
        Kind::Branch => {}
        Kind::Lea => {
            leas.insert(to);
        }
    });
    found
}

/// The targets of all branches with a 32-bit displacement to addresses in `wanted`, sorted.
pub fn arrivals(image: &Image<'_>, wanted: &AddressSet) -> Vec<u64> {
    let mut targets = Vec::new();
    each_target(image, |to, kind| {
        if kind == Kind::Branch && wanted.contains(Svma(to)) {
            targets.push(to);
        }
    });
    targets.sort_unstable();
    targets
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Branch,
    Lea,
}

fn each_target(image: &Image<'_>, mut found: impl FnMut(u64, Kind)) {
    for segment in image.segments().iter().filter(|s| s.execute) {
        let Some(code) = file_bytes(image, segment) else {
            continue;
        };
        let start = segment.range.start.0;
        let lands = |at: usize, displacement: [u8; 4]| {
            let next = start.wrapping_add(at as u64);
            next.wrapping_add(i64::from(i32::from_le_bytes(displacement)) as u64)
        };
        for (i, w) in code.windows(6).enumerate() {
            if w[0] & 0xfe == 0xe8 {
                found(lands(i + 5, [w[1], w[2], w[3], w[4]]), Kind::Branch);
            } else if w[0] == 0x0f && w[1] & 0xf0 == 0x80 {
                found(lands(i + 6, [w[2], w[3], w[4], w[5]]), Kind::Branch);
            } else if w[0] == 0x8d && w[1] & 0xc7 == 0x05 {
                found(lands(i + 6, [w[2], w[3], w[4], w[5]]), Kind::Lea);
            }
        }
        // The loop above needs six bytes; a call or jump in the last five is looked at here.
        if let Some([0xe8 | 0xe9, a, b, c, d]) = code.last_chunk::<5>() {
            found(lands(code.len(), [*a, *b, *c, *d]), Kind::Branch);
        }
    }
}

/// Adds to `taken` every code address that stands as a 64-bit word in the module's data once it is
/// loaded: through relative relocations, or as it is where the module has a fixed address.
pub fn data(image: &Image<'_>, relocated: &[RelocatedWord], taken: &mut AddressSet) {
    for word in relocated {
        taken.insert(word.value);
    }
    if image.is_position_independent() {
        return;
    }
    for segment in image.segments() {
        let Some(bytes) = file_bytes(image, segment) else {
            continue;
        };
        // Tables of 64-bit words are aligned to 8; text can hold tables too, so no segment is left
        // out. The mask is on the address, not on the offset in the file.
        let skew = (segment.range.start.0.wrapping_neg() & 7) as usize;
        for word in bytes.get(skew..).unwrap_or_default().chunks_exact(8) {
            taken.insert(le64(word));
        }
    }
}

/// A 64-bit word that the loader fills with an address of this module.
#[derive(Clone, Copy, Debug)]
pub struct RelocatedWord {
    /// Where the word stands.
    pub at: Svma,
    /// The address in it, without the bias.
    pub value: u64,
}

const PT_DYNAMIC: u32 = 2;
const DT_RELA: u64 = 7;
const DT_RELASZ: u64 = 8;
const DT_PLTRELSZ: u64 = 2;
const DT_JMPREL: u64 = 23;
const DT_RELRSZ: u64 = 35;
const DT_RELR: u64 = 36;
const R_X86_64_RELATIVE: u32 = 8;
const R_X86_64_IRELATIVE: u32 = 37;

/// The relocations of a file, read through `PT_DYNAMIC` so that a file without section headers
/// serves as well.
#[derive(Default)]
struct Relocations<'d> {
    /// `Elf64_Rela`, 24 bytes each: where, kind and symbol, addend.
    rela: &'d [u8],
    /// The same for linkage stubs.
    plt: &'d [u8],
    /// The compact form of relative relocations.
    relr: &'d [u8],
}

impl<'d> Relocations<'d> {
    fn of(image: &Image<'d>) -> Self {
        let (mut rela, mut plt, mut relr) = ((0, 0), (0, 0), (0, 0));
        for entry in dynamic(image).unwrap_or_default().chunks_exact(16) {
            let value = le64(&entry[8..]);
            match le64(entry) {
                DT_RELA => rela.0 = value,
                DT_RELASZ => rela.1 = value,
                DT_JMPREL => plt.0 = value,
                DT_PLTRELSZ => plt.1 = value,
                DT_RELR => relr.0 = value,
                DT_RELRSZ => relr.1 = value,
                _ => {}
            }
        }
        let bytes = |(at, len)| image.bytes(Svma(at), len).unwrap_or_default();
        Self {
            rela: bytes(rela),
            plt: bytes(plt),
            relr: bytes(relr),
        }
    }

    /// Where the compact relocations are. An even entry is an address, an odd one a bitmap of the 63
    /// words behind the last.
    fn compact(&self) -> Vec<Svma> {
        let mut fields = Vec::new();
        let mut next = 0u64;
        for entry in self.relr.chunks_exact(8) {
            let entry = le64(entry);
            if entry & 1 == 0 {
                fields.push(Svma(entry));
                next = entry.wrapping_add(8);
            } else {
                let set = (0..63).filter(|bit| entry >> (bit + 1) & 1 == 1);
                fields.extend(set.map(|bit| Svma(next.wrapping_add(8 * bit))));
                next = next.wrapping_add(63 * 8);
            }
        }
        fields
    }
}

/// Every word with a relative relocation.
pub fn relocated_words(image: &Image<'_>) -> Vec<RelocatedWord> {
    let relocations = Relocations::of(image);
    let mut words = Vec::new();
    for entry in relocations.rela.chunks_exact(24) {
        let kind = le64(&entry[8..]) as u32;
        if kind == R_X86_64_RELATIVE || kind == R_X86_64_IRELATIVE {
            words.push(RelocatedWord {
                at: Svma(le64(entry)),
                value: le64(&entry[16..]),
            });
        }
    }
    let in_place = |at| {
        let value = le64(image.bytes(at, 8)?);
        Some(RelocatedWord { at, value })
    };
    words.extend(relocations.compact().into_iter().filter_map(in_place));
    words
}

/// Where the loader fills in something in the text, sorted.
pub fn text_fields(image: &Image<'_>) -> Vec<Svma> {
    let relocations = Relocations::of(image);
    let tables = [relocations.rela, relocations.plt];
    let places = tables.into_iter().flat_map(|t| t.chunks_exact(24));
    let mut fields: Vec<Svma> = places
        .map(|entry| Svma(le64(entry)))
        .chain(relocations.compact())
        .filter(|&at| [at, at.plus(7)].into_iter().any(|at| image.is_code(at)))
        .collect();
    fields.sort_unstable();
    fields
}

/// What the loader calls when the file has been loaded and before it is unloaded: gABI, Initialization and
/// Termination Functions. Those of the arrays are relocated words.
pub fn called_by_the_loader(image: &Image<'_>) -> Vec<Svma> {
    const DT_INIT: u64 = 12;
    const DT_FINI: u64 = 13;
    let entries = dynamic(image).unwrap_or_default().chunks_exact(16);
    let called = entries.filter(|entry| matches!(le64(entry), DT_INIT | DT_FINI));
    called.map(|entry| Svma(le64(&entry[8..]))).collect()
}

fn dynamic<'d>(image: &Image<'d>) -> Option<&'d [u8]> {
    let file = image.data();
    let word = |at: usize| file.get(at..at + 8).map(le64);
    let table = word(0x20)? as usize;
    let size = u16::from_le_bytes([*file.get(0x36)?, *file.get(0x37)?]) as usize;
    let count = u16::from_le_bytes([*file.get(0x38)?, *file.get(0x39)?]) as usize;
    for index in 0..count {
        let header = table.checked_add(index * size)?;
        let kind = file.get(header..header.checked_add(56)?)?;
        if le32(kind) == PT_DYNAMIC {
            return image.bytes(Svma(le64(&kind[16..])), le64(&kind[32..]));
        }
    }
    None
}

/// The bytes of `segment` that the file provides.
pub fn file_bytes<'d>(image: &Image<'d>, segment: &Segment) -> Option<&'d [u8]> {
    let len = segment
        .file_size
        .min(segment.range.end.0 - segment.range.start.0);
    image.bytes(segment.range.start, len)
}

fn le64(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b))
}

fn le32(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |b| u32::from_le_bytes(*b))
}
