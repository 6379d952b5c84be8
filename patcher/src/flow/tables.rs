//! Jump tables, over-approximated.
//!
//! Compilers use two kinds of table. One has 32-bit offsets from the table itself, whose address an
//! instruction computes. It is read from every address that the function computes, as long as the
//! entries lead into the function. The other has 64-bit addresses, which the scan over the module's
//! data finds anywhere. Reading too many entries only forbids some windows.
//!
//! The instructions before a jump determine the table of addresses that it uses. If they do not, it
//! is any of the tables that the function references. All of these must then lead to its own
//! labels.

use std::cell::OnceCell;
use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Insn, Shape, jump_source, table_of};
#[cfg(test)]
use crate::looks;

use super::branch::branches;
use super::module::ModuleContext;

/// The maximum number of entries in a table.
const MOST_ENTRIES: u64 = 1 << 16;

/// The size of an entry in a table of addresses, in bytes.
const ENTRY: u64 = 8;

/// The result of reading a function's tables.
#[derive(Debug, Default)]
pub struct Targets {
    /// The addresses in the function that the entries of all tables lead to.
    pub landing: Vec<u64>,
    /// The ranges of the tables of addresses that the function jumps through. The function's own
    /// addresses in them serve no other purpose.
    pub tables: Vec<Range<Svma>>,
    /// True if there is an indirect jump that no table explains.
    pub unexplained: bool,
    /// True if there is an indirect jump that may go to a label whose address is taken.
    pub by_label: bool,
    /// The classification of indirect jumps, except for those through tables of offsets.
    pub jumps: Jumps,
    /// The number of entries of each table of addresses that has been read, by the table's address.
    read: HashMap<u64, u64>,
}

/// Addresses of indirect jumps, classified by source. Each list is ascending.
#[derive(Debug, Default)]
pub struct Jumps {
    /// Jumps through a pointer: tail calls, or jumps to a label.
    pub by_pointer: Vec<u64>,
    /// Jumps through tables of the function's own addresses.
    pub within: Vec<u64>,
    /// Jumps through tables of other functions.
    pub away: Vec<u64>,
}

impl Jumps {
    /// True if the jump at `at` uses a pointer.
    pub fn is_by_pointer(&self, at: u64) -> bool {
        self.by_pointer.binary_search(&at).is_ok()
    }

    /// True if the jump at `at` uses a table of the function's own addresses.
    pub fn is_within(&self, at: u64) -> bool {
        self.within.binary_search(&at).is_ok()
    }

    /// True if the jump at `at` uses a table of other functions.
    pub fn is_away(&self, at: u64) -> bool {
        self.away.binary_search(&at).is_ok()
    }
}

/// The function whose tables are read.
pub struct Reader<'a, 'd, S> {
    pub image: &'a Image<'d>,
    pub context: &'a ModuleContext<'a>,
    /// The function's instructions.
    pub insns: &'a [Insn],
    /// A function that is true if one of the function's instructions may start at the address. The
    /// first entry that leads elsewhere is past the table's end.
    pub starts: &'a S,
    /// The function's first address.
    pub entry: u64,
}

impl<S: Fn(u64) -> bool> Reader<'_, '_, S> {
    /// Reads the tables of all indirect jumps.
    pub fn targets(&self) -> Targets {
        let mut found = Targets::default();
        let insns = self.insns;
        let jumps = (0..insns.len()).filter(|&i| insns[i].is_indirect_jump());
        let jumps: Vec<usize> = jumps.collect();
        if jumps.is_empty() {
            return found;
        }
        let offsets = self.read_named(insns, &mut found);
        let branches = branches(insns);
        let named = OnceCell::new();
        for &jump in &jumps {
            let at = insns[jump].at();
            let source = jump_source(insns, &branches, jump);
            let mut is_known = source.shape == Shape::Offsets && offsets;
            match source.shape {
                Shape::Offsets => found.unexplained |= !offsets,
                Shape::Unknown => found.unexplained = true,
                Shape::Pointer => found.jumps.by_pointer.push(at),
                Shape::Addresses => {
                    let read = source.reads.iter();
                    let tables = read.map(|&read| table_of(insns, &branches, read));
                    let tables: Option<Vec<u64>> = tables.collect();
                    let is_traced = tables.is_some();
                    let tables = tables.or_else(|| named.get_or_init(|| self.named()).clone());
                    let goes = self.go_through(&tables.unwrap_or_default(), at, &mut found);
                    is_known = is_traced && goes;
                }
            }
            found.by_label |= !is_known;
        }
        found.landing.sort_unstable();
        found.landing.dedup();
        found
    }

    /// The targets in the tables that `insns` reference; empty if the function uses no tables.
    pub fn named_by(&self, insns: &[Insn]) -> Vec<u64> {
        let mut found = Targets::default();
        self.read_named(insns, &mut found);
        found.landing
    }

    /// Reads the tables that `insns` reference. True if one of them has offsets.
    fn read_named(&self, insns: &[Insn], found: &mut Targets) -> bool {
        #[cfg(test)]
        looks::add(insns.len());
        let mut offsets = false;
        let mut seen = HashSet::new();
        for insn in insns {
            if let Some(table) = insn.formed_address().filter(|&table| seen.insert(table)) {
                let before = found.landing.len();
                self.read_offsets(table, &mut found.landing);
                offsets |= found.landing.len() > before;
            }
            if let Some(table) = insn.indexed_table() {
                self.read_addresses(table, found);
            }
        }
        offsets
    }

    /// Adds the targets that the jump at `at` reads from `tables`. True if there are tables, and
    /// all are of one kind: labels of the function, or other code.
    fn go_through(&self, tables: &[u64], at: u64, found: &mut Targets) -> bool {
        let own = |&&table: &&u64| self.is_label(table);
        let within = tables.iter().filter(own).count();
        let away = tables
            .iter()
            .filter(|&&table| self.leads_away(table))
            .count();
        for &table in tables.iter().filter(own) {
            let entries = self.read_addresses(table, found);
            found.tables.push(Svma(table).range(ENTRY * entries));
        }
        match tables.len() {
            0 => return false,
            all if within == all => found.jumps.within.push(at),
            all if away == all => found.jumps.away.push(at),
            _ => return false,
        }
        true
    }

    /// The tables of addresses that the function references anywhere. `None` if they are of
    /// different kinds.
    pub(super) fn named(&self) -> Option<Vec<u64>> {
        let is_fixed = !self.image.is_position_independent();
        let named = self.insns.iter().filter_map(|insn| named(insn, is_fixed));
        let is_table = |&at: &u64| at % ENTRY == 0 && (self.is_label(at) || self.leads_away(at));
        let tables: Vec<u64> = named.filter(is_table).collect();
        let own = tables.iter().filter(|&&at| self.is_label(at)).count();
        (own == 0 || own == tables.len()).then_some(tables)
    }

    fn entry_of(&self, table: u64) -> Option<u64> {
        self.context.word(self.image, Svma(table)).map(|to| to.0)
    }

    /// True if the word at `at` leads into the function, but not to its start.
    pub(super) fn is_label(&self, at: u64) -> bool {
        self.entry_of(at)
            .is_some_and(|to| to != self.entry && (self.starts)(to))
    }

    /// True if the word at `at` leads to other code.
    pub(super) fn leads_away(&self, at: u64) -> bool {
        self.entry_of(at)
            .is_some_and(|to| self.context.is_text(Svma(to)) && !(self.starts)(to))
    }

    /// True if an entry with this target is never used: it leads to the end of the function. LLVM
    /// fills the holes of a table with such entries if the default case is unreachable.
    fn is_hole(&self, target: u64) -> bool {
        let after = self.insns.partition_point(|insn| insn.at() < target);
        let before = after.checked_sub(1).map(|last| &self.insns[last]);
        before.is_some_and(|last| last.end() == target) && !(self.starts)(target)
    }

    /// Adds the targets in the table of offsets at `table` to `landing`.
    pub(super) fn read_offsets(&self, table: u64, landing: &mut Vec<u64>) {
        for index in 0..MOST_ENTRIES {
            let word = self.image.bytes(Svma(table.wrapping_add(4 * index)), 4);
            let Some(entry) = word.and_then(<[u8]>::first_chunk) else {
                return;
            };
            let entry = i32::from_le_bytes(*entry);
            let target = table.wrapping_add(i64::from(entry) as u64);
            if self.is_hole(target) {
                continue;
            }
            if !(self.starts)(target) {
                return;
            }
            #[cfg(test)]
            looks::add(1);
            landing.push(target);
        }
    }

    /// Adds the targets in the table of addresses at `table` to `found`. Returns the number of its
    /// entries.
    pub(super) fn read_addresses(&self, table: u64, found: &mut Targets) -> u64 {
        if let Some(&entries) = found.read.get(&table) {
            return entries;
        }
        let places = (0..MOST_ENTRIES).map(|index| table.wrapping_add(ENTRY * index));
        let is_hole = |at: u64| self.entry_of(at).is_some_and(|to| self.is_hole(to));
        let own = places.take_while(|&at| self.is_label(at) || is_hole(at));
        let mut entries = 0;
        for (at, number) in own.zip(1..).filter(|(at, _)| self.is_label(*at)) {
            found.landing.extend(self.entry_of(at));
            entries = number;
        }
        found.read.insert(table, entries);
        entries
    }
}

/// The address that `insn` computes, or reads an indexed word from; `None` if there is none. Plain
/// numbers count as addresses only if `is_fixed`, for a module with a fixed address.
fn named(insn: &Insn, is_fixed: bool) -> Option<u64> {
    let number = || insn.table_number().filter(|_| is_fixed);
    insn.formed_address()
        .or_else(|| insn.indexed_table())
        .or_else(number)
}
