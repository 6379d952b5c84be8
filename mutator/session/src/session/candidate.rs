//! A function to be patched, with its plan.

use std::sync::Arc;

use abi::schema::SCHEMA_COUNT;
use patcher::function::Function;
use patcher::inside::{PathStep, SpanStep, TimedPaths};
use patcher::plan::{Effect, FunctionPlan, PointPlan, ProbePoint, RefuseReason};
use patcher::select::name_of_start;
use patcher::{Bias, Svma};

use super::counted::Counted;
use super::elsewhere::Elsewhere;
use super::refusal::Refusal;
use crate::segment::{CopyDoc, Forking, InsideDoc, Role};
use ipath_symbols::images::OpenImage;
use ipath_symbols::values::Item;

/// A function that a pattern names.
pub struct Candidate {
    /// Index of the module in the list it was selected from; 0 for a file.
    pub module: usize,
    /// The module's file.
    pub image: Arc<OpenImage>,
    /// Run-time addresses minus link-time addresses of the module's file.
    pub bias: Bias,
    /// The function with its plan.
    pub plan: FunctionPlan,
    /// The function's demangled name, or `module+0xADDR` if it has none.
    pub name: String,
    /// The destinations of calls that bypass the function.
    pub elsewhere: Elsewhere,
    /// The purpose of the function's probes.
    pub role: Role,
    /// The children that a measured function may create. `None` for other functions.
    pub children: Option<Forking>,
    /// True if breakpoints may be used where no other tactic works.
    pub traps: bool,
    /// The locations of the function's arguments and its return value: [`abi::value`].
    pub values: u64,
    /// Why a requested value cannot be read. `None` if all can be read.
    pub unreadable: Option<String>,
    /// The place of the field by which calls are kept apart ([`abi::apart::By::encode`]). `None` if
    /// they are not kept apart by a field.
    pub by: Option<u64>,
    /// The requested values that cannot be read.
    pub unread: Vec<Item>,
    /// True without debug information about the function's values. Registers are then read as they
    /// are.
    pub is_bare: bool,
    /// The points that have hooks in the function's plan, by number.
    pub points: Vec<Point>,
    /// The counters that have hooks in the function's plan. `None` if its edges are not counted.
    pub counted: Option<Counted>,
    /// The number of the schema by which the function will be measured.
    pub schema: u8,
    /// The function of the session whose exits the plan contains. The plan contains nothing else
    /// then. `None` for other candidates.
    pub exits_of: Option<usize>,
    /// The rows of the session that the plan lays out anew. `None` for other candidates.
    pub(super) relaid: Option<Relaid>,
}

/// The rows of the session that a candidate lays out anew.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relaid {
    /// The id of the measured function. `None` if it is new, or if only the edges are laid out.
    pub(super) function: Option<usize>,
    /// The id of the row for the edges. `None` if it is new, or if only the calls are laid out.
    pub(super) edges: Option<usize>,
    /// Ids of the rows of the same function that are in. They are taken out first.
    pub(super) are_in: Vec<usize>,
    /// Ids of the rows whose sites are given up.
    pub(super) given_up: Vec<usize>,
}

impl Relaid {
    /// The ids of the rows that are laid out anew.
    pub(super) fn rows(&self) -> impl Iterator<Item = usize> {
        self.function.into_iter().chain(self.edges)
    }

    /// True if the measured function is in, so that the change does not add it.
    pub(super) fn measures_already(&self) -> bool {
        self.function.is_some_and(|id| self.are_in.contains(&id))
    }

    /// True if the edges are counted, so that the change does not add them.
    pub(super) fn counts_already(&self) -> bool {
        self.edges.is_some_and(|id| self.are_in.contains(&id))
    }
}

/// The file in which a candidate is found.
#[derive(Clone)]
pub(super) struct Origin {
    /// Index of the module in the list it was selected from; 0 for a file.
    pub(super) module: usize,
    /// The module's file.
    pub(super) image: Arc<OpenImage>,
    /// Address in the process minus address in the file.
    pub(super) bias: Bias,
}

/// The bias of a function's module, and the function's link-time address. Together they identify a
/// function of the process.
pub(super) type FunctionPlace = (Bias, Svma);

impl Candidate {
    /// A candidate with this plan and defaults for all else.
    pub(super) fn new(origin: Origin, role: Role, name: String, plan: FunctionPlan) -> Self {
        Self {
            module: origin.module,
            image: origin.image,
            bias: origin.bias,
            plan,
            name,
            elsewhere: Elsewhere::default(),
            role,
            children: None,
            traps: false,
            values: 0,
            unreadable: None,
            by: None,
            unread: Vec::new(),
            is_bare: false,
            points: Vec::new(),
            counted: None,
            schema: SCHEMA_COUNT,
            exits_of: None,
            relaid: None,
        }
    }

    /// The points, each with the plans of its hooks.
    pub(super) fn planned_points(&self) -> impl Iterator<Item = (&Point, &[PointPlan])> {
        let mut plans = &self.plan.points[..];
        self.points.iter().map(move |point| {
            let (own, others) = plans.split_at(point.hook_count());
            plans = others;
            (point, own)
        })
    }

    /// True if its plan has hooks of points or counters.
    pub(super) fn is_carrier(&self) -> bool {
        !self.points.is_empty() || self.counted.is_some()
    }

    /// The file that contains the function.
    pub(super) fn origin(&self) -> Origin {
        Origin {
            module: self.module,
            image: Arc::clone(&self.image),
            bias: self.bias,
        }
    }

    /// The reason why the function cannot be instrumented. `None` if it can be.
    pub fn refused(&self) -> Option<Refusal> {
        let refused = self.plan.refused().map(|(_, reason)| reason.into());
        refused.or_else(|| self.unreadable())
    }

    /// The refusal because of a value that cannot be read. `None` if all values can be read.
    pub(super) fn unreadable(&self) -> Option<Refusal> {
        self.unreadable.clone().map(Refusal::Value)
    }

    /// The bias of the function's module, and the function's link-time address.
    pub(super) fn place(&self) -> FunctionPlace {
        (self.bias, self.plan.function.range.start)
    }
}

/// The demangled name, or the module and address of a function without a name.
pub(super) fn display_name(function: &Function, module: &str) -> String {
    if function.linkage.is_empty() {
        name_of_start(module, function.range.start)
    } else {
        function.name()
    }
}

/// The paths of a function, if they are timed.
#[derive(Clone, Default)]
pub(super) struct TimedPathsOf {
    /// The instruction and the action of each hook.
    pub(super) hooks: Vec<(Svma, PathStep)>,
    /// The graph, with counters from number 0 on.
    pub(super) inside: InsideDoc,
}

impl TimedPathsOf {
    /// The hooks, with this number.
    fn hooks(&self, number: u32) -> Vec<ProbePoint> {
        let hooks = self.hooks.iter().map(|&(at, step)| {
            let timed = step.timed.map(|timed| TimedPaths { number, ..timed });
            ProbePoint {
                at,
                effect: Effect::Path(PathStep { timed, ..step }),
            }
        });
        hooks.collect()
    }
}

/// A probe point inside a function, a span, or the timed paths of a function.
#[derive(Clone)]
pub struct Point {
    /// The link-time address of the instruction, or of the start of the loop, copy or function.
    pub(super) at: Svma,
    /// The point's name in reports.
    pub(super) name: String,
    /// The location of the frame of the point's function: [`abi::point::Standing`].
    pub(super) standing: u64,
    /// The reason for refusal that no tactic removes. `None` if there is none.
    pub(super) refused: Option<Refusal>,
    /// The reason why the point needs a breakpoint. `None` if it needs none.
    pub(super) no_room: Option<RefuseReason>,
    /// The starts and ends of a span. `None` for an instruction.
    pub(super) span: Option<Vec<(Svma, SpanStep)>>,
    /// The inlined copy, if the span is one.
    pub(super) copy: Option<Box<CopyDoc>>,
    /// The timed paths. `None` for an instruction or a span.
    pub(super) paths: Option<Box<TimedPathsOf>>,
    /// True for paths if the same command times other parts of the function.
    pub(super) is_beside_others: bool,
    /// The number of the schema by which a span will be measured.
    pub(super) schema: u8,
    /// True if metrics were requested for a span.
    pub(super) asks_metrics: bool,
}

impl Point {
    /// A point or span that has not been looked at.
    pub(super) fn new(at: Svma, name: String) -> Self {
        Self {
            at,
            name,
            standing: 0,
            refused: None,
            no_room: None,
            span: None,
            copy: None,
            paths: None,
            is_beside_others: false,
            schema: SCHEMA_COUNT,
            asks_metrics: false,
        }
    }

    /// The role of its row.
    pub(super) fn role(&self) -> Role {
        if self.is_timed() {
            Role::Span
        } else {
            Role::Point
        }
    }

    /// True for a span, and for the paths of a function.
    pub(super) fn is_timed(&self) -> bool {
        self.span.is_some() || self.paths.is_some()
    }

    /// The kind of the span, for messages.
    pub(super) fn kind(&self) -> &'static str {
        match (&self.copy, &self.paths) {
            (Some(_), _) => "an inlined copy",
            (None, Some(_)) => "a path",
            (None, None) => "a loop",
        }
    }

    /// Its hooks, with this number.
    pub(super) fn hooks(&self, number: u32) -> Vec<ProbePoint> {
        if let Some(paths) = &self.paths {
            return paths.hooks(number);
        }
        let Some(steps) = &self.span else {
            return vec![ProbePoint {
                at: self.at,
                effect: Effect::Point(number),
            }];
        };
        let hooks = steps.iter().map(|&(at, step)| ProbePoint {
            at,
            effect: Effect::Span(SpanStep { number, ..step }),
        });
        hooks.collect()
    }

    /// Numbers the counters of its paths after those of the same function.
    pub(super) fn number_counters_after(&mut self, others: Option<&InsideDoc>) {
        let before = others.map_or(0, InsideDoc::counters);
        if let Some(paths) = &mut self.paths {
            paths.inside.first += before;
            for (_, step) in &mut paths.hooks {
                step.first += before;
            }
        }
    }

    /// The number of its hooks.
    pub(super) fn hook_count(&self) -> usize {
        match &self.paths {
            Some(paths) => paths.hooks.len(),
            None => self.span.as_ref().map_or(1, Vec::len),
        }
    }

    /// For each hook, true if it ends a span or a path.
    pub(super) fn ends(&self) -> Vec<bool> {
        if let Some(paths) = &self.paths {
            return paths.hooks.iter().map(|(_, step)| step.ends()).collect();
        }
        let steps = self.span.iter().flatten();
        steps.map(|(_, step)| !step.begins).collect()
    }
}
