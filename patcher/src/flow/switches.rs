//! The targets of each indirect jump of a function.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use super::branch::branches;
use super::graph::Flow;
use super::module::ModuleContext;
use super::tables::{Reader, Targets};
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Branch, Insn, OffsetTable, OffsetTables, Shape, jump_source, table_of};

/// The maximum number of assumptions about all jumps that are tested.
const MOST_ROUNDS: usize = 16;

/// The targets of an indirect jump.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JumpTargets {
    /// The targets in the tables that this jump uses, ascending. There may be more than the jump
    /// has, if other words follow a table that look like entries.
    Own(Vec<u64>),
    /// Targets in one or more of the function's tables. It is not known in which.
    Shared,
    /// The target of a pointer: another function, or a label of this one.
    Pointer,
    /// Other functions, from a table.
    Away,
}

impl Flow {
    /// The targets of each indirect jump that may run, by its address.
    ///
    /// Only for a function without a [`Doubt`](super::Doubt), whose indirect jumps are all
    /// explained.
    pub fn jump_targets(
        &self,
        image: &Image<'_>,
        context: &ModuleContext<'_>,
    ) -> BTreeMap<u64, JumpTargets> {
        let live = self.insns.iter().filter(|insn| self.is_live(insn.at()));
        if !live.clone().any(Insn::is_indirect_jump) {
            return BTreeMap::new();
        }
        let insns: Vec<Insn> = live.copied().collect();
        let branches = branches(&insns);
        let reader = Reader {
            image,
            context,
            insns: &insns,
            starts: &|at| self.contains(at) && self.index_of(at).is_some(),
            entry: self.ranges[0].start.0,
        };
        let jumps = (0..insns.len()).filter(|&index| insns[index].is_indirect_jump());
        let jumps: Vec<usize> = jumps.collect();
        let mut search = Search {
            flow: self,
            reader: &reader,
            branches: &branches,
            bases: BTreeSet::new(),
            arrivals: self.marks.iter().map(|&mark| (mark, Vec::new())).collect(),
        };
        search.bases = search.bases(&jumps);
        let places = self.places(&reader, &search.bases);
        // The path to a jump may lead through the cases of others. First, these are assumed not to
        // lead there. Then the targets found are assumed, until they follow from themselves. By
        // induction over the jumps executed, no jump then has other targets.
        let mut found = search.all(&jumps);
        for _ in 0..MOST_ROUNDS {
            search.arrivals = self.other_arrivals(&insns, &places, &found);
            let new = search.all(&jumps);
            if new == found {
                return found;
            }
            found = new;
        }
        // Without an assumption, each jump may lead to all tables.
        search.arrivals = self.other_arrivals(&insns, &places, &BTreeMap::new());
        search.all(&jumps)
    }

    /// The addresses at which control may arrive from the function's tables, from its pointers, and
    /// after calls.
    fn places<S: Fn(u64) -> bool>(
        &self,
        reader: &Reader<'_, '_, S>,
        bases: &BTreeSet<u64>,
    ) -> Places {
        let mut found = Targets::default();
        for insn in reader.insns {
            if let Some(table) = insn.formed_address() {
                read_offsets(reader, bases, table, &mut found.landing);
            }
            if let Some(table) = insn.indexed_table() {
                reader.read_addresses(table, &mut found);
            }
        }
        for table in reader.named().unwrap_or_default() {
            reader.read_addresses(table, &mut found);
        }
        let in_tables = found.landing.into_iter().collect();
        let fdes = self.ranges.iter();
        let fdes = fdes.filter_map(|range| reader.image.fde(range.start));
        let pads = fdes.flat_map(|fde| reader.image.landing_pads(&fde));
        let mut after_calls: HashSet<u64> = pads.map(|at| at.0).collect();
        after_calls.extend(&self.recovered);
        let markers = self.insns.iter().filter(|insn| insn.is_landing_marker());
        after_calls.extend(markers.map(Insn::at));
        Places {
            in_tables,
            after_calls,
        }
    }

    /// For each place, the indexes of the instructions after which control may arrive there.
    fn other_arrivals(
        &self,
        insns: &[Insn],
        places: &Places,
        known: &BTreeMap<u64, JumpTargets>,
    ) -> HashMap<u64, Vec<usize>> {
        let may_be_label = |at: u64| self.has_labels && !self.is_only_switched(at);
        let may_lead_to = |insn: &Insn, to: u64| match known.get(&insn.at()) {
            Some(JumpTargets::Own(targets)) => targets.binary_search(&to).is_ok(),
            Some(JumpTargets::Away) => false,
            Some(JumpTargets::Pointer) => may_be_label(to),
            None if insn.is_call() => places.after_calls.contains(&to),
            Some(JumpTargets::Shared) | None => places.in_tables.contains(&to) || may_be_label(to),
        };
        let leaving = insns.iter().enumerate();
        let leaving = leaving.filter(|(_, insn)| insn.is_indirect_jump() || insn.is_call());
        let leaving: Vec<(usize, &Insn)> = leaving.collect();
        let before = |&to: &u64| {
            let before = leaving.iter().filter(|(_, insn)| may_lead_to(insn, to));
            let before: Vec<usize> = before.map(|(index, _)| *index).collect();
            let is_known = !before.is_empty() || self.is_only_switched(to);
            is_known.then_some((to, before))
        };
        self.marks.iter().filter_map(before).collect()
    }
}

/// Addresses of a function at which control may arrive other than by a direct branch.
struct Places {
    /// The targets in its tables.
    in_tables: HashSet<u64>,
    /// Landing pads, landing markers, and recovery points.
    after_calls: HashSet<u64>,
}

struct Search<'a, 'd, S> {
    flow: &'a Flow,
    reader: &'a Reader<'a, 'd, S>,
    /// The addresses of tables of offsets that jumps certainly use.
    bases: BTreeSet<u64>,
    branches: &'a [Branch],
    /// For each mark, the indexes of the instructions after which control may arrive there. Marks
    /// at which control arrives from unknown places are missing.
    arrivals: HashMap<u64, Vec<usize>>,
}

impl<S: Fn(u64) -> bool> Search<'_, '_, S> {
    fn all(&self, jumps: &[usize]) -> BTreeMap<u64, JumpTargets> {
        let at = |jump: usize| self.reader.insns[jump].at();
        jumps
            .iter()
            .map(|&jump| (at(jump), self.targets(jump)))
            .collect()
    }

    fn targets(&self, jump: usize) -> JumpTargets {
        let source = jump_source(self.reader.insns, self.branches, jump);
        match source.shape {
            Shape::Pointer => JumpTargets::Pointer,
            Shape::Unknown => JumpTargets::Shared,
            Shape::Offsets => self.read_offsets(jump),
            Shape::Addresses => self.read_addresses(&source.reads),
        }
    }

    fn tables_of_offsets(&self, jump: usize) -> Option<Vec<OffsetTable>> {
        let offsets = OffsetTables {
            insns: self.reader.insns,
            branches: self.branches,
            other_arrivals: |at| self.arrivals.get(&at).map(Vec::as_slice),
        };
        offsets.of_jump(jump)
    }

    /// The addresses of the tables of offsets that the jumps use on the paths known so far.
    fn bases(&self, jumps: &[usize]) -> BTreeSet<u64> {
        let tables = jumps
            .iter()
            .filter_map(|&jump| self.tables_of_offsets(jump));
        tables.flatten().map(|table| table.base).collect()
    }

    fn read_offsets(&self, jump: usize) -> JumpTargets {
        let tables = self.tables_of_offsets(jump);
        let tables = tables.or_else(|| self.only_table_of_offsets());
        own(&tables.unwrap_or_default(), |table, landing| {
            let Some(entry) = table.only else {
                return read_offsets(self.reader, &self.bases, table.base, landing);
            };
            let word = self.reader.image.bytes(Svma(entry), 4);
            let offset = word.and_then(<[u8]>::first_chunk);
            let target = offset.map(|bytes| {
                let offset = i32::from_le_bytes(*bytes);
                table.base.wrapping_add_signed(offset.into())
            });
            landing.extend(target.filter(|&at| self.flow.is_mark(at)));
        })
    }

    fn read_addresses(&self, reads: &[usize]) -> JumpTargets {
        let tables = reads.iter();
        let tables = tables.map(|&read| table_of(self.reader.insns, self.branches, read));
        let tables: Option<Vec<u64>> = tables.collect();
        let tables = tables.or_else(|| self.only_kind_of_addresses());
        let tables = tables.unwrap_or_default();
        if !tables.is_empty() && tables.iter().all(|&at| self.reader.leads_away(at)) {
            return JumpTargets::Away;
        }
        own(&tables, |&table, landing| {
            let mut found = Targets::default();
            self.reader.read_addresses(table, &mut found);
            landing.append(&mut found.landing);
        })
    }

    /// The function's table of offsets, if it has only one.
    fn only_table_of_offsets(&self) -> Option<Vec<OffsetTable>> {
        let formed = self.reader.insns.iter().filter_map(Insn::formed_address);
        let has_entry = |&table: &u64| {
            let mut landing = Vec::new();
            self.reader.read_offsets(table, &mut landing);
            !landing.is_empty()
        };
        let formed: BTreeSet<u64> = formed.collect();
        let tables = formed.into_iter().filter(has_entry);
        let tables = tables.map(|base| OffsetTable { base, only: None });
        let tables: Vec<OffsetTable> = tables.collect();
        (tables.len() == 1).then_some(tables)
    }

    /// The function's table of addresses, if it has only one; or all its tables, if they lead to
    /// other functions.
    fn only_kind_of_addresses(&self) -> Option<Vec<u64>> {
        let mut tables = self.reader.named()?;
        tables.sort_unstable();
        tables.dedup();
        let is_away = tables.iter().all(|&table| self.reader.leads_away(table));
        (tables.len() == 1 || is_away).then_some(tables)
    }
}

/// Adds the targets in the table of offsets at `table` to `landing`.
///
/// The table ends where another one begins. Two tables cannot share an entry, which would have
/// another target in each.
fn read_offsets<S: Fn(u64) -> bool>(
    reader: &Reader<'_, '_, S>,
    bases: &BTreeSet<u64>,
    table: u64,
    landing: &mut Vec<u64>,
) {
    let before = landing.len();
    reader.read_offsets(table, landing);
    let next = bases.range(table.saturating_add(1)..).next();
    if let Some(next) = next {
        let most = (next - table).div_ceil(4);
        landing.truncate(before.saturating_add(usize::try_from(most).unwrap_or(usize::MAX)));
    }
}

/// The targets that `read` finds in `tables`. [`JumpTargets::Shared`] if there is no table, or if
/// one has no entries.
fn own<T>(tables: &[T], read: impl Fn(&T, &mut Vec<u64>)) -> JumpTargets {
    let mut targets = Vec::new();
    for table in tables {
        let before = targets.len();
        read(table, &mut targets);
        if targets.len() == before {
            return JumpTargets::Shared;
        }
    }
    targets.sort_unstable();
    targets.dedup();
    if targets.is_empty() {
        return JumpTargets::Shared;
    }
    JumpTargets::Own(targets)
}
