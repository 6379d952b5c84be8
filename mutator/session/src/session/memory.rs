//! The memory of a session in a target with a limited memory cgroup: at most half of the memory
//! that the cgroup has left. The kernel kills a process of a cgroup that exceeds its limit.
//!
//! The command refuses a session, functions, or a followed child if that is too little. For memory
//! that the runtime takes later, the command sets a bound in the segment (`Header::memory_limit`).
//! While it watches, it updates the bound:
//!
//! ```text
//! limit = min(base, left + taken) / 2
//! ```
//!
//! `base` is twice the first bound. It grows to `left` if that is larger once the runtime has
//! reached the bound. `left` excludes the bounds of the other sessions that this command has made
//! in the group.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};

use abi::count::BANKS;
use abi::segment::{Header, NO_LIMIT};

use super::copies::room_of;
use super::view::View;
use super::{Candidate, Session, SessionError};
use ipath_target::process::headroom::{Headroom, headroom, mib};
use ipath_target::process::{Presence, Process};

/// A session takes at most one part in `PART` of the memory left.
const PART: u64 = 2;

/// Bytes of page tables, mappings and events that the kernel keeps for a session.
const KERNEL: u64 = 256 << 10;

/// The minimum number of bytes with which a runtime can record: a thread's place, and the first
/// pieces of the areas and tables.
const LEAST: u64 = 1 << 20;

/// A bound above this number of bytes needs no note.
const PLENTY: u64 = 256 << 20;

/// The most memory that a session can use, in bytes.
const USEFUL: u64 = 64 << 20;
/// The most memory that a session can use per path, in bytes.
const USEFUL_PER_PATH: u64 = 4 << 10;

/// The extra memory of a followed child beyond its layout: one part in `PART_OF_CHILD` of the
/// memory left, at most `MOST_OF_CHILD`.
const PART_OF_CHILD: u64 = 16;
/// See [`PART_OF_CHILD`]; in bytes.
const MOST_OF_CHILD: u64 = 16 << 20;

/// This command's sessions in processes with a limit, each with its bound. The sum of the bounds
/// stays below the memory left. The sessions of processes that have ended are dropped at each look.
static MADE: Mutex<Vec<(Process, PathBuf, u64)>> = Mutex::new(Vec::new());

/// Bytes left to a process in its group after the other sessions in the group have used their full
/// bounds.
fn left_for(process: &Process, headroom: &Headroom) -> u64 {
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    made.retain(|(process, ..)| process.life() != Presence::Ended);
    let others = made
        .iter()
        .filter(|(of, group, _)| of != process && *group == headroom.group);
    let promised = others
        .map(|(.., limit)| limit)
        .fold(0, |sum: u64, &n| sum.saturating_add(n));
    headroom.left.saturating_sub(promised)
}

/// The memory of a new session in a cgroup with a limit.
pub(super) struct Room {
    headroom: Headroom,
    /// The number of bytes that are laid out at once.
    laid: u64,
    /// The number of bytes that the session may take.
    limit: u64,
}

impl Room {
    /// Room for a session with at most `max_paths` paths. `None` if the process's cgroups have no
    /// limit.
    ///
    /// # Errors
    /// The session would exceed its part: `laid` bytes at once, and the minimum of a runtime.
    pub(super) fn find(
        process: &Process,
        laid: u64,
        max_paths: u64,
    ) -> Result<Option<Self>, SessionError> {
        let useful = USEFUL.saturating_add(max_paths.saturating_mul(USEFUL_PER_PATH));
        Self::of(process, laid, |_| useful)
    }

    /// Room for the session of a followed child. There may be many of these.
    ///
    /// # Errors
    /// As for [`Room::find`].
    pub(super) fn of_child(process: &Process, laid: u64) -> Result<Option<Self>, SessionError> {
        Self::of(process, laid, |left| {
            (left / PART_OF_CHILD).min(MOST_OF_CHILD)
        })
    }

    /// Room for `laid` bytes at once. `more` returns the number of further bytes that are useful,
    /// from the bytes left.
    fn of(
        process: &Process,
        laid: u64,
        more: impl Fn(u64) -> u64,
    ) -> Result<Option<Self>, SessionError> {
        let Some(headroom) = headroom(process) else {
            return Ok(None);
        };
        let laid = laid.saturating_add(KERNEL);
        let left = left_for(process, &headroom);
        let needed = laid.saturating_add(LEAST);
        check(&headroom, left / PART, needed)?;
        let limit = laid.saturating_add(more(left)).max(needed).min(left / PART);
        let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|(of, ..)| of != process);
        made.push((process.clone(), headroom.group.clone(), limit));
        Ok(Some(Self {
            headroom,
            laid,
            limit,
        }))
    }

    /// Sets the bound of a session that is being made.
    pub(super) fn begin(&self, header: &Header) {
        header.memory_taken.store(self.laid, Relaxed);
        header
            .memory_base
            .store(self.limit.saturating_mul(PART), Relaxed);
        header.memory_limit.store(self.limit, Relaxed);
    }

    /// A note for readers of the profile. `None` if the room is not small.
    pub(super) fn note(&self) -> Option<String> {
        let limit = self.limit;
        (limit < PLENTY).then(|| {
            format!(
                "the session takes at most {} MiB of the {} MiB that memory cgroup {} has left: \
                beyond that, calls on new paths are counted together and calls on new threads \
                are missed",
                mib(limit),
                mib(self.headroom.left),
                self.headroom.group.display()
            )
        })
    }

    /// The number of times to halve `wanted`, the bytes laid out ahead, until they are at most a
    /// quarter of the session's room. 0 without a limit; at most 16.
    pub(super) fn scaled(process: &Process, wanted: u64) -> u32 {
        let Some(headroom) = headroom(process) else {
            return 0;
        };
        let most = headroom.left / PART / 4;
        (0..16).find(|&shift| wanted >> shift <= most).unwrap_or(16)
    }
}

/// Returns an error if more bytes are needed than the session may take.
fn check(headroom: &Headroom, may: u64, needed: u64) -> Result<(), SessionError> {
    if needed <= may {
        Ok(())
    } else {
        Err(SessionError::LittleMemory {
            group: headroom.group.clone(),
            left: headroom.left,
            needed,
            may,
        })
    }
}

/// Updates a session's bound to the memory that its cgroup has left now. Returns the bound in
/// bytes. `left` is in bytes.
fn bound(header: &Header, left: u64) -> u64 {
    let taken = header.memory_taken.load(Relaxed);
    let is_short = header.memory_refused.load(Relaxed) != 0;
    let more = if is_short { left } else { 0 };
    let base = header.memory_base.fetch_max(more, Relaxed).max(more);
    let limit = base.min(left.saturating_add(taken)) / PART;
    header.memory_limit.store(limit, Relaxed);
    limit
}

impl Session {
    /// Updates the bound on the runtime's memory to the memory that the target's cgroup has left
    /// now.
    pub fn bound_memory(&self) {
        let header = self.segment.header();
        match headroom(&self.process) {
            Some(headroom) => drop(bound(header, left_for(&self.process, &headroom))),
            // The limit is gone, or can no longer be read.
            None if header.memory_limit.load(Relaxed) == NO_LIMIT => {}
            None => header.memory_limit.store(NO_LIMIT, Relaxed),
        }
    }
}

impl View<'_> {
    /// Takes memory for functions, in bytes, from the session's room, before anything is mapped or
    /// patched for them.
    ///
    /// # Errors
    /// The session has less room left.
    pub(super) fn take_memory(&self, needed: u64) -> Result<(), SessionError> {
        let Some(headroom) = headroom(self.process) else {
            return Ok(());
        };
        let header = self.segment.header();
        let limit = bound(header, left_for(self.process, &headroom));
        let taken = header.memory_taken.fetch_add(needed, Relaxed);
        let checked = check(&headroom, limit.saturating_sub(taken), needed);
        checked.inspect_err(|_| {
            header.memory_taken.fetch_sub(needed, Relaxed);
        })
    }
}

/// Bytes of trampolines, and of the text pages that become private copies of the process.
pub(super) fn bytes_of(candidates: &[Candidate]) -> u64 {
    let of = |c: &Candidate| {
        let bias = c.bias;
        let site = move |s: &patcher::plan::Site| {
            let page = bias.to_avma(s.window.start).0 / abi::PAGE;
            (page, room_of(s) + 16)
        };
        c.plan.sites.iter().map(site).collect::<Vec<_>>()
    };
    let sites: Vec<(u64, u64)> = candidates.iter().flat_map(of).collect();
    let pages: BTreeSet<u64> = sites.iter().map(|&(page, _)| page).collect();
    let trampolines: u64 = sites.iter().map(|&(_, len)| len).sum();
    let counters = candidates.iter().filter_map(|c| c.counted.as_ref());
    let counters: usize = counters.map(|counted| counted.hooks.len()).sum();
    let bank = (8 * counters as u64).next_multiple_of(abi::PAGE);
    // Regions begin with a page of their own, and a window may straddle two pages.
    2 * pages.len() as u64 * abi::PAGE
        + trampolines.next_multiple_of(abi::PAGE)
        + BANKS as u64 * bank
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> Header {
        // SAFETY: all fields are atomics, and zero is valid for them.
        unsafe { std::mem::zeroed() }
    }

    fn room(left: u64) -> Room {
        let group = PathBuf::from("/sys/fs/cgroup/app");
        let headroom = Headroom { left, group };
        Room {
            limit: headroom.left / PART,
            headroom,
            laid: 1000,
        }
    }

    #[test]
    fn a_session_takes_half_of_what_is_left() {
        let header = header();
        room(100_000).begin(&header);
        assert_eq!(header.memory_limit.load(Relaxed), 50_000);
        // Memory taken by the session does not belong to the program.
        header.memory_taken.store(40_000, Relaxed);
        assert_eq!(bound(&header, 60_000), 50_000);
        // Memory that was granted and is untouched does not raise the bound.
        assert_eq!(bound(&header, 90_000), 50_000);
        // The program has grown: nothing more is left for the session.
        assert_eq!(bound(&header, 20_000), 30_000);
        // The limit was raised, and the runtime has reached its bound.
        assert_eq!(bound(&header, 400_000), 50_000);
        header.memory_refused.store(1, Relaxed);
        assert_eq!(bound(&header, 400_000), 200_000);
    }

    #[test]
    fn too_little_is_refused_with_the_figures() {
        let headroom = room(4 << 20).headroom;
        let refused = check(&headroom, 2 << 20, 3 << 20).expect_err("too much");
        assert_eq!(
            refused.to_string(),
            "its memory cgroup /sys/fs/cgroup/app has 4.0 MiB left; the session may take 2.0 MiB of them, and needs 3.0 MiB"
        );
        assert!(check(&headroom, 2 << 20, 2 << 20).is_ok());
        assert!(
            room(4 << 20)
                .note()
                .expect("little")
                .contains("at most 2.0 MiB")
        );
        assert_eq!(room(1 << 40).note(), None);
    }
}
