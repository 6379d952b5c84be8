//! Counts of source lines, branches and functions, in the format of geninfo (geninfo(1), FILES).

use super::ExportError;
use crate::profile::{Block, Function, Inside, Profile, printable};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io::Write;

/// The counts of one source file.
#[derive(Default)]
struct SourceFile {
    /// By name: the line of the entry and the number of activations.
    functions: BTreeMap<String, (u32, u64)>,
    /// The branches of each line, by the blocks that begin there.
    branches: BTreeMap<u32, Vec<Branches>>,
    /// The number of executions of each line.
    lines: BTreeMap<u32, u64>,
}

/// The number of times that each edge out of a block was taken. `None` for a block that was never
/// executed.
type Branches = Vec<Option<u64>>;

/// Writes the counts of the source lines at which a block begins, and of the branches there.
///
/// # Errors
/// No block has a source line, or `out` fails.
pub fn to_lcov(profile: &Profile, out: &mut impl Write) -> Result<(), ExportError> {
    let mut files: BTreeMap<&str, SourceFile> = BTreeMap::new();
    let mut names = BTreeMap::new();
    for (_, inside) in profile.graphs() {
        let function = &profile.functions[inside.function];
        add_function(&mut files, &mut names, function, inside);
        add_lines(&mut files, inside);
        add_branches(&mut files, inside);
    }
    if files.values().all(|file| file.lines.is_empty()) {
        return Err(ExportError::NoLines);
    }
    for (name, file) in &files {
        write_file(&printable(name), file, out)?;
    }
    Ok(())
}

/// Adds a function to the file of its entry. Functions without source lines are left out. `names`
/// has the names of the functions that were added before, by their index: a sum of profiles may
/// have several graphs of one function.
fn add_function<'p>(
    files: &mut BTreeMap<&'p str, SourceFile>,
    names: &mut BTreeMap<usize, String>,
    function: &'p Function,
    inside: &'p Inside,
) {
    let mut of_blocks = inside.blocks.iter().filter_map(Block::source);
    let entry = function.file.as_deref().zip(function.line);
    // Readers drop a file without lines, and its functions.
    let entry = entry.filter(|(file, _)| of_blocks.clone().any(|(other, _)| other == *file));
    let entry = entry.or_else(|| of_blocks.next());
    let Some((file, line)) = entry else {
        return;
    };
    let functions = &mut files.entry(file).or_default().functions;
    let name = match names.entry(inside.function) {
        Entry::Occupied(known) => known.into_mut(),
        Entry::Vacant(new) => new.insert(match name_of(function) {
            // Another function has this name, such as a static one of another module.
            name if functions.contains_key(&name) => format!("{name}@{:#x}", function.address),
            name => name,
        }),
    };
    let (_, activations) = functions.entry(name.clone()).or_insert((line, 0));
    *activations = activations.saturating_add(inside.activations(function.address));
}

/// The linkage name, which genhtml demangles if asked to. A name ends at a comma in the format.
fn name_of(function: &Function) -> String {
    let name = if function.linkage.is_empty() {
        &function.name
    } else {
        &function.linkage
    };
    // The rows of timed paths have no linkage name.
    let whole = name.strip_suffix(":paths").filter(|_| function.timed_paths);
    printable(whole.unwrap_or(name)).replace(',', ";")
}

/// Adds the counts of lines. Code of a line in several functions, such as copies of an inline
/// function, adds up.
fn add_lines<'p>(files: &mut BTreeMap<&'p str, SourceFile>, inside: &'p Inside) {
    for ((file, line), count) in inside.lines() {
        let lines = &mut files.entry(file).or_default().lines;
        let known = lines.entry(line).or_default();
        *known = known.saturating_add(count);
    }
}

/// Adds the branches: the edges out of each block that has several. A departure inside a call is no
/// branch.
fn add_branches<'p>(files: &mut BTreeMap<&'p str, SourceFile>, inside: &'p Inside) {
    let mut leaving: Vec<Vec<u64>> = vec![Vec::new(); inside.blocks.len()];
    for edge in inside.edges.iter().filter(|edge| !edge.in_call) {
        if let Some(from) = edge.from {
            leaving[from].push(edge.count);
        }
    }
    for (block, taken) in inside.blocks.iter().zip(leaving) {
        if let Some((file, line)) = block.source().filter(|_| taken.len() > 1) {
            let taken = taken.into_iter().map(|n| (block.count > 0).then_some(n));
            let branches = &mut files.entry(file).or_default().branches;
            branches.entry(line).or_default().push(taken.collect());
        }
    }
}

fn write_file(name: &str, file: &SourceFile, out: &mut impl Write) -> Result<(), ExportError> {
    // An empty test name: readers show it in each heading.
    writeln!(out, "TN:\nSF:{name}")?;
    for (function, (line, _)) in &file.functions {
        writeln!(out, "FN:{line},{function}")?;
    }
    for (function, (_, activations)) in &file.functions {
        writeln!(out, "FNDA:{activations},{function}")?;
    }
    let activations = file.functions.values().map(|(_, activations)| *activations);
    write_sums(["FNF", "FNH"], activations, out)?;
    let mut all = Vec::new();
    for (line, blocks) in &file.branches {
        for (block, branches) in blocks.iter().enumerate() {
            for (branch, taken) in branches.iter().enumerate() {
                let text = taken.map_or_else(|| "-".to_owned(), |n| n.to_string());
                writeln!(out, "BRDA:{line},{block},{branch},{text}")?;
                all.push(taken.unwrap_or(0));
            }
        }
    }
    write_sums(["BRF", "BRH"], all.into_iter(), out)?;
    for (line, count) in &file.lines {
        writeln!(out, "DA:{line},{count}")?;
    }
    write_sums(["LF", "LH"], file.lines.values().copied(), out)?;
    Ok(out.write_all(b"end_of_record\n")?)
}

/// Writes the number of counts, and the number of counts above 0.
fn write_sums(
    [found, hit]: [&str; 2],
    counts: impl Iterator<Item = u64>,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let (mut all, mut above) = (0_usize, 0_usize);
    for count in counts {
        all += 1;
        above += usize::from(count > 0);
    }
    Ok(writeln!(out, "{found}:{all}\n{hit}:{above}")?)
}
