//! The slots of activations that are on a path or in a loop ([`abi::path::Slots`]).

use std::sync::Arc;

use abi::image::SYMBOL_PATHS;
use abi::path::{FRAME_ALIGN, FRAME_SLOTS, FUNCTION_SHIFT, SLOTS_BYTES, SUM_SHIFT, Slot};
use patcher::flow::{Base, frames_before};
use patcher::function::Function;
use patcher::{Avma, Bias};

use super::counted::Counted;
use super::runtime_memory::read;
use super::view::View;
use super::write::write;
use super::{SessionError, symbol};
use crate::segment::InsideDoc;
use ipath_symbols::images::OpenImage;
use ipath_target::process::Memory;
use ipath_target::tracee::Stopped;

/// A call in which an activation may be on a path, for an exchange of the hooks.
#[derive(Clone, Copy, Debug)]
pub(super) struct AtCall {
    /// The return address.
    back: Avma,
    /// The distance from the word with the return address to the canonical frame address.
    below: u64,
    /// What is to be added to the sum of the path: the new hooks add so much less on the way to
    /// this call, and so much more behind it. Modulo 2^64.
    by: u64,
}

/// A slot that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    at: Avma,
    activation: u64,
    sum: u64,
    /// The word that frees it.
    free: u64,
}

/// The taken slots of a function.
pub(super) struct Moved {
    /// As they are.
    pub(super) before: Vec<Taken>,
    /// With the sums of the other hooks.
    pub(super) after: Vec<Taken>,
}

/// The calls of a function whose hooks are exchanged. `None` if the place of a return address does
/// not follow from the frame address: it is not known where such an activation is.
pub(super) fn at_calls(
    image: &OpenImage,
    (bias, function): (Bias, &Function),
    present: &Counted,
    other: &Counted,
) -> Option<Vec<AtCall>> {
    let points: Vec<_> = present.calls.iter().map(|call| call.at).collect();
    let frames = frames_before(image.image(), image.context(), function, &points);
    let calls = present.calls.iter().zip(&other.calls).zip(frames);
    let calls = calls.map(|((old, new), frame)| {
        let frame = frame.filter(|frame| frame.base == Base::StackPointer)?;
        Some(AtCall {
            back: bias.to_avma(old.back),
            below: u64::try_from(frame.frame.cfa).ok()?.checked_add(8)?,
            by: old.to_add.wrapping_sub(new.to_add),
        })
    });
    calls.collect()
}

impl Taken {
    /// The slot with the sum of the other hooks. `None` if the activation is in none or in several
    /// of these calls, as old return addresses may make it seem.
    fn moved(self, memory: &Memory, calls: &[AtCall]) -> Option<Self> {
        let number = u64::from(Slot::function(self.activation));
        let key = self.activation & ((1 << FUNCTION_SHIFT) - 1);
        let frame = key.wrapping_sub(FRAME_ALIGN * number);
        let is_in = |call: &&AtCall| {
            let at = Avma(frame.wrapping_sub(call.below));
            memory.read_word(at).is_ok_and(|back| back == call.back.0)
        };
        let mut calls = calls.iter().filter(is_in);
        let call = calls.next()?;
        let sum = self.sum.wrapping_add(call.by << SUM_SHIFT);
        calls.next().is_none().then_some(Self { sum, ..self })
    }
}

impl View<'_> {
    /// Frees the slots of activations that were on a path when the hooks of these carriers went
    /// out. They have gone on since then.
    ///
    /// # Errors
    /// The runtime's memory cannot be read or written.
    pub(super) fn forget_paths(
        &self,
        stopped: &mut Stopped,
        ids: &[usize],
    ) -> Result<(), SessionError> {
        let functions = self.document.functions.iter();
        let carried = functions.filter(|f| f.carried_by.is_some_and(|id| ids.contains(&id)));
        let inside = carried.filter_map(|function| function.inside.as_deref());
        let of: Vec<u32> = inside.flat_map(InsideDoc::followed).collect();
        for slot in self.taken_slots(&of)? {
            write(stopped.text(), slot.at, &slot.free.to_le_bytes())?;
        }
        Ok(())
    }

    /// The taken slots of a function. `None` if the other sum of one is not known.
    pub(super) fn moved_slots(
        &self,
        inside: &InsideDoc,
        calls: &[AtCall],
    ) -> Result<Option<Moved>, SessionError> {
        /// The most slots to look at. More are taken if many activations were left.
        const MOST: usize = 256;
        let of: Vec<u32> = inside.followed().collect();
        let taken = self.taken_slots(&of)?;
        let space = Arc::clone(self.space);
        let moved = taken.iter().map(|slot| slot.moved(space.memory(), calls));
        let moved: Option<Vec<Taken>> = moved.take(MOST + 1).collect();
        Ok(moved
            .filter(|moved| moved.len() <= MOST)
            .map(|after| Moved {
                before: taken,
                after,
            }))
    }

    /// Writes slots that have been freed.
    pub(super) fn take_slots(
        &self,
        stopped: &mut Stopped,
        slots: &[Taken],
    ) -> Result<(), SessionError> {
        for slot in slots {
            let words = [slot.activation, slot.sum].map(u64::to_le_bytes);
            write(stopped.text(), slot.at, words.as_flattened())?;
        }
        Ok(())
    }

    /// The slots of activations that are followed by these numbers.
    fn taken_slots(&self, of: &[u32]) -> Result<Vec<Taken>, SessionError> {
        if of.is_empty() {
            return Ok(Vec::new());
        }
        let table = symbol(self.document, SYMBOL_PATHS)?;
        let slots = read(self.space.memory(), table, SLOTS_BYTES as usize)?;
        let (words, _) = slots.as_chunks::<8>();
        let (slots, _) = words.as_chunks::<2>();
        let taken = (0..).zip(slots).filter_map(|(index, slot)| {
            let [activation, sum] = slot.map(u64::from_le_bytes);
            let is_of_frame = index < FRAME_SLOTS as u64;
            let taken = Taken {
                at: table.plus(index * size_of::<Slot>() as u64),
                activation,
                sum,
                free: if is_of_frame {
                    Slot::page(activation)
                } else {
                    0
                },
            };
            of.contains(&Slot::function(activation)).then_some(taken)
        });
        Ok(taken.collect())
    }
}

/// Slots are read and written as two words.
const _: () = assert!(
    size_of::<Slot>() == 16
        && std::mem::offset_of!(Slot, activation) == 0
        && std::mem::offset_of!(Slot, sum) == 8
);
