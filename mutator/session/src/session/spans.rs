//! The requested spans of one function: loops that are timed by themselves.

use std::collections::BTreeSet;

use patcher::Svma;
use patcher::function::Function;
use patcher::inside::{Inside, Span};

use super::candidate::Point;
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
