//! The functions of a profile, and the modules they are in.

use patcher::function::demangle;

use super::frames::{FrameKey, Frames};
use super::stats::Measures;
use crate::segment::{CopyDoc, Document, FunctionDoc, ModuleDoc, Role, ThrottledDoc};
use ipath_profile::{
    Counts, FrameLoop, Function, FunctionPart, FunctionTotals, InlinedCopy, Profile, Refused,
};

/// The maximum number of functions whose definitions are looked up. With more of them, reading the
/// debug information takes too long.
const MOST_LOOKED_UP: usize = 256;

/// Adds the modules, functions and refusals of the document. The functions have no calls yet.
pub(super) fn add(
    profile: &mut Profile,
    frames: &mut Frames,
    measures: &Measures,
    document: &Document,
) {
    for module in &document.modules {
        index(profile, frames, Some(module));
    }
    for refused in &document.refused {
        let module = index(profile, frames, document.modules.get(refused.module));
        profile.refused.push(Refused {
            name: refused.name.clone(),
            module,
            address: refused.address.0,
            reason: refused.reason.clone(),
        });
    }
    let are_looked_up = document.rows().count() <= MOST_LOOKED_UP;
    for (_, function) in document.rows() {
        let definition = document
            .modules
            .get(function.module)
            .filter(|_| are_looked_up)
            .and_then(|module| frames.position(module, function.address));
        let (file, line) = definition.unzip();
        let module = index(profile, frames, document.modules.get(function.module));
        let measured = measured(profile, document, function);
        let ends = function.has_exits().then_some(0);
        profile.functions.push(Function {
            name: match &function.copy {
                Some(copy) => demangle(&copy.linkage),
                None => function.name.clone(),
            },
            linkage: function.linkage.clone(),
            module,
            address: function.address.0,
            size: function.size,
            file,
            line,
            entry: function.entry.clone(),
            exits: if function.has_exits() {
                function.exits.clone()
            } else {
                Vec::new()
            },
            since_ns: function.since_ns,
            away_ns: function.away_ns
                + function
                    .out_ns
                    .map_or(0, |out| profile.session.elapsed_ns.saturating_sub(out)),
            measured,
            throttled: function.throttled.map(ThrottledDoc::in_profile),
            aliases: function.aliases.clone(),
            clones: function.clones.clone(),
            inlined: function.inlined,
            point: function.role.is_point(),
            inlined_copy: function.copy.as_deref().map(|copy| Box::new(of_copy(copy))),
            timed_paths: function.has_timed_paths(),
            of_loop: (function.part() == FunctionPart::Loop).then(|| {
                let module = document.modules.get(function.module);
                let found = module.and_then(|m| frames.loop_at(m, function.address, 1));
                Box::new(found.unwrap_or_else(|| FrameLoop {
                    header: function.address.0,
                    ..FrameLoop::default()
                }))
            }),
            tail: 0,
            is_removed: !function.is_in(),
            only_edges: function.role == Role::Edges,
            totals: FunctionTotals {
                counts: Counts {
                    count: 0,
                    timers: measures.zeroes(),
                },
                unwound: ends,
                open: ends,
            },
            spread: None,
            processes: Vec::new(),
            slowest: Vec::new(),
            trace: Vec::new(),
        });
    }
}

/// For each function of the profile, the index of the frame of its call if it is an inlined copy.
pub(super) fn callers_of_copies(
    profile: &mut Profile,
    frames: &mut Frames,
    document: &Document,
) -> Vec<Option<usize>> {
    let rows = document.rows().map(|(_, function)| {
        let copy = function.copy.as_deref()?;
        let module = document.modules.get(function.module)?;
        frames.caller_of_copy(profile, module, function.address, (copy.entry, copy.depth))
    });
    rows.collect()
}

impl FunctionDoc {
    /// The part of the function that is measured.
    pub fn part(&self) -> FunctionPart {
        match (self.role, &self.copy) {
            (Role::Point, _) => FunctionPart::Point,
            (Role::Span, Some(copy)) => FunctionPart::Copy(copy.entry),
            (Role::Span, None) if self.has_timed_paths() => FunctionPart::Paths,
            (Role::Span, None) => FunctionPart::Loop,
            _ => FunctionPart::Whole,
        }
    }
}

fn of_copy(copy: &CopyDoc) -> InlinedCopy {
    let (file, line) = copy.called.clone().unzip();
    InlinedCopy {
        entry: copy.entry,
        linkage: copy.linkage.clone(),
        within: copy.within.clone(),
        file,
        line,
        gaps: copy.gaps as u64,
        outside: copy.outside as u64,
    }
}

/// The names of a function's metrics, if the profile has to state them. `None` for a point, and for
/// a function that has always measured all metrics of the profile.
fn measured(profile: &Profile, document: &Document, function: &FunctionDoc) -> Option<Vec<String>> {
    let measured = document.measured_of(function);
    let is_all = measured.iter().eq(profile.metrics.iter().map(|m| &m.name));
    let is_measured = matches!(function.role, Role::Measured | Role::Span);
    let is_told = is_measured && (function.remeasured || !is_all);
    is_told.then(|| measured.into_iter().map(str::to_owned).collect())
}

/// The index of a module in the profile. Adds the module if it is missing. `None` stands for a
/// module without a path.
fn index(profile: &mut Profile, frames: &mut Frames, module: Option<&ModuleDoc>) -> usize {
    let key = module.map_or_else(FrameKey::default, |m| (m.path.clone(), Some(m.bias.0)));
    frames.module(profile, key, module.and_then(|m| m.build_id.as_deref()))
}
