//! How the frame of a function stands before any of its instructions: where the address that it returns to is, and where
//! the registers are that its caller has back then.

use gimli::{RegisterRule, UnwindTableRow};

use super::described;
use super::graph::Flow;
use super::height::Heights;
use super::module::ModuleContext;
use super::recipe::{self, Frame, Recipe, is_entered_elsewhere, jumps_into_another};
use crate::addr::Svma;
use crate::function::Function;
use crate::image::Image;
use crate::isa::{CallerFramePointer, Calls, WORD, dwarf};

/// The frame of a function that is about to run one of its instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameBefore {
    /// The register that tells where the frame is, and the frame.
    pub base: Base,
    /// See `base`.
    pub frame: Frame,
    /// Where the caller's other registers are that a function leaves as they were, in words from the canonical frame address, 0 for each that is in its
    /// register; `None` where that is not known.
    pub others: Option<[i16; 5]>,
}

/// A register that the canonical frame address is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The stack pointer.
    StackPointer,
    /// The frame pointer.
    FramePointer,
}

/// The frame of `function` before each of its instructions at `points`. `None` where it is not known, by the stack or frame pointer alone:
/// where tables and instructions tell different things, or nothing has called the function.
pub fn frames_before(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    function: &Function,
    points: &[Svma],
) -> Vec<Option<FrameBefore>> {
    let Some(flow) = Flow::of(image, context, function) else {
        return vec![None; points.len()];
    };
    let heights = Heights::of(&flow, Calls::Keep);
    let is_whole = !is_entered_elsewhere(&flow, &heights) && !jumps_into_another(image, &flow);
    let before = |at: &Svma| {
        let index = flow.index_of(at.0)?;
        if image.fde(*at).is_none() {
            let told = recipe::recipe(&heights, index, false).filter(|_| is_whole)?;
            return FrameBefore::of(told, None);
        }
        let row = |row: &UnwindTableRow<usize>| Some((described::recipe(row)?, others(row)));
        let (stated, others) = image.unwind().at_row(*at, row)??;
        let stated = FrameBefore::of(stated, others)?;
        if is_whole {
            stated.agreed(&heights, index)
        } else {
            Some(stated)
        }
    };
    points.iter().map(before).collect()
}

/// Where a row of the tables has the registers that a function leaves as they were.
fn others(row: &UnwindTableRow<usize>) -> Option<[i16; 5]> {
    let mut others = [0; dwarf::KEPT.len()];
    for (words, register) in others.iter_mut().zip(dwarf::KEPT) {
        *words = match row.register(register) {
            None | Some(RegisterRule::SameValue) => 0,
            Some(RegisterRule::Offset(at)) if at < 0 && at % WORD == 0 => {
                i16::try_from(at / WORD).ok()?
            }
            _ => return None,
        };
    }
    Some(others)
}

impl FrameBefore {
    fn of(recipe: Recipe, others: Option<[i16; 5]>) -> Option<Self> {
        let (base, frame) = match recipe {
            Recipe::FromStackPointer(frame) => (Base::StackPointer, frame),
            Recipe::FromFramePointer(frame) => (Base::FramePointer, frame),
            Recipe::Realigned { .. } | Recipe::Ambiguous | Recipe::Outermost => return None,
        };
        Some(Self {
            base,
            frame,
            others,
        })
    }

    /// What the tables have stated, where the instructions tell nothing else. Tables that are made for calls alone need
    /// not be right elsewhere.
    fn agreed(self, heights: &Heights, index: usize) -> Option<Self> {
        let cfa = i64::from(self.frame.cfa);
        let counted = match self.base {
            Base::StackPointer => heights.before(index),
            Base::FramePointer => heights.frame_pointer_before(index),
        };
        if counted.is_some_and(|at| WORD - at != cfa) {
            return None;
        }
        let stated = self.frame.caller_frame_pointer;
        let caller_frame_pointer = match heights.caller_frame_pointer_before(index) {
            // Some tables go on naming where it was saved.
            CallerFramePointer::InPlace => 0,
            CallerFramePointer::At(at) if at - WORD != i64::from(stated) * WORD => return None,
            CallerFramePointer::Zeroed => return None,
            CallerFramePointer::At(_) | CallerFramePointer::Unknown => stated,
        };
        Some(Self {
            frame: Frame {
                caller_frame_pointer,
                ..self.frame
            },
            ..self
        })
    }
}
