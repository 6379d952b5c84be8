//! Code that a compiler has registered with debuggers (GDB manual, "JIT Compilation Interface"): a
//! list of ELF files in the memory of the process that starts at `__jit_debug_descriptor`. LLVM
//! provides this for programs that embed it, such as numba and PostgreSQL.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use patcher::Avma;
use patcher::elf::LinkTables;

use super::ranges::Ranges;
use crate::elf_symbols;
use crate::images;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Memory, Process};

const DESCRIPTOR: &str = "__jit_debug_descriptor";
/// The function that is called when the list has changed.
pub const REGISTERING: &str = "__jit_debug_register_code";
const VERSION: u32 = 1;
/// Symbols of an unwinder that accepts registrations.
const OF_UNWINDER: [&str; 2] = ["__register_frame", "__register_frame_info"];
/// Offset of `first_entry` in `struct jit_descriptor`.
const FIRST: usize = 16;
/// The maximum number of entries of a list that are read.
const MOST_ENTRIES: usize = 1 << 16;
/// The maximum number of bytes of one file.
const LARGEST: u64 = 16 << 20;
/// The maximum number of bytes of all files.
const MOST_BYTES: u64 = 256 << 20;

/// A file of the list: its address in the process, and its size in bytes.
pub type File = (u64, u64);

/// The registered files that have been read so far.
#[derive(Debug, Default)]
pub(super) struct Registered {
    /// The address of the descriptor of each inspected module, by path and first address. `None`
    /// for a module without one.
    descriptors: BTreeMap<(String, Avma), Option<Avma>>,
    files: BTreeSet<File>,
    /// The total size of the files, in bytes.
    bytes: u64,
    /// The number of the last file. Files are numbered in the order of their arrival.
    time: u64,
    pub(super) names: Ranges,
}

impl Registered {
    /// Reads new registrations of a process. True if there were any. False if its memory cannot be
    /// read.
    pub(super) fn read(&mut self, process: &Process) -> bool {
        let (Ok(maps), Ok(memory)) = (process.maps(), process.open_memory()) else {
            return false;
        };
        let mut is_new = false;
        for module in modules(process, &maps) {
            let key = (module.path.clone(), module.range.start);
            let known = self.descriptors.entry(key);
            if let Some(descriptor) = *known.or_insert_with(|| Registers::of(&module).descriptor) {
                // If the list changes during the read, the rest is read next time.
                is_new |= self.read_list(descriptor, &memory).unwrap_or(false);
            }
        }
        is_new
    }

    fn read_list(&mut self, descriptor: Avma, memory: &Memory) -> Option<bool> {
        let mut new = files(descriptor, memory)?;
        new.retain(|file| !self.files.contains(file));
        // The latest file comes first.
        for &file in new.iter().rev() {
            self.take(file, memory);
        }
        Some(!new.is_empty())
    }

    fn take(&mut self, file: File, memory: &Memory) {
        let all = self.bytes.saturating_add(file.1);
        if file.1 > LARGEST || all > MOST_BYTES {
            return;
        }
        self.files.insert(file);
        self.bytes = all;
        self.time += 1;
        if let Some(bytes) = contents(file, memory) {
            name_functions(&bytes, self.time, &mut self.names);
        }
    }
}

/// The files of a list, the latest first, up to the first unreadable entry. `None` if the
/// descriptor at `descriptor` cannot be read or has another version.
pub fn files(descriptor: Avma, memory: &Memory) -> Option<Vec<File>> {
    let head = memory.read_vec(descriptor, FIRST + 8).ok()?;
    if head[..4] != VERSION.to_le_bytes() {
        return None;
    }
    let mut entry = word(&head, FIRST)?;
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    while entry != 0 && seen.insert(entry) && seen.len() <= MOST_ENTRIES {
        // next_entry, prev_entry, symfile_addr, symfile_size
        let Ok(words) = memory.read_vec(Avma(entry), 32) else {
            break;
        };
        entry = word(&words, 0)?;
        found.push((word(&words, 16)?, word(&words, 24)?));
    }
    Some(found)
}

/// The contents of a file of a list. `None` if it cannot be read or is larger than 16 MiB.
pub fn contents(file: File, memory: &Memory) -> Option<Vec<u8>> {
    let (at, size) = file;
    let is_meant = size <= LARGEST;
    is_meant.then(|| memory.read_vec(Avma(at), size as usize).ok())?
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// The interfaces of a module for registering code that is made at run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The address of `__jit_debug_descriptor`. `None` if the module has none.
    pub descriptor: Option<Avma>,
    /// True if the module contains an unwinder that accepts registrations.
    pub has_unwinder: bool,
}

impl Registers {
    /// The interfaces of this module. It counts as without any if its file cannot be read.
    pub fn of(module: &Module) -> Self {
        let Ok(opened) = images::of_module(module) else {
            return Self::default();
        };
        let names = [DESCRIPTOR, OF_UNWINDER[0], OF_UNWINDER[1]];
        let [descriptor, unwinder @ ..] = elf_symbols::defined(opened.image().data(), names);
        let bias = module.bias(opened.image());
        Self {
            descriptor: descriptor.zip(bias).map(|(at, bias)| bias.to_avma(at)),
            has_unwinder: unwinder.iter().any(Option::is_some),
        }
    }

    /// True if the module has an interface.
    pub fn any(self) -> bool {
        self.descriptor.is_some() || self.has_unwinder
    }
}

/// Adds the functions of a file in memory to `names`. The sections of a loaded object file contain
/// their addresses.
fn name_functions(bytes: &[u8], time: u64, names: &mut Ranges) {
    let Ok(tables) = LinkTables::parse(bytes) else {
        return;
    };
    let is_object = tables.is_object();
    for symbol in tables.symbols().filter(|s| s.is_function && s.size > 0) {
        let base = tables.section_address(symbol.section).unwrap_or_default();
        let start = symbol.value.wrapping_add(if is_object { base } else { 0 });
        let Some(name) = tables.name(&symbol).filter(|n| !n.is_empty()) else {
            continue;
        };
        let name: Arc<str> = name.into();
        let end = start.saturating_add(symbol.size);
        names.insert(Avma(start)..Avma(end), time, &name);
    }
}
