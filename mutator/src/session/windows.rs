//! Threads in the bytes that patches will overwrite.

use std::collections::BTreeSet;
use std::fmt;

use patcher::Avma;

use super::stack_scan::Stacks;
use super::{Changed, Session, SessionError};
use crate::process::{Memory, Tid};
use crate::segment::SiteDoc;
use crate::tracee::Stopped;

/// Why a function is refused that somebody stays in: see [`Session::give_up`].
const OCCUPIED: &str = "occupied";

/// The functions in whose windows threads are that cannot be moved.
#[derive(Debug)]
pub struct Occupied {
    /// Ids of the functions.
    functions: BTreeSet<usize>,
    /// One of them, and the thread in it.
    example: (String, Tid),
}

impl fmt::Display for Occupied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, tid) = &self.example;
        write!(
            f,
            "thread {tid} stays inside the code of {name} that would be overwritten"
        )
    }
}

impl Session {
    /// Moves threads out of the windows; `Occupied` where one cannot be moved.
    pub(super) fn clear_windows(
        &self,
        memory: &Memory,
        stopped: &mut Stopped,
        stacks: &mut Stacks,
        ids: &[usize],
    ) -> Result<(), SessionError> {
        let of_function = |&id: &usize| {
            let sites = &self.document.functions[id].sites;
            sites.iter().map(move |site| (id, site))
        };
        let mut sites: Vec<(usize, &SiteDoc)> = ids.iter().flat_map(of_function).collect();
        sites.sort_by_key(|(_, site)| site.window);
        // Strictly inside: at a window's start the jump is as good as what stood there.
        let inside = |pc: Avma| {
            let after = sites.partition_point(|(_, site)| site.window.0 < pc.0);
            let found = sites[..after].last().copied();
            found.filter(|(_, site)| pc.0 < site.window.1)
        };
        let mut moves = Vec::new();
        let mut staying: Vec<(usize, Tid)> = Vec::new();
        for thread in stopped.threads() {
            if let Some((id, site)) = inside(thread.pc()) {
                match site.pcs.iter().find(|p| p.0 == thread.pc().0) {
                    Some(pair) => moves.push((thread.tid(), Avma(pair.1))),
                    None => staying.push((id, thread.tid())),
                }
            }
            self.renew(memory, stacks, thread)?;
            let saved = stacks.interrupted(memory, thread.sp()).into_iter();
            staying.extend(saved.filter_map(|pc| Some((inside(pc)?.0, thread.tid()))));
        }
        if let Some(&(id, tid)) = staying.first() {
            return Err(SessionError::Occupied(Occupied {
                functions: staying.iter().map(|(id, _)| *id).collect(),
                example: (self.document.functions[id].name.clone(), tid),
            }));
        }
        for thread in stopped.threads() {
            if let Some((_, to)) = moves.iter().find(|(tid, _)| *tid == thread.tid()) {
                thread.set_pc(*to)?;
            }
        }
        Ok(())
    }

    /// Goes on without the functions that threads stay in, which are refused by name; gives the
    /// error back where none is left then.
    pub(super) fn give_up(
        &mut self,
        memory: &Memory,
        occupied: Occupied,
        ids: &mut Vec<usize>,
        changed: &mut Changed,
    ) -> Result<(), SessionError> {
        let given_up: Vec<usize> = occupied.functions.iter().copied().collect();
        self.switch(memory, &given_up, false)?;
        ids.retain(|id| !occupied.functions.contains(id));
        for &id in &given_up {
            let name = self.document.functions[id].name.clone();
            if self.document.functions[id].reaper.is_none() {
                changed.functions.retain(|n| *n != name);
                changed.trapped.retain(|n| *n != name);
                self.refuse_known(id, OCCUPIED);
                changed.refused.push((name, OCCUPIED.to_owned()));
            }
        }
        match changed.functions.is_empty() {
            true => Err(SessionError::Occupied(occupied)),
            false => Ok(()),
        }
    }
}
