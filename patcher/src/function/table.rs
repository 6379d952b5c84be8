//! Collecting the functions of an image.

use std::collections::HashMap;
use std::ops::Range;

use goblin::elf::section_header::{SHT_DYNSYM, SHT_SYMTAB};

use super::{Function, FunctionKind};
use crate::addr::Svma;
use crate::image::{Image, c_str, file_range};

/// A symbol that names code. Its text stays in the file.
#[derive(Clone, Copy)]
struct Symbol {
    start: u64,
    size: u64,
    /// Position of its name in the file.
    name: u64,
    /// Global, weak, local: which name of several is the first.
    rank: u8,
    is_ifunc: bool,
}

#[derive(Clone, Copy)]
struct Entry {
    start: u64,
    end: u64,
    /// Its symbols; none for code known from unwind tables.
    symbols: (u32, u32),
}

/// Name and bounds of the function that holds an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FunctionRef<'t> {
    /// First address.
    pub start: Svma,
    /// Bytes.
    pub size: u64,
    /// Its first linkage name; `None` where it is known from unwind tables alone.
    pub linkage: Option<&'t str>,
}

/// The functions of an image, ordered by address.
pub struct FunctionTable<'d> {
    data: &'d [u8],
    symbols: Vec<Symbol>,
    entries: Vec<Entry>,
    /// Parts split off by the compiler, by the name of what they were split off.
    cold: HashMap<&'d str, Vec<Range<Svma>>>,
}

impl<'d> FunctionTable<'d> {
    pub(crate) fn new(image: &Image<'d>) -> Self {
        let data = image.data();
        let mut symbols = symbols(image);
        symbols.sort_by(|a, b| {
            let key = |s: &Symbol| (s.start, s.rank);
            key(a).cmp(&key(b)).then_with(|| name_at(data, a.name).cmp(name_at(data, b.name)))
        });
        symbols.dedup_by(|a, b| {
            a.start == b.start && name_at(data, a.name) == name_at(data, b.name)
        });
        let mut table = Self { data, symbols, entries: Vec::new(), cold: HashMap::new() };
        table.add_named(image);
        table.add_unnamed(image);
        table.entries.sort_by_key(|e| e.start);
        table.collect_cold();
        table
    }

    fn add_named(&mut self, image: &Image<'d>) {
        let mut from = 0;
        while let Some(first) = self.symbols.get(from) {
            let start = first.start;
            let alike = self.symbols[from..].partition_point(|s| s.start == start);
            let to = from + alike;
            let stated = self.symbols[from..to].iter().map(|s| s.size).max().unwrap_or(0);
            let end = if stated > 0 {
                start.saturating_add(stated)
            } else {
                self.unstated_end(image, start, to)
            };
            self.entries.push(Entry { start, end, symbols: (from as u32, to as u32) });
            from = to;
        }
    }

    /// Where a symbol without a size ends: with its frame description, else at the next symbol.
    fn unstated_end(&self, image: &Image<'d>, start: u64, next: usize) -> u64 {
        let segment = image.segments().iter().find(|s| s.range.contains(&Svma(start)));
        let limit = segment.map_or(start, |s| s.range.start.0 + s.file_size);
        let next = self.symbols.get(next).map_or(limit, |s| s.start.min(limit));
        image.fde(Svma(start)).map_or(next, |fde| fde.range.end.0)
    }

    /// Code with a frame description and no symbol, linkage stubs apart.
    fn add_unnamed(&mut self, image: &Image<'d>) {
        let plts: Vec<Range<u64>> = image
            .sections()
            .iter()
            .filter(|s| s.name.starts_with(".plt"))
            .map(|s| s.header.sh_addr..s.header.sh_addr.saturating_add(s.header.sh_size))
            .collect();
        let named = self.entries.len();
        let mut covered_to = 0;
        let mut at = 0;
        for range in image.unwind().ranges() {
            while at < named && self.entries[at].start <= range.start {
                covered_to = covered_to.max(self.entries[at].end);
                at += 1;
            }
            let is_stub = plts.iter().any(|p| p.contains(&range.start));
            if range.start >= covered_to && !is_stub && image.is_code(Svma(range.start)) {
                self.entries.push(Entry { start: range.start, end: range.end, symbols: (0, 0) });
            }
        }
    }

    fn collect_cold(&mut self) {
        for entry in &self.entries {
            for symbol in &self.symbols[range(entry.symbols)] {
                if let Some(owner) = owner_of_cold(name_at(self.data, symbol.name)) {
                    self.cold.entry(owner).or_default().push(Svma(entry.start)..Svma(entry.end));
                }
            }
        }
    }

    /// The function that holds `at`.
    pub fn containing(&self, at: Svma) -> Option<FunctionRef<'d>> {
        // Functions can overlap (several entries into one body): the innermost start that
        // still covers the address, looking back a little.
        const LOOK_BACK: usize = 16;
        let after = self.entries.partition_point(|e| e.start <= at.0);
        let near = &self.entries[after.saturating_sub(LOOK_BACK)..after];
        let entry = near.iter().rev().find(|e| at.0 < e.end)?;
        let first = self.symbols[range(entry.symbols)].first();
        Some(FunctionRef {
            start: Svma(entry.start),
            size: entry.end - entry.start,
            linkage: first.map(|s| name_at(self.data, s.name)),
        })
    }

    /// How many there are, split-off parts included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Every function, by address; split-off parts belong to theirs and do not come by themselves.
    pub fn iter(&self) -> impl Iterator<Item = Function> + '_ {
        (0..self.entries.len()).filter(|&i| !self.is_cold(i)).map(|i| self.function(i))
    }

    fn is_cold(&self, index: usize) -> bool {
        let names = &self.symbols[range(self.entries[index].symbols)];
        !names.is_empty() && names.iter().all(|s| owner_of_cold(name_at(self.data, s.name)).is_some())
    }

    /// Indexes of the functions that have a name for which `matches` is true, with those names.
    pub(crate) fn named(&self, matches: impl Fn(&str) -> bool) -> Vec<(usize, &'d str)> {
        let mut found = Vec::new();
        for (index, entry) in self.entries.iter().enumerate() {
            for symbol in &self.symbols[range(entry.symbols)] {
                let name = name_at(self.data, symbol.name);
                if matches(name) && owner_of_cold(name).is_none() {
                    found.push((index, name));
                    break;
                }
            }
        }
        found
    }

    /// Every name.
    pub(crate) fn names(&self) -> impl Iterator<Item = &'d str> + '_ {
        self.symbols.iter().map(|s| name_at(self.data, s.name))
    }

    pub(crate) fn index_containing(&self, at: Svma) -> Option<usize> {
        let start = self.containing(at)?.start;
        self.entries.binary_search_by_key(&start.0, |e| e.start).ok()
    }

    /// The function at `index`, under its first name.
    pub(crate) fn function(&self, index: usize) -> Function {
        let entry = self.entries[index];
        let symbols = &self.symbols[range(entry.symbols)];
        let mut names = symbols.iter().map(|s| name_at(self.data, s.name));
        let linkage = names.next().unwrap_or("");
        let kind = match symbols.first() {
            None => FunctionKind::UnwindOnly,
            Some(symbol) if symbol.is_ifunc => FunctionKind::Ifunc,
            Some(_) => FunctionKind::Code,
        };
        Function {
            range: Svma(entry.start)..Svma(entry.end),
            linkage: linkage.to_owned(),
            aliases: names.map(str::to_owned).collect(),
            kind,
            cold: self.cold.get(linkage).cloned().unwrap_or_default(),
        }
    }
}

fn range((from, to): (u32, u32)) -> Range<usize> {
    from as usize..to as usize
}

/// A name without its symbol version; "" where it is no text.
fn name_at(data: &[u8], at: u64) -> &str {
    let name = usize::try_from(at).ok().and_then(|at| data.get(at..)).and_then(c_str).unwrap_or("");
    name.split_once('@').map_or(name, |(name, _)| name)
}

/// `foo` for `foo.cold` and `foo.cold.3`.
fn owner_of_cold(name: &str) -> Option<&str> {
    let at = name.rfind(".cold")?;
    let suffix = &name[at + ".cold".len()..];
    let is_number = |s: &str| !s.is_empty() && s.bytes().all(|b| b.is_ascii_digit());
    (suffix.is_empty() || suffix.strip_prefix('.').is_some_and(is_number)).then(|| &name[..at])
}

/// The symbols of both tables that name code defined here: ELF gABI, Symbol Table.
fn symbols(image: &Image<'_>) -> Vec<Symbol> {
    const ENTRY: usize = 24;
    const FUNC: u8 = 2;
    const GNU_IFUNC: u8 = 10;
    const SHN_ABS: u16 = 0xfff1;
    let data = image.data();
    let mut symbols = Vec::new();
    for section in image.sections() {
        let header = &section.header;
        if header.sh_type != SHT_SYMTAB && header.sh_type != SHT_DYNSYM {
            continue;
        }
        let Some(names) = image.sections().get(header.sh_link as usize) else { continue };
        let Some(bytes) = file_range(data, header.sh_offset, header.sh_size) else { continue };
        for entry in bytes.chunks_exact(ENTRY) {
            let word = |at: usize| {
                entry.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes)
            };
            let (info, section_index) = (entry[4], u16::from_le_bytes([entry[6], entry[7]]));
            let kind = info & 0xf;
            let name = u64::from(word(0) as u32);
            let is_code = kind == FUNC || kind == GNU_IFUNC;
            let is_here = section_index != 0 && section_index != SHN_ABS;
            let start = word(8);
            if !is_code || !is_here || name >= names.header.sh_size || !image.is_code(Svma(start)) {
                continue;
            }
            let rank = match info >> 4 {
                0 => 2,
                2 => 1,
                _ => 0,
            };
            let name = names.header.sh_offset.saturating_add(name);
            symbols.push(Symbol { start, size: word(16), name, rank, is_ifunc: kind == GNU_IFUNC });
        }
    }
    symbols.retain(|s| !name_at(data, s.name).is_empty());
    symbols
}
