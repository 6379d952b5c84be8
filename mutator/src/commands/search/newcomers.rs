//! Followed processes that start during a search.

use std::collections::BTreeSet;

use super::super::live::{AtEnd, Live};
use super::super::others::tree;
use super::super::remarks::warn;
use super::common::Shifts;
use super::hunt::Hunt;
use super::pack::{Lives, Member, Pack};
use crate::failure::Failure;
use ipath_profile::Profile;
use ipath_sampling::sampling::begin_all;
use ipath_session::follow::Newcomer;
use ipath_target::process::Process;
use ipath_target::process::modules::modules;

impl Pack {
    /// Adds sessions that the follower has created since, and prints its remarks. Returns true if
    /// there are any sessions.
    pub(super) fn take_in_newcomers(&mut self, lives: &mut Lives) -> bool {
        let Some((_, follower)) = &self.following else {
            return false;
        };
        follower.remarks().iter().for_each(|remark| warn(remark));
        for (pid, since) in follower.over() {
            let mut sessions = lives.iter().flatten().map(Live::session);
            if let Some(session) = sessions.find(|session| session.process().pid == pid) {
                session.note_end_at(since);
            }
        }
        let newcomers = follower.newcomers();
        let is_any = !newcomers.is_empty();
        for newcomer in newcomers {
            let Newcomer {
                session, answering, ..
            } = newcomer;
            let process = session.process().clone();
            let member = self.member(process);
            let live = Live::answered(session, AtEnd::TakeOut, answering);
            // A process without a session may be a member already.
            let same = |known: &Member| known.process == member.process;
            match self.members.iter().position(same) {
                Some(index) if lives[index].is_none() => lives[index] = Some(live),
                _ => {
                    self.members.push(member);
                    lives.push(Some(live));
                }
            }
        }
        is_any
    }

    /// Adds followed processes without a session, and starts to sample processes that are not
    /// sampled. Returns true if any process was not sampled.
    pub(super) fn take_in_processes(&mut self, lives: &mut Lives) -> bool {
        let Some((root, _)) = &self.following else {
            return false;
        };
        let root = root.clone();
        self.take_in_newcomers(lives);
        let known: BTreeSet<_> = self
            .members
            .iter()
            .map(|member| member.process.pid)
            .collect();
        for process in tree(&root) {
            if !known.contains(&process.pid) && process.check_program().is_ok() {
                let member = self.member(process);
                self.members.push(member);
                lives.push(None);
            }
        }
        let is_unsampled = |member: &&mut Member| member.sampler.is_none() && !member.is_out;
        let mut unsampled: Vec<&mut Member> =
            self.members.iter_mut().filter(is_unsampled).collect();
        unsampled.retain(|member| !member.process.has_ended());
        let processes: Vec<Process> = unsampled.iter().map(|m| m.process.clone()).collect();
        if processes.is_empty() {
            return false;
        }
        for (member, begun) in unsampled.into_iter().zip(begin_all(&processes)) {
            member.sampler = begun.ok();
        }
        true
    }

    /// Stops creating sessions.
    pub(super) fn close(&self) {
        self.following
            .iter()
            .for_each(|(_, follower)| follower.close());
    }

    /// Stops following, after the sessions of the members have been removed. Returns the sum of the
    /// other processes. `None` if no process was followed or none of them was measured.
    pub(super) fn let_go(&self) -> Option<Profile> {
        let (_, follower) = self.following.as_ref()?;
        follower.let_go();
        follower.repeated().iter().for_each(|line| warn(line));
        follower.gathered(true).finish()
    }

    fn member(&mut self, process: Process) -> Member {
        let maps = process.maps().unwrap_or_default();
        let shifts = if maps.is_empty() {
            Shifts::default()
        } else {
            self.common.shifts(modules(&process, &maps).iter())
        };
        Member {
            process,
            sampler: None,
            shifts,
            given: None,
            is_out: false,
        }
    }

    /// Removes members whose sessions are over, and adds their profiles to those of other ended
    /// processes.
    fn retire(&mut self, lives: &mut Lives) {
        let Some((_, follower)) = &self.following else {
            return;
        };
        for index in (0..self.members.len()).rev() {
            let is_over = match &lives[index] {
                Some(live) => !matches!(live.session().over(), Ok(None) | Err(_)),
                None => self.members[index].process.has_ended(),
            };
            if !is_over {
                continue;
            }
            self.members.remove(index);
            if let Some(mut live) = lives.remove(index) {
                let (ended, profile) = live.finish();
                match profile {
                    Ok(profile) => follower.gather(&profile),
                    Err(failure) => warn(&failure.in_one_line()),
                }
                if let Err(failure) = ended {
                    warn(&failure.in_one_line());
                }
            }
        }
    }
}

impl Hunt<'_> {
    /// Updates the members before a step. Removes ended processes, adds new ones, and measures the
    /// same functions in them.
    pub(super) fn catch_up(&mut self, lives: &mut Lives) -> Result<(), Failure> {
        if self.pack.following.is_none() {
            return Ok(());
        }
        self.pack.retire(lives);
        self.pack.take_in_processes(lives);
        self.pack.renew_shifts();
        self.complete(lives)
    }
}
