//! The runtime's image, which is embedded in the command.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::OnceLock;

use abi::image::FENCES;
use patcher::Avma;
use patcher::elf::LinkTables;
use patcher::isa::Fill;

use crate::arch::fence::{FENCE, NO_FENCE};
use crate::segment::RuntimeDoc;
use ipath_profile::clock::ExitClock;

const BYTES: &[u8] = include_bytes!(env!("IPATH_RUNTIME_IMAGE"));

const PAGE: u64 = abi::PAGE;

/// The runtime as it is mapped into a target: executable pages, then writable ones.
pub struct RuntimeImage {
    /// The mapped contents by offset from the image's start. The rest of the pages is zero.
    parts: Vec<(u64, Vec<u8>)>,
    /// The words that depend on the image's address: the offset of the word, and the offset that it
    /// points to.
    relocations: Vec<(u64, u64)>,
    /// The offset of each exported symbol.
    symbols: BTreeMap<String, u64>,
    /// The offsets of the fences: see [`FENCES`].
    fences: Vec<u64>,
    /// Bytes from the image's start to the end of its last page.
    pub size: u64,
    /// The writable pages, relative to the start.
    pub writable: Range<u64>,
}

impl RuntimeImage {
    /// The image of the runtime that was built into this program, read once.
    ///
    /// # Errors
    /// The reason why the image is not valid.
    pub fn built_in() -> Result<&'static Self, String> {
        static BUILT_IN: OnceLock<Result<RuntimeImage, String>> = OnceLock::new();
        let built_in = BUILT_IN.get_or_init(Self::load);
        built_in.as_ref().map_err(Clone::clone)
    }

    /// Reads the image of the runtime that was built into this program.
    ///
    /// # Errors
    /// The reason why the image is not valid.
    pub fn load() -> Result<Self, String> {
        let elf = LinkTables::parse(BYTES).map_err(|e| format!("runtime image: {e}"))?;
        let mut image = Self {
            parts: Vec::new(),
            relocations: Vec::new(),
            symbols: BTreeMap::new(),
            fences: Vec::new(),
            size: 0,
            writable: 0..0,
        };
        for program in elf.segments() {
            let bytes = BYTES
                .get(program.file_range)
                .ok_or("runtime image: cut short")?;
            image.parts.push((program.address, bytes.to_vec()));
            let end = (program.address + program.size).next_multiple_of(PAGE);
            image.size = image.size.max(end);
            if program.write {
                image.writable = program.address & !(PAGE - 1)..end;
            }
        }
        for relocation in elf.dynamic_relocations() {
            if relocation.fill() != Fill::Relative {
                return Err(format!(
                    "runtime image: relocation of type {}",
                    relocation.kind
                ));
            }
            let (at, addend) = (relocation.at, relocation.addend);
            if word_in(&mut image.parts, at).is_none() {
                return Err(format!("runtime image: relocation of nothing at {at:#x}"));
            }
            image.relocations.push((at, addend));
        }
        for symbol in elf.dynamic_symbols().filter(|s| s.section != 0) {
            if let Some(name) = elf.name(&symbol) {
                image.symbols.insert(name.to_owned(), symbol.value);
            }
        }
        image.fences = fences(&elf)?;
        for &at in &image.fences {
            let bytes = bytes_in::<{ FENCE.len() }>(&mut image.parts, at);
            if bytes.is_none_or(|bytes| bytes[..] != FENCE) {
                return Err(format!("runtime image: no fence at {at:#x}"));
            }
        }
        Ok(image)
    }

    /// The run-time address of `symbol` in an image that starts at `base`.
    ///
    /// # Errors
    /// The image has no such symbol.
    pub fn address(&self, base: Avma, symbol: &str) -> Result<Avma, String> {
        let offset = self
            .symbols
            .get(symbol)
            .ok_or(format!("runtime image: no {symbol}"))?;
        Ok(base.plus(*offset))
    }

    /// The description of the image for other commands.
    pub fn document(&self) -> RuntimeDoc {
        /// Enough bytes to distinguish it from anything that a program maps.
        const HEAD: usize = 64;
        let first = self.parts.first().map_or(&[][..], |(_, bytes)| bytes);
        RuntimeDoc {
            symbols: self.symbols.clone(),
            head: first[..HEAD.min(first.len())].to_vec(),
        }
    }

    /// The writes that place only the writable pages of the image at `base`.
    pub fn writable_writes(&self, base: Avma) -> Vec<(Avma, Vec<u8>)> {
        self.placed(base, |at| self.writable.contains(&at))
    }

    /// The writes that place the image at `base`. `clock` selects how exits read the clock.
    pub fn writes(&self, base: Avma, clock: ExitClock) -> Vec<(Avma, Vec<u8>)> {
        let mut writes = self.placed(base, |_| true);
        if clock == ExitClock::Loose {
            let nops = self.fences.iter();
            writes.extend(nops.map(|&at| (base.plus(at), NO_FENCE.to_vec())));
        }
        writes
    }

    /// The relocated parts whose offsets `are_meant` selects, with their run-time addresses.
    fn placed(&self, base: Avma, are_meant: impl Fn(u64) -> bool) -> Vec<(Avma, Vec<u8>)> {
        let meant = self.parts.iter().filter(|(at, _)| are_meant(*at));
        let mut parts: Vec<(u64, Vec<u8>)> = meant.cloned().collect();
        for &(at, addend) in &self.relocations {
            if let Some(word) = word_in(&mut parts, at) {
                word.copy_from_slice(&base.plus(addend).0.to_le_bytes());
            }
        }
        let placed = parts.into_iter().map(|(at, bytes)| (base.plus(at), bytes));
        placed.collect()
    }
}

/// The offsets in section [`FENCES`].
fn fences(elf: &LinkTables<'_>) -> Result<Vec<u64>, String> {
    let section = elf
        .sections()
        .find(|section| section.name == Some(FENCES))
        .and_then(|section| BYTES.get(section.range?))
        .ok_or(format!("runtime image: no section {FENCES}"))?;
    let (words, _) = section.as_chunks();
    Ok(words.iter().map(|&word| u64::from_le_bytes(word)).collect())
}

/// The word at offset `at`. `None` if the file does not contain it.
fn word_in(parts: &mut [(u64, Vec<u8>)], at: u64) -> Option<&mut [u8]> {
    bytes_in::<{ size_of::<u64>() }>(parts, at)
}

/// The bytes at offset `at`. `None` if the file does not contain them.
fn bytes_in<const LEN: usize>(parts: &mut [(u64, Vec<u8>)], at: u64) -> Option<&mut [u8]> {
    parts.iter_mut().find_map(|(start, bytes)| {
        let from = at.checked_sub(*start)? as usize;
        bytes.get_mut(from..from.checked_add(LEN)?)
    })
}

#[cfg(test)]
mod laid;
#[cfg(test)]
mod seccomp;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod ways;
