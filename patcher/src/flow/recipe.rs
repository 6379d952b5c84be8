//! Recipes: rules for leaving a frame at a call, derived from the instructions of its function
//! alone, for code without unwind tables. After Tallent, Mellor-Crummey and Fagan, "Binary analysis
//! for measurement and attribution of program performance" (PLDI 2009), section 3.
//!
//! There are recipes only for the return addresses of calls and system calls. Lookups at other
//! addresses are rare. At a system call, a signal interrupts a waiting thread.

use super::graph::Flow;
use super::height::Heights;
use super::module::ModuleContext;
use super::past_arguments;
use crate::addr::Svma;
use crate::function::Function;
use crate::image::Image;
use crate::isa::{CallerFramePointer, Calls, Control, Insn, WORD};

/// The rule for leaving the frame that a return address belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// The canonical frame address is at a fixed distance from the stack pointer.
    FromStackPointer(Frame),
    /// The canonical frame address is at a fixed distance from the frame pointer.
    FromFramePointer(Frame),
    /// The CFA is stored at this distance from the frame pointer: the frame was aligned at run
    /// time.
    Realigned {
        /// The distance from the frame pointer to the word with the CFA, in bytes.
        cfa_at: i32,
        /// The location of the caller's frame pointer, in words from the frame pointer.
        caller_frame_pointer: i16,
    },
    /// The call is reached at different stack heights, but the unwind table states only one height.
    Ambiguous,
    /// The function has no caller.
    Outermost,
}

/// The layout of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// The distance from the base register to the canonical frame address, in bytes.
    pub cfa: i32,
    /// The location of the caller's frame pointer, in words from the canonical frame address. 0 if
    /// it is still in its register.
    pub caller_frame_pointer: i16,
}

/// The recipes of a function's calls and system calls, by return address.
///
/// A call is left out if its state is not known. All are left out if the returns show that this is
/// not a function.
pub fn recipes(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
) -> Vec<(Svma, Recipe)> {
    let Some(flow) = Flow::of(image, context, function) else {
        return Vec::new();
    };
    let heights = Heights::of(&flow, Calls::Keep);
    if is_entered_elsewhere(&flow, &heights) || jumps_into_another(image, &flow) {
        return Vec::new();
    }
    of_heights(image, context, &flow, &heights, |_| true)
}

/// True if the code at `after` ends the thread.
///
/// This is not proven by a lost frame pointer of the caller. Some code has its own calling
/// conventions, or keeps a number in that register.
fn ends_thread(flow: &Flow, after: Svma) -> bool {
    /// The maximum number of instructions to examine, more than a call of exit(2) needs.
    const MOST_TO_HALT: usize = 8;
    let first = flow.insns.partition_point(|insn| insn.at() < after.0);
    let rest = flow.insns.iter().skip(first).take(MOST_TO_HALT);
    let mut until = rest.take_while(|insn| {
        matches!(insn.control(), Control::Next | Control::Call) || insn.is_halt()
    });
    until.any(Insn::is_halt)
}

/// True if `flow` jumps into the middle of another function. The code is then a part of that
/// function.
pub(super) fn jumps_into_another(image: &Image<'_>, flow: &Flow) -> bool {
    let out = flow.branches.iter().filter(|b| !flow.contains(b.to));
    let mut others = out.filter_map(|b| {
        let to = Svma(b.to);
        Some((to, image.functions().containing(to)?.start))
    });
    others.any(|(to, start)| to != start)
}

/// True if a return shows a stack different from that of a function entry at the start of `flow`.
/// The start is then a named place inside another function. It is also true if the code pops the
/// return address without pushing it again.
pub(super) fn is_entered_elsewhere(flow: &Flow, heights: &Heights) -> bool {
    let is_epilogue = past_arguments::epilogues(flow, heights);
    let mut insns = flow.insns.iter().enumerate();
    insns.any(|(index, insn)| {
        if is_epilogue[index] {
            return false;
        }
        let is_return = insn.is_return();
        let is_wrong = |height: i64| is_return && height != 0;
        heights.is_above_entry(index) || heights.before(index).is_some_and(is_wrong)
    })
}

/// The recipe by the stack pointer for the call at `index`. `stated` is the unwind table's frame
/// for it, relative to the frame pointer.
///
/// `None` unless all evidence agrees. The stack height must be the same on all paths. The
/// instructions must agree with the table on the frame pointer. A walk must have seen the frame
/// pointer `distance` bytes above the stack pointer. This is needed because some callees pop their
/// arguments, which the instructions here do not show.
pub(super) fn by_stack_pointer(
    heights: &Heights,
    index: usize,
    stated: Frame,
    distance: i64,
) -> Option<Recipe> {
    let height = heights.before(index).filter(|&height| height <= 0)?;
    let pointer = heights
        .frame_pointer_before(index)
        .filter(|&pointer| pointer - height == distance)?;
    let saved = match heights.caller_frame_pointer_before(index) {
        CallerFramePointer::At(at) => at - WORD,
        _ => return None,
    };
    let agrees = i64::from(stated.cfa) == WORD - pointer
        && i64::from(stated.caller_frame_pointer) * WORD == saved;
    let cfa = i32::try_from(WORD - height).ok().filter(|_| agrees)?;
    Some(Recipe::FromStackPointer(Frame { cfa, ..stated }))
}

/// The recipes of the calls and system calls of `flow` for whose index in [`Flow::insns`]
/// `is_wanted` is true, by return address. `heights` are the stack heights of `flow`. A call is
/// left out if its frame is not known.
pub(super) fn of_heights(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    flow: &Flow,
    heights: &Heights,
    is_wanted: impl Fn(usize) -> bool,
) -> Vec<(Svma, Recipe)> {
    let callees_pop = context.callees_pop(image);
    let wanted = flow
        .insns
        .iter()
        .enumerate()
        .filter(|(index, _)| is_wanted(*index));
    let is_start = flow.ranges[0].start == image.entry();
    let is_believed = |recipe: &Recipe, after| {
        *recipe != Recipe::Outermost || is_start || ends_thread(flow, after)
    };
    let recipe = |(index, insn): (usize, &Insn)| {
        // After a system call at the end, a signal may find the thread at the next function's
        // entry. A frame pointer of 0 at a system call may be temporary.
        let recipe = if insn.is_system_call() && flow.index_of(insn.end()).is_some() {
            recipe(heights, index, callees_pop).filter(|r| *r != Recipe::Outermost)
        } else if insn.is_call() {
            recipe(heights, index, callees_pop)
        } else {
            None
        };
        let after = Svma(insn.end());
        Some((after, recipe.filter(|recipe| is_believed(recipe, after))?))
    };
    wanted.filter_map(recipe).collect()
}

/// The recipe for the frame before the instruction at `index`, from the instructions alone. `None`
/// if they do not determine the frame. If callees pop arguments, the frame pointer is preferred to
/// the stack pointer.
pub(super) fn recipe(heights: &Heights, index: usize, callees_pop: bool) -> Option<Recipe> {
    // Heights count from the slot of the return address, the last word below the CFA.
    let words = match heights.caller_frame_pointer_before(index) {
        CallerFramePointer::InPlace => 0,
        CallerFramePointer::At(at) if at % WORD == 0 && at < 0 => (at - WORD) / WORD,
        CallerFramePointer::Zeroed => return Some(Recipe::Outermost),
        CallerFramePointer::At(_) | CallerFramePointer::Unknown => {
            let places = heights.realigned_before(index)?;
            return Some(Recipe::Realigned {
                cfa_at: places.cfa_at,
                caller_frame_pointer: places.caller_frame_pointer,
            });
        }
    };
    let frame = |at: i64| {
        Some(Frame {
            cfa: i32::try_from(WORD - at).ok()?,
            caller_frame_pointer: i16::try_from(words).ok()?,
        })
    };
    let height = heights.before(index).filter(|&height| height <= 0);
    let pointer = heights.frame_pointer_before(index);
    match (height, pointer) {
        (Some(height), None) => frame(height).map(Recipe::FromStackPointer),
        (Some(height), Some(_)) if !callees_pop || words == 0 => {
            frame(height).map(Recipe::FromStackPointer)
        }
        (_, pointer) => frame(pointer?).map(Recipe::FromFramePointer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oracle::Folder;

    /// `body` is a named place inside `twofold`, where the stack is lower than at an entry.
    const ASSEMBLY: &str = "
        .text
        .type twofold, @function
        twofold: push %rbx
        .size twofold, . - twofold
        .type body, @function
        body: call *%rax
        pop %rbx
        ret
        .size body, . - body
        .type sound, @function
        sound: push %rbx
        call *%rax
        pop %rbx
        ret
        .size sound, . - sound
    ";

    #[test]
    fn a_place_in_a_function_has_no_recipes() {
        let flags = ["-shared", "-nostdlib"];
        let data = Folder::new().build("cc", &flags, &[("names.s", ASSEMBLY)]);
        let image = Image::parse(&data).expect("an image");
        let context = ModuleContext::new(&image);
        let of = |name: &str| {
            let found = image.functions().with_name(|n| n == name);
            recipes(&image, &context, &found[0])
        };
        assert_eq!((of("twofold").len(), of("body").len()), (0, 0));
        let frame = Frame {
            cfa: 16,
            caller_frame_pointer: 0,
        };
        let [(_, recipe)] = of("sound")[..] else {
            panic!("one call");
        };
        assert_eq!(recipe, Recipe::FromStackPointer(frame));
    }
}
