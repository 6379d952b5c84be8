//! Unwind tables for code whose file has none that the runtime can search. Static programs are linked
//! without `.eh_frame_hdr`, and tools that change files (patchelf, BOLT) put the program headers where the
//! runtime does not look for them. Other code has no unwind entries that are loaded with it, but may have some
//! in `.debug_frame`: all of a file's, or a few functions amid others that have them.

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
    /// Is less than half of the room for tables in use?
    pub(super) fn has_room_for_unasked(&self) -> bool {
        let (_, room) = self.segment.area_bytes(AREA_TABLES);
        self.segment.header().tables_used.load(Acquire) < room / 2
    }

    /// Appends a table; nothing where there is no room: paths end there then, and say so.
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

/// Publishes rules of return addresses in code that was seen there at `seen`, by the time-stamp counter.
pub(super) fn publish_rules(
    locked: &mut Locked<'_>,
    rules: Vec<(Avma, u64)>,
    seen: u64,
) -> Result<(), SessionError> {
    publish_all(locked, &[Table::of_rules(rules)], seen)
}

/// The same of return addresses that nobody has asked for: no walk has come to them, so the epoch goes on.
pub(super) fn publish_unasked(
    locked: &mut Locked<'_>,
    rules: Vec<(Avma, u64)>,
    seen: u64,
) -> Result<(), SessionError> {
    locked.view().publish_table(&Table::of_rules(rules), seen)
}

/// Appends tables, and begins another epoch unless there was room for none.
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

/// Has the runtime make walks by the tables that have been published by now.
pub(super) fn begin_epoch(locked: &mut Locked<'_>) -> Result<(), SessionError> {
    let at = locked.symbol(SYMBOL_EPOCH)?;
    let mut epoch = [0; size_of::<u32>()];
    let read = locked.space.memory().read(at, &mut epoch);
    read.map_err(|e| SessionError::Memory("read", at, e))?;
    let epoch = u32::from_le_bytes(epoch).wrapping_add(EPOCH_OF_TABLES);
    locked.write_own(&[(at, epoch.to_le_bytes().to_vec())])
}

/// True if code of a module is mapped. Code copied to anonymous memory is part of a mapping.
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

/// Most rules in a table: there is room for many such, and what does not fit is lost a table at a time.
const MOST_RULES: usize = 1 << 16;

/// The rules of each module as those of tables, in the order of what most depends on: roots, modules with few rules,
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

/// What the runtime is given.
pub(super) struct Table {
    kind: u64,
    code: (Avma, Avma),
    frames: (Avma, Avma),
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

    /// Rules of return addresses in any modules: the runtime looks into one such table after the other.
    pub(super) fn of_rules(mut rows: Vec<(Avma, u64)>) -> Self {
        rows.sort_unstable();
        rows.dedup_by_key(|row| row.0);
        let first = rows.first().map_or(0, |row| row.0.0);
        let last = rows.last().map_or(0, |row| row.0.0);
        Self {
            kind: TABLE_OF_RULES,
            // Of the calls before them.
            code: (Avma(first.saturating_sub(1)), Avma(last)),
            frames: (Avma(0), Avma(0)),
            rows,
        }
    }

    /// Rules of all return addresses in this code, each from an address to the next.
    pub(super) fn of_conventions(code: Range<Avma>, rows: Vec<(Avma, u64)>) -> Self {
        Self {
            kind: TABLE_OF_CONVENTIONS,
            code: (code.start, code.end),
            frames: (Avma(0), Avma(0)),
            rows,
        }
    }

    /// Head and rows as the segment has them; the code has been seen there at `seen`, by the time-stamp counter.
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

/// Does the runtime find the unwind entries by itself: by program headers that lie in the mapping of the file's
/// beginning (`rtlib/src/code/modules.rs`)?
pub(super) fn is_found(module: &Module, image: &Image<'_>) -> bool {
    let mapped = module
        .head
        .as_ref()
        .map_or(0, |m| m.range.end.0 - m.range.start.0);
    !module.is_remapped && image.has_frame_index() && image.program_headers().end.0 <= mapped
}

/// Where the unwind entries of the module are; `None` where it has none.
pub(super) fn index(module: &Module, image: &Image<'_>, bias: Bias) -> Option<Table> {
    let frames = image.frames()?;
    let (start, end) = (
        bias.to_avma(frames.range.start),
        bias.to_avma(frames.range.end),
    );
    // Of a file that is mapped in pieces they lie elsewhere.
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

/// Finds out what `publish_tables` needs to know of the instructions of a module.
pub(super) fn prepare(module: &Module) {
    if let Ok(opened) = images::of_module(module) {
        let _step = Step::begin(format!("reading the unwind tables of {}", module.path));
        opened.frames();
    }
}

/// The same for each of these, on all processors.
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
            // Without another thread this one does it.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// How the frames of calls that no loaded unwind entry covers are left.
pub(super) fn rules(opened: &OpenImage, bias: Bias) -> Vec<(Avma, u64)> {
    let found = opened.frames().iter();
    let rows = found.map(|&(after, recipe)| (bias.to_avma(after), rule(recipe).encode()));
    rows.collect()
}

/// How the frames of the calls that return to `asked`, ascending, are left, as far as the instructions tell; each with
/// the bytes from the stack pointer to where the frame pointer points to.
pub(super) fn answers(module: &Module, asked: &[(Avma, i64)]) -> Vec<(Avma, u64)> {
    rules_of(module, |opened, bias| {
        frames_of(opened.image, &opened.context, &in_file(asked, bias))
    })
}

/// The same as far as it is quickly found.
pub(super) fn quick_answers(module: &Module, asked: &[(Avma, i64)]) -> Vec<(Avma, u64)> {
    rules_of(module, |opened, bias| {
        frames_seen(opened.image, &in_file(asked, bias))
    })
}

/// Where code begins of which nothing has been asked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unasked {
    /// At a return address.
    After,
    /// At a function.
    Function,
}

/// What code at `at` shows without a question: rules, and the functions that it calls.
pub(super) fn unasked(module: &Module, at: Avma, from: Unasked) -> (Vec<(Avma, u64)>, Vec<Avma>) {
    let Ok(opened) = images::of_module(module) else {
        return Default::default();
    };
    let Some(bias) = module.bias(opened.image) else {
        return Default::default();
    };
    let (image, at) = (opened.image, bias.to_svma(at));
    let (found, callees) = match from {
        Unasked::After => (frames_around(image, at), callees_seen(image, at)),
        Unasked::Function => (frames_called(image, at), callees_of(image, at)),
    };
    let row = |(after, recipe)| (bias.to_avma(after), rule(recipe).encode());
    let callees = callees.into_iter().map(|callee| bias.to_avma(callee));
    (found.into_iter().map(row).collect(), callees.collect())
}

fn in_file(asked: &[(Avma, i64)], bias: Bias) -> Vec<(Svma, i64)> {
    let in_file = |&(at, distance): &(Avma, i64)| (bias.to_svma(at), distance);
    asked.iter().map(in_file).collect()
}

/// The rule of a return address in `code` that the program has made itself, which begins at `start`.
pub(super) fn generated_answer(start: Avma, code: &[u8], at: Avma, distance: i64) -> Option<u64> {
    // It has no other addresses than those.
    let bytes = |at: Svma| code.get(usize::try_from(at.0.checked_sub(start.0)?).ok()?..);
    frame_seen(bytes, Svma(at.0), distance).map(|recipe| rule(recipe).encode())
}

fn rules_of(
    module: &Module,
    find: impl Fn(&OpenImage, Bias) -> BTreeMap<Svma, Recipe>,
) -> Vec<(Avma, u64)> {
    let Ok(opened) = images::of_module(module) else {
        return Vec::new();
    };
    let Some(bias) = module.bias(opened.image) else {
        return Vec::new();
    };
    let found = find(opened, bias).into_iter();
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
