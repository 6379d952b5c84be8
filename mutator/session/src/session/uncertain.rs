//! Activations that are under way when the counting of edges begins or ends.

use std::sync::Arc;

use patcher::emit::STONE;
use patcher::{Avma, Svma};

use super::SessionError;
use super::stack_scan::Stacks;
use super::view::View;
use crate::segment::{FunctionDoc, InsideDoc, Role};
use ipath_target::process::{Extent, Memory};
use ipath_target::tracee::Stopped;

/// The code of a function whose edges are counted.
struct Code<'d> {
    inside: &'d InsideDoc,
    extents: Vec<Extent>,
}

impl Code<'_> {
    fn contains(&self, pc: Avma) -> bool {
        self.extents.iter().any(|extent| extent.contains(pc))
    }
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
                let count = pcs.iter().filter(|&&pc| code.contains(pc)).count() as u64;
                self.segment.add_to_counter(code.inside.uncertain(), count);
            }
        }
    }

    /// True if no thread is in the function `id`, outside of calls, nor a context that a signal
    /// handler has saved on another stack. A thread in the runtime may be counting.
    ///
    /// # Errors
    /// The target cannot be read.
    pub(super) fn is_outside(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        id: usize,
    ) -> Result<bool, SessionError> {
        let Some(code) = self.code_of(&self.document.functions[id]) else {
            return Ok(false);
        };
        let space = Arc::clone(self.space);
        for thread in stopped.threads() {
            self.renew(space.memory(), stacks, thread)?;
            let mut pcs = stacks.interrupted(space.memory(), thread.sp());
            pcs.push(thread.pc());
            if pcs.into_iter().any(|pc| code.contains(pc)) {
                return Ok(false);
            }
        }
        let parked = self.parked(space.memory(), stopped, stacks, |pc| code.contains(pc));
        Ok(parked.is_none())
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
        // Threads may still be in the trampolines of carriers that have been replaced.
        let place = |f: &FunctionDoc| (f.module, f.address);
        let carriers = self.document.functions.iter();
        let carriers = carriers.filter(|f| f.role == Role::Carrier && place(f) == place(function));
        let sites = carriers.flat_map(|f| &f.sites);
        let trampolines = sites.flat_map(|site| {
            let landing = Extent {
                start: site.landing.start,
                len: site.landing.end.0.saturating_sub(site.landing.start.0),
            };
            let stone = Extent {
                start: site.stone,
                len: if site.stone == Avma::default() {
                    0
                } else {
                    STONE
                },
            };
            [site.trampoline, landing, stone]
        });
        let extents = blocks
            .chain(trampolines)
            .chain([self.document.image])
            .collect();
        Some(Code { inside, extents })
    }
}
