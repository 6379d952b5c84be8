//! A profile as names and weights: for each path the names from the root to the function, and its
//! weight.

use super::ExportError;
use crate::profile::{
    COUNT, Frame, FrameLoop, Function, Metric, PathEntry, Profile, UNKNOWN_CALLERS, printable,
};
use std::collections::{HashMap, HashSet};

/// Suffix of a function's name on a path with tail calls, which are timed only up to the tail call.
const TAIL: &str = " [tail calls]";
/// Suffix of the name of a function that has not measured all metrics from the start.
const PARTLY: &str = " [partly measured]";

/// An index into [`Model::names`].
pub(super) type Name = usize;

/// A function at a call site, or a loop around the call. A frame with inlined functions or loops
/// has several lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'p> {
    /// The displayed name.
    pub(super) name: Name,
    /// The linkage name, if it is known.
    pub(super) linkage: Option<&'p str>,
    /// The path of the source file, if it is known.
    pub(super) file: Option<&'p str>,
    /// The line of the call in `file`, if it is known.
    pub(super) line: Option<u32>,
}

/// The callers in an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callers {
    /// True to name callers `function+0xOFFSET`.
    pub sites: bool,
    /// True to show the loops around a call between its function and the callee.
    pub loops: bool,
}

/// The way in which call sites are named.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Naming {
    pub(super) callers: Callers,
    /// True to give functions inlined around a call lines of their own.
    pub(super) inlined: bool,
}

impl Naming {
    /// Naming with inlined functions, for formats in which a line is a function.
    pub(super) fn by_line(callers: Callers) -> Self {
        Self {
            callers,
            inlined: true,
        }
    }
}

/// The stacks of a profile as names.
#[derive(Debug)]
pub(super) struct Model<'p> {
    /// The profile.
    pub(super) profile: &'p Profile,
    /// The names of functions and sites, without duplicates.
    pub(super) names: Vec<String>,
    /// The module of each name, taken from its first frame: an index into [`Profile::modules`].
    pub(super) modules: Vec<Option<usize>>,
    /// The lines of each frame of the profile, outermost first.
    pub(super) frames: Vec<Vec<Line<'p>>>,
    /// The names of loops.
    loops: HashSet<Name>,
    /// The index in `names` for each name.
    by_name: HashMap<String, Name>,
}

/// For each frame that stands for a path inside a measured function, that function.
fn owners(profile: &Profile) -> Vec<Option<&Function>> {
    let mut owners = vec![None; profile.frames.len()];
    for path in &profile.paths {
        if profile.number_inside(path).is_some() {
            owners[path.stack[0]] = profile.functions.get(path.function);
        }
    }
    owners
}

impl<'p> Model<'p> {
    /// Names all functions and frames of a profile.
    pub(super) fn of(profile: &'p Profile, naming: Naming) -> Self {
        let mut model = Self {
            profile,
            names: Vec::new(),
            modules: Vec::new(),
            frames: Vec::with_capacity(profile.frames.len()),
            loops: HashSet::new(),
            by_name: HashMap::new(),
        };
        model.intern(UNKNOWN_CALLERS.to_owned(), None);
        let owners = owners(profile);
        for (frame, owner) in profile.frames.iter().zip(&owners) {
            let lines = model.lines(frame, *owner, naming);
            model.frames.push(lines);
        }
        for path in &profile.paths {
            if let Some(unknown) = profile.unknown_callers(path) {
                model.intern(unknown.to_owned(), None);
            }
            let function = &profile.functions[path.function];
            model.intern(marked(profile, path), Some(function.module));
        }
        model
    }

    /// The index of a name, which is added with its module if it is missing.
    fn intern(&mut self, name: String, module: Option<usize>) -> Name {
        if let Some(&known) = self.by_name.get(&name) {
            return known;
        }
        let place = self.names.len();
        self.names.push(name.clone());
        self.modules.push(module);
        self.by_name.insert(name, place);
        place
    }

    fn lines(
        &mut self,
        frame: &'p Frame,
        owner: Option<&Function>,
        naming: Naming,
    ) -> Vec<Line<'p>> {
        let mut name = self.profile.frame_name(frame);
        if let Some(owner) = owner {
            // Paths inside other functions may have the same name.
            name = format!("{} {name}", owner.name);
        }
        if let (true, Some(offset)) = (naming.callers.sites, frame.offset) {
            name = format!("{name}+{offset:#x}");
        }
        let mut lines = vec![Line {
            name: self.intern(name, frame.module),
            linkage: frame.function.as_deref().filter(|_| frame.path.is_none()),
            file: frame.file.as_deref(),
            line: frame.line,
        }];
        self.push_loops(frame, 0, naming, &mut lines);
        let labels = self.profile.labels(frame);
        let inlined = frame.inlined.iter().zip(labels).rev();
        for (depth, (inline, label)) in (1..).zip(inlined) {
            if naming.inlined {
                lines.push(Line {
                    name: self.intern(label.name, frame.module),
                    linkage: inline.function.as_deref(),
                    file: inline.file.as_deref(),
                    line: inline.line,
                });
            }
            self.push_loops(frame, depth, naming, &mut lines);
        }
        lines
    }

    /// Adds the loops around a call in the function that is inlined `depth` times, the outermost
    /// first, if they are shown.
    fn push_loops(
        &mut self,
        frame: &'p Frame,
        depth: usize,
        naming: Naming,
        lines: &mut Vec<Line<'p>>,
    ) {
        let loops: Vec<&FrameLoop> = frame.loops_at(depth).collect();
        for of in loops.into_iter().rev().filter(|_| naming.callers.loops) {
            let name = self.intern(self.profile.loop_name(frame, of), frame.module);
            self.loops.insert(name);
            lines.push(Line {
                name,
                linkage: None,
                file: of.file.as_deref(),
                line: of.line,
            });
        }
    }

    /// True if the name is that of a loop.
    pub(super) fn is_loop(&self, name: Name) -> bool {
        self.loops.contains(&name)
    }

    /// The name of the function at the end of a path of the model's profile, with suffixes for
    /// times that are not complete.
    pub(super) fn function(&self, path: &PathEntry) -> Name {
        let name = marked(self.profile, path);
        self.by_name.get(&name).copied().unwrap_or_default()
    }

    /// The name of a function of the profile. It is added if no path leads to it.
    pub(super) fn function_at(&mut self, index: usize) -> Name {
        let function = &self.profile.functions[index];
        let mut name = printable(&function.name).into_owned();
        if is_partly(function) {
            name.push_str(PARTLY);
        }
        self.intern(name, Some(function.module))
    }

    /// The lines of the callers on a path, the root first.
    pub(super) fn callers<'m>(
        &'m self,
        path: &'m PathEntry,
    ) -> impl Iterator<Item = &'m Line<'p>> + 'm {
        path.stack.iter().rev().flat_map(|&f| &self.frames[f])
    }

    /// The name that replaces unknown callers and gives the reason. `None` on a complete path.
    pub(super) fn unknown(&self, path: &PathEntry) -> Option<Name> {
        let unknown = self.profile.unknown_callers(path)?;
        Some(self.by_name.get(unknown).copied().unwrap_or_default())
    }

    /// The names on a path from the root to the function, below [`Model::unknown`] if the root is
    /// not known.
    pub(super) fn stack(&self, path: &PathEntry) -> Vec<Name> {
        let unknown = self.unknown(path);
        let callers = self.callers(path).map(|line| line.name);
        let all = unknown.into_iter().chain(callers);
        all.chain([self.function(path)]).collect()
    }
}

/// The name of a path's function, with suffixes for what keeps the path apart, and for times that
/// are not complete on it.
fn marked(profile: &Profile, path: &PathEntry) -> String {
    let function = &profile.functions[path.function];
    let mut name = printable(&function.name).into_owned();
    if let Some(apart) = profile.apart(path) {
        name.push_str(&format!(" [{apart}]"));
    }
    if path.tail > 0 {
        name.push_str(TAIL);
    }
    if is_partly(function) {
        name.push_str(PARTLY);
    }
    name
}

/// True if some metric of the profile has not measured some calls of the function.
pub(super) fn is_partly(function: &Function) -> bool {
    function.measured.is_some()
}

/// The exclusive weight of a path, in the unit of the metric: the number of calls, the part of a
/// timer or counter outside nested probed functions, or the sum of values. So the weights of any
/// paths can be added up. 0 if the path has no values of the metric.
pub(super) fn weight(path: &PathEntry, metric: &str) -> i128 {
    if metric == COUNT {
        return path.metrics.count.into();
    }
    let stats = path.metrics.timers.get(metric);
    stats.map_or(0, |stats| stats.exclusive.unwrap_or(stats.sum))
}

/// The requested metrics: the one named `asked`, or all.
///
/// # Errors
/// The profile does not have the requested metric.
pub(super) fn metrics<'p>(
    profile: &'p Profile,
    asked: Option<&str>,
) -> Result<Vec<&'p Metric>, ExportError> {
    match asked {
        Some(name) => Ok(vec![profile.metric(name)?]),
        None => Ok(profile.metrics.iter().collect()),
    }
}

/// The widths of all paths for each metric.
///
/// # Errors
/// Returns the errors of [`widths`].
pub(super) fn all_widths(
    profile: &Profile,
    metrics: &[&Metric],
) -> Result<Vec<Vec<u64>>, ExportError> {
    let each = metrics.iter();
    each.map(|metric| widths(profile, &metric.name)).collect()
}

/// The weight of each path, in the order of the profile, for formats that use it as a width.
///
/// # Errors
/// A weight is negative, or a weight or the sum exceeds 64 bits.
pub(super) fn widths(profile: &Profile, metric: &str) -> Result<Vec<u64>, ExportError> {
    let weights = profile.paths.iter().map(|path| weight(path, metric));
    let mut sum = 0u64;
    weights
        .map(|weight| {
            if weight < 0 {
                return Err(ExportError::Negative(metric.to_owned()));
            }
            let large = || ExportError::TooLarge(metric.to_owned());
            let width = u64::try_from(weight).map_err(|_| large())?;
            sum = sum.checked_add(width).ok_or_else(large)?;
            Ok(width)
        })
        .collect()
}
