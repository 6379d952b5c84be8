//! Selection of the functions and paths to show.

use crate::profile::{Frame, Function, NoPhase, PathEntry, Process, Profile};
use patcher::select::Pattern;
use std::fmt;

/// A filter of functions and paths. An empty list selects everything. In the lists other than
/// `under`, an item is selected if one element matches.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Patterns for the names of functions.
    pub functions: Vec<Pattern>,
    /// Patterns for functions that a path passes through, in this order from the root.
    pub under: Vec<Pattern>,
    /// Names or ids of threads.
    pub threads: Vec<String>,
    /// Names of phases.
    pub phases: Vec<String>,
    /// Ids of processes, file names of their programs, or labels with their values (`rank 3`).
    pub processes: Vec<String>,
}

/// Parts of a profile, by their indexes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Into [`Profile::functions`], ascending.
    pub(super) functions: Vec<usize>,
    /// Into [`Profile::paths`], ascending.
    pub(super) paths: Vec<usize>,
}

impl Selection {
    /// The indexes of the selected paths in [`Profile::paths`], ascending.
    pub fn paths(&self) -> &[usize] {
        &self.paths
    }

    /// Selects the whole profile.
    pub fn all(profile: &Profile) -> Self {
        Self {
            functions: (0..profile.functions.len()).collect(),
            paths: (0..profile.paths.len())
                .filter(|&path| {
                    let path = &profile.paths[path];
                    path.metrics.count > 0 || !profile.is_passing(path)
                })
                .collect(),
        }
    }
}

/// A part of the filter matches nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotThere {
    /// No function matches this pattern.
    Function(String),
    /// No path passes through functions that match these patterns, in this order.
    Under(Vec<String>),
    /// The profile does not keep threads apart.
    Threads,
    /// No thread has this name or id.
    Thread(String),
    /// The profile does not keep paths apart by phase.
    Phases,
    /// No phase has this name.
    Phase(String),
    /// The profile does not keep processes apart.
    Processes,
    /// No process has this id, program or label.
    Process(String),
}

impl fmt::Display for NotThere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(name) => write!(f, "it has no function `{name}`"),
            Self::Under(names) => match names.as_slice() {
                [name] => write!(f, "no path passes through `{name}`"),
                names => write!(f, "no path passes through `{}`", names.join("` and then `")),
            },
            Self::Threads => f.write_str(
                "its threads are not kept apart (measure with \
                --per-thread)",
            ),
            Self::Thread(name) => write!(f, "it has no thread `{name}`"),
            Self::Phases => f.write_str(
                "its paths are not kept apart by phase (measure with --phase, or set marks)",
            ),
            Self::Phase(name) => write!(f, "it has no phase `{name}`"),
            Self::Processes => {
                f.write_str("its processes are not kept apart (measure with --per-process)")
            }
            Self::Process(name) => write!(f, "it has no process `{name}`"),
        }
    }
}

impl std::error::Error for NotThere {}

impl Filter {
    /// A filter for the paths that pass through a function that matches `function`.
    pub fn of_paths_through(function: &Pattern) -> Self {
        Self {
            under: vec![function.clone()],
            ..Self::default()
        }
    }

    /// Applies the filter to a profile. If it selects by thread, process or callers, functions
    /// without a selected path are left out.
    ///
    /// # Errors
    /// A part of the filter matches nothing.
    pub fn of(&self, profile: &Profile) -> Result<Selection, NotThere> {
        let mut shown = Selection::all(profile);
        self.keep_functions(profile, &mut shown)?;
        self.keep_threads(profile, &mut shown)?;
        self.keep_phases(profile, &mut shown)?;
        self.keep_processes(profile, &mut shown)?;
        self.keep_under(profile, &mut shown)?;
        let parts = [&self.threads, &self.phases, &self.processes].map(Vec::is_empty);
        if parts.contains(&false) || !self.under.is_empty() {
            let mut has_path = vec![false; profile.functions.len()];
            for &path in &shown.paths {
                has_path[profile.paths[path].function] = true;
            }
            shown.functions.retain(|&f| has_path[f]);
        }
        Ok(shown)
    }

    fn keep_functions(&self, profile: &Profile, shown: &mut Selection) -> Result<(), NotThere> {
        if self.functions.is_empty() {
            return Ok(());
        }
        let mut is_kept = vec![false; profile.functions.len()];
        for pattern in &self.functions {
            let mut is_there = false;
            for (function, is_kept) in profile.functions.iter().zip(&mut is_kept) {
                let module = profile.module_name(Some(function.module));
                let mut names = names(function);
                let matches = names.any(|name| is_called(pattern, name, &module));
                *is_kept |= matches;
                is_there |= matches;
            }
            if !is_there {
                return Err(NotThere::Function(pattern.text().to_owned()));
            }
        }
        shown.functions.retain(|&f| is_kept[f]);
        shown.paths.retain(|&p| is_kept[profile.paths[p].function]);
        Ok(())
    }

    fn keep_threads(&self, profile: &Profile, shown: &mut Selection) -> Result<(), NotThere> {
        if self.threads.is_empty() {
            return Ok(());
        }
        if profile.paths.iter().all(|p| p.thread.is_none()) {
            return Err(NotThere::Threads);
        }
        let names = profile.thread_names();
        let is_asked = |path: &PathEntry, asked: &str| {
            path.thread.is_some_and(|tid| {
                tid.to_string() == asked || names.get(&tid).is_some_and(|name| *name == asked)
            })
        };
        for asked in &self.threads {
            let mut paths = shown.paths.iter().map(|&p| &profile.paths[p]);
            if !paths.any(|path| is_asked(path, asked)) {
                return Err(NotThere::Thread(asked.clone()));
            }
        }
        let of_any = |path: &PathEntry| self.threads.iter().any(|asked| is_asked(path, asked));
        shown.paths.retain(|&p| of_any(&profile.paths[p]));
        Ok(())
    }

    fn keep_phases(&self, profile: &Profile, shown: &mut Selection) -> Result<(), NotThere> {
        if self.phases.is_empty() {
            return Ok(());
        }
        let asked = self.phases.iter().map(|name| profile.phase(name));
        let asked = asked.collect::<Result<Vec<usize>, NoPhase>>();
        let asked = asked.map_err(|none| match none {
            NoPhase::Apart => NotThere::Phases,
            NoPhase::Named(name) => NotThere::Phase(name),
        })?;
        let of_any = |path: &PathEntry| path.phase.is_some_and(|index| asked.contains(&index));
        shown.paths.retain(|&p| of_any(&profile.paths[p]));
        Ok(())
    }

    fn keep_processes(&self, profile: &Profile, shown: &mut Selection) -> Result<(), NotThere> {
        if self.processes.is_empty() {
            return Ok(());
        }
        if !profile.has_processes_apart() {
            return Err(NotThere::Processes);
        }
        let mut is_kept = vec![false; profile.processes.len()];
        for asked in &self.processes {
            let mut is_there = false;
            for (process, is_kept) in profile.processes.iter().zip(&mut is_kept) {
                let matches = is_process(process, asked);
                *is_kept |= matches;
                is_there |= matches;
            }
            if !is_there {
                return Err(NotThere::Process(asked.clone()));
            }
        }
        let of_any = |path: &PathEntry| path.process.is_some_and(|index| is_kept[index]);
        shown.paths.retain(|&p| of_any(&profile.paths[p]));
        Ok(())
    }

    fn keep_under(&self, profile: &Profile, shown: &mut Selection) -> Result<(), NotThere> {
        if self.under.is_empty() {
            return Ok(());
        }
        let frames = profile.frames.iter();
        let found: Vec<Vec<Vec<bool>>> = frames.map(|frame| self.found(profile, frame)).collect();
        let passes = |path: &PathEntry| {
            let mut wanted = 0;
            // From the root inwards.
            for function in path.stack.iter().rev().flat_map(|&frame| &found[frame]) {
                match function.get(wanted) {
                    Some(true) => wanted += 1,
                    Some(false) => {}
                    None => break,
                }
            }
            wanted == self.under.len()
        };
        shown.paths.retain(|&p| passes(&profile.paths[p]));
        if !shown.paths.is_empty() {
            Ok(())
        } else {
            Err(NotThere::Under(
                self.under.iter().map(|p| p.text().to_owned()).collect(),
            ))
        }
    }

    /// For each function of a frame, outermost first: one element for each pattern, true if it
    /// matches.
    fn found(&self, profile: &Profile, frame: &Frame) -> Vec<Vec<bool>> {
        let module = profile.module_name(frame.module);
        let shown = profile.frame_name(frame);
        let mut outer = vec![shown.as_str()];
        outer.extend(frame.function.as_deref());
        outer.extend(measured(profile, frame).into_iter().flat_map(names));
        let inlined = frame.inlined.iter().rev();
        let inlined = inlined.map(|inlined| inlined.function.as_deref().into_iter().collect());
        let each = |names: Vec<&str>| {
            let is_one = |pattern: &Pattern| {
                let mut names = names.iter();
                names.any(|name| is_called(pattern, name, &module))
            };
            self.under.iter().map(is_one).collect()
        };
        std::iter::once(outer).chain(inlined).map(each).collect()
    }
}

/// The names of a function. A function that the linker folded with others has all of their names.
fn names(function: &Function) -> impl Iterator<Item = &str> {
    let aliases = function.aliases.iter();
    let names = [&function.linkage, &function.name].into_iter();
    names.chain(aliases).map(String::as_str)
}

/// The measured function of a frame, by linkage name and module. `None` if the frame's function is
/// not measured or has no known name.
fn measured<'p>(profile: &'p Profile, frame: &Frame) -> Option<&'p Function> {
    let linkage = frame.function.as_ref()?;
    let mut functions = profile.functions.iter();
    functions.find(|f| f.linkage == *linkage && Some(f.module) == frame.module)
}

/// True if `asked` is the id, the program or a label with its value of the process.
fn is_process(process: &Process, asked: &str) -> bool {
    let mut labels = process.labels.iter();
    process.pid.to_string() == asked
        || process.program() == asked
        || labels.any(|(key, value)| {
            let rest = asked.strip_prefix(key.as_str());
            rest.is_some_and(|rest| rest.trim_start_matches([' ', '=', ':']) == value)
        })
}

/// True if the pattern matches `name` in `module`, or its text is exactly `name`.
fn is_called(pattern: &Pattern, name: &str, module: &str) -> bool {
    pattern.text() == name || pattern.module_matches(module) && pattern.names(name)
}
