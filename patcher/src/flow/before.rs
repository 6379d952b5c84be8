//! The frame of a function before any of its instructions: the locations of the return address and
//! of the caller's registers.

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
    /// The register that locates the frame.
    pub base: Base,
    /// The frame's layout, relative to `base`.
    pub frame: Frame,
    /// The locations of the other callee-saved registers, in words from the canonical frame
    /// address, in the order of `dwarf::KEPT`. 0 for a register that still holds its value. `None`
    /// if the locations are not known.
    pub others: Option<[i16; 5]>,
}

/// The register that the canonical frame address is relative to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// The stack pointer.
    StackPointer,
    /// The frame pointer.
    FramePointer,
}

/// The frame of `function` before each instruction in `points`, in the order of `points`.
///
/// `None` if no instruction begins at the point, or if the stack or frame pointer alone does not
/// determine the frame. This includes the cases that tables and instructions contradict each other,
/// and that the function has no caller.
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

/// The locations of the callee-saved registers in a row of the tables, as for
/// [`FrameBefore::others`]. `None` if one is not at a fixed location.
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

    /// The frame stated by the tables; `None` if the instructions contradict it. Tables made only
    /// for calls may be wrong at other instructions.
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
            // Some tables state the save slot even after the register is restored.
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
