//! Functions that switch stacks sharing one memory range: `slp_switch` of greenlet and of its
//! ancestors.
//!
//! `slp_switch` saves the slice of the old stack, adds one register to both the stack pointer and
//! the frame pointer, and then restores the slice of the new stack (greenlet's
//! platform/switch_amd64_unix.h).
//!
//! No compiler generates this, and distributions ship the function without a symbol. So it is found
//! by these instructions.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use patcher::Avma;
use patcher::function::Function;
use patcher::image::Image;
use patcher::plan::Effects;

use super::select::select;
use super::{Session, SessionError, allowed};
use crate::arch::stack_switch::moves_of_both;
use crate::segment::{FunctionDoc, Role, Witness};
use ipath_symbols::{images, jit};
use ipath_target::process::Space;
use ipath_target::process::identity::FileId;
use ipath_target::process::modules::{Module, VDSO, modules};

/// The largest module code that is searched, in bytes; greenlet's is 100 KiB.
const MAX_CODE_BYTES: u64 = 4 << 20;

/// The modules that were searched for these functions, and the number of modules known to the
/// runtime at that time.
#[derive(Default)]
pub(super) struct LookedThrough {
    modules: HashSet<(Avma, FileId)>,
    met: u64,
}

impl Session {
    /// Follows the shared stacks of libraries that were loaded after the functions were added, as
    /// interpreters do, and the generated code that is registered through such libraries. Fails if
    /// the process cannot be read or changed.
    pub(super) fn follow_slices(&mut self, known: &mut LookedThrough) -> Result<(), SessionError> {
        let measures = |f: &FunctionDoc| f.is_in() && f.role.is_shown();
        let met = self.segment.header().modules_used.load(Ordering::Relaxed);
        if met == known.met || !self.document.functions.iter().any(measures) {
            return Ok(());
        }
        known.met = met;
        let space = Arc::new(Space::open(&self.process)?);
        let mut new = modules(&self.process, &space.maps()?);
        new.retain(|module| {
            let place = (module.code_range().start, module.file());
            module.path != VDSO && known.modules.insert(place) && self.is_to_follow(module)
        });
        if new.is_empty() {
            return Ok(());
        }
        let wanted = Effects {
            entry: true,
            exits: true,
        };
        let allowed = allowed(&self.process, &new, false);
        let none = select(&new, &[], wanted, allowed, true);
        let takes_turns = new.iter().filter(|module| self.is_unfollowed(module));
        let notes = takes_turns.map(note).collect::<Vec<_>>();
        self.change(Some(space), |locked| {
            let is_new = |note: &&String| !locked.document.notes.contains(note);
            let notes: Vec<String> = notes.iter().filter(is_new).cloned().collect();
            locked.document.notes.extend(notes);
            locked.add("load", &new, none, None)
        })
        .map(drop)
    }

    /// True if a module switches stacks or registers generated code, and has no probe for it.
    fn is_to_follow(&self, module: &Module) -> bool {
        let registers = || jit::Registers::of(module).any();
        self.is_unfollowed(module) || registers() && !self.has_witness(module, Witness::TakesBack)
    }

    /// True if a module switches stacks and no probe follows it.
    fn is_unfollowed(&self, module: &Module) -> bool {
        let measures_ends = |f: &FunctionDoc| f.is_in() && f.role.is_shown() && f.has_exits();
        let image = images::of_module(module);
        self.document.functions.iter().any(measures_ends)
            && image.is_ok_and(|image| !switching(image.image()).is_empty())
            && !self.has_witness(module, Witness::Switches)
    }

    /// True if a function of the module has a probe for this event, in or out.
    fn has_witness(&self, module: &Module, witness: Witness) -> bool {
        let is_its = |f: &FunctionDoc| {
            let doc = self.document.modules.get(f.module);
            f.role == Role::Witness(witness) && doc.is_some_and(|doc| doc.path == module.path)
        };
        self.document.functions.iter().any(is_its)
    }
}

/// The note on a module that was loaded later.
fn note(module: &Module) -> String {
    format!(
        "{}: it swaps stacks in one memory, and was loaded after functions were added: calls that \
        switched in the first moments can have the times of others",
        module.file_name()
    )
}

/// The stack-switching functions of an image.
pub(super) fn switching(image: &Image<'_>) -> Vec<(Function, Witness)> {
    let mut found: Vec<Function> = Vec::new();
    for segment in image.segments().iter().filter(|s| s.execute) {
        let len = segment.range.end.0 - segment.range.start.0;
        let text = Some(len).filter(|&len| len <= MAX_CODE_BYTES);
        let text = text.and_then(|len| image.bytes(segment.range.start, len));
        for at in text.into_iter().flat_map(moves_of_both) {
            let at = segment.range.start.plus(at as u64);
            if let Some(function) = image.functions().function_at(at)
                && !found.iter().any(|f| f.range.start == function.range.start)
            {
                found.push(function);
            }
        }
    }
    let of_witness = |function| (function, Witness::Switches);
    found.into_iter().map(of_witness).collect()
}
