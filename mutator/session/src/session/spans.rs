//! The requested spans of one function: loops and paths that are timed by themselves.

use std::collections::BTreeSet;

use patcher::Svma;
use patcher::flow::frames_before;
use patcher::function::Function;
use patcher::inside::{self, Inside, PathStep, Span, TimedPaths};
use patcher::plan::Effect;

use super::candidate::{Point, TimedPathsOf};
use super::counted::Counters;
use super::pointed::standing;
use super::refusal::Refusal;
use ipath_symbols::images::OpenImage;

/// The spans of the loops whose headers are at these addresses. `name` is the function's name in
/// reports.
pub(super) fn spans(
    image: &OpenImage,
    function: &Function,
    inside: &Inside,
    (name, headers): (&str, &BTreeSet<Svma>),
) -> Vec<Point> {
    let (image, context) = (image.image(), image.context());
    let spans = Span::of_loops(image, context, function, inside);
    let loops = inside.loops.loops().iter().zip(0u32..);
    let of_loops = loops.zip(spans).filter_map(|((of, number), span)| {
        let at = inside.graph.block(of.header).first;
        headers.contains(&at).then_some((at, number, span))
    });
    let points = of_loops.map(|(at, number, span)| {
        let mut point = Point::new(at, format!("{name}:loop{number}"));
        let refused = |why: String| Some(Refusal::Inside(why));
        match span {
            Ok(span) => {
                match standing(span.frame) {
                    Some(standing) => point.standing = standing,
                    None => point.refused = refused("its frame is too far away".to_owned()),
                }
                point.span = Some(span.hooks);
            }
            Err(why) => {
                point.refused = refused(why.to_string());
                // Messages still name it as a span, though it has no hooks.
                point.span = Some(Vec::new());
            }
        }
        point
    });
    points.collect()
}

/// The timed paths of a function. `name` is its name in reports.
pub(super) fn paths(
    image: &OpenImage,
    function: &Function,
    inside: Result<&Inside, &inside::Refusal>,
    name: &str,
) -> Point {
    let mut point = Point::new(function.range.start, format!("{name}:paths"));
    let found = inside.map_err(|refusal| refusal.to_string());
    let found = found.and_then(|inside| TimedPathsOf::of(image, function, inside));
    let (paths, refused) = match found {
        Ok(paths) => (paths, None),
        Err(why) => (TimedPathsOf::default(), Some(Refusal::Inside(why))),
    };
    point.refused = refused;
    point.paths = Some(Box::new(paths));
    point
}

impl TimedPathsOf {
    /// Fails with the reason in words if the paths cannot be timed.
    fn of(image: &OpenImage, function: &Function, inside: &Inside) -> Result<Self, String> {
        let counters = Counters::of_paths(image, function, inside)?;
        let hooks = counters.hooks.iter();
        let hooks = hooks.filter_map(|hook| match hook.effect {
            Effect::Path(step) => Some((hook.at, step)),
            _ => None,
        });
        let mut hooks: Vec<(Svma, PathStep)> = hooks.collect();
        let at: Vec<Svma> = hooks.iter().map(|(at, _)| *at).collect();
        let frames = frames_before(image.image(), image.context(), function, &at);
        for ((at, step), frame) in hooks.iter_mut().zip(frames) {
            let standing = frame.and_then(standing);
            let why = || format!("its frame is too far away at {at}");
            step.timed = Some(TimedPaths {
                number: 0,
                standing: standing.ok_or_else(why)?,
            });
        }
        Ok(Self {
            hooks,
            inside: counters.document,
        })
    }
}
