//! Unwind tables for code whose file has none that the runtime can search.
//!
//! Static programs are linked without `.eh_frame_hdr`. Tools that change files (patchelf, BOLT)
//! move the program headers where the runtime does not look for them. Other code has no loaded
//! unwind entries but may have some in `.debug_frame`, for a whole file or for a few of its
//! functions.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::thread;

use abi::image::{EPOCH_OF_TABLES, SYMBOL_EPOCH};
use abi::segment::{AREA_TABLES, TABLE_OF_CONVENTIONS, TABLE_OF_ENTRIES, TABLE_OF_RULES};
use patcher::flow::{
    Recipe, callees_of, callees_seen, frame_seen, frames_around, frames_called, frames_of,
    frames_seen,
};
use patcher::image::Image;
use patcher::{Avma, Bias, Svma};
use unwind::Rule;

use super::SessionError;
use super::locked::Locked;
use super::view::View;
use ipath_symbols::images::{self, OpenImage};
use ipath_symbols::recipes::rule;
use ipath_target::process::Mapping;
use ipath_target::process::identity::FileId;
use ipath_target::process::modules::Module;
use ipath_target::progress::Step;

impl View<'_> {
    /// True if less than half of the room for tables is in use.
    pub(super) fn has_room_for_unasked(&self) -> bool {
        let (_, room) = self.segment.area_bytes(AREA_TABLES);
        self.segment.header().tables_used.load(Acquire) < room / 2
    }

    /// Appends a table. Does nothing if there is no room: paths then end there and are marked as
    /// incomplete. `seen` is as in [`publish_rules`]. Fails if the segment cannot be written.
    pub(super) fn publish_table(&self, table: &Table, seen: u64) -> Result<(), SessionError> {
        if table.rows.is_empty() {
            return Ok(());
        }
        let used = &self.segment.header().tables_used;
        let at = used.load(Acquire);
        let bytes: Vec<u8> = table.words(seen).flat_map(u64::to_le_bytes).collect();
        if self.segment.write_bytes(AREA_TABLES, at, &bytes)? {
            used.store(at + bytes.len() as u64, Release);
        }
        Ok(())
    }
}

/// Publishes rules of return addresses. `seen` is when the code was seen there, by the time-stamp
/// counter. Fails if the session's memory cannot be written.
pub(super) fn publish_rules(
    locked: &mut Locked<'_>,
    rules: Vec<(Avma, u64)>,
    seen: u64,
) -> Result<(), SessionError> {
    publish_all(locked, &[Table::of_rules(rules)], seen)
}

/// Publishes rules of return addresses that have not been asked for. No walk has reached them, so
/// the runtime need not repeat its walks. Fails if the segment cannot be written.
pub(super) fn publish_unasked(
    locked: &mut Locked<'_>,
    rules: Vec<(Avma, u64)>,
    seen: u64,
) -> Result<(), SessionError> {
    locked.view().publish_table(&Table::of_rules(rules), seen)
}

/// Appends tables. Makes the runtime repeat its walks if at least one had room: see
/// [`begin_epoch`]. Fails if the session's memory cannot be written.
pub(super) fn publish_all(
    locked: &mut Locked<'_>,
    tables: &[Table],
    seen: u64,
) -> Result<(), SessionError> {
    let used = |locked: &Locked<'_>| locked.segment.header().tables_used.load(Acquire);
    let before = used(locked);
    for table in tables {
        locked.view().publish_table(table, seen)?;
    }
    if used(locked) == before {
        Ok(())
    } else {
        begin_epoch(locked)
    }
}

/// Makes the runtime repeat its walks with the tables published so far. Fails if the runtime's
/// memory cannot be read or written.
pub(super) fn begin_epoch(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let at = locked.symbol(SYMBOL_EPOCH)?;
    let mut epoch = [0; size_of::<u32>()];
    let read = locked.space.memory().read(at, &mut epoch);
    read.map_err(|e| SessionError::Memory("read", at, e))?;
    let epoch = u32::from_le_bytes(epoch).wrapping_add(EPOCH_OF_TABLES);
    locked.write_own(&[(at, epoch.to_le_bytes().to_vec())])
}

/// True if `code` is still mapped: as the same mapping, or, for code that was copied to anonymous
/// memory, within an anonymous executable one.
pub(super) fn is_mapped_in(maps: &[Mapping], code: &Mapping) -> bool {
    let (start, end) = (code.range.start, code.range.end);
    let holds = |m: &Mapping| m.execute && m.range.start <= start && end <= m.range.end;
    maps.contains(code) || maps.iter().any(|m| m.file.1 == 0 && holds(m))
}

/// The key of a module's published tables. Code that the program has copied to its own memory needs
/// new tables at the same address. Its key has an odd address, at which no code begins.
pub(super) fn table_key(module: &Module) -> (u64, String, FileId) {
    (
        module.code_range().start.0 | u64::from(module.is_remapped),
        module.path.clone(),
        module.file(),
    )
}

/// The most rules in a table. The area holds many such tables, and what does not fit is dropped one
/// table at a time.
const MOST_RULES: usize = 1 << 16;

/// Splits the rules of modules into tables, most important first: roots, modules with few rules,
/// modules with many.
pub(super) fn in_pieces(mut modules: Vec<Vec<(Avma, u64)>>) -> Vec<Vec<(Avma, u64)>> {
    modules.sort_by_key(Vec::len);
    let is_root = |row: &(Avma, u64)| row.1 == Rule::Root.encode();
    let roots = modules.iter().flatten().copied().filter(is_root);
    let mut pieces = vec![roots.collect::<Vec<_>>()];
    let mut few = Vec::new();
    for mut rows in modules {
        rows.retain(|row| !is_root(row));
        rows.sort_unstable();
        if few.len() + rows.len() <= MOST_RULES {
            few.append(&mut rows);
        } else {
            pieces.push(std::mem::take(&mut few));
            pieces.extend(rows.chunks(MOST_RULES).map(<[_]>::to_vec));
        }
    }
    pieces.push(few);
    pieces
}

/// A table for the runtime.
pub(super) struct Table {
    /// One of the `TABLE_OF_*` values.
    kind: u64,
    /// The first address of the code, and the first one after it.
    code: (Avma, Avma),
    /// The range of the unwind entries. For registered entries, their key and their descriptor.
    /// Otherwise 0.
    frames: (Avma, Avma),
    /// The address of each row, ascending, and its word: an encoded rule, or the address of an
    /// unwind entry.
    rows: Vec<(Avma, u64)>,
}

impl Table {
    pub(super) fn new(
        kind: u64,
        code: (Avma, Avma),
        frames: (Avma, Avma),
        rows: Vec<(Avma, u64)>,
    ) -> Self {
        Self {
            kind,
            code,
            frames,
            rows,
        }
    }

    /// A table of rules for return addresses in any modules. The runtime searches one such table
    /// after the other.
    pub(super) fn of_rules(mut rows: Vec<(Avma, u64)>) -> Self {
        rows.sort_unstable();
        rows.dedup_by_key(|row| row.0);
        let first = rows.first().map_or(0, |row| row.0.0);
        let last = rows.last().map_or(0, |row| row.0.0);
        Self {
            kind: TABLE_OF_RULES,
            // Covers the calls before the return addresses.
            code: (Avma(first.saturating_sub(1)), Avma(last)),
            frames: (Avma(0), Avma(0)),
            rows,
        }
    }

    /// A table of rules for all return addresses in this code. Each rule applies up to the next
    /// row's address.
    pub(super) fn of_conventions(code: Range<Avma>, rows: Vec<(Avma, u64)>) -> Self {
        Self {
            kind: TABLE_OF_CONVENTIONS,
            code: (code.start, code.end),
            frames: (Avma(0), Avma(0)),
            rows,
        }
    }

    /// Head and rows in the segment's layout. `seen` is when the code was seen there, by the
    /// time-stamp counter.
    fn words(&self, seen: u64) -> impl Iterator<Item = u64> {
        let head = [
            self.kind,
            self.code.0.0,
            self.code.1.0,
            self.frames.0.0,
            self.frames.1.0,
            self.rows.len() as u64,
            seen,
        ];
        let rows = self.rows.iter().flat_map(|row| [row.0.0, row.1]);
        head.into_iter().chain(rows)
    }
}

/// True if the runtime finds the unwind entries by itself. It needs program headers in the mapping
/// of the file's beginning (`rtlib/src/code/modules.rs`).
pub(super) fn is_found(module: &Module, image: &Image<'_>) -> bool {
    let mapped = module
        .head
        .as_ref()
        .map_or(0, |m| m.range.end.0 - m.range.start.0);
    !module.is_remapped && image.has_frame_index() && image.program_headers().end.0 <= mapped
}

/// Returns a table of where the module's unwind entries are. `None` if it has none, or if they are
/// not mapped at one distance from the code.
pub(super) fn index(module: &Module, image: &Image<'_>, bias: Bias) -> Option<Table> {
    let frames = image.frames()?;
    let (start, end) = (
        bias.to_avma(frames.range.start),
        bias.to_avma(frames.range.end),
    );
    // If a file is mapped in pieces, the entries are at another address.
    if start < module.range.start || module.range.end < end {
        return None;
    }
    let code = module.code_range();
    let row = |(first, at)| (bias.to_avma(first), bias.to_avma(at).0);
    Some(Table {
        kind: TABLE_OF_ENTRIES,
        code: (code.start, code.end),
        frames: (start, end),
        rows: frames.entries.into_iter().map(row).collect(),
    })
}

/// Analyzes the instructions of a module for `publish_tables`.
pub(super) fn prepare(module: &Module) {
    if let Ok(opened) = images::of_module(module) {
        let _step = Step::begin(format!("reading the unwind tables of {}", module.path));
        opened.frames();
    }
}

/// Calls [`prepare`] for each module, on all processors.
pub(super) fn prepare_all(modules: &[Module]) {
    let next = AtomicUsize::new(0);
    let step = Step::begin("reading files");
    let work = || {
        while let Some(module) = modules.get(next.fetch_add(1, Relaxed)) {
            step.at(next.load(Relaxed), modules.len());
            prepare(module);
        }
    };
    thread::scope(|scope| {
        let others = thread::available_parallelism().map_or(0, |all| all.get() - 1);
        for _ in 0..others {
            // If no thread can be created, this one does the work.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// Returns the return addresses of calls that no loaded unwind entry covers, with their encoded
/// rules.
pub(super) fn rules(opened: &OpenImage, bias: Bias) -> Vec<(Avma, u64)> {
    let found = opened.frames().iter();
    let rows = found.map(|&(after, recipe)| (bias.to_avma(after), rule(recipe).encode()));
    rows.collect()
}

/// Returns the rules, found by analyzing instructions, for the calls that return to `asked`, each
/// with its return address. `asked` has ascending return addresses. Each comes with the distance in
/// bytes from the stack pointer to the target of the frame pointer, negative if unknown.
pub(super) fn answers(module: &Module, asked: &[(Avma, i64)]) -> Vec<(Avma, u64)> {
    rules_of(module, |opened, bias| {
        frames_of(opened.image(), opened.context(), &in_file(asked, bias))
    })
}

/// Returns those results of [`answers`] that can be found quickly.
pub(super) fn quick_answers(module: &Module, asked: &[(Avma, i64)]) -> Vec<(Avma, u64)> {
    rules_of(module, |opened, bias| {
        frames_seen(opened.image(), &in_file(asked, bias))
    })
}

/// The kind of address at which code is analyzed without a question.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unasked {
    /// At a return address.
    After,
    /// At a function.
    Function,
}

/// Analyzes code at `at` without a question. Returns the return addresses with their encoded rules,
/// and the functions that the code calls. Both are empty if the file cannot be read.
pub(super) fn unasked(module: &Module, at: Avma, from: Unasked) -> (Vec<(Avma, u64)>, Vec<Avma>) {
    let Ok(opened) = images::of_module(module) else {
        return Default::default();
    };
    let Some(bias) = module.bias(opened.image()) else {
        return Default::default();
    };
    let (image, at) = (opened.image(), bias.to_svma(at));
    let (found, callees) = match from {
        Unasked::After => (frames_around(image, at), callees_seen(image, at)),
        Unasked::Function => (frames_called(image, at), callees_of(image, at)),
    };
    let row = |(after, recipe)| (bias.to_avma(after), rule(recipe).encode());
    let callees = callees.into_iter().map(|callee| bias.to_avma(callee));
    (found.into_iter().map(row).collect(), callees.collect())
}

/// The return addresses as link-time addresses, with their distances.
fn in_file(asked: &[(Avma, i64)], bias: Bias) -> Vec<(Svma, i64)> {
    let in_file = |&(at, distance): &(Avma, i64)| (bias.to_svma(at), distance);
    asked.iter().map(in_file).collect()
}

/// Returns the encoded rule of the return address `at` in generated `code`, which begins at
/// `start`. `distance` is as in [`answers`]. `None` if the code does not show a rule.
pub(super) fn generated_answer(start: Avma, code: &[u8], at: Avma, distance: i64) -> Option<u64> {
    // Generated code has only its addresses in the process.
    let bytes = |at: Svma| code.get(usize::try_from(at.0.checked_sub(start.0)?).ok()?..);
    frame_seen(bytes, Svma(at.0), distance).map(|recipe| rule(recipe).encode())
}

/// The run-time return addresses and encoded rules of the recipes that `find` returns. Empty if the
/// file cannot be read.
fn rules_of(
    module: &Module,
    find: impl Fn(&OpenImage, Bias) -> BTreeMap<Svma, Recipe>,
) -> Vec<(Avma, u64)> {
    let Ok(opened) = images::of_module(module) else {
        return Vec::new();
    };
    let Some(bias) = module.bias(opened.image()) else {
        return Vec::new();
    };
    let found = find(&opened, bias).into_iter();
    found
        .map(|(after, recipe)| (bias.to_avma(after), rule(recipe).encode()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_and_small_modules_come_first() {
        let root = |at| (Avma(at), Rule::Root.encode());
        let rule = |at| (Avma(at), Rule::Full.encode());
        let large = (0..3 * MOST_RULES as u64).map(|n| rule(1_000_000 + n));
        let large: Vec<_> = large.chain([root(7)]).collect();
        let small = vec![rule(20), rule(10), root(5)];
        let pieces = in_pieces(vec![large.clone(), small]);
        assert_eq!(pieces[0], [root(5), root(7)]);
        assert_eq!(pieces[1], [rule(10), rule(20)]);
        assert!(pieces.iter().all(|rows| rows.len() <= MOST_RULES));
        assert!(pieces.iter().all(|rows| rows.is_sorted()));
        assert_eq!(pieces.iter().map(Vec::len).sum::<usize>(), large.len() + 3);
    }
}
