//! Unwind entries that a process registered for code outside of files.

use std::collections::HashMap;
use std::ops::Range;

use patcher::elf::{LinkSection, LinkTables};
use patcher::flow::{Bases, Form, Registered, registered};
use patcher::{Avma, Svma};

use super::registered::{Registers, contents, files};
use super::unwinder::{Registration, registrations};
use ipath_target::process::modules::Module;
use ipath_target::process::{Mapping, Memory};

/// The maximum number of bytes of one list of entries.
const LARGEST: u64 = 16 << 20;
/// The maximum number of bytes of all lists.
const MOST_BYTES: usize = 64 << 20;

/// Unwind entries that were registered together, copied from the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// The address passed at registration: of the first entry, of the array of lists, or of the
    /// file.
    pub key: Avma,
    /// The `__jit_debug_descriptor` whose list contains the file. `None` for entries that were
    /// registered with an unwinder.
    pub descriptor: Option<Avma>,
    sections: Vec<Section>,
}

/// A list of unwind entries.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Section {
    bytes: Vec<u8>,
    /// Its address in the process.
    at: u64,
    /// The bases of relative pointers in the entries: code and data.
    bases: (u64, u64),
    form: Form,
}

impl Entries {
    /// The rows of all described code that `maps` show outside of files.
    pub fn described(&self, maps: &[Mapping]) -> Vec<Registered> {
        let sections = self.sections.iter();
        let all = sections.flat_map(|section| {
            let (text, data) = section.bases;
            let bases = Bases {
                section: section.at,
                text,
                data,
            };
            registered(&section.bytes, bases, section.form)
        });
        all.filter(|code| is_generated(maps, &code.range)).collect()
    }
}

/// True if all of the code is in executable memory that belongs to no named file.
fn is_generated(maps: &[Mapping], code: &Range<Svma>) -> bool {
    let mut at = code.start.0;
    let after = maps.partition_point(|m| m.range.end.0 <= at);
    for mapping in &maps[after..] {
        if !mapping.contains(Avma(at)) || !makes_code(mapping) {
            return false;
        }
        at = mapping.range.end.0;
        if code.end.0 <= at {
            return true;
        }
    }
    false
}

/// True if a mapping is executable and holds code that the process made: anonymous memory, or a
/// deleted file, such as one of memfd_create(2).
pub fn makes_code(mapping: &Mapping) -> bool {
    let is_of_file = mapping.file.1 != 0 && !mapping.name.ends_with(" (deleted)");
    mapping.execute && !is_of_file && mapping.name != "[vdso]" && mapping.name != "[vsyscall]"
}

/// The modules through which a process can register entries.
#[derive(Default)]
pub struct Sources {
    /// The key is the module's path and first address.
    known: HashMap<(String, Avma), Registers>,
}

impl Sources {
    /// Reads the current registrations through these modules. Skips unreadable ones, repeated keys,
    /// and lists beyond 64 MiB in total.
    pub fn read(&mut self, modules: &[Module], maps: &[Mapping], memory: &Memory) -> Vec<Entries> {
        let mut found: Vec<Entries> = Vec::new();
        let mut left = MOST_BYTES;
        for module in modules {
            let key = (module.path.clone(), module.range.start);
            let known = self.known.entry(key);
            let source = *known.or_insert_with(|| Registers::of(module));
            let mut all = Vec::new();
            if let Some(descriptor) = source.descriptor {
                let files = files(descriptor, memory).unwrap_or_default();
                all.extend(files.into_iter().filter_map(|file| {
                    let sections = in_file(&contents(file, memory)?, file.0, memory);
                    Some(Entries {
                        key: Avma(file.0),
                        descriptor: Some(descriptor),
                        sections,
                    })
                }));
            }
            if source.has_unwinder {
                let registrations = registrations(module, maps, memory);
                all.extend(registrations.iter().map(|r| with_unwinder(r, maps, memory)));
            }
            for entries in all {
                let len = entries.sections.iter().map(|s| s.bytes.len()).sum();
                let is_known = found.iter().any(|other| other.key == entries.key);
                if let Some(rest) = left.checked_sub(len).filter(|_| !is_known) {
                    left = rest;
                    found.push(entries);
                }
            }
        }
        found
    }
}

/// Copies the entries of one registration with an unwinder.
fn with_unwinder(registration: &Registration, maps: &[Mapping], memory: &Memory) -> Entries {
    let sections = registration.sections.iter().filter_map(|&at| {
        Some(Section {
            bytes: list_at(at, maps, memory)?,
            at: at.0,
            bases: registration.bases,
            form: Form::EhFrame,
        })
    });
    Entries {
        key: registration.key,
        descriptor: None,
        sections: sections.collect(),
    }
}

/// The bytes of a list, with the word 0 at its end. `None` if it cannot be read or has no end
/// within [`LARGEST`] bytes of its mapping.
fn list_at(at: Avma, maps: &[Mapping], memory: &Memory) -> Option<Vec<u8>> {
    let after = maps.partition_point(|m| m.range.end <= at);
    let mapping = maps.get(after).filter(|m| m.contains(at))?;
    let room = (mapping.range.end.0 - at.0).min(LARGEST) as usize;
    let mut bytes = Vec::new();
    let mut end = 0;
    loop {
        while let Some(len) = bytes.get(end..end + 4) {
            match u32::from_le_bytes(len.try_into().ok()?) {
                0 => {
                    bytes.truncate(end + 4);
                    return Some(bytes);
                }
                // The 64-bit format, for an entry of more than 4 GiB.
                u32::MAX => return None,
                len => end = end.checked_add(4 + len as usize)?,
            }
        }
        let more = (bytes.len().max(1 << 10)).min(room - bytes.len());
        if more == 0 || end > room {
            return None;
        }
        let next = memory.read_vec(at.plus(bytes.len() as u64), more).ok()?;
        bytes.extend(next);
    }
}

/// The sections with unwind entries of an ELF file in memory at `at`. A section that has been
/// loaded is read from its loaded copy, which has its relocations applied.
fn in_file(bytes: &[u8], at: u64, memory: &Memory) -> Vec<Section> {
    let Ok(tables) = LinkTables::parse(bytes) else {
        return Vec::new();
    };
    let text = tables.sections().find(|s| s.is_executable);
    let text = text.map_or(0, |s| s.address);
    let section = |(index, header): (usize, LinkSection<'_>)| {
        let form = match header.name? {
            ".eh_frame" => Form::EhFrame,
            ".debug_frame" => Form::DebugFrame,
            _ => return None,
        };
        let range = header.range.clone()?;
        let len = range.len();
        let is_loaded = header.is_allocated && header.address != 0 && len as u64 <= LARGEST;
        let loaded = is_loaded.then(|| memory.read_vec(Avma(header.address), len).ok());
        let loaded = loaded.flatten().filter(|loaded| begins_entries(loaded));
        let is_there = loaded.is_some();
        let mut contents = match loaded {
            Some(loaded) => loaded,
            None => bytes.get(range)?.to_vec(),
        };
        let section_at = match header.address {
            0 => at.wrapping_add(header.offset),
            address => address,
        };
        if !is_there && tables.is_object() {
            relocate(&tables, index, section_at, &mut contents);
        }
        Some(Section {
            bytes: contents,
            at: section_at,
            bases: (text, 0),
            form,
        })
    };
    tables.sections().enumerate().filter_map(section).collect()
}

/// True if a section `.eh_frame` begins with a CIE.
fn begins_entries(bytes: &[u8]) -> bool {
    let word = |at: usize| bytes.get(at..at + 4).and_then(<[u8]>::first_chunk);
    let words = (word(0), word(4));
    matches!(words, (Some(len), Some([0, 0, 0, 0])) if u32::from_le_bytes(*len) != 0)
}

/// Applies the relocations of a section of an object file to its `contents`, which are at `at` in
/// the process.
fn relocate(tables: &LinkTables<'_>, section: usize, at: u64, contents: &mut [u8]) {
    for relocation in tables.relocations_of(section) {
        let Some(symbol) = tables.symbol(relocation.symbol) else {
            continue;
        };
        let base = tables.section_address(symbol.section).unwrap_or_default();
        let place = at.wrapping_add(relocation.at);
        let Some((value, size)) = relocation.linked(base.wrapping_add(symbol.value), place) else {
            continue;
        };
        let first = relocation.at as usize;
        let end = first.checked_add(size);
        let to = end.and_then(|end| contents.get_mut(first..end));
        if let Some(to) = to {
            to.copy_from_slice(&value.to_le_bytes()[..size]);
        }
    }
}
