//! `list`: the functions that patterns match, and how each can be patched.

mod blocks;

use crate::commands::failures::{ProcessFailure, UnmatchedFailure};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

use patcher::function::demangle;
use patcher::plan::{Allowed, Effect, Effects, RefuseReason};
use patcher::select::Pattern;
use serde::Serialize;

use blocks::{Blocks, KnownFiles};

use super::measure::patterns;
use super::named;
use super::output::{print, print_json};
use super::remarks::warn;
use super::target::find;
use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_base::files::FileBytes;
use ipath_base::printable::{Page, printable};
use ipath_session::session::{Candidate, Query, allowed, select_in_file, select_in_modules};
use ipath_symbols::images;
use ipath_target::process::modules::{Module, VDSO, modules};
use ipath_target::process::{Pid, ProcessError};

const OPERATION: &str = "list";
/// The planned measurement: at the entry and at each exit of a function.
const WANT: Effects = Effects {
    entry: true,
    exits: true,
};

/// The result of the command, as printed with `--json`.
#[derive(Default, Serialize)]
struct Listing {
    functions: Vec<Listed>,
    coverage: Coverage,
}

/// A function that a pattern matches.
#[derive(Serialize)]
struct Listed {
    name: String,
    /// Its name in the symbol table, mangled.
    linkage: String,
    module: String,
    /// The link-time address (SVMA) of its first instruction.
    address: u64,
    /// Its size in bytes.
    size: u64,
    /// Its other names in the symbol table.
    aliases: Vec<String>,
    /// The mangled names of its clones, which other code calls instead.
    clones: Vec<String>,
    /// The number of its inlined copies.
    inlined: u64,
    /// How its entry is patched. `None` if it cannot be.
    entry: Option<String>,
    /// For each exit, how it is patched, or `refused:` with the reason.
    exits: Vec<String>,
    /// The number of exits that are tail calls.
    tail_exits: usize,
    /// The reason why its entry or one of its exits cannot be patched. `None` if all can.
    refused: Option<String>,
    /// Its basic blocks and loops, with `--blocks`.
    #[serde(skip_serializing_if = "Option::is_none")]
    inside: Option<Blocks>,
}

/// Numbers of functions.
#[derive(Default, Serialize)]
struct Coverage {
    /// All functions, without fragments of functions and indirect functions.
    functions: u64,
    /// Functions whose entry can be patched.
    entry: u64,
    /// Functions whose entry and every exit can be patched.
    full: u64,
    /// The number of functions for each reason of a refusal.
    refused: BTreeMap<String, u64>,
}

/// Prints the functions that patterns match in a process or a file.
pub(super) fn list(
    target: &OsStr,
    texts: &[String],
    json: bool,
    all_modules: bool,
    blocks: bool,
) -> Result<(), Failure> {
    let patterns = patterns(OPERATION, texts)?;
    let known = blocks.then(KnownFiles::default);
    let text = target.to_string_lossy();
    let pid = match text.parse::<i32>() {
        Ok(pid) if pid > 0 => Some(Pid(pid)),
        _ if is_file(Path::new(target)) => None,
        _ => named::pid_of_any(OPERATION, &text).transpose()?,
    };
    let (listing, failure) = match pid {
        Some(pid) => of_process(pid, &patterns, all_modules, known)?,
        None => of_file(Path::new(target), &patterns, known)?,
    };
    // Matches of some patterns are printed even if other patterns have none.
    if let Some(failure) = failure.as_ref().filter(|_| listing.functions.is_empty()) {
        return Err(failure.clone());
    }
    if json {
        print_json(&listing)?
    } else {
        print(&Page::of(&as_text(&listing)))?
    }
    failure.map_or(Ok(()), Err)
}

/// True if the path exists and is not a directory.
fn is_file(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| !file.is_dir())
}

/// The matches, and the failure for the first pattern without a match.
type Outcome = (Listing, Option<Failure>);

fn of_process(
    pid: Pid,
    patterns: &[Pattern],
    all_modules: bool,
    mut known: Option<KnownFiles>,
) -> Result<Outcome, Failure> {
    let process = find(OPERATION, pid)?;
    let failure = |e: ProcessError| e.failure(OPERATION);
    // Reading needs the same rights as tracing, but a traced process can be listed.
    match process.check() {
        Ok(()) | Err(ProcessError::Traced(..)) => {}
        Err(error) => return Err(failure(error)),
    }
    let maps = process.maps().map_err(failure)?;
    let exe = process
        .exe()
        .map(|e| e.display().to_string())
        .unwrap_or_default();
    let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe);
    let mut modules = modules(&process, &maps);
    let allowed = allowed(&process, &modules, false);
    let is_wanted = |m: &Module| all_modules || !patterns.is_empty() || m.path == exe;
    modules.retain(|m| m.path != VDSO && is_wanted(m));
    let mut listing = Listing::default();
    let take = |c: Candidate| listing.take(&modules[c.module].path, c, &mut known);
    let missed = select_in_modules(&modules, &query(patterns, allowed), take);
    for (path, cause) in &missed.unreadable {
        warn(&format!("list {path}: {cause}"));
    }
    let unmatched = missed.unmatched.first();
    let failure = unmatched.map(|unmatched| unmatched.failure(OPERATION, &pid.to_string()));
    Ok((listing, failure))
}

fn of_file(
    path: &Path,
    patterns: &[Pattern],
    mut known: Option<KnownFiles>,
) -> Result<Outcome, Failure> {
    let failure = |cause: String| Failure::new(OPERATION, path.display(), cause);
    let bytes = FileBytes::open(path).map_err(|e| failure(io_text(&e)))?;
    let unknown = |e: images::OpenError| {
        failure(e.to_string()).hint("name a program, a library, or the id of a process")
    };
    let image = images::open(&bytes, path).map_err(unknown)?;
    let name = path.to_string_lossy();
    let mut listing = Listing::default();
    let take = |c: Candidate| listing.take(&name, c, &mut known);
    let unmatched = select_in_file(image, &name, &query(patterns, Allowed::ALL), take);
    if bytes.is_cut() {
        return Err(failure(
            "the file was cut short while it was read".to_owned(),
        ));
    }
    let failure = unmatched.first();
    let failure = failure.map(|unmatched| unmatched.failure(OPERATION, &name));
    Ok((listing, failure))
}

fn query(patterns: &[Pattern], allowed: Allowed) -> Query<'_> {
    Query {
        patterns,
        want: WANT,
        allowed,
        in_full: true,
        is_quick: false,
        most: usize::MAX,
    }
}

impl Listing {
    /// Takes in a function of the file at `path`, with its blocks if `known` is given.
    fn take(&mut self, path: &str, candidate: Candidate, known: &mut Option<KnownFiles>) {
        let Candidate {
            plan,
            name,
            elsewhere,
            image,
            ..
        } = candidate;
        let inside = known
            .as_mut()
            .map(|known| Blocks::of(&plan.function, &image, path, known));
        let refused = plan.refused().map(|(_, reason)| reason.to_string());
        let coverage = &mut self.coverage;
        // Neither counts as a function. A fragment is part of another function, and an indirect
        // function is a name for functions that are listed separately.
        let is_function = !matches!(
            plan.entry.outcome,
            Err(RefuseReason::Fragment | RefuseReason::Ifunc)
        );
        coverage.functions += u64::from(is_function);
        coverage.entry += u64::from(plan.entry.outcome.is_ok());
        coverage.full += u64::from(refused.is_none());
        if let Some(reason) = &refused {
            *coverage.refused.entry(reason.clone()).or_default() += 1;
        }
        let tactic = |p: &patcher::plan::PointPlan| match p.outcome {
            Ok(tactic) => tactic.to_string(),
            Err(reason) => format!("refused:{reason}"),
        };
        let is_tail = |p: &&patcher::plan::PointPlan| matches!(p.point.effect, Effect::TailExit(_));
        let tail_exits = plan.exits.iter().filter(is_tail);
        self.functions.push(Listed {
            name,
            linkage: plan.function.linkage.clone(),
            module: path.to_owned(),
            address: plan.function.range.start.0,
            size: plan.function.size(),
            aliases: plan.function.aliases.clone(),
            clones: elsewhere.clones,
            inlined: elsewhere.inlined,
            entry: plan.entry.outcome.ok().map(|t| t.to_string()),
            exits: plan.exits.iter().map(tactic).collect(),
            tail_exits: tail_exits.count(),
            refused,
            inside,
        });
    }
}

fn as_text(listing: &Listing) -> String {
    let mut text = String::new();
    for function in &listing.functions {
        let mut exits: BTreeMap<&str, usize> = BTreeMap::new();
        for exit in &function.exits {
            *exits.entry(exit).or_default() += 1;
        }
        let exits: Vec<String> = exits.iter().map(|(t, n)| format!("{n} {t}")).collect();
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{}  {}+{:#x}  {} bytes",
            printable(&function.name),
            printable(&function.module),
            function.address,
            function.size
        );
        match (&function.refused, &function.entry) {
            (Some(reason), _) => {
                let _ = write!(text, "  refused: {reason}");
            }
            (None, entry) => {
                let entry = entry.as_deref().unwrap_or_default();
                let _ = write!(
                    text,
                    "  entry {entry}, exits {}",
                    if exits.is_empty() {
                        "none".to_owned()
                    } else {
                        exits.join(", ")
                    }
                );
            }
        }
        if function.refused.is_none() && function.tail_exits > 0 {
            let _ = write!(text, " ({} by tail call)", function.tail_exits);
        }
        if function.inlined > 0 {
            let _ = write!(text, "  {} inlined copies", function.inlined);
        }
        if !function.clones.is_empty() {
            let clones: Vec<String> = function.clones.iter().map(|c| demangle(c)).collect();
            let _ = write!(text, "  clones {}", printable(&clones.join(", ")));
        }
        if !function.aliases.is_empty() {
            let _ = write!(text, "  also {}", printable(&function.aliases.join(", ")));
        }
        text.push('\n');
        if let Some(blocks) = &function.inside {
            blocks.write(&mut text);
        }
    }
    let coverage = &listing.coverage;
    let share = |n: u64| 100.0 * n as f64 / coverage.functions.max(1) as f64;
    let _ = write!(
        text,
        "{} functions: entry {} ({:.1} %), entry and every exit {} ({:.1} %)",
        coverage.functions,
        coverage.entry,
        share(coverage.entry),
        coverage.full,
        share(coverage.full)
    );
    for (reason, count) in &coverage.refused {
        let _ = write!(text, ", {count} {reason}");
    }
    text.push('\n');
    text
}
