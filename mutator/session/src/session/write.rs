//! Writing the bytes that change: in the target's text and in the runtime's table of functions.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use abi::image::{SYMBOL_DETAILS, SYMBOL_PROBES};
use abi::segment::JOURNAL_UNDONE;
use patcher::Avma;
use patcher::emit::Patch;
use patcher::isa::{BREAKPOINT, LOWERED};

use super::in_the_way::InTheWay;
use super::locked::Locked;
use super::rows::is_mapped;
use super::stack_scan::Stacks;
use super::view::View;
use super::{SessionError, legacy};
use crate::segment::{
    BankedDoc, Document, FunctionDoc, Journal, KeptDoc, PairDoc, SegmentError, SiteDoc,
};
use ipath_profile::{Throttling, clock};
use ipath_target::process::{Memory, Text};
use ipath_target::tracee::Stopped;

/// A part of a function's sites.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// The sites that are in while the function is.
    Whole,
    /// The sites of exits that are added or removed while the function is in.
    Exits,
}

impl Part {
    /// The sites of the function that belong to this part.
    pub(super) fn of(self, function: &FunctionDoc) -> &[SiteDoc] {
        match self {
            Self::Whole => function.sites_in(),
            Self::Exits => function.sites_out(),
        }
    }
}

/// Records in the document and in the runtime's table that functions are in or out. Does not write
/// the document. Fails if the table cannot be written.
pub(super) fn switch(locked: &mut Locked<'_>, ids: &[usize], on: bool) -> Result<(), SessionError> {
    let mut writes = Vec::new();
    let table = locked.symbol(SYMBOL_PROBES)?;
    let details = locked.symbol(SYMBOL_DETAILS)?;
    let now = clock::ns_since_start(locked.segment.header(), clock::tsc());
    // Those that lend go first: a call that is lent to a function without a group counts as left.
    let mut ids = ids.to_vec();
    ids.sort_by_key(|&id| !locked.document.functions[id].is_lending);
    for id in ids {
        let function = &mut locked.document.functions[id];
        if let Some(out) = function.out_ns.take_if(|_| on) {
            function.away_ns += now.saturating_sub(out);
        }
        if on {
            function
                .throttled
                .take_if(|throttled| throttled.how == Throttling::Out);
        }
        function.state = function.state.switched(on);
        function.lending = 0;
        function.is_lending = false;
        if on {
            function.generation += 1;
        }
        let mut row = function.row().to_vec();
        if !on {
            row[..4].fill(0);
        }
        let values = function.values.to_le_bytes().to_vec();
        writes.push((details.plus(8 * id as u64), values));
        writes.push((table.plus(8 * id as u64), row));
    }
    locked.write_own(&writes)
}

impl View<'_> {
    /// Patches functions while all threads are stopped. Fails with [`SessionError::InTheWay`],
    /// before anything is written, if a thread or changed text is in the way.
    pub(super) fn write_in(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        (ids, part): (&[usize], Part),
    ) -> Result<(), SessionError> {
        let space = Arc::clone(self.space);
        let memory = space.memory();
        let kept = self.clear_landings(stopped, stacks, ids)?;
        self.check_text(memory, ids, part)
            .map_err(|error| match kept {
                Some(at) => error.or_interrupted(at),
                None => error,
            })?;
        self.clear_windows(memory, stopped, stacks, (ids, part))?;
        self.note_uncertain(memory, stopped, stacks, ids);
        self.forget_paths(stopped, ids)?;
        let text = stopped.text();
        let patches = self.patches_of(&sites_of(self.document, ids, |f| part.of(f)))?;
        let journal = Journal(self.segment);
        journal.intend(patches.iter().map(|&(index, _)| index))?;
        for (index, patch) in &patches {
            write(text, patch.at, &patch.new)?;
            journal.written(*index)?;
        }
        Ok(())
    }

    /// Returns an error if the text of functions is not the analyzed one: another file is mapped
    /// there, or a debugger or another tool has changed it.
    pub(super) fn check_text(
        &self,
        memory: &Memory,
        ids: &[usize],
        part: Part,
    ) -> Result<(), SessionError> {
        let journal = Journal(self.segment);
        let is_ours = |site: &SiteDoc| {
            for &index in &site.patches {
                let patch = journal.patch(index)?;
                let now = memory.read_vec(patch.at, patch.old.len());
                if !now.is_ok_and(|now| now == patch.old || now == patch.new) {
                    return Ok(Some(patch.at));
                }
            }
            let KeptDoc { at, bytes } = &site.kept;
            let now = memory.read_vec(*at, bytes.len());
            let is_kept = bytes.is_empty() || now.is_ok_and(|now| now == *bytes);
            Ok::<_, SessionError>((!is_kept).then_some(*at))
        };
        let mut changed = BTreeSet::new();
        let mut example = None;
        for &id in ids {
            for site in part.of(&self.document.functions[id]) {
                if let Some(at) = is_ours(site)? {
                    changed.insert(id);
                    example.get_or_insert(at);
                }
            }
        }
        match example {
            Some(at) => Err(self.in_the_way(changed, at)?),
            None => Ok(()),
        }
    }

    /// Returns the error for functions whose text has changed. If any of them has been unloaded,
    /// the error names those.
    pub(super) fn in_the_way(
        &self,
        changed: BTreeSet<usize>,
        at: Avma,
    ) -> Result<SessionError, SessionError> {
        let maps = self.space.maps()?;
        let module = |id: usize| {
            let module = self.document.functions[id].module;
            let corrupt = SegmentError::Corrupt("functions");
            self.document.modules.get(module).ok_or(corrupt)
        };
        let mut unloaded = BTreeSet::new();
        for &id in &changed {
            let first = self.document.functions[id].sites.first();
            let is_there = |site: &SiteDoc| {
                Ok::<_, SegmentError>(is_mapped(&maps, site.window.start, module(id)?))
            };
            if !first.map_or(Ok(true), is_there)? {
                unloaded.insert(id);
            }
        }
        Ok(SessionError::InTheWay(match unloaded.first() {
            Some(&id) => InTheWay::unloaded(unloaded, module(id)?.file_name().to_owned()),
            None => {
                let (memory, own) = (self.space.memory(), self.document.image);
                if legacy::is_jump(&maps, memory, at, own) {
                    InTheWay::inherited(changed, at)
                } else {
                    InTheWay::text(changed, at)
                }
            }
        }))
    }

    /// Restores the original bytes of functions while all threads are stopped. A thread inside a
    /// trampoline may continue there. A thread before a hook is moved back, and skips the hook.
    /// Fails if the process cannot be read or changed.
    pub(super) fn write_out(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        ids: &[usize],
    ) -> Result<(), SessionError> {
        let sites = sites_of(self.document, ids, |f| &f.sites);
        self.write_back(stopped, stacks, &sites, |_, _| true)?;
        let space = Arc::clone(self.space);
        self.note_uncertain(space.memory(), stopped, stacks, ids);
        Ok(())
    }

    /// Restores the original bytes of these functions' exits while all threads are stopped. A
    /// thread in a trampoline continues there, and the hook sees its call end. Fails if the process
    /// cannot be read or changed.
    pub(super) fn write_exits_out(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        ids: &[usize],
    ) -> Result<(), SessionError> {
        let sites = sites_of(self.document, ids, FunctionDoc::sites_out);
        self.write_back(stopped, stacks, &sites, |site, pc| {
            !site.trampoline.contains(pc)
        })
    }

    /// Restores the original bytes of sites, except those in [`View::kept_patches`]. Moves threads
    /// from the program counters of a site for which `is_left` is true. Fails if the process cannot
    /// be read or changed.
    pub(super) fn write_back(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        sites: &[&SiteDoc],
        is_left: impl Fn(&SiteDoc, Avma) -> bool,
    ) -> Result<(), SessionError> {
        let landings = self.landings_of(sites.iter().copied())?;
        let kept = self.kept_patches(stopped, stacks, sites)?;
        let mut patches = self.patches_of(sites)?;
        patches.retain(|(index, _)| !kept.contains_key(index));
        self.restore_patches(stopped.text(), &patches)?;
        // After the restore: a thread must not continue inside a window that is still patched.
        let is_kept = |site: &SiteDoc| site.patches.iter().any(|index| kept.contains_key(index));
        let sites = sites.iter().filter(|site| !is_kept(site));
        let banked = sites.clone().flat_map(|site| {
            let banked = site.banked.iter();
            banked.filter(|banked| is_left(site, banked.pcs.trampoline))
        });
        let pairs = sites.flat_map(|site| {
            let has_landing = site.patches.iter().any(|i| landings.contains_key(i));
            let pairs = site.pairs(has_landing);
            pairs.filter(|pair| is_left(site, pair.trampoline))
        });
        move_back(stopped, pairs, banked)
    }

    /// Patches that must stay for now, each with the address of a landing: the landings to which
    /// signal handlers will return, and the windows that contain such landings. Fails if the
    /// process or the journal cannot be read.
    pub(super) fn kept_patches(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        sites: &[&SiteDoc],
    ) -> Result<BTreeMap<u32, Avma>, SessionError> {
        let landings = self.landings_of(sites.iter().copied())?;
        if landings.is_empty() {
            return Ok(landings);
        }
        let is_landing: HashSet<Avma> = landings.values().copied().collect();
        let memory = self.space.memory();
        let mut awaited = HashSet::new();
        for thread in stopped.threads() {
            self.renew(memory, stacks, thread)?;
            let saved = stacks.interrupted(memory, thread.sp()).into_iter();
            awaited.extend(saved.filter(|pc| is_landing.contains(pc)));
        }
        let parked = self.parked(memory, stopped, stacks, |pc| is_landing.contains(&pc));
        // One program counter was found outside the stacks, so there may be others: all landings
        // stay.
        let awaited = parked.map_or(awaited, |_| is_landing);
        let landings = landings.into_iter().filter(|(_, at)| awaited.contains(at));
        Ok(with_hosts(sites, landings.collect()))
    }

    /// The addresses of the landings of these sites whose jumps are in the target, by the index of
    /// their patch. Fails if the journal is damaged.
    pub(super) fn landings_of<'s>(
        &self,
        sites: impl Iterator<Item = &'s SiteDoc>,
    ) -> Result<BTreeMap<u32, Avma>, SessionError> {
        let journal = Journal(self.segment);
        let mut landings = BTreeMap::new();
        for site in sites.filter(|site| !site.landing.is_empty()) {
            for &index in &site.patches {
                let patch = journal.patch(index)?;
                if patch.at != site.landing.start || journal.state(index)? == JOURNAL_UNDONE {
                    continue;
                }
                let now = self.space.memory().read_vec(patch.at, patch.new.len());
                if now.is_ok_and(|now| now == patch.new) {
                    landings.insert(index, patch.at);
                }
            }
        }
        Ok(landings)
    }

    /// Restores original bytes in reverse order of patching, also where a patch was written in
    /// part. Bytes that another tool has written since stay. A foreign breakpoint among our bytes
    /// stays, too: it stands for the original bytes. Fails if the text cannot be written.
    pub(super) fn restore_patches(
        &self,
        text: Text<'_>,
        patches: &[(u32, Patch)],
    ) -> Result<(), SessionError> {
        let journal = Journal(self.segment);
        // Otherwise, a half-restored patch would look like another tool's change.
        journal.intend(patches.iter().map(|&(index, _)| index))?;
        for (index, patch) in patches.iter().rev() {
            let now = text.memory().read_vec(patch.at, patch.new.len());
            if let Some(original) = now.ok().and_then(|now| original(&now, patch)) {
                write(text, patch.at, &original)?;
            }
            journal.undone(*index)?;
        }
        Ok(())
    }

    /// The journal's patches of these sites, each with its index. Fails if the journal is damaged.
    pub(super) fn patches_of(&self, sites: &[&SiteDoc]) -> Result<Vec<(u32, Patch)>, SessionError> {
        let journal = Journal(self.segment);
        let indexes = sites.iter().flat_map(|s| &s.patches);
        indexes
            .map(|&index| Ok((index, journal.patch(index)?)))
            .collect()
    }
}

/// The sites that `of` selects from these functions.
fn sites_of<'d>(
    document: &'d Document,
    ids: &[usize],
    of: impl Fn(&'d FunctionDoc) -> &'d [SiteDoc],
) -> Vec<&'d SiteDoc> {
    let functions = ids.iter().map(|&id| &document.functions[id]);
    functions.flat_map(of).collect()
}

impl SiteDoc {
    /// The program counters in the site's trampoline and on the way to it, each with its
    /// counterpart in the original code. Includes those in the landing if `has_landing`.
    pub(super) fn pairs(&self, has_landing: bool) -> impl Iterator<Item = &PairDoc> {
        let pairs = self.pcs.iter().chain(&self.hook_starts);
        pairs.filter(move |pair| has_landing || !self.landing.contains(&pair.trampoline))
    }
}

/// These landings, and the patches of the windows that contain them. If a window were restored
/// around a landing, its bytes would not be the program's code.
pub(super) fn with_hosts(sites: &[&SiteDoc], landings: BTreeMap<u32, Avma>) -> BTreeMap<u32, Avma> {
    let hosts = landings.values().flat_map(|&at| {
        let hosts = sites.iter().filter(move |site| site.window.contains(&at));
        hosts.flat_map(move |site| site.patches.iter().map(move |&index| (index, at)))
    });
    let hosts: Vec<(u32, Avma)> = hosts.collect();
    let mut all = landings;
    all.extend(hosts);
    all
}

/// Moves threads from the trampolines of these sites, which have been restored, to the original
/// code. A thread where that has no counterpart stays. Fails if a thread cannot be moved.
pub(super) fn leave_trampolines<'s>(
    stopped: &mut Stopped,
    sites: impl Iterator<Item = &'s SiteDoc> + Clone,
) -> Result<(), SessionError> {
    let pairs = sites.clone().flat_map(|site| site.pairs(false));
    move_back(stopped, pairs, sites.flat_map(|site| &site.banked))
}

/// Moves each thread at the second address of one of these pairs to the first. A thread at one of
/// `banked` gets the register back that the copy has spilled. Fails if a thread cannot be moved.
pub(super) fn move_back<'p>(
    stopped: &mut Stopped,
    pairs: impl Iterator<Item = &'p PairDoc>,
    banked: impl Iterator<Item = &'p BankedDoc>,
) -> Result<(), SessionError> {
    let banked = banked.map(|banked| (banked.pcs.trampoline, banked));
    let banked: HashMap<Avma, &BankedDoc> = banked.collect();
    let space = Arc::clone(stopped.space());
    let originals: HashMap<Avma, Avma> = pairs.map(|p| (p.trampoline, p.original)).collect();
    for thread in stopped.threads() {
        if let Some(&original) = originals.get(&thread.pc()) {
            thread.set_pc(original)?;
        } else if let Some(&banked) = banked.get(&thread.pc()) {
            let sp = thread.sp();
            let at = Avma(sp.0.wrapping_add_signed(banked.saved_at.into()));
            let value = space.memory().read_word(at);
            let value = value.map_err(|e| SessionError::Memory("read", at, e))?;
            let is_lower = banked.saved_at == 0;
            let sp = if is_lower { sp.plus(LOWERED) } else { sp };
            thread.leave_copy(banked.pcs.original, (banked.register, value), sp)?;
        }
    }
    Ok(())
}

/// The bytes to restore at a patch. `None` if they are restored already or if something else has
/// been written there.
fn original(now: &[u8], patch: &Patch) -> Option<Vec<u8>> {
    let bytes = now.iter().zip(&patch.old).zip(&patch.new);
    let original = bytes.map(|((&now, &old), &new)| match now {
        _ if now == new || now == old => Some(old),
        BREAKPOINT => Some(BREAKPOINT),
        _ => None,
    });
    let original: Option<Vec<u8>> = original.collect();
    original.filter(|original| original != now)
}

/// Writes bytes to the target's text. Fails if the memory cannot be written.
pub(super) fn write(text: Text<'_>, at: Avma, bytes: &[u8]) -> Result<(), SessionError> {
    text.write(at, bytes)
        .map_err(|e| SessionError::Memory("write", at, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_others_have_written_stays() {
        let patch = Patch {
            at: Avma(0x1000),
            old: vec![0x55, 0x48, 0x89, 0xe5, 0x53],
            new: vec![0xe9, 1, 2, 3, 4],
        };
        let of = |now: [u8; 5]| original(&now, &patch);
        assert_eq!(of([0xe9, 1, 2, 3, 4]), Some(patch.old.clone()));
        assert_eq!(
            of([0xe9, 1, 0x89, 0xe5, 0x53]),
            Some(patch.old.clone()),
            "half"
        );
        assert_eq!(of([0x55, 0x48, 0x89, 0xe5, 0x53]), None, "done");
        assert_eq!(
            of([0xcc, 1, 2, 3, 4]),
            Some(vec![0xcc, 0x48, 0x89, 0xe5, 0x53])
        );
        assert_eq!(of([0xcc, 0x48, 0x89, 0xe5, 0x53]), None, "somebody's alone");
        assert_eq!(of([0x90, 1, 2, 3, 4]), None, "something else");
    }
}
