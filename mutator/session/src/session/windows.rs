//! Threads in the bytes that patches will overwrite.

use patcher::Avma;

use super::Changed;
use super::error::SessionError;
use super::in_the_way::InTheWay;
use super::locked::Locked;
use super::parked::{IN_STOP, saved_inside};
use super::refusing::refuse_known;
use super::rows::follows_goroutines;
use super::stack_scan::Stacks;
use super::view::View;
use super::write::{Part, leave_trampolines, switch};
use crate::segment::{Document, FunctionDoc, Journal, Role, SiteDoc};
use ipath_target::process::{Extent, Mapping, Memory, Tid};
use ipath_target::tracee::Stopped;

/// The words of an application's stack that may contain the return address of a hook's stub.
fn ways_back(memory: &Memory, sp: Avma) -> impl Iterator<Item = Avma> {
    /// Size in bytes of the searched range: more than a stub and its callees use.
    const BYTES: usize = 2048;
    let stack = memory.read_vec(sp, BYTES).unwrap_or_default();
    let words: Vec<Avma> = stack
        .chunks_exact(8)
        .filter_map(|word| Some(Avma(u64::from_le_bytes(word.try_into().ok()?))))
        .collect();
    words.into_iter()
}

impl View<'_> {
    /// Restores what earlier patches of these functions have left in the text, because signal
    /// handlers were to return to it. Returns the address of a landing to which one still will.
    /// Fails if the process cannot be read or changed.
    pub(super) fn clear_landings(
        &self,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        ids: &[usize],
    ) -> Result<Option<Avma>, SessionError> {
        let sites = left_sites(self.document, ids).map(|(_, site)| site);
        let sites: Vec<&SiteDoc> = sites.collect();
        // Only these stay, and the windows around them.
        if sites.iter().all(|site| site.landing.is_empty()) {
            return Ok(None);
        }
        let mut left = Journal(self.segment).standing()?;
        left.retain(|patch| sites.iter().any(|site| site.patches.contains(patch)));
        if left.is_empty() {
            return Ok(None);
        }
        self.restore_left(stopped, stacks, (&sites, &left))
    }

    /// Moves threads inside the windows to the trampolines. Returns `InTheWay` if one cannot be
    /// moved, or if a saved context or an old trampoline leads into a window. Then none has been
    /// moved. Fails for other reasons if the process cannot be read or changed.
    pub(super) fn clear_windows(
        &self,
        memory: &Memory,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        (ids, part): (&[usize], Part),
    ) -> Result<(), SessionError> {
        let of_function = |&id: &usize| {
            let sites = part.of(&self.document.functions[id]);
            sites.iter().map(move |site| (id, site))
        };
        let mut sites: Vec<(usize, &SiteDoc)> = ids.iter().flat_map(of_function).collect();
        sites.sort_by_key(|(_, site)| (site.window.start, site.window.end));
        // Strictly inside: at a window's start, the jump is equivalent to the original instruction.
        let inside = |pc: Avma| {
            let after = sites.partition_point(|(_, site)| site.window.start < pc);
            let found = sites[..after].last().copied();
            found.filter(|(_, site)| pc < site.window.end)
        };
        let mut moves = Vec::new();
        let mut staying: Vec<(usize, Tid)> = Vec::new();
        let left = left_trampolines(self.document, ids);
        let is_left = |pc: Avma| {
            let trampoline = left.iter().find(|(_, extent)| extent.contains(pc));
            trampoline.map(|(id, _)| *id)
        };
        if !left.is_empty() {
            let functions = self.document.functions.iter().filter(|f| f.is_retired());
            leave_trampolines(stopped, functions.flat_map(FunctionDoc::sites_restored))?;
        }
        for thread in stopped.threads() {
            if let Some((id, site)) = inside(thread.pc()) {
                match site.pcs.iter().find(|p| p.original == thread.pc()) {
                    Some(pair) => moves.push((thread.tid(), pair.trampoline)),
                    None => staying.push((id, thread.tid())),
                }
            }
            self.renew(memory, stacks, thread)?;
            let saved = stacks.interrupted(memory, thread.sp()).into_iter();
            if !left.is_empty() {
                let below = stacks.of_application(memory, thread.sp());
                let pcs = std::iter::once(thread.pc()).chain(saved.clone());
                let pcs = pcs.chain(ways_back(memory, below));
                staying.extend(pcs.filter_map(|pc| Some((is_left(pc)?, thread.tid()))));
            }
            staying.extend(saved.filter_map(|pc| Some((inside(pc)?.0, thread.tid()))));
        }
        // A context in the runtime may return to a trampoline.
        let runtime = self.document.image;
        let in_runtime = |pc| left.first().filter(|_| runtime.contains(pc));
        let way = |pc: Avma| {
            let window = inside(pc).map(|(id, _)| id);
            window.or_else(|| is_left(pc).or(in_runtime(pc).map(|(id, _)| *id)))
        };
        let parked = self.parked(memory, stopped, stacks, |pc| way(pc).is_some());
        staying.extend(parked.and_then(|(pc, tid)| Some((way(pc)?, tid))));
        if let Some(&(id, tid)) = staying.first() {
            let functions = staying.iter().map(|(id, _)| *id).collect();
            let name = self.document.functions[id].name.clone();
            return Err(SessionError::InTheWay(InTheWay::thread(
                functions, name, tid,
            )));
        }
        for thread in stopped.threads() {
            if let Some((_, to)) = moves.iter().find(|(tid, _)| *tid == thread.tid()) {
                thread.set_pc(*to)?;
            }
        }
        Ok(())
    }

    /// Searches the contexts that signal handlers have left for a program counter for which
    /// `is_inside` is true. For each thread on a stack other than its own, scans the mapping of
    /// that stack. Also returns a thread that may continue in the context. `None` if none is found,
    /// and for Go programs.
    pub(super) fn parked(
        &self,
        memory: &Memory,
        stopped: &mut Stopped,
        stacks: &Stacks,
        is_inside: impl Fn(Avma) -> bool,
    ) -> Option<(Avma, Tid)> {
        if follows_goroutines(self.document) {
            return None;
        }
        let mut elsewhere: Vec<(&Mapping, Tid)> = Vec::new();
        for thread in stopped.threads() {
            let is_first = thread.tid().0 == self.process.pid.0;
            let block = (!is_first).then(|| thread.thread_pointer());
            let sp = stacks.of_application(memory, thread.sp());
            let stack = stacks.elsewhere(sp, block);
            let is_new = |m: &&Mapping| elsewhere.iter().all(|(known, _)| known != m);
            elsewhere.extend(stack.filter(is_new).map(|m| (m, thread.tid())));
        }
        let (_, tid) = *elsewhere.first()?;
        let maps = elsewhere.iter().map(|(m, _)| *m);
        let found = saved_inside(self.process, memory, maps, &[], IN_STOP, is_inside);
        Some((found?, tid))
    }
}

/// The trampolines of earlier rows of these functions. A thread in one continues at the end of the
/// old patches, which may be inside the new ones.
fn left_trampolines(document: &Document, ids: &[usize]) -> Vec<(usize, Extent)> {
    let sites = left_sites(document, ids);
    sites.map(|(id, site)| (id, site.trampoline)).collect()
}

/// The sites of earlier rows of these functions, each with the id of the present row.
fn left_sites<'d>(
    document: &'d Document,
    ids: &'d [usize],
) -> impl Iterator<Item = (usize, &'d SiteDoc)> {
    let functions = &document.functions;
    let retired = functions
        .iter()
        .filter(|f| f.is_retired() && (f.role.is_shown() || f.role == Role::Carrier));
    retired.flat_map(move |old| {
        let place = document.place_of(old);
        let is_it = move |id: &&usize| document.place_of(&functions[**id]) == place;
        let now = ids.iter().find(is_it);
        now.into_iter()
            .flat_map(|&id| old.sites.iter().map(move |site| (id, site)))
    })
}

/// Continues without the functions that have an obstacle, and refuses those by name. Returns the
/// error if none is left. Functions of an unloaded library are not refused while patterns wait:
/// they come in again with it.
pub(super) fn give_up(
    locked: &mut Locked<'_>,
    in_the_way: InTheWay,
    ids: &mut Vec<usize>,
    changed: &mut Changed,
) -> Result<(), SessionError> {
    let given_up: Vec<usize> = in_the_way.functions().iter().copied().collect();
    let given_up = locked.document.with_carried(&given_up);
    let waits = in_the_way.is_unloaded() && !locked.document.pending.is_empty();
    switch(locked, &given_up, false)?;
    ids.retain(|id| !given_up.contains(id));
    for &id in &given_up {
        let name = locked.document.functions[id].name.clone();
        if locked.document.functions[id].role.is_shown() {
            changed.functions.retain(|n| *n != name);
            changed.trapped.retain(|n| *n != name);
            if waits {
                continue;
            }
            refuse_known(&mut locked.document, id, in_the_way.reason());
            changed.refused.push((name, in_the_way.reason().into()));
        }
    }
    if changed.functions.is_empty() && !waits {
        Err(SessionError::InTheWay(in_the_way))
    } else {
        Ok(())
    }
}
