//! Padding: bytes that are never executed.

use std::ops::Range;

use crate::addr::Svma;
use crate::flow::{Flow, ModuleContext, one, runs_on};
use crate::image::Image;
use crate::isa::JUMP;

/// The maximum length of padding examined in one place, in bytes.
const MOST_PADDING: u64 = 256;

/// The remaining length of a jump that starts with the shortest exit, in bytes.
const REST: u64 = JUMP - 1;

/// The end of the padding that begins at `start`; `start` if there is none.
///
/// It is the address of the first instruction that is not padding, that could be executed, or that
/// belongs to another function. The caller must know that control does not fall through into
/// `start`.
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

/// True if control could arrive at `at` from anywhere.
fn arrives(context: &ModuleContext<'_>, flow: &Flow, at: u64) -> bool {
    flow.is_target(at)
        || flow.is_mark(at)
        || context.branches.contains(Svma(at))
        || context.is_taken(Svma(at))
}

/// The part of the padding after a function that this function may use. If there is room, the last
/// five bytes are left for springboards of the next function.
pub fn usable_after(padding: Range<u64>) -> Range<u64> {
    if padding.end - padding.start >= REST + JUMP {
        padding.start..padding.end - JUMP
    } else {
        padding
    }
}

/// The part of the padding before the function at `start` that this function may use: the
/// counterpart of [`usable_after`].
///
/// `None` if the padding is too short to share, or if the code before may fall through into it. In
/// hand-written code, one entry may lead through no-ops to the next.
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
