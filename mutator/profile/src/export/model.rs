//! A profile as tools that know stacks and weights take it: names from the root to the function, and what each path weighs.

use super::ExportError;
use crate::profile::{
    COUNT, Frame, Function, Metric, PathEntry, Profile, UNKNOWN_CALLERS, printable,
};
use std::collections::HashMap;

/// What follows the name of a function on a path some of whose calls left by a tail call, timed up to there.
const TAIL: &str = " [tail calls]";
/// What follows the name of a function that has not measured all metrics from the beginning on.
const PARTLY: &str = " [partly measured]";

/// A name by its place in [`Model::names`].
pub(super) type Name = usize;

/// One function at one call site; there are several for one frame where functions are inlined.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'p> {
    /// What it is called.
    pub(super) name: Name,
    /// The name that the linker knows, where there is one.
    pub(super) linkage: Option<&'p str>,
    /// The source file.
    pub(super) file: Option<&'p str>,
    /// The line of the call in it.
    pub(super) line: Option<u32>,
}

/// How call sites are named.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Naming {
    /// Callers are `function+0xOFFSET`.
    pub(super) sites: bool,
    /// Functions inlined around a call have lines of their own.
    pub(super) inlined: bool,
}

impl Naming {
    /// With inlined functions, as formats have them in which a line is a function.
    pub(super) fn by_line(sites: bool) -> Self {
        Self {
            sites,
            inlined: true,
        }
    }
}

/// The stacks of a profile by names.
#[derive(Debug)]
pub(super) struct Model<'p> {
    /// What is shown.
    pub(super) profile: &'p Profile,
    /// All names, each once.
    pub(super) names: Vec<String>,
    /// The module of each name, which is that of its first frame. An index into [`Profile::modules`].
    pub(super) modules: Vec<Option<usize>>,
    /// The lines of each of the profile's frames, the outermost first.
    pub(super) frames: Vec<Vec<Line<'p>>>,
    by_name: HashMap<String, Name>,
}

impl<'p> Model<'p> {
    pub(super) fn of(profile: &'p Profile, naming: Naming) -> Self {
        let mut model = Self {
            profile,
            names: Vec::new(),
            modules: Vec::new(),
            frames: Vec::with_capacity(profile.frames.len()),
            by_name: HashMap::new(),
        };
        model.intern(UNKNOWN_CALLERS.to_owned(), None);
        for frame in &profile.frames {
            let lines = model.lines(frame, naming);
            model.frames.push(lines);
        }
        for path in &profile.paths {
            if let Some(unknown) = profile.unknown_callers(path) {
                model.intern(unknown.to_owned(), None);
            }
            let function = &profile.functions[path.function];
            model.intern(marked(function, path), Some(function.module));
        }
        model
    }

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

    fn lines(&mut self, frame: &'p Frame, naming: Naming) -> Vec<Line<'p>> {
        let mut name = self.profile.frame_name(frame);
        if let (true, Some(offset)) = (naming.sites, frame.offset) {
            name = format!("{name}+{offset:#x}");
        }
        let mut lines = vec![Line {
            name: self.intern(name, frame.module),
            linkage: frame.function.as_deref(),
            file: frame.file.as_deref(),
            line: frame.line,
        }];
        if naming.inlined {
            let labels = self.profile.labels(frame);
            for (inline, label) in frame.inlined.iter().zip(labels).rev() {
                lines.push(Line {
                    name: self.intern(label.name, frame.module),
                    linkage: inline.function.as_deref(),
                    file: inline.file.as_deref(),
                    line: inline.line,
                });
            }
        }
        lines
    }

    /// The function at the end of a path, by its name with what is to be known of its times there.
    pub(super) fn function(&self, path: &PathEntry) -> Name {
        let name = marked(&self.profile.functions[path.function], path);
        self.by_name.get(&name).copied().unwrap_or_default()
    }

    /// The lines of the callers on a path, the root first.
    pub(super) fn callers<'m>(
        &'m self,
        path: &'m PathEntry,
    ) -> impl Iterator<Item = &'m Line<'p>> + 'm {
        path.stack.iter().rev().flat_map(|&f| &self.frames[f])
    }

    /// The name that stands for unknown callers, with the reason. `None` on a complete path.
    pub(super) fn unknown(&self, path: &PathEntry) -> Option<Name> {
        let unknown = self.profile.unknown_callers(path)?;
        Some(self.by_name.get(unknown).copied().unwrap_or_default())
    }

    /// The names on a path from the root to the function, below [`Model::unknown`] if the root is not known.
    pub(super) fn stack(&self, path: &PathEntry) -> Vec<Name> {
        let unknown = self.unknown(path);
        let callers = self.callers(path).map(|line| line.name);
        let all = unknown.into_iter().chain(callers);
        all.chain([self.function(path)]).collect()
    }
}

/// A function's name with what is to be known of its times on a path.
fn marked(function: &Function, path: &PathEntry) -> String {
    let mut name = printable(&function.name).into_owned();
    if path.tail > 0 {
        name.push_str(TAIL);
    }
    if is_partly(function) {
        name.push_str(PARTLY);
    }
    name
}

/// True if there are calls of a function that some metric of the profile has not measured.
pub(super) fn is_partly(function: &Function) -> bool {
    function.measured.is_some()
}

/// What a path has cost itself: calls, of timers and counters the share outside nested probed functions, which have paths of
/// their own, and of values their sum. So what paths weigh adds up, over any of them.
pub(super) fn weight(path: &PathEntry, metric: &str) -> i128 {
    if metric == COUNT {
        return path.metrics.count.into();
    }
    let stats = path.metrics.timers.get(metric);
    stats.map_or(0, |stats| stats.exclusive.unwrap_or(stats.sum))
}

/// The metrics that are asked for: one, or all.
///
/// # Errors
/// The profile does not have it.
pub(super) fn metrics<'p>(
    profile: &'p Profile,
    asked: Option<&str>,
) -> Result<Vec<&'p Metric>, ExportError> {
    match asked {
        Some(name) => Ok(vec![profile.metric(name)?]),
        None => Ok(profile.metrics.iter().collect()),
    }
}

/// The widths of all paths by each of these metrics.
///
/// # Errors
/// Those of [`widths`].
pub(super) fn all_widths(
    profile: &Profile,
    metrics: &[&Metric],
) -> Result<Vec<Vec<u64>>, ExportError> {
    let each = metrics.iter();
    each.map(|metric| widths(profile, &metric.name)).collect()
}

/// The weights of all paths, for formats in which they are widths.
///
/// # Errors
/// One is negative, or more than 64 bits hold.
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
