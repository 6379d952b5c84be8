//! Activations that are under way when the counting of edges begins or ends.

use std::mem::offset_of;
use std::sync::Arc;

use abi::image::SYMBOL_PATHS;
use abi::path::{FRAME_SLOTS, SLOTS_BYTES, Slot};
use patcher::{Avma, Svma};

use super::runtime_memory::read;
use super::stack_scan::Stacks;
use super::view::View;
use super::write::write;
use super::{SessionError, symbol};
use crate::segment::{FunctionDoc, InsideDoc};
use ipath_target::process::{Extent, Memory};
use ipath_target::tracee::Stopped;

/// The code of a function whose edges are counted.
struct Code<'d> {
    inside: &'d InsideDoc,
    extents: Vec<Extent>,
}

impl View<'_> {
    /// Notes the threads that are in the functions whose counters come in or go out
    /// with the carriers among `ids`. A thread that is in a call counts its return, so it is not
    /// one of them. A thread in the runtime may be counting.
    pub(super) fn note_uncertain(
        &self,
        memory: &Memory,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        ids: &[usize],
    ) {
        let codes = self.counted_code(ids);
        if codes.is_empty() {
            return;
        }
        for thread in stopped.threads() {
            let mut pcs = vec![thread.pc()];
            pcs.extend(stacks.interrupted(memory, thread.sp()));
            for code in &codes {
                let is_in = |pc: &&Avma| code.extents.iter().any(|extent| extent.contains(**pc));
                let count = pcs.iter().filter(is_in).count() as u64;
                self.segment.add_to_counter(code.inside.uncertain(), count);
            }
        }
    }

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
        if of.is_empty() {
            return Ok(());
        }
        let table = symbol(self.document, SYMBOL_PATHS)?;
        let space = Arc::clone(self.space);
        let slots = read(space.memory(), table, SLOTS_BYTES as usize)?;
        let (slots, _) = slots.as_chunks::<{ size_of::<Slot>() }>();
        for (index, slot) in (0..).zip(slots) {
            let (words, _) = slot.as_chunks();
            let word = words.get(offset_of!(Slot, activation) / 8);
            let activation = word.map_or(0, |&word| u64::from_le_bytes(word));
            if of.contains(&Slot::function(activation)) {
                let at = table.plus(index * size_of::<Slot>() as u64);
                let is_of_frame = index < FRAME_SLOTS as u64;
                let free = if is_of_frame {
                    Slot::page(activation)
                } else {
                    0
                };
                write(stopped.text(), at, &free.to_le_bytes())?;
            }
        }
        Ok(())
    }

    fn counted_code(&self, ids: &[usize]) -> Vec<Code<'_>> {
        let functions = self.document.functions.iter();
        let carried = functions.filter(|f| f.carried_by.is_some_and(|id| ids.contains(&id)));
        carried
            .filter_map(|function| self.code_of(function))
            .collect()
    }

    fn code_of<'d>(&'d self, function: &'d FunctionDoc) -> Option<Code<'d>> {
        let inside = function.inside.as_deref()?;
        let bias = self.document.modules.get(function.module)?.bias;
        let blocks = inside.blocks.iter().map(|&(address, len)| Extent {
            start: bias.to_avma(Svma(address)),
            len,
        });
        let carrier = &self.document.functions[function.carried_by?];
        let trampolines = carrier.sites.iter().map(|site| site.trampoline);
        let extents = blocks
            .chain(trampolines)
            .chain([self.document.image])
            .collect();
        Some(Code { inside, extents })
    }
}
