//! Unwind entries that a process has registered with its unwinder, through `__register_frame` and
//! similar functions. They are read from libgcc's own data (libgcc/unwind-dw2-fde.c):
//!
//! ```text
//! before GCC 13:  unseen_objects, seen_objects -> struct object -> struct object -> 0
//! since:          registered_frames.root -> inner nodes -> leaves -> struct object
//! ```
//!
//! The roots have no symbols. So each word of the module's data is accepted as a root if all
//! objects reachable from it are valid.

use std::collections::BTreeSet;
use std::ops::Range;

use patcher::Avma;

use ipath_target::process::modules::Module;
use ipath_target::process::{Mapping, Memory};

/// The most bytes of a module's data that are searched.
const MOST_DATA: u64 = 1 << 20;
/// The most registrations that are read.
const MAX_REGISTRATIONS: usize = 1 << 14;

/// Unwind entries that are registered together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Registration {
    /// The address passed at registration, which deregistration will pass as well.
    pub key: Avma,
    /// The start of each list of entries.
    pub sections: Vec<Avma>,
    /// The bases of relative pointers in the entries: code and data.
    pub bases: (u64, u64),
}

/// All registrations with the unwinder of a module, in ascending order of their keys.
pub fn registrations(module: &Module, maps: &[Mapping], memory: &Memory) -> Vec<Registration> {
    let mut reading = Reading {
        maps,
        memory,
        found: BTreeSet::new(),
    };
    for (at, len) in data_of(module, maps) {
        let Ok(bytes) = memory.read_vec(at, len as usize) else {
            continue;
        };
        for word in words(&bytes) {
            if reading.may_lead(word) {
                let _ = reading.list(word).or_else(|| reading.tree(word, 0));
            }
        }
    }
    reading.found.into_iter().collect()
}

/// The writable data of a module, start and length: mappings of its file, and anonymous memory
/// directly after them.
fn data_of(module: &Module, maps: &[Mapping]) -> Vec<(Avma, u64)> {
    let mut left = MOST_DATA;
    let mut end = None;
    let mut found = Vec::new();
    for mapping in maps {
        let is_its = mapping.file == module.file() && module.range.contains(&mapping.range.start);
        let is_after = mapping.file.1 == 0 && end == Some(mapping.range.start);
        if is_its || is_after {
            end = Some(mapping.range.end);
            if mapping.write {
                let len = (mapping.range.end.0 - mapping.range.start.0).min(left);
                left -= len;
                found.push((mapping.range.start, len));
            }
        }
    }
    found
}

struct Reading<'r> {
    maps: &'r [Mapping],
    memory: &'r Memory,
    found: BTreeSet<Registration>,
}

impl Reading<'_> {
    /// True if a word may be the address of an object: it is aligned and in writable memory.
    fn may_lead(&self, word: u64) -> bool {
        word.is_multiple_of(8) && self.is_readable(word, true)
    }

    fn is_readable(&self, word: u64, write: bool) -> bool {
        let after = self.maps.partition_point(|m| m.range.end.0 <= word);
        let mapping = self.maps.get(after);
        mapping.is_some_and(|m| m.contains(Avma(word)) && m.read && (m.write || !write))
    }

    /// Adds the objects of a list. `None` if one of them is not valid.
    fn list(&mut self, first: u64) -> Option<()> {
        let mut objects = BTreeSet::new();
        let mut next = first;
        while next != 0 {
            if !objects.insert(next) || self.found.len() + objects.len() > MAX_REGISTRATIONS {
                return None;
            }
            next = self.object(next)?.1;
        }
        for object in objects {
            let (registration, _) = self.object(object)?;
            self.found.insert(registration);
        }
        Some(())
    }

    /// Adds the objects below a node of a tree. `None` if a node or object is not valid.
    fn tree(&mut self, node: u64, depth: u32) -> Option<()> {
        const DEEPEST: u32 = 8;
        const INNER: (u32, usize, usize) = (0, 15, 16);
        const LEAF: (u32, usize, usize) = (1, 10, 24);
        // version_lock, entry_count, type, and the entries.
        let bytes = self.memory.read_vec(Avma(node), 16 + 15 * 16).ok()?;
        let head = word(&bytes, 8)?;
        let (count, kind) = (head as u32 as usize, (head >> 32) as u32);
        let (_, most, size) = [INNER, LEAF].into_iter().find(|k| k.0 == kind)?;
        if count == 0 || count > most || depth > DEEPEST || self.found.len() > MAX_REGISTRATIONS {
            return None;
        }
        let mut before = 0;
        for number in 0..count {
            let entry = 16 + number * size;
            // The upper bound of a child of an inner node, or the first address of a leaf's entry.
            let key = word(&bytes, entry)?;
            let to = word(&bytes, entry + size - 8)?;
            if number > 0 && key <= before || !self.may_lead(to) {
                return None;
            }
            before = key;
            if kind == INNER.0 {
                self.tree(to, depth + 1)?;
            } else {
                let (registration, _) = self.object(to)?;
                self.found.insert(registration);
            }
        }
        Some(())
    }

    /// Reads a `struct object`. Also returns the address of the next one, 0 if there is none.
    /// `None` if the object is not valid.
    fn object(&self, at: u64) -> Option<(Registration, u64)> {
        const SORTED: u64 = 1;
        const FROM_ARRAY: u64 = 2;
        if !self.may_lead(at) {
            return None;
        }
        // pc_begin, tbase, dbase, u, s, next
        let bytes = self.memory.read_vec(Avma(at), 48).ok()?;
        let [text, data, entries, state, next] = [8, 16, 24, 32, 40].map(|at| word(&bytes, at));
        let (entries, state) = (entries?, state?);
        if state >> 32 != 0 {
            return None;
        }
        // After the first lookup in an object, its third pointer refers to a sorted array. The
        // first word of the array is the original pointer.
        let key = match state & SORTED {
            0 => entries,
            _ => self.word_at(entries)?,
        };
        let sections = match state & FROM_ARRAY {
            0 => vec![Avma(key)],
            _ => self.array(key)?,
        };
        let is_section = |at: &Avma| self.begins_section(*at);
        if sections.is_empty() || !sections.iter().all(is_section) {
            return None;
        }
        let registration = Registration {
            key: Avma(key),
            sections,
            bases: (text?, data?),
        };
        Some((registration, next?))
    }

    /// The addresses of the sections in an array that ends with 0. `None` if it cannot be read or
    /// is too long.
    fn array(&self, at: u64) -> Option<Vec<Avma>> {
        const LONGEST: u64 = 1 << 12;
        let mut sections = Vec::new();
        for number in 0..LONGEST {
            match self.word_at(at.checked_add(8 * number)?)? {
                0 => return Some(sections),
                section => sections.push(Avma(section)),
            }
        }
        None
    }

    /// True if there is a CIE at `at`, or an FDE whose CIE is before it: linkers keep only one of
    /// several equal CIEs.
    fn begins_section(&self, at: Avma) -> bool {
        match self.entry(at) {
            Some((0, version)) => matches!(version, 1 | 3),
            Some((back, _)) => {
                let cie = (at.0 + 4).checked_sub(back.into());
                let cie = cie.and_then(|cie| self.entry(Avma(cie)));
                matches!(cie, Some((0, 1 | 3)))
            }
            None => false,
        }
    }

    /// The second word of an entry, which is 0 in a CIE, and the byte that is the version in a CIE.
    /// `None` if the entry cannot be read or has an implausible length.
    fn entry(&self, at: Avma) -> Option<(u32, u8)> {
        const LENGTHS: Range<u32> = 8..1 << 12;
        let mut bytes = [0; 9];
        if !self.is_readable(at.0, false) || self.memory.read(at, &mut bytes).is_err() {
            return None;
        }
        let [a, b, c, d, e, f, g, h, version] = bytes;
        let [len, second] = [[a, b, c, d], [e, f, g, h]].map(u32::from_le_bytes);
        LENGTHS.contains(&len).then_some((second, version))
    }

    fn word_at(&self, at: u64) -> Option<u64> {
        let is_there = at.is_multiple_of(8) && self.is_readable(at, false);
        is_there.then(|| self.memory.read_word(Avma(at)).ok())?
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    let (words, _) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word))
}

fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..)?.first_chunk()?;
    Some(u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ipath_target::process::{Pid, Process};

    /// The start of a CIE.
    static SECTION: [u32; 4] = [12, 0, 1, 0];

    /// The registrations found from a root that points to this memory.
    fn found(root: &[u64], is_tree: bool) -> Option<Vec<Registration>> {
        let process = Process::find(Pid(std::process::id() as i32)).expect("this one");
        let (maps, memory) = (process.maps().expect("its maps"), process.open_memory());
        let memory = memory.expect("its memory");
        let mut reading = Reading {
            maps: &maps,
            memory: &memory,
            found: BTreeSet::new(),
        };
        let root = root.as_ptr() as u64;
        if is_tree {
            reading.tree(root, 0)?
        } else {
            reading.list(root)?
        }
        Some(reading.found.into_iter().collect())
    }

    fn object(entries: u64, state: u64, next: u64) -> Vec<u64> {
        vec![u64::MAX, 0x10, 0x20, entries, state, next]
    }

    fn registration(key: u64, sections: &[u64]) -> Registration {
        Registration {
            key: Avma(key),
            sections: sections.iter().copied().map(Avma).collect(),
            bases: (0x10, 0x20),
        }
    }

    const UNSEEN: u64 = 0xff << 3;

    #[test]
    fn lists_are_read() {
        let section = SECTION.as_ptr() as u64;
        let array = [section, 0];
        let sorted = [section, 7];
        let of_array = object(array.as_ptr() as u64, UNSEEN | 2, 0);
        let seen = object(sorted.as_ptr() as u64, 1, of_array.as_ptr() as u64);
        let mut expected = vec![
            registration(section, &[section]),
            registration(array.as_ptr() as u64, &[section]),
        ];
        expected.sort();
        assert_eq!(found(&seen, false), Some(expected));
        let wrong = object(array.as_ptr() as u64, UNSEEN, 0);
        assert_eq!(found(&wrong, false), None, "no section is there");
    }

    #[test]
    fn trees_are_read_up_to_their_counts() {
        const LEAF: u64 = 1 << 32;
        let section = SECTION.as_ptr() as u64;
        let one = object(section, UNSEEN, 0);
        let freed = object(1 << 40, UNSEEN, 0);
        let mut leaf = vec![0, LEAF | 1, 0x1000, 0x100, one.as_ptr() as u64];
        leaf.extend([0x2000, 0x100, freed.as_ptr() as u64]);
        leaf.resize(32, 0);
        let mut inner = vec![0, 1, u64::MAX, leaf.as_ptr() as u64];
        inner.resize(32, 0);
        let expected = vec![registration(section, &[section])];
        assert_eq!(found(&inner, true), Some(expected));
        leaf[1] = LEAF | 2;
        assert_eq!(found(&inner, true), None, "the second is none");
    }
}
