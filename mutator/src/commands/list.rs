//! `list`: the functions that patterns match, and how each can be patched.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fmt::Write;
use std::path::Path;

use patcher::Bias;
use patcher::function::{Function, demangle};
use patcher::plan::{Allowed, Effect, Effects, FunctionPlan, RefuseReason, plan_allowed};
use patcher::select::Pattern;
use serde::Serialize;

use super::measure::patterns;
use super::output::{print, print_data};
use super::remarks::warn;
use super::target::find;
use crate::error::{Failure, io_text};
use crate::files::FileBytes;
use crate::images::{self, OpenImage};
use crate::lines::{Lines, Places};
use crate::printable::{Page, printable};
use crate::process::Pid;
use crate::process::modules::modules;
use crate::session::{Elsewhere, Unmatched, allowed, copies_of, display_name};

const OPERATION: &str = "list";
const WANT: Effects = Effects {
    entry: true,
    exits: true,
};

#[derive(Serialize)]
struct Listing {
    functions: Vec<Listed>,
    coverage: Coverage,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    linkage: String,
    module: String,
    address: u64,
    size: u64,
    aliases: Vec<String>,
    clones: Vec<String>,
    inlined: u64,
    entry: Option<String>,
    exits: Vec<String>,
    tail_exits: usize,
    refused: Option<String>,
}

#[derive(Default, Serialize)]
struct Coverage {
    functions: u64,
    entry: u64,
    full: u64,
    refused: BTreeMap<String, u64>,
}

/// Prints what patterns match in a process or a file.
pub(super) fn list(
    target: &OsStr,
    texts: &[String],
    json: bool,
    all_modules: bool,
) -> Result<(), Failure> {
    let patterns = patterns(OPERATION, texts)?;
    let text = target.to_string_lossy();
    let listing = match text.parse::<i32>() {
        Ok(pid) if pid > 0 => of_process(Pid(pid), &patterns, all_modules)?,
        _ => of_file(Path::new(target), &patterns)?,
    };
    if json {
        let text = serde_json::to_string(&listing).unwrap_or_default();
        return print_data((text + "\n").as_bytes());
    }
    print(&Page::of(&as_text(&listing)))
}

fn of_process(pid: Pid, patterns: &[Pattern], all_modules: bool) -> Result<Listing, Failure> {
    let process = find(OPERATION, pid)?;
    let failure = |e: crate::process::ProcessError| {
        let hint = e.hint();
        Failure::of(OPERATION, e).maybe_hint(hint)
    };
    // Reading needs the same rights as tracing, but a traced process can be listed.
    match process.check() {
        Ok(()) | Err(crate::process::ProcessError::Traced(..)) => {}
        Err(error) => return Err(failure(error)),
    }
    let maps = process.maps().map_err(failure)?;
    let exe = process
        .exe()
        .map(|e| e.display().to_string())
        .unwrap_or_default();
    let exe = exe.strip_suffix(" (deleted)").unwrap_or(&exe);
    let modules = modules(&process, &maps);
    let mut found = Found::new(patterns, allowed(&process, &modules, false));
    for module in modules {
        let is_wanted = all_modules || !patterns.is_empty() || module.path == exe;
        if module.path == "[vdso]" || !is_wanted {
            continue;
        }
        let wanted: Vec<&Pattern> = patterns
            .iter()
            .filter(|p| match p.absolute_address() {
                Some(at) => module.code.iter().any(|m| m.contains(at)),
                None => p.module_matches(module.file_name()),
            })
            .collect();
        if wanted.is_empty() && !patterns.is_empty() {
            continue;
        }
        let image = match images::of_module(&module) {
            Ok(image) => image,
            Err(error) => {
                warn(&format!("list {}: {error}", module.path));
                continue;
            }
        };
        let Some(bias) = module.bias(&image.image) else {
            let cause = "the file's segments are not where it is mapped";
            warn(&format!("list {}: {cause}", module.path));
            continue;
        };
        let is_there = |function: &Function| module.maps_function(bias, function);
        found.add(image, &module.path, is_there, |pattern| {
            match wanted.iter().any(|p| std::ptr::eq(*p, pattern)) {
                true => image.select(pattern, module.file_name(), bias),
                false => Vec::new(),
            }
        });
    }
    found.finish(&pid.to_string())
}

fn of_file(path: &Path, patterns: &[Pattern]) -> Result<Listing, Failure> {
    let failure = |cause: String| Failure::new(OPERATION, path.display(), cause);
    let bytes = FileBytes::open(path).map_err(|e| failure(io_text(&e)))?;
    let image = images::open(&bytes, path).map_err(|e| failure(e.to_string()))?;
    let name = path
        .file_name()
        .map(|n| n.to_string_lossy().into_owned())
        .unwrap_or_default();
    let mut found = Found::new(patterns, Allowed::ALL);
    found.add(
        image,
        &path.to_string_lossy(),
        |_| true,
        |pattern| {
            if pattern.module_matches(&name) {
                image.select(pattern, &name, Bias::default())
            } else {
                Vec::new()
            }
        },
    );
    if bytes.is_cut() {
        return Err(failure(
            "the file was cut short while it was read".to_owned(),
        ));
    }
    found.finish(&path.to_string_lossy())
}

/// Functions as they are found.
struct Found<'p> {
    patterns: &'p [Pattern],
    matched: Vec<bool>,
    /// Inlined copies of what each pattern names.
    copies: Vec<u64>,
    /// Names that are like each.
    near: Vec<Vec<String>>,
    /// What the process allows, if it is one.
    allowed: Allowed,
    listing: Listing,
}

impl<'p> Found<'p> {
    fn new(patterns: &'p [Pattern], allowed: Allowed) -> Self {
        let listing = Listing {
            functions: Vec::new(),
            coverage: Coverage::default(),
        };
        Self {
            patterns,
            matched: vec![false; patterns.len()],
            copies: vec![0; patterns.len()],
            near: vec![Vec::new(); patterns.len()],
            allowed,
            listing,
        }
    }

    /// Takes in what is selected of the functions that are there.
    fn add(
        &mut self,
        image: &OpenImage,
        path: &str,
        is_there: impl Fn(&Function) -> bool,
        select: impl Fn(&Pattern) -> Vec<Function>,
    ) {
        const MOST: usize = 3;
        let file_name = path.rsplit('/').next().unwrap_or(path);
        let mut functions: BTreeMap<u64, Function> = BTreeMap::new();
        if self.patterns.is_empty() {
            functions = image
                .image
                .functions()
                .iter()
                .filter(&is_there)
                .map(|f| (f.range.start.0, f))
                .collect();
        }
        let found = self.matched.iter_mut().zip(&mut self.near);
        for (pattern, (matched, near)) in self.patterns.iter().zip(found) {
            let mut selected = select(pattern);
            selected.retain(&is_there);
            if selected.is_empty() {
                near.extend(pattern.suggestions(&image.image, MOST));
            }
            *matched |= !selected.is_empty();
            for function in selected {
                functions.entry(function.range.start.0).or_insert(function);
            }
        }
        let places = Places::for_file(Path::new(path));
        let lines = Lines::load(image.image.data(), &places);
        let inlined = lines
            .map(|l| l.inlined_copies(usize::MAX))
            .unwrap_or_default();
        for (pattern, copies) in self.patterns.iter().zip(&mut self.copies) {
            if pattern.module_matches(file_name) {
                *copies += copies_of(pattern, &inlined);
            }
        }
        for function in functions.into_values() {
            let plan = plan_allowed(&image.image, &image.context, &function, WANT, self.allowed);
            let name = display_name(&function, file_name);
            let elsewhere = Elsewhere::of(image, &function, &inlined);
            self.listing.take(name, path, plan, elsewhere);
        }
    }

    fn finish(mut self, subject: &str) -> Result<Listing, Failure> {
        if let Some(index) = self.matched.iter().position(|matched| !matched) {
            let mut near = std::mem::take(&mut self.near[index]);
            near.sort();
            near.dedup();
            near.truncate(3);
            let unmatched = Unmatched {
                pattern: self.patterns[index].text().to_owned(),
                near,
                inlined: self.copies[index],
            };
            return Err(unmatched.failure(OPERATION, subject));
        }
        Ok(self.listing)
    }
}

impl Listing {
    fn take(&mut self, name: String, path: &str, plan: FunctionPlan, elsewhere: Elsewhere) {
        let refused = plan.refused().map(|(_, reason)| reason.to_string());
        let coverage = &mut self.coverage;
        // Neither is a function of its own: the one is a part of a function, the other a name for
        // functions that are listed by themselves.
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
        let is_tail = |p: &&patcher::plan::PointPlan| p.point.effect == Effect::TailExit;
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
