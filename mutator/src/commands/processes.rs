//! Several processes measured as one job: a session in each, and the sum of their profiles.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use super::kind::{Failed, Kind};
use super::later::Later;
use super::live::{AtEnd, Live, Watched};
use super::outcome::tell_refused;
use super::remarks::{self, warn};
use super::watch::destination;
use crate::failure::Failure;
use ipath_base::error::io_text;
use ipath_profile::merge::{Merger, PathsOf};
use ipath_profile::{Changed, Profile, Target, Unseen};
use ipath_session::follow::{Follower, Newcomer, Wanted};
use ipath_session::session::{Changed as Instrumented, Session};
use ipath_target::process::{Pid, Process};
use ipath_view::{Callees, Finder, Names, Sample, Source};

/// The most lines about processes that are not measured.
const MOST_REMARKS: usize = 20;

/// A process and its session.
struct Member {
    /// The rank, or the process id if the members are no ranks.
    number: u32,
    live: Live,
}

/// A followed process with all processes that it starts.
pub(super) struct Following {
    pub(super) follower: Follower,
    /// The process that was followed first.
    pub(super) first: Process,
    /// The functions and options to measure in each program.
    pub(super) wanted: Wanted,
    /// The profile before anything has been measured.
    pub(super) nothing: Profile,
    /// The limit of the overhead in each process, as a share of its CPU time.
    pub(super) most: Option<f64>,
    /// The start of the job.
    pub(super) since: Instant,
}

/// The processes that are measured. There is at least one, unless a process is followed.
pub(super) struct Job<'a> {
    kind: Kind,
    /// The way in which paths are merged. For followed processes, the follower decides.
    paths_of: PathsOf,
    /// The process that started the members. It replaces the target of the sum. `None` if the job
    /// has no such process.
    head: Option<Target>,
    members: Vec<Member>,
    /// Processes without a session so far.
    later: Option<Later<'a>>,
    following: Option<Following>,
    /// Programs whose refused functions have been reported.
    programs: BTreeSet<String>,
    /// The number of lines printed about processes that are not measured.
    remarks: usize,
    /// The number of processes that are not measured.
    unmeasured: u64,
    /// The number of sessions whose counts could not be read.
    lost: u64,
    /// Notes for its profiles.
    notes: Vec<String>,
    /// The latest sum.
    sum: Option<Profile>,
}

fn nothing_of(operation: &str) -> Failure {
    Failure::new(operation, "processes", "none of them has a profile")
}

impl<'a> Job<'a> {
    /// An empty job.
    pub(super) fn new(kind: Kind, paths_of: PathsOf) -> Self {
        Self {
            kind,
            paths_of,
            head: None,
            members: Vec::new(),
            later: None,
            following: None,
            programs: BTreeSet::new(),
            remarks: 0,
            unmeasured: 0,
            lost: 0,
            notes: Vec::new(),
            sum: None,
        }
    }

    /// The job of a followed process. `live` is the session of that process. `None` if nothing in
    /// it is measured.
    pub(super) fn following(following: Following, live: Option<Live>) -> Self {
        let mut job = Self::new(Kind::Process, PathsOf::All);
        job.following = Some(following);
        if let Some(live) = live {
            job.is_new_program(live.session());
            job.enter(live.session().process().pid.0 as u32, live);
        }
        job
    }

    /// Sets the process that started the others as the target of the profile.
    pub(super) fn set_head(&mut self, head: Target) {
        self.head = Some(head);
    }

    /// Records the program of a session. True if this is the program's first session.
    pub(super) fn is_new_program(&mut self, session: &Session) -> bool {
        self.programs.insert(session.document().exe.clone())
    }

    /// Adds a new session, by the rank or id of its process. Prints refused functions once per
    /// program, since all its processes refuse the same ones.
    pub(super) fn enter_new(&mut self, number: u32, live: Live, changed: &Instrumented) {
        if self.is_new_program(live.session()) {
            tell_refused(changed);
        }
        self.enter(number, live);
    }

    /// Adds a session, by the rank or id of its process.
    pub(super) fn enter(&mut self, number: u32, live: Live) {
        self.members.push(Member { number, live });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Sets the processes whose sessions are created while the others are watched.
    pub(super) fn set_later(&mut self, later: Option<Later<'a>>) {
        self.later = later;
    }

    /// True if processes have no session so far because they wait for a child.
    pub(super) fn is_waiting(&self) -> bool {
        self.later.is_some()
    }

    /// Records the end times of processes that have ended. Without them, a later look would take
    /// its own time for the end.
    fn note_ends_of_followed(&self) {
        let over = self.following.iter().flat_map(|f| f.follower.over());
        for (pid, since) in over {
            let mut members = self.members.iter().map(|member| member.live.session());
            if let Some(session) = members.find(|session| session.process().pid == pid) {
                session.note_end_at(since);
            }
        }
    }

    /// Adds sessions that the follower has created since, and prints its remarks. Returns true if
    /// there are any.
    fn take_in_newcomers(&mut self) -> bool {
        self.note_ends_of_followed();
        let Some(Following { follower, most, .. }) = &self.following else {
            return false;
        };
        let most = *most;
        let newcomers = follower.newcomers();
        let is_any = !newcomers.is_empty();
        for remark in follower.remarks() {
            self.remarks += 1;
            if self.remarks <= MOST_REMARKS {
                warn(&remark);
            }
        }
        for newcomer in newcomers {
            let Newcomer {
                session,
                changed,
                answering,
            } = newcomer;
            let number = session.process().pid.0 as u32;
            let live = Live::answered(session, AtEnd::TakeOut, answering).limited(most);
            match changed {
                Some(changed) => self.enter_new(number, live, &changed),
                None => self.enter(number, live),
            }
        }
        is_any
    }

    /// Finishes the sessions of ended programs and gives their profiles to the follower, which adds
    /// them up.
    fn give_away(&mut self, over: &[usize]) {
        let Some(Following { follower, .. }) = &self.following else {
            return;
        };
        for &index in over.iter().rev() {
            let mut live = self.members.remove(index).live;
            let (ended, profile) = Live::finish(&mut live);
            for failure in [ended.err(), profile.as_ref().err().cloned()] {
                failure
                    .iter()
                    .for_each(|failure| warn(&failure.in_one_line()));
            }
            match profile {
                Ok(profile) => follower.gather(&profile),
                Err(_) => self.lost += 1,
            }
        }
    }

    /// The sum of the profiles of ended processes. With `whole`, waits until it includes every
    /// session that has ended so far.
    fn begin_sum(&self, whole: bool) -> Merger {
        let following = self.following.as_ref();
        following.map_or_else(
            || Merger::new(self.paths_of),
            |f| f.follower.gathered(whole),
        )
    }

    /// The profile of a sum, with the job's target, losses and notes. An error if there is no
    /// profile.
    fn end_sum(&self, operation: &str, merger: Merger) -> Result<Profile, Failure> {
        let nothing = || self.following.as_ref().map(|f| f.nothing.clone());
        let mut sum = merger.finish().or_else(nothing);
        if let (Some(sum), Some(following)) = (&mut sum, &self.following) {
            // The target is the first process, even if nothing in it is measured.
            let labels = std::mem::take(&mut sum.target.labels);
            sum.target = following.nothing.target.clone();
            sum.target.labels = labels;
            // Each session covers only a part of that time.
            sum.session.started_unix_ns = following.nothing.session.started_unix_ns;
            sum.session.elapsed_ns = following.since.elapsed().as_nanos() as u64;
            // A pattern that matched in any of the programs is no longer pending.
            let unmet = following.wanted.unmet();
            let pending = &mut sum.session.pending;
            pending.retain(|pattern| unmet.contains(&pattern.as_str()));
            let seen = following.follower.seen();
            let unmeasured = seen.unmeasured.saturating_add(seen.unmeasured_programs);
            for (kind, n) in [
                (Unseen::Orphans, seen.orphans),
                (Unseen::Processes, unmeasured),
                (Unseen::TooMany, seen.with_too_many),
                (Unseen::LetGo, seen.let_go),
                (Unseen::Profiles, following.follower.lost()),
            ] {
                kind.count(&mut sum.losses.unseen, n);
            }
            let notes = [
                (
                    seen.orphans,
                    "processes are not included, because their parents were killed during the fork",
                ),
                (
                    seen.unmeasured,
                    "children are not included, because they could not be measured like their \
                    parents",
                ),
                (
                    seen.unmeasured_programs,
                    "programs are not included, because they could not be measured",
                ),
                (
                    seen.with_too_many,
                    "programs are not included, because too many functions match without --yes",
                ),
                (
                    seen.let_go,
                    "processes were released to check for leaks (LeakSanitizer): their later \
                    children are not included",
                ),
            ];
            let notes = notes.into_iter().filter(|&(count, _)| count > 0);
            let notes = notes.map(|(count, note)| format!("{count} {note}"));
            sum.session.notes.extend(notes);
        }
        if let Some(sum) = &mut sum {
            if let Some(head) = &self.head {
                let labels = std::mem::take(&mut sum.target.labels);
                sum.target = Target {
                    labels,
                    ..head.clone()
                };
            }
            Unseen::Processes.count(&mut sum.losses.unseen, self.unmeasured);
            Unseen::Profiles.count(&mut sum.losses.unseen, self.lost);
            sum.session.notes.extend(self.notes.iter().cloned());
        }
        sum.ok_or_else(|| nothing_of(operation))
    }

    /// Prints a line for each process that is not measured, and adds it to the notes of the
    /// profile.
    pub(super) fn tell_unmeasured(&mut self, failed: &[Failed]) {
        for (index, (number, process, failure)) in failed.iter().enumerate() {
            let said = self.kind.not_measured(*number, process, failure);
            if index < MOST_REMARKS {
                warn(&said);
            }
            self.note_unmeasured(said);
        }
        let unsaid = failed.len().saturating_sub(MOST_REMARKS);
        if unsaid > 0 {
            let processes = self.kind.several();
            warn(&format!("{unsaid} more {processes} are not measured"));
        }
    }

    /// Records that a process is not measured, with the note for the profile.
    pub(super) fn note_unmeasured(&mut self, said: String) {
        self.unmeasured += 1;
        self.notes.push(said);
    }

    /// Adds a note to the profile.
    pub(super) fn note(&mut self, said: String) {
        self.notes.push(said);
    }

    /// A job of existing sessions, which stay when watching ends.
    pub(super) fn of(sessions: Vec<Session>, most: Option<f64>) -> Self {
        let ranks = sessions.iter().map(|session| session.document().rank);
        let kind = match ranks.collect::<Option<BTreeSet<u32>>>() {
            Some(ranks) if ranks.len() == sessions.len() => Kind::Rank,
            _ => Kind::Process,
        };
        let mut job = Self::new(kind, PathsOf::All);
        for session in sessions {
            let of_rank = session.document().rank.filter(|_| kind == Kind::Rank);
            let number = of_rank.unwrap_or(session.process().pid.0 as u32);
            job.enter(number, Live::new(session, AtEnd::Nothing).limited(most));
        }
        job
    }

    /// Runs `change` in each process. Joins the answers.
    fn each(
        &mut self,
        mut change: impl FnMut(&mut Live) -> Result<String, String>,
    ) -> Result<String, String> {
        let members = self.members.iter_mut();
        let answers = members.map(|member| (member.number, change(&mut member.live)));
        self.kind.told(answers.collect())
    }

    /// Like [`each`](Self::each), for a function given by its index in the latest sum. `change`
    /// gets the function's index in the latest sample of each process.
    fn each_function(
        &mut self,
        function: usize,
        mut change: impl FnMut(&mut Live, usize) -> Result<String, String>,
    ) -> Result<String, String> {
        let gone = || "the function is not in the session".to_owned();
        let sum = self.sum.as_ref().ok_or_else(gone)?;
        let function = sum.functions.get(function).cloned();
        let function = function.ok_or_else(gone)?;
        let module = sum.modules.get(function.module).cloned();
        let module = module.ok_or_else(gone)?;
        self.each(|live| {
            let index = live.index_of(&module, &function).ok_or_else(gone)?;
            change(live, index)
        })
    }
}

/// The sum of these profiles. An error if there are none, or they cannot be added up.
pub(super) fn sum_of<'p>(
    operation: &str,
    paths_of: PathsOf,
    profiles: impl Iterator<Item = &'p Profile>,
) -> Result<Profile, Failure> {
    let mut merger = Merger::new(paths_of);
    add_all(operation, &mut merger, profiles)?;
    merger.finish().ok_or_else(|| nothing_of(operation))
}

fn add_all<'p>(
    operation: &str,
    merger: &mut Merger,
    mut profiles: impl Iterator<Item = &'p Profile>,
) -> Result<(), Failure> {
    let added = profiles.try_for_each(|profile| merger.add(profile));
    added.map_err(|e| Failure::new(operation, "processes", e))
}

impl Source for Job<'_> {
    fn sample(&mut self) -> Result<Sample<'_>, String> {
        Watched::look(self).map_err(|e| e.to_string())
    }

    fn add(&mut self, pattern: &str) -> Result<String, String> {
        self.each(|live| live.add(pattern))
    }

    fn callees(&mut self, function: usize) -> Result<Callees, String> {
        let mut found = Err("no rank has this function".to_owned());
        let _ = self.each_function(function, |live, index| {
            if found.is_err() {
                found = live.callees(index);
            }
            Ok(String::new())
        });
        found
    }

    fn add_callees(&mut self, callees: &Callees) -> Result<String, String> {
        self.each(|live| live.add_callees(callees))
    }

    fn change(&mut self, function: usize, metrics: &str) -> Result<String, String> {
        self.each_function(function, |live, index| live.change(index, metrics))
    }

    fn remove(&mut self, function: usize) -> Result<String, String> {
        self.each_function(function, |live, index| live.remove(index))
    }

    fn edges(&mut self, function: usize) -> Result<String, String> {
        self.each_function(function, |live, index| live.edges(index))
    }

    fn names(&mut self) -> Option<Arc<Names>> {
        self.members.first_mut()?.live.names()
    }

    fn finder(&mut self) -> Result<Box<dyn Finder>, String> {
        Err(match self.kind {
            Kind::Rank => "estimates cover one process: run `ipath suggest PID` for a rank",
            Kind::Process => "`ipath suggest PID --children` gives estimates of all processes",
        }
        .to_owned())
    }

    fn add_found(&mut self, _: &[String]) -> Result<String, String> {
        Err("estimates cover one process".to_owned())
    }

    fn write(&mut self, file: &str) -> Result<String, String> {
        let path = std::path::Path::new(file);
        let to = destination(path).map_err(|e| e.to_string())?;
        let sum = self.sum.as_ref().ok_or("there is no sample yet")?;
        let saved = sum.save_soon(&to).map_err(|e| io_text(&e));
        saved.map_err(|cause| format!("write {}: {cause}", path.display()))?;
        Ok(format!("written to {}", path.display()))
    }
}

impl Watched for Job<'_> {
    fn watched(&self) -> Vec<&Process> {
        let members = self.members.iter();
        match &self.following {
            // The follower notices the end of the others.
            Some(following) => vec![&following.first],
            None => members.map(|m| m.live.session().process()).collect(),
        }
    }

    fn begin_waiting(&mut self) -> bool {
        let Some(later) = &mut self.later else {
            return false;
        };
        let mut failed = Vec::new();
        for (number, process, made) in later.begin() {
            match made {
                Ok(Some((live, changed))) => self.enter_new(number, live, &changed),
                Ok(None) => {}
                Err(failure) => failed.push((number, process, failure)),
            }
        }
        self.tell_unmeasured(&failed);
        self.later.take_if(|later| later.is_empty());
        self.is_waiting()
    }

    fn note_ends(&mut self) -> bool {
        if let Some(following) = &self.following {
            return following.follower.seen().living == 0;
        }
        let ends = self.members.iter_mut().map(|m| m.live.note_ends());
        let are_over: Vec<bool> = ends.collect();
        !are_over.contains(&false) && !self.is_waiting()
    }

    fn look(&mut self) -> Result<Sample<'_>, Failure> {
        self.begin_waiting();
        self.take_in_newcomers();
        let is_followed = self.following.is_some();
        let mut merger = self.begin_sum(false);
        let (mut over, mut stopped) = (Vec::new(), Vec::new());
        let (mut doubt, mut said, mut ended) = (None, None, None);
        for index in 0..self.members.len() {
            self.note_ends_of_followed();
            let Member { number, live } = &mut self.members[index];
            let sample = Watched::look(live)?;
            let added = merger.add(sample.profile);
            added.map_err(|e| Failure::new("watch", self.kind.several(), e))?;
            if let Some(why) = sample.ended {
                over.push(index);
                ended = Some(why);
            }
            if let Some(stands) = sample.stands {
                stopped.push(format!("{} {number} {stands}", self.kind.one()));
            }
            doubt = doubt.or(sample.doubt);
            said = sample.said.or(said);
        }
        let are_over = over.len() == self.members.len() && !self.is_waiting();
        if is_followed {
            self.give_away(&over);
        }
        let is_over = self
            .following
            .as_ref()
            .is_none_or(|f| f.follower.seen().living == 0);
        let sum = self.end_sum("watch", merger)?;
        let all_ended = || is_followed.then(|| "all processes have ended".to_owned());
        Ok(Sample {
            profile: self.sum.insert(sum),
            changed: Changed::All,
            stands: (!stopped.is_empty()).then(|| stopped.join(", ")),
            ended: all_ended().or(ended).filter(|_| are_over && is_over),
            doubt,
            said: remarks::latest().or(said),
        })
    }

    fn ended(&self) -> Option<String> {
        if let Some(following) = &self.following {
            let are_over = following.follower.seen().living == 0;
            return are_over.then(|| "all processes ended".to_owned());
        }
        let ends: Option<Vec<String>> = self.members.iter().map(|m| m.live.ended()).collect();
        match &ends?[..] {
            [] => None,
            [one] => Some(one.clone()),
            all => Some(format!("all {} {} ended", all.len(), self.kind.several())),
        }
    }

    fn finish(&mut self) -> (Result<(), Failure>, Result<Profile, Failure>) {
        if let Some(later) = self.later.take() {
            self.tell_unmeasured(&later.give_up());
        }
        if let Some(following) = &self.following {
            following.follower.close();
        }
        let (mut done, mut profiles) = (Ok(()), Vec::new());
        let mut failed = Ok(());
        loop {
            for index in 0..self.members.len() {
                self.note_ends();
                let (ended, profile) = Live::finish(&mut self.members[index].live);
                done = done.and(ended);
                match profile {
                    Ok(profile) => profiles.push(profile),
                    Err(failure) => failed = failed.and(Err(failure)),
                }
            }
            // Children of the last processes that were measured.
            let done_with = std::mem::take(&mut self.members);
            if !self.take_in_newcomers() {
                self.members = done_with;
                break;
            }
        }
        if let Some(Following { follower, .. }) = &self.following {
            follower.let_go();
            follower.repeated().iter().for_each(|line| warn(line));
        }
        let mut merger = self.begin_sum(true);
        let sum = failed.and_then(|()| {
            add_all("watch", &mut merger, profiles.iter())?;
            self.end_sum("watch", merger)
        });
        (done, sum)
    }

    fn kept_in(&self) -> Vec<Pid> {
        let members = self.members.iter();
        members.flat_map(|member| member.live.kept_in()).collect()
    }

    fn profile_again(&mut self) -> Result<Profile, Failure> {
        let mut merger = self.begin_sum(true);
        let lives = self.members.iter_mut().map(|member| &mut member.live);
        let profiles: Result<Vec<Profile>, Failure> = lives.map(Watched::profile_again).collect();
        add_all("watch", &mut merger, profiles?.iter())?;
        self.end_sum("watch", merger)
    }

    fn replaced(&self) -> Vec<String> {
        // After an exec, the new program is measured in turn.
        if self.following.is_some() {
            return Vec::new();
        }
        let members = self.members.iter();
        members.flat_map(|member| member.live.replaced()).collect()
    }
}
