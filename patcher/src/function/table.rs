//! The table of an image's functions.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::OnceLock;

use super::coroutine::Part;
use super::names::{cloned, owner_of_part};
use super::nesting::Nesting;
use super::parts::{self, Candidate};
use super::selected::{Function, FunctionKind};
use super::symbol::{Symbol, Texts};
use super::symbols::symbols;
use super::unnamed::unnamed;
use crate::addr::Svma;
use crate::elf::ElfFile;
use crate::isa::LONGEST_INSN;
use crate::tables::{Pclntab, Unwind};

/// A function or a split-off part.
#[derive(Clone, Copy)]
struct TableEntry {
    start: Svma,
    /// The address after the code.
    end: Svma,
    /// The index range of the entry's symbols in [`FunctionTable::symbols`]; empty for code known
    /// from unwind tables only.
    symbols: (u32, u32),
}

/// The name and bounds of a function or of a split-off part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionRef<'t> {
    /// The first address of the code.
    pub start: Svma,
    /// The size of the code in bytes.
    pub size: u64,
    /// The first linkage name; `None` for code known from unwind tables only.
    pub linkage: Option<&'t str>,
}

/// The functions of an image, ordered by address.
pub struct FunctionTable<'d> {
    texts: Texts<'d>,
    /// All symbols that name code, by address, then by precedence.
    symbols: Vec<Symbol>,
    /// The functions and split-off parts, by address.
    entries: Vec<TableEntry>,
    nesting: Nesting,
    /// Pairs of the index in `entries` of a part and that of its owner, ordered by part.
    owners: Vec<(u32, u32)>,
    /// The pairs of `owners`, reversed and ordered by owner.
    parts: Vec<(u32, u32)>,
    /// Clones by the name of the original function; computed on first use.
    clones: OnceLock<HashMap<&'d str, Vec<CloneOf<'d>>>>,
}

/// A function that the compiler has made from another.
struct CloneOf<'d> {
    /// The clone's linkage name.
    name: &'d str,
    /// The source file that the clone is local to; 0 for none.
    file: u32,
}

impl<'d> FunctionTable<'d> {
    /// The functions of `file`, whose unwind table is `unwind`. `pclntab` is called only if the
    /// file has neither a complete symbol table nor a separate debug file.
    pub(crate) fn new<'t>(
        file: &ElfFile<'d>,
        unwind: &Unwind<'d>,
        pclntab: impl FnOnce() -> Option<&'t Pclntab<'d>>,
    ) -> Self
    where
        'd: 't,
    {
        let mut table = Self {
            texts: Texts::of(file),
            symbols: symbols(file, pclntab),
            entries: Vec::new(),
            nesting: Nesting::default(),
            owners: Vec::new(),
            parts: Vec::new(),
            clones: OnceLock::new(),
        };
        table.add_named(file, unwind);
        let named: Vec<Range<Svma>> = table.entries.iter().map(|e| e.start..e.end).collect();
        for range in unnamed(file, unwind, &named) {
            table.entries.push(TableEntry {
                start: range.start,
                end: range.end,
                symbols: (0, 0),
            });
        }
        table.entries.sort_by_key(|e| e.start);
        table.entries.shrink_to_fit();
        table.nesting = Nesting::new(table.entries.iter().map(|e| e.end));
        table.owners = parts::owners(file, table.candidates());
        table.parts = table
            .owners
            .iter()
            .map(|&(part, owner)| (owner, part))
            .collect();
        table.parts.sort_unstable();
        table
    }

    fn add_named(&mut self, file: &ElfFile<'d>, unwind: &Unwind<'d>) {
        let ends = Ends::of(file);
        let mut covered_to = Svma(0);
        let mut from = 0;
        while let Some(first) = self.symbols.get(from).copied() {
            let start = first.start;
            let to = from + self.symbols[from..].partition_point(|s| s.start == start);
            let range = (from as u32, to as u32);
            from = to;
            // A label inside a function is a jump target.
            if first.is_label && start < covered_to {
                continue;
            }
            let stated = self.symbols[range.0 as usize..to].iter().map(|s| s.size);
            let limit = file.segment_at(start).map_or(start, |s| s.file_end());
            let next = self.symbols.get(to).map_or(limit, |s| s.start);
            let fde = unwind.fde(start).map(|fde| fde.range);
            let end = match stated.max().filter(|&size| size > 0) {
                Some(size) => {
                    let end = Svma(start.0.saturating_add(size));
                    // Bytes after it with the same frame description belong to it, or to a
                    // neighbor.
                    let described = fde.filter(|f| f.start == start && f.end <= next);
                    described.map_or(end, |f| f.end.max(end))
                }
                None => fde.map_or_else(|| next.min(ends.end_of(start)), |f| f.end),
            };
            let end = end.min(limit);
            if !first.is_label {
                covered_to = covered_to.max(end);
            }
            self.entries.push(TableEntry {
                start,
                end,
                symbols: range,
            });
        }
    }

    /// All named entries that may be a part or have parts.
    fn candidates(&self) -> impl Iterator<Item = Candidate<'d>> + Clone + '_ {
        self.entries
            .iter()
            .zip(0u32..)
            .flat_map(move |(entry, index)| {
                let symbols = &self.symbols[range(entry.symbols)];
                let is_part = |s: &Symbol| owner_of_part(s.name(self.texts)).is_some();
                let only_part = symbols.iter().all(is_part);
                // Code with a name of its own is not a part, even if another of its names is a
                // part's.
                let symbols = symbols.iter().filter(move |s| only_part || !is_part(s));
                symbols.map(move |symbol| Candidate {
                    range: entry.start..entry.end,
                    name: symbol.name(self.texts),
                    file: symbol.file,
                    index,
                })
            })
    }

    fn innermost(&self, at: Svma) -> Option<usize> {
        let after = self.entries.partition_point(|e| e.start <= at);
        self.nesting.innermost(after, |i| at < self.entries[i].end)
    }

    /// The function or split-off part that contains `at`; `None` if none does. If functions overlap
    /// (several entries into one body), it is the innermost.
    pub fn containing(&self, at: Svma) -> Option<FunctionRef<'d>> {
        let entry = self.entries[self.innermost(at)?];
        let first = self.symbols[range(entry.symbols)].first();
        Some(FunctionRef {
            start: entry.start,
            size: entry.end.0 - entry.start.0,
            linkage: first.map(|s| s.name(self.texts)),
        })
    }

    /// The ranges of the nearest functions and parts that begin before `at` and contain it, the
    /// nearest first. This includes a label that ends only because another symbol begins at `at`.
    pub(crate) fn reaching(&self, at: Svma) -> Vec<Range<Svma>> {
        /// The maximum number of functions examined. Entries into one body are close together.
        const MOST_BEFORE: usize = 64;
        let before = self.entries.partition_point(|e| e.start < at);
        let near = self.entries[..before].iter().rev().take(MOST_BEFORE);
        let range = |entry: &TableEntry| {
            let is_sized = || {
                self.symbols[range(entry.symbols)]
                    .iter()
                    .any(|s| s.size > 0)
            };
            let is_cut = entry.end == at && entry.symbols.0 < entry.symbols.1 && !is_sized();
            let end = if is_cut {
                at.plus(LONGEST_INSN)
            } else {
                entry.end
            };
            (at < end).then_some(entry.start..end)
        };
        near.filter_map(range).collect()
    }

    /// The function that contains `at`, in its main part or in a split-off part; `None` if none
    /// does.
    pub fn function_at(&self, at: Svma) -> Option<Function> {
        let index = self.innermost(at)?;
        Some(self.function(self.owner(index).unwrap_or(index)))
    }

    /// The linkage names of the functions that the compiler has made from `function`, and that
    /// others call instead.
    ///
    /// Each contains a part of it, or all of it for certain arguments. For `foo` these are
    /// `foo.part.0`, `foo.constprop.1` and so on. For a coroutine, they include its body and its
    /// other parts.
    pub fn clones(&self, function: &Function) -> Vec<&'d str> {
        let all = self.clones.get_or_init(|| self.find_clones());
        let named = all.get(function.linkage.as_str());
        let at = self
            .entries
            .binary_search_by_key(&function.range.start, |e| e.start);
        let own = at.map_or(&[][..], |at| &self.symbols[range(self.entries[at].symbols)]);
        // Clones of a static function are in the same source file.
        let file = own.iter().map(|s| s.file).find(|&file| file != 0);
        let is_own =
            |clone: &&CloneOf<'d>| file.is_none() || clone.file == 0 || Some(clone.file) == file;
        let found = named.into_iter().flatten().filter(is_own);
        found.map(|clone| clone.name).collect()
    }

    fn find_clones(&self) -> HashMap<&'d str, Vec<CloneOf<'d>>> {
        let mut found: HashMap<_, Vec<_>> = HashMap::new();
        let whole = (0..self.entries.len()).filter(|&index| self.owner(index).is_none());
        for symbol in whole.flat_map(|index| &self.symbols[range(self.entries[index].symbols)]) {
            let name = symbol.name(self.texts);
            let part = || Part::of(name).map(|part| part.ramp);
            if let Some(base) = part().or_else(|| cloned(name)) {
                let file = symbol.file;
                found.entry(base).or_default().push(CloneOf { name, file });
            }
        }
        found
    }

    /// The number of functions and split-off parts.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True if the table is empty.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All functions, by address. Split-off parts are included in their functions only.
    pub fn iter(&self) -> impl Iterator<Item = Function> + '_ {
        (0..self.entries.len())
            .filter(|&i| self.owner(i).is_none())
            .map(|i| self.function(i))
    }

    /// The functions that overlap `ranges`, by address. Split-off parts count too. `ranges` are
    /// ascending and disjoint.
    pub fn overlapping(&self, ranges: &[Range<Svma>]) -> Vec<Function> {
        let overlaps = |entry: &TableEntry| {
            let next = ranges.partition_point(|r| r.end <= entry.start);
            ranges.get(next).is_some_and(|r| r.start < entry.end)
        };
        let entries = self.entries.iter().enumerate();
        let found = entries.filter(|(_, entry)| overlaps(entry));
        let whole = found.map(|(index, _)| self.owner(index).unwrap_or(index));
        let whole: BTreeSet<usize> = whole.collect();
        whole.into_iter().map(|i| self.function(i)).collect()
    }

    /// The code of all functions and split-off parts, by address.
    pub(crate) fn ranges(&self) -> impl Iterator<Item = Range<Svma>> + '_ {
        self.entries.iter().map(|e| e.start..e.end)
    }

    /// The index of the owner of the part at `index`; `None` if the entry at `index` is not a part.
    fn owner(&self, index: usize) -> Option<usize> {
        let found = self
            .owners
            .binary_search_by_key(&index, |o| o.0 as usize)
            .ok()?;
        Some(self.owners[found].1 as usize)
    }

    /// The functions that have a linkage name for which `matches` is true, by address. Each is
    /// returned under its first name.
    pub fn with_name(&self, matches: impl Fn(&str) -> bool) -> Vec<Function> {
        let found = self.named(matches).into_iter();
        found.map(|(index, _)| self.function(index)).collect()
    }

    /// Indexes of the functions that have a name for which `matches` is true, by address, with the
    /// first such name.
    pub(crate) fn named(&self, matches: impl Fn(&str) -> bool) -> Vec<(usize, &'d str)> {
        let mut found = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            let mut names = self.symbols[range(entry.symbols)]
                .iter()
                .map(|s| s.name(self.texts));
            if let Some(name) = names.find(|name| matches(name))
                && self.owner(index).is_none()
            {
                found.push((index, name));
            }
        }
        found
    }

    /// Indexes and first addresses of the functions without a name, by address.
    pub(crate) fn nameless(&self) -> impl Iterator<Item = (usize, Svma)> + '_ {
        let entries = self.entries.iter().enumerate();
        let nameless = entries.filter(|(_, e)| e.symbols.0 == e.symbols.1);
        nameless.map(|(index, entry)| (index, entry.start))
    }

    /// All linkage names of functions, without those of split-off parts.
    pub fn names(&self) -> impl Iterator<Item = &'d str> + '_ {
        let whole = self
            .entries
            .iter()
            .enumerate()
            .filter(|(i, _)| self.owner(*i).is_none());
        whole
            .flat_map(|(_, e)| &self.symbols[range(e.symbols)])
            .map(|s| s.name(self.texts))
    }

    /// The function at `index`, under its first name.
    pub(crate) fn function(&self, index: usize) -> Function {
        let entry = self.entries[index];
        let symbols = &self.symbols[range(entry.symbols)];
        let mut names = symbols.iter().map(|s| s.name(self.texts).to_owned());
        let linkage = names.next().unwrap_or_default();
        let from = self.parts.partition_point(|p| (p.0 as usize) < index);
        let parts = self.parts[from..]
            .iter()
            .take_while(|p| p.0 as usize == index);
        let kind = if symbols.is_empty() {
            FunctionKind::UnwindOnly
        } else if symbols.iter().any(|s| s.is_ifunc) {
            FunctionKind::Ifunc
        } else {
            FunctionKind::Code
        };
        Function {
            range: entry.start..entry.end,
            linkage,
            aliases: names.collect(),
            kind,
            cold: parts
                .map(|p| self.entries[p.1 as usize])
                .map(|e| e.start..e.end)
                .collect(),
        }
    }
}

fn range((from, to): (u32, u32)) -> Range<usize> {
    from as usize..to as usize
}

/// The ranges of code sections. A symbol without a size does not extend beyond its section.
struct Ends(Vec<Range<Svma>>);

impl Ends {
    fn of(file: &ElfFile<'_>) -> Self {
        let code = file.sections().iter().filter(|s| s.holds_code());
        let mut ranges: Vec<Range<Svma>> = code.map(|s| s.range()).collect();
        ranges.sort_by_key(|r| r.start);
        Self(ranges)
    }

    /// The end of the section that contains `at`; the highest address if there is none.
    fn end_of(&self, at: Svma) -> Svma {
        let after = self.0.partition_point(|r| r.start <= at);
        let section = after.checked_sub(1).and_then(|i| self.0.get(i));
        section
            .filter(|r| r.contains(&at))
            .map_or(Svma(u64::MAX), |r| r.end)
    }
}
