//! Padding: bytes that nothing executes.

use std::ops::Range;

use crate::addr::Svma;
use crate::flow::{Flow, ModuleContext, one, runs_on};
use crate::image::Image;
use crate::isa::JUMP;

/// No more padding than this is looked at in one place.
const MOST_PADDING: u64 = 256;

/// The longest rest of a jump after the shortest exit.
const REST: u64 = JUMP - 1;

/// The end of the no-ops that begin at `start`, up to the first one that could be executed or that
/// belongs to another function. `start` itself must not be reachable by running on into it.
pub fn end(image: &Image<'_>, context: &ModuleContext<'_>, flow: &Flow, start: u64) -> u64 {
    let mut at = start;
    while at - start < MOST_PADDING {
        let Some(insn) = one(image, Svma(at)) else {
            break;
        };
        if !insn.is_padding() {
            break;
        }
        let own = flow.contains(at);
        let arrives = |at: u64| {
            arrives(context, flow, at) || !own && image.functions().containing(Svma(at)).is_some()
        };
        if (at..insn.end()).any(arrives) {
            break;
        }
        at = insn.end();
    }
    at
}

/// Could control arrive at `at` from anywhere?
fn arrives(context: &ModuleContext<'_>, flow: &Flow, at: u64) -> bool {
    flow.is_target(at)
        || flow.is_mark(at)
        || context.branches.contains(Svma(at))
        || context.is_taken(Svma(at))
}

/// The part of the padding after a function's last byte that this function may use. Where there is
/// room, the last five bytes are left to springboards of the function that follows.
pub fn usable_after(padding: Range<u64>) -> Range<u64> {
    if padding.end - padding.start >= REST + JUMP {
        padding.start..padding.end - JUMP
    } else {
        padding
    }
}

/// The part of the padding before the function at `start` that this function may use: the
/// counterpart of [`usable_after`]. None where the code before may run on into the padding, as where one
/// entry of hand-written code leads through no-ops to the next.
pub fn usable_before(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    flow: &Flow,
    start: u64,
) -> Option<Range<u64>> {
    let previous = (1..=MOST_PADDING).find_map(|back| {
        let at = start.checked_sub(back)?;
        image.functions().containing(Svma(at))
    })?;
    let previous = previous.start..previous.start.plus(previous.size);
    let free_from = previous.end.0;
    let room = start.checked_sub(free_from)? >= REST + JUMP;
    (room && end(image, context, flow, free_from) == start && !runs_on(image, &previous))
        .then(|| start - JUMP..start)
}
