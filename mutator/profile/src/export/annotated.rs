//! Counted functions as rows: blocks, source lines, instructions and edges, each with its count.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, UNIX_EPOCH};

use super::ExportError;
use super::code::{Code, Listed};
use super::texts::Texts;
use crate::profile::{Edge, EdgeKind, Inside, Profile, position, printable};
use crate::report::{graph_size, human, loop_place, offset_in};

/// A counted function.
pub(super) struct Annotated {
    /// The name of the function.
    pub(super) name: String,
    /// The module and the start of the function.
    pub(super) place: String,
    /// The activations and the size of the graph.
    pub(super) size: String,
    /// Remarks, one sentence each.
    pub(super) notes: Vec<String>,
    /// In address order.
    pub(super) rows: Vec<Row>,
}

/// A line of the listing.
pub(super) struct Row {
    pub(super) kind: Kind,
    /// The count, and the denominator of its share. `None` for an instruction, and for a source
    /// line that was shown before.
    pub(super) count: Option<(u64, u128)>,
    /// The name of the block, the source line (`app.c:12`), or the address of the instruction.
    pub(super) place: String,
    /// The text beside the place. May be empty.
    pub(super) text: String,
}

/// The subject of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A basic block. The rows up to the next block belong to it.
    Block,
    /// An edge that arrives from outside of the function.
    Arrival,
    /// A source line, before its instructions.
    Line,
    /// An instruction.
    Instruction,
    /// An edge that leaves the block.
    Edge,
}

impl Kind {
    /// The kind as a word.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Block => "block",
            Self::Arrival => "arrival",
            Self::Line => "line",
            Self::Instruction => "instruction",
            Self::Edge => "edge",
        }
    }
}

/// Calls `each` for the counted functions of a profile, in its order. The texts of source lines are
/// left out if `sources` is false.
///
/// # Errors
/// Returns the first error of `each`.
pub(super) fn annotate(
    profile: &Profile,
    code: Option<&Code>,
    sources: bool,
    mut each: impl FnMut(Annotated) -> Result<(), ExportError>,
) -> Result<(), ExportError> {
    let listed = |(index, inside)| Listed::of(index, inside, code);
    let all = profile.inside.iter().enumerate().map(listed);
    let mut needed: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
    if sources {
        for (file, line) in all.clone().flat_map(|one| one.lines().into_keys()) {
            needed.entry(file).or_default().insert(line);
        }
    }
    let texts = Texts::read(&needed);
    for one in all {
        let mut function = Function::of(profile, one);
        if sources {
            function.take_texts(&texts);
        }
        each(function.annotated())?;
    }
    Ok(())
}

/// A counted function while its rows are made.
struct Function<'a> {
    profile: &'a Profile,
    listed: Listed<'a>,
    /// The displayed name of each source file.
    labels: BTreeMap<&'a str, String>,
    /// The texts of source lines, by file.
    texts: BTreeMap<&'a str, &'a BTreeMap<u32, String>>,
    notes: Vec<String>,
    /// The counts of the lines that have no row yet.
    counts: BTreeMap<(&'a str, u32), u64>,
    /// The sum of the counts of all lines.
    lines: u128,
    /// The sum of the counts of all blocks.
    blocks: u128,
}

impl<'a> Function<'a> {
    fn of(profile: &'a Profile, listed: Listed<'a>) -> Self {
        let lines = listed.lines().into_iter();
        let counts: BTreeMap<_, u64> = lines.map(|(line, of)| (line, of.count)).collect();
        let blocks = listed.inside.blocks.iter();
        let uncertain = listed.inside.doubt();
        let uncertain = uncertain.map(|doubt| format!("counts {doubt}"));
        let missing = listed
            .missing()
            .map(|why| format!("no instructions: {}", printable(why)));
        Self {
            profile,
            listed,
            labels: labels(counts.keys().map(|&(file, _)| file)),
            texts: BTreeMap::new(),
            notes: uncertain.into_iter().chain(missing).collect(),
            lines: counts.values().map(|&count| u128::from(count)).sum(),
            blocks: blocks.map(|block| u128::from(block.count)).sum(),
            counts,
        }
    }

    /// Takes the texts of the files that are not newer than the module's file, or, if that was not
    /// read, than the measurement.
    fn take_texts(&mut self, all: &'a Texts<'_>) {
        let started = Duration::from_nanos(self.profile.session.started_unix_ns);
        let started = UNIX_EPOCH.checked_add(started).unwrap_or(UNIX_EPOCH);
        let (time, newer) = match self.listed.modified() {
            Some(time) => (time, "newer than the file of the module"),
            None => (started, "newer than the measurement"),
        };
        for &file in self.labels.keys() {
            match all.until(file, time) {
                Ok(lines) => drop(self.texts.insert(file, lines)),
                Err(why) => {
                    let why = why.unwrap_or(newer);
                    let note = format!("no text of {}: {why}", printable(file));
                    self.notes.push(note);
                }
            }
        }
    }

    fn annotated(mut self) -> Annotated {
        let inside = self.listed.inside;
        let function = &self.profile.functions[inside.function];
        let module = &self.profile.modules[function.module];
        let mut ends = vec![Ends::default(); inside.blocks.len()];
        for edge in &inside.edges {
            match (edge.from, edge.to) {
                (Some(from), _) => ends[from].leaving.push(edge),
                (None, Some(to)) => ends[to].arriving.push(edge),
                (None, None) => {}
            }
        }
        for (index, own) in inside.loops.iter().enumerate() {
            ends[own.header].loops.push(index);
        }
        let mut rows = Vec::new();
        for (index, ends) in ends.iter().enumerate() {
            self.add_block(index, ends, &mut rows);
        }
        Annotated {
            name: printable(&function.name).into_owned(),
            place: format!("{}, {:#x}", printable(&module.path), function.address),
            size: graph_size(inside, function.address),
            notes: self.notes,
            rows,
        }
    }

    fn add_block(&mut self, index: usize, ends: &Ends<'a>, rows: &mut Vec<Row>) {
        let inside = self.listed.inside;
        let block = &inside.blocks[index];
        let of_edge = |edge: &Edge| Some((edge.count, u128::from(block.count)));
        let loops = ends.loops.iter();
        let loops = loops.map(|&index| header(self.profile, inside, index));
        let offset = offset_in(self.profile, inside, block.address);
        let texts: Vec<String> = std::iter::once(offset).chain(loops).collect();
        rows.push(Row {
            kind: Kind::Block,
            count: Some((block.count, self.blocks)),
            place: format!("block{index}"),
            text: texts.join(", "),
        });
        rows.extend(ends.arriving.iter().map(|edge| Row {
            kind: Kind::Arrival,
            count: of_edge(edge),
            place: "from outside".to_owned(),
            text: in_call(edge).to_owned(),
        }));
        let instructions = self.listed.instructions(index);
        let of_block = block.source().filter(|_| instructions.is_empty());
        rows.extend(of_block.map(|source| self.line(source)));
        let mut last = None;
        for instruction in instructions {
            let source = self.listed.source(instruction);
            if source.is_some() && source != last {
                rows.extend(source.map(|source| self.line(source)));
                last = source;
            }
            let callee = Some(&instruction.callee).filter(|name| !name.is_empty());
            let callee = callee.map(|name| format!(" <{}>", printable(name)));
            rows.push(Row {
                kind: Kind::Instruction,
                count: None,
                place: format!("{:#x}", instruction.address),
                text: printable(&instruction.text).into_owned() + &callee.unwrap_or_default(),
            });
        }
        rows.extend(ends.leaving.iter().map(|edge| {
            Row {
                kind: Kind::Edge,
                count: of_edge(edge),
                place: match edge.to {
                    Some(to) => format!("to block{to}"),
                    None => "to outside".to_owned(),
                },
                text: match edge.kind {
                    EdgeKind::Fall => "fall",
                    EdgeKind::Taken => "taken",
                    EdgeKind::Case => "case",
                    EdgeKind::Entry | EdgeKind::Exit => in_call(edge),
                }
                .to_owned(),
            }
        }));
    }

    /// A row of a source line. Its count is in its first row only.
    fn line(&mut self, source: (&'a str, u32)) -> Row {
        let (file, line) = source;
        let label = self.labels.get(file).map_or("", String::as_str);
        let texts = self.texts.get(file);
        let text = texts.and_then(|lines| lines.get(&line));
        Row {
            kind: Kind::Line,
            count: self.counts.remove(&source).map(|count| (count, self.lines)),
            place: format!("{label}:{line}"),
            text: text.cloned().unwrap_or_default(),
        }
    }
}

/// The edges at the ends of a block that have rows, and the loops that it is the header of.
#[derive(Clone, Default)]
struct Ends<'a> {
    /// The edges from outside of the function.
    arriving: Vec<&'a Edge>,
    leaving: Vec<&'a Edge>,
    /// Indexes into [`Inside::loops`].
    loops: Vec<usize>,
}

/// The remark on an edge that is inside a call. Empty for another edge.
fn in_call(edge: &Edge) -> &'static str {
    if edge.in_call { "in a call" } else { "" }
}

/// The loop of a header: `header of loop0 at app.c:22-28: 44 iterations, 4 entries, 11 per entry`.
fn header(profile: &Profile, inside: &Inside, index: usize) -> String {
    let own = &inside.loops[index];
    let each = (own.entries > 0).then(|| own.iterations as f64 / own.entries as f64);
    let entries = match own.entries {
        1 => "1 entry".to_owned(),
        n => format!("{n} entries"),
    };
    format!(
        "header of loop{index} at {}: {}, {entries}, {} per entry",
        loop_place(profile, inside, own),
        human::count(own.iterations, "iteration"),
        human::average(each, "iterations"),
    )
}

/// The displayed names of source files: without the folder, unless two files have the same name.
fn labels<'a>(files: impl Iterator<Item = &'a str>) -> BTreeMap<&'a str, String> {
    let files: BTreeSet<&str> = files.collect();
    let name = |file: &str| position(Some(file), None).unwrap_or_default();
    let mut files_of: BTreeMap<String, u32> = BTreeMap::new();
    for file in &files {
        *files_of.entry(name(file)).or_default() += 1;
    }
    let label = |file: &str| match name(file) {
        name if files_of.get(&name) == Some(&1) => name,
        _ => printable(file).into_owned(),
    };
    files.iter().map(|&file| (file, label(file))).collect()
}
