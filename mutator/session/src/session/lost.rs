//! Functions that are in whose text is not what was written there: their library has been unloaded, or something else has changed it.

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

/// Such a function.
#[derive(Clone, Copy)]
pub(super) struct Lost {
    id: usize,
    text: Text,
    cause: Cause,
}

/// What has become of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cause {
    /// Its library has been unloaded.
    Unloaded,
    /// Another tool has set a breakpoint there.
    Changed,
    /// The file's bytes are back: another tool has taken a breakpoint away, or the library has been unloaded and loaded again.
    Restored,
}

impl Lost {
    /// True if nothing is left of what was written there.
    fn is_out(&self) -> bool {
        self.cause == Cause::Unloaded && self.text != Text::Other
    }
}

/// What stands where a function has been patched.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Text {
    Ours,
    /// All of it is as the file has it.
    Original,
    Other,
    /// Nothing is mapped there.
    Nothing,
}

impl Session {
    /// What stands where this function is patched, which is in.
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

    /// The functions that are in whose text is not what was written. While libraries come and go, what is said to have been changed may
    /// have been unloaded instead.
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
                // Its library is back, and is looked at.
                Text::Original if !self.document.pending.is_empty() => Cause::Unloaded,
                // It has come only now.
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
    /// Takes out the functions whose text is not what was written any more: what is to be said of each. Nothing is stopped where there
    /// are none.
    pub fn take_out_lost(&mut self) -> Result<Vec<String>, SessionError> {
        let space = Space::open(&self.process)?;
        if self.lost(&space)?.is_empty() {
            return Ok(Vec::new());
        }
        // Whoever takes the lock brings that in order first.
        self.change(None, |locked| Ok(std::mem::take(&mut locked.taken_out)))
    }
}

/// Notes which functions' text is not what was written any more; ids of those that are to be taken out for it.
pub(super) fn note_lost(locked: &mut Locked<'_>) -> Result<Vec<usize>, SessionError> {
    let space = Arc::clone(&locked.space);
    let mut lost = locked.lost(&space)?;
    if lost.iter().any(|lost| lost.cause != Cause::Unloaded) {
        // Libraries cannot come and go now.
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

/// Takes note that functions are out with all that was written there.
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

fn tell_lost(locked: &mut Locked<'_>, lost: &Lost) {
    for id in locked.document.with_carried(&[lost.id]) {
        let function = &locked.document.functions[id];
        let (name, role) = (function.name.clone(), function.role);
        let said = match lost.cause {
            Cause::Changed => format!("{name} was taken out: something else has patched it"),
            Cause::Restored => format!(
                "{name} was taken out: something else has patched it, or its library was loaded anew"
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

/// Notes which files have others in their places by now, and which are back: what is known of the former holds no longer.
pub(super) fn note_replaced(document: &mut Document, modules: &[Module]) {
    let (known, tables) = (&mut document.modules, &mut document.tables);
    // They have been looked at: what is in is there.
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
            let is_gone = !is_same_file(other, module, image);
            if is_gone && !other.is_gone {
                tables.retain(|(start, ..)| !other.code.contains(&Avma(*start)));
            }
            other.is_gone = is_gone;
        }
    }
}
