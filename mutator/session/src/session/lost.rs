//! Functions that are in but whose patched text has changed: their library was unloaded, or another
//! tool changed it.

use std::collections::BTreeSet;
use std::sync::Arc;

use abi::segment::JOURNAL_WRITTEN;
use patcher::Avma;
use patcher::plan::RefuseReason;

use super::locked::Locked;
use super::refusing::refuse_known;
use super::rows::{is_mapped, is_same_file};
use super::write::switch;
use super::{Session, SessionError};
use crate::segment::{Document, FunctionDoc, Journal, ModuleDoc, Role};
use ipath_symbols::images;
use ipath_target::process::modules::Module;
use ipath_target::process::{Mapping, Memory, Space};

/// A function whose patched text has changed.
#[derive(Clone, Copy)]
pub(super) struct Lost {
    /// The function's id.
    id: usize,
    text: Text,
    cause: Cause,
}

/// The cause of the change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// The library has been unloaded.
    Unloaded,
    /// Another tool has changed the text, as a breakpoint does.
    Changed,
    /// The file's bytes are back: another tool removed a breakpoint, or the library was unloaded
    /// and loaded again.
    Restored,
}

impl Lost {
    /// True if none of the patches remain.
    fn is_out(&self) -> bool {
        self.cause == Cause::Unloaded && self.text != Text::Other
    }
}

/// The contents of a function's patched text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    /// All written patches are in the text.
    Ours,
    /// All of the text matches the file.
    Original,
    /// The text matches neither the patches nor the file.
    Other,
    /// At least part of it is unmapped.
    Nothing,
}

impl Session {
    /// The contents of the patched text of a function that is in.
    fn text_of(&self, function: &FunctionDoc, memory: &Memory) -> Result<Text, SessionError> {
        let journal = Journal(&self.segment);
        let (mut is_ours, mut is_original, mut is_there) = (true, true, true);
        for &index in function.sites.iter().flat_map(|site| &site.patches) {
            if journal.state(index)? != JOURNAL_WRITTEN {
                continue;
            }
            let patch = journal.patch(index)?;
            match memory.read_vec(patch.at, patch.new.len()) {
                Ok(now) => {
                    is_ours &= now == patch.new;
                    is_original &= now == patch.old;
                }
                Err(_) => is_there = false,
            }
        }
        Ok(match (is_there, is_ours, is_original) {
            (false, ..) => Text::Nothing,
            (_, true, _) => Text::Ours,
            (_, _, true) => Text::Original,
            _ => Text::Other,
        })
    }

    /// Returns the functions that are in and whose patched text has changed. While libraries are
    /// loaded or unloaded, the cause `Changed` may be wrong: the library may have been unloaded.
    /// Fails if the process or the journal cannot be read.
    pub(super) fn lost(&self, space: &Space) -> Result<Vec<Lost>, SessionError> {
        let mut maps: Option<Vec<Mapping>> = None;
        let mut lost = Vec::new();
        let functions = self.document.functions.iter().enumerate();
        for (id, function) in functions.filter(|(_, f)| f.is_in()) {
            let text = self.text_of(function, space.memory())?;
            let Some(site) = function.sites.first().filter(|_| text != Text::Ours) else {
                continue;
            };
            let maps = match &mut maps {
                Some(maps) => maps,
                none => none.insert(space.maps()?),
            };
            let module = self.document.modules.get(function.module);
            let is_there = module.is_some_and(|m| is_mapped(maps, site.window.start, m));
            let cause = match text {
                // Its library is back and will be inspected.
                Text::Original if !self.document.pending.is_empty() => Cause::Unloaded,
                // The library was mapped after the text was read.
                Text::Nothing if is_there => continue,
                Text::Original if is_there => Cause::Restored,
                _ if is_there => Cause::Changed,
                _ => Cause::Unloaded,
            };
            lost.push(Lost { id, text, cause });
        }
        Ok(lost)
    }
}

impl Session {
    /// Takes out the functions whose patched text has changed. Returns a message for each. Stops
    /// nothing if there are none.
    ///
    /// # Errors
    /// The session cannot be locked, or the process cannot be read or changed.
    pub fn take_out_lost(&mut self) -> Result<Vec<String>, SessionError> {
        let space = Space::open(&self.process)?;
        if self.lost(&space)?.is_empty() {
            return Ok(Vec::new());
        }
        // Taking the lock repairs this first.
        self.change(None, |locked| Ok(std::mem::take(&mut locked.taken_out)))
    }
}

/// Records the functions whose patched text has changed. Returns the ids of those to take out.
/// Fails if the process or the session cannot be read or written.
pub(super) fn note_lost(locked: &mut Locked<'_>) -> Result<Vec<usize>, SessionError> {
    let space = Arc::clone(&locked.space);
    let mut lost = locked.lost(&space)?;
    if lost.iter().any(|lost| lost.cause != Cause::Unloaded) {
        // No library can be loaded or unloaded in the stop.
        locked.in_stop("recover", |locked, _, _| {
            lost = locked.lost(&space)?;
            Ok(())
        })?;
    }
    if lost.is_empty() {
        return Ok(Vec::new());
    }
    lost.iter().for_each(|lost| tell_lost(locked, lost));
    let (out, rest): (Vec<Lost>, Vec<Lost>) = lost.into_iter().partition(Lost::is_out);
    note_out(locked, &out)?;
    let rest: Vec<usize> = rest.iter().map(|lost| lost.id).collect();
    Ok(locked.document.with_carried(&rest))
}

/// Records that functions are out because all their patches are gone.
fn note_out(locked: &mut Locked<'_>, out: &[Lost]) -> Result<(), SessionError> {
    let out: Vec<usize> = out.iter().map(|lost| lost.id).collect();
    let out = locked.document.with_carried(&out);
    switch(locked, &out, false)?;
    let journal = Journal(&locked.segment);
    for &id in &out {
        let sites = locked.document.functions[id].sites.iter();
        for &patch in sites.flat_map(|site| &site.patches) {
            journal.undone(patch)?;
        }
    }
    locked.segment.write_document(&locked.document)?;
    Ok(())
}

/// Adds a note on a lost function to the document, and a message to [`Locked::taken_out`]. Says
/// nothing about an unloaded library that may come back.
fn tell_lost(locked: &mut Locked<'_>, lost: &Lost) {
    for id in locked.document.with_carried(&[lost.id]) {
        let function = &locked.document.functions[id];
        let (name, role) = (function.name.clone(), function.role);
        let said = match lost.cause {
            Cause::Changed => format!("{name} was taken out: something else has patched it"),
            Cause::Restored => format!(
                "{name} was taken out: something else has patched it, or its library was loaded \
                again"
            ),
            // It may come back.
            Cause::Unloaded if !role.is_shown() || !locked.document.pending.is_empty() => {
                continue;
            }
            Cause::Unloaded => format!("{name} is out: its library has been unloaded"),
        };
        if role.is_shown() {
            locked.document.notes.push(said.clone());
        }
        if role.is_shown() && lost.cause != Cause::Unloaded {
            refuse_known(&mut locked.document, id, RefuseReason::TextChanged);
            locked.document.taken_out += 1;
        }
        if role != Role::Carrier {
            locked.taken_out.push(said);
        }
    }
}

/// Records which modules have been replaced by other files and which are back. Published tables of
/// replaced modules are dropped.
pub(super) fn note_replaced(document: &mut Document, modules: &[Module]) {
    let (known, tables) = (&mut document.modules, &mut document.tables);
    // Modules with functions that are in have been checked already.
    let active = document.functions.iter().filter(|f| f.is_in());
    let there: BTreeSet<usize> = active.map(|f| f.module).collect();
    for module in modules {
        let code = module.code_range();
        let overlaps =
            |other: &ModuleDoc| other.code.start < code.end && code.start < other.code.end;
        let known = known.iter_mut().enumerate();
        let others = known.filter(|(id, other)| !there.contains(id) && overlaps(other));
        let mut others = others.map(|(_, other)| other).peekable();
        if others.peek().is_none() {
            continue;
        }
        let Ok(image) = images::of_module(module) else {
            continue;
        };
        for other in others {
            let is_gone = !is_same_file(other, module, &image);
            if is_gone && !other.is_gone {
                tables.retain(|(start, ..)| !other.code.contains(&Avma(*start)));
            }
            other.is_gone = is_gone;
        }
    }
}
