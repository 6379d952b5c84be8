//! Adding and removing functions in each process of a search.

use crate::commands::failures::SessionFailure;
use std::collections::BTreeSet;

use patcher::Avma;
use patcher::select::Pattern;

use super::super::existing::is_of_family;
use super::super::live::{AtEnd, Live};
use super::super::outcome::tell_refused;
use super::super::remarks::warn;
use super::super::suggest::UNKNOWN;
use super::hunt::Hunt;
use super::pack::{Lives, Member, Pack};
use super::words::reason;
use crate::failure::Failure;
use ipath_sampling::search::{Cost, Dropped};
use ipath_session::session::{
    Answering, Candidate, Changed, Options, Selected, Session, SessionError, Where, has_leak_check,
    select_in,
};

/// The result of instrumenting functions.
#[derive(Default)]
struct PutIn {
    /// Functions that are instrumented.
    done: BTreeSet<Avma>,
    /// Functions that cannot be instrumented in a process, with the reason.
    refused: Vec<(Avma, String)>,
}

impl Pack {
    /// True if functions are given to search within.
    pub(super) fn is_given(&self) -> bool {
        self.members.iter().any(|member| member.given.is_some())
    }

    /// The common addresses of the instrumented functions, without duplicates.
    pub(super) fn functions_in(&self, lives: &Lives) -> BTreeSet<Avma> {
        let members = self.members.iter().zip(lives);
        let sessions =
            members.filter_map(|(member, live)| Some((member, live.as_ref()?.session())));
        let functions = sessions.flat_map(|(member, session)| {
            places_in(session).map(|place| member.shifts.to_common(place))
        });
        functions.collect()
    }
}

impl Hunt<'_> {
    /// Removes functions from all sessions. A process in which that fails is no longer measured.
    pub(super) fn take_out(
        &mut self,
        lives: &mut Lives,
        dropped: &[(Avma, Dropped)],
    ) -> Result<(), Failure> {
        for (index, live) in lives.iter_mut().enumerate() {
            let Some(live) = live else {
                continue;
            };
            let member = &self.pack.members[index];
            let own = dropped.iter();
            let own: Vec<Avma> = own.filter_map(|(f, _)| member.shifts.to_own(*f)).collect();
            let ids: Vec<usize> = functions_in(live.session())
                .filter(|(_, place)| own.contains(place))
                .map(|(id, _)| id)
                .collect();
            if ids.is_empty() {
                continue;
            }
            let removed = live.session_mut().remove(&ids);
            let failure = |e: SessionError| e.failure(self.asked.operation, &member.process);
            if let Err(failure) = removed.map_err(failure) {
                self.leave(index, failure)?;
            }
        }
        Ok(())
    }

    /// Creates the sessions with the given functions. Prints the refused ones of the first session.
    pub(super) fn create_given(&mut self, lives: &mut Lives) -> Result<(), Failure> {
        let mut is_told = false;
        for (index, live) in lives.iter_mut().enumerate() {
            let Some(given) = self.pack.members[index].given.take() else {
                continue;
            };
            match self.create(index, live, given) {
                // Each process refuses the same functions.
                Ok(_) if is_told => {}
                Ok(changed) => {
                    tell_refused(&changed);
                    is_told = true;
                }
                Err(SessionError::Exists) if self.has_its_session(index) => {}
                Err(error) => {
                    let process = &self.pack.members[index].process;
                    let failure = error.failure(self.asked.operation, process);
                    self.leave(index, failure)?;
                }
            }
        }
        Ok(())
    }

    /// Instruments functions. Replaces each function that cannot be instrumented by another one.
    pub(super) fn put_in(
        &mut self,
        lives: &mut Lives,
        mut add: Vec<(Avma, Cost)>,
    ) -> Result<(), Failure> {
        while !add.is_empty() {
            let functions: Vec<Avma> = add.iter().map(|(function, _)| *function).collect();
            let refused = self.instrument(lives, &functions)?;
            if refused.is_empty() {
                break;
            }
            let mut said = Vec::new();
            for (function, why) in refused {
                let (whole, _) = self.pack.name_at(function);
                let name = self.name(function);
                self.step.added.retain(|added| *added != whole);
                self.step.refused.push(whole);
                said.push(match &why {
                    Dropped::Refused(cause) => format!("{name} cannot be instrumented ({cause})"),
                    why => format!("{name}: {}", reason(why)),
                });
                self.search.refuse(function, why);
            }
            add = self.search.instead(&self.stacks);
            said.extend(self.added(&add));
            match self.asked.brief {
                Some(_) => {
                    let names = add
                        .iter()
                        .map(|(function, _)| self.pack.name_at(*function).0);
                    self.step.added.extend(names);
                }
                None => self.say(&said.join("; ")),
            }
        }
        Ok(())
    }

    /// Instruments functions. Returns those that no process could instrument, each with the reason.
    fn instrument(
        &mut self,
        lives: &mut Lives,
        functions: &[Avma],
    ) -> Result<Vec<(Avma, Dropped)>, Failure> {
        let mut all = PutIn::default();
        for (index, live) in lives.iter_mut().enumerate() {
            let member = &self.pack.members[index];
            let own = functions.iter().filter_map(|&f| member.shifts.to_own(f));
            let own: Vec<Avma> = own.collect();
            if own.is_empty() || member.is_out {
                continue;
            }
            match self.instrument_one(index, live, &own) {
                Ok(one) => {
                    let shifts = &self.pack.members[index].shifts;
                    let done = one.done.into_iter().map(|f| shifts.to_common(f));
                    all.done.extend(done);
                    let refused = one.refused.into_iter();
                    let refused = refused.map(|(f, cause)| (shifts.to_common(f), cause));
                    all.refused.extend(refused);
                }
                Err(failure) => self.leave(index, failure)?,
            }
        }
        let PutIn { done, refused } = all;
        let cause = |function: &Avma| {
            let cause = refused.iter().find(|(f, _)| f == function);
            let cause = cause.map(|(_, cause)| cause.clone());
            match (cause, &self.pack.following) {
                (Some(cause), _) => Dropped::Refused(cause),
                (None, Some(_)) => Dropped::Ended,
                (None, None) => Dropped::Refused(UNKNOWN.to_owned()),
            }
        };
        let out = functions.iter().filter(|f| !done.contains(f));
        Ok(out.map(|f| (*f, cause(f))).collect())
    }

    /// Instruments the measured functions in processes without a session.
    pub(super) fn complete(&mut self, lives: &mut Lives) -> Result<(), Failure> {
        for (index, live) in lives.iter_mut().enumerate() {
            let member = &self.pack.members[index];
            let measured = self.search.measured().iter();
            let own = measured.filter_map(|&f| member.shifts.to_own(f));
            let own: Vec<Avma> = own.collect();
            if live.is_some() || own.is_empty() || member.is_out {
                continue;
            }
            if let Err(failure) = self.instrument_one(index, live, &own) {
                self.leave(index, failure)?;
            }
        }
        Ok(())
    }

    /// Instruments functions of one process, by its own addresses. Creates a session in it if it
    /// has none.
    fn instrument_one(
        &mut self,
        index: usize,
        live: &mut Option<Live>,
        functions: &[Avma],
    ) -> Result<PutIn, Failure> {
        let process = &self.pack.members[index].process;
        let failure = |e: SessionError| e.failure(self.asked.operation, process);
        let pattern = |f: &Avma| Pattern::parse(&format!("{:#x}", f.0)).ok();
        let patterns: Vec<Pattern> = functions.iter().filter_map(pattern).collect();
        let mut selected = match live {
            Some(live) => live.session().select(&patterns, None).map_err(failure)?,
            None => self.select_first(index, &patterns).map_err(failure)?,
        };
        if self.asked.allow_traps {
            selected.selection.allow_traps();
        }
        let start = |c: &Candidate| c.bias.to_avma(c.plan.function.range.start);
        let candidates = selected.selection.candidates.iter();
        let mut refused: Vec<(Avma, String)> = candidates
            .filter_map(|c| Some((start(c), c.refused()?.to_string())))
            .filter(|(function, _)| functions.contains(function))
            .collect();
        let candidates = &mut selected.selection.candidates;
        candidates.retain(|candidate| candidate.refused().is_none());
        let possible: Vec<Avma> = candidates.iter().map(start).collect();
        let is_known = |f: &Avma| possible.contains(f) || refused.iter().any(|(r, _)| r == f);
        let unknown = functions.iter().filter(|f| !is_known(f));
        let unknown = unknown.map(|f| (*f, UNKNOWN.to_owned()));
        let unknown: Vec<_> = unknown.collect();
        refused.extend(unknown);
        if possible.is_empty() {
            let done = BTreeSet::new();
            return Ok(PutIn { done, refused });
        }
        let changed = match live {
            Some(live) => live.session_mut().add("search", selected),
            None => self.create(index, live, selected),
        };
        let changed = match changed {
            Ok(changed) => changed,
            Err(SessionError::Refused(refused)) => Changed {
                refused,
                ..Changed::default()
            },
            // It was forked from a measured process and inherits that one's functions.
            Err(SessionError::Exists) if self.has_its_session(index) => {
                return Ok(PutIn::default());
            }
            Err(error) => return Err(failure(error)),
        };
        let cause = match changed.refused.first() {
            Some((_, reason)) => reason.to_string(),
            None => "it was not instrumented".to_owned(),
        };
        let active: Vec<Avma> = match live {
            Some(live) => places_in(live.session()).collect(),
            None => Vec::new(),
        };
        let is_out = |f: &&Avma| possible.contains(f) && !active.contains(f);
        let out = functions.iter().filter(is_out);
        refused.extend(out.map(|f| (*f, cause.clone())));
        self.tell_new(changed);
        let done = functions.iter().filter(|f| active.contains(f));
        Ok(PutIn {
            done: done.copied().collect(),
            refused,
        })
    }

    /// Prints the notes on these functions that have not been printed before.
    fn tell_new(&mut self, changed: Changed) {
        if self.asked.brief.is_some() {
            return;
        }
        let mut is_new = |note: &'static str, name: &String| self.told.insert((note, name.clone()));
        let mut new = Changed {
            refused: Vec::new(),
            ..changed
        };
        new.trapped.retain(|name| is_new("trapped", name));
        new.bare.retain(|name| is_new("bare", name));
        new.shared.retain(|(name, _)| is_new("shared", name));
        new.partly.retain(|(name, _)| is_new("partly", name));
        new.unfollowed.retain(|path| is_new("unfollowed", path));
        tell_refused(&new);
    }

    /// True if a process already has a session of this search, created by the follower.
    fn has_its_session(&self, index: usize) -> bool {
        let members = &self.pack.members;
        let first = members.first().map(|member| &member.process);
        is_of_family(&members[index].process, first)
    }

    /// Creates a session with these functions.
    fn create(
        &self,
        index: usize,
        live: &mut Option<Live>,
        selected: Selected,
    ) -> Result<Changed, SessionError> {
        let process = &self.pack.members[index].process;
        let parent = process.parent().filter(|_| index > 0);
        let follower = self.pack.following.as_ref().map(|(_, follower)| follower);
        let options = Options {
            parent: parent.map(|pid| pid.0),
            family: self.pack.members.first().map(|m| m.process.clone()),
            tells_of_execs: follower.is_none(),
            tells_of_exits: follower.is_some() && has_leak_check(&selected.modules),
            ..self.options.clone()
        };
        let (session, changed) = Session::create(process, &options, selected, Where::Running)?;
        ipath_session::segment::sweep();
        let answering = follower.map(|follower| {
            let departures = Some(follower.departures());
            Answering::begin(session.process(), departures, true)
        });
        *live = Some(Live::answered(session, AtEnd::TakeOut, answering));
        Ok(changed)
    }

    fn select_first(&self, index: usize, patterns: &[Pattern]) -> Result<Selected, SessionError> {
        let process = &self.pack.members[index].process;
        let mut selected = select_in(process, patterns, self.options.wanted())?;
        selected.find_values(&self.options.items());
        Ok(selected)
    }

    /// Continues without a process in which an operation has failed, and prints the failure.
    ///
    /// # Errors
    /// The failure, if no other process is left.
    fn leave(&mut self, index: usize, failure: Failure) -> Result<(), Failure> {
        self.pack.members[index].is_out = true;
        if self.pack.members.iter().all(|member| member.is_out) {
            return Err(failure);
        }
        let Member { process, .. } = &self.pack.members[index];
        // The end of a process is no failure.
        if !process.has_ended() {
            warn(&format!("no longer measured: {}", failure.in_one_line()));
        }
        Ok(())
    }
}

/// The id and the run-time address of each measured function of a session that is in.
fn functions_in(session: &Session) -> impl Iterator<Item = (usize, Avma)> {
    let document = session.document();
    let active = document
        .measured()
        .filter(|(_, f)| f.is_in() && f.role.is_measured());
    active.filter_map(|(id, function)| {
        let (bias, address) = document.place_of(function)?;
        Some((id, bias.to_avma(address)))
    })
}

fn places_in(session: &Session) -> impl Iterator<Item = Avma> {
    functions_in(session).map(|(_, place)| place)
}
