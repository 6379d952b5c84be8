//! One search in one process.

use std::time::{Duration, Instant};

use patcher::Avma;
use patcher::select::Pattern;

use super::super::outcome::tell_refused;
use super::super::remarks::warn;
use super::super::source::{AtEnd, Live};
use super::super::suggest;
use super::asked::Searching;
use super::best::Best;
use super::look::{Moment, Overheads, window};
use super::result::{Outcome, costly, left, unreturned};
use super::samples::Samples;
use super::words::{Stopped, measured, percent, reason, sampled, stopped};
use crate::display_name;
use crate::error::Failure;
use crate::process::{Presence, Process};
use crate::sampling::Sampler;
use crate::search::{Cost, Dropped, Next, Search, Stack, Step, Window, rows};
use crate::session::{
    Candidate, Changed, Options, Selected, Session, SessionError, Where, select_in,
};
use crate::signals::{Asked, Signals};

/// Why a search is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// There is nothing more to find.
    Found,
    /// The user or the time has ended it.
    Asked,
    /// The program has ended, or become another.
    Gone,
}

/// Time between two looks at what was sampled, and between two at what measuring takes.
const A_LOOK: Duration = Duration::from_millis(25);
const UNTIL_COST: Duration = Duration::from_millis(250);
/// How long is sampled before something is measured: so many times that as long as there are fewer samples.
const SAMPLING: Duration = Duration::from_secs(2);
const MOST_SAMPLING: u32 = 5;
const SAMPLES: u64 = 300;
/// A look ends early if the overhead exceeds this multiple of the limit: its figures are distorted.
const TOO_MUCH: f64 = 2.0;
/// Steps that a search has at most.
const STEPS: u64 = 50;

/// A search that goes on.
pub(super) struct Hunt<'h> {
    asked: &'h Searching<'h>,
    options: &'h Options,
    process: &'h Process,
    sampler: Sampler,
    search: Search,
    samples: Samples,
    stacks: Vec<Stack>,
    end: Option<Instant>,
    steps: u64,
    overheads: Overheads,
    best: Best<Outcome>,
}

/// Columns of a name in a line about a step.
const LONGEST_NAME: usize = 60;

impl<'h> Hunt<'h> {
    /// Begins to sample.
    pub(super) fn begin(
        asked: &'h Searching<'h>,
        options: &'h Options,
        process: &'h Process,
    ) -> Result<Self, Failure> {
        let sampler = Sampler::begin(process);
        let sampler = sampler.map_err(|e| suggest::failure(asked.operation, process, &e))?;
        let hunt = Self {
            asked,
            options,
            process,
            sampler,
            search: Search::new(asked.bounds),
            samples: Samples::default(),
            stacks: Vec::new(),
            end: asked
                .show
                .duration
                .map(|duration| Instant::now() + duration),
            steps: 0,
            overheads: Overheads::default(),
            best: Best::default(),
        };
        if let Some(remark) = suggest::less(hunt.sampler.seeing()) {
            hunt.say(remark);
        }
        Ok(hunt)
    }

    /// The best result.
    pub(super) fn outcome(self) -> Option<Outcome> {
        self.best.into_inner()
    }

    /// The name of a function in a line about a step.
    fn name(&mut self, function: Avma) -> String {
        let (name, _) = self.sampler.name_at(function);
        display_name::fit(&name, LONGEST_NAME)
    }

    fn say(&self, text: &str) {
        warn(&format!(
            "{} {}: {text}",
            self.asked.operation, self.process.pid
        ));
    }

    /// Searches to the end, among what the functions of a session or those that are `given` do, if there are any; the
    /// session, if there is one by then, is in `live`.
    pub(super) fn run(
        &mut self,
        live: &mut Option<Live>,
        given: Option<Selected>,
        signals: &Signals,
    ) -> Result<Over, Failure> {
        let over = self.steps(live, given, signals);
        match over {
            // What could not be done to it was because of that.
            Err(_) if self.process.settled() == Presence::Ended => Ok(Over::Gone),
            over => over,
        }
        .inspect(|over| match over {
            Over::Found => {}
            Over::Asked => self.say("the search was ended before it had come to its end"),
            Over::Gone => self.say("the program has ended: so has the search"),
        })
    }

    fn steps(
        &mut self,
        live: &mut Option<Live>,
        given: Option<Selected>,
        signals: &Signals,
    ) -> Result<Over, Failure> {
        if live.is_none() {
            if let Some(over) = self.sample(signals) {
                return Ok(over);
            }
            match given {
                Some(given) => {
                    let begun = Sampler::moment();
                    let changed = self.create(live, given);
                    self.sampler.stopped_since(begun);
                    let failure = |e: SessionError| e.failure(self.asked.operation, self.process);
                    tell_refused(&changed.map_err(failure)?);
                }
                None => {
                    let step = self.search.begin(&self.stacks);
                    self.tell("by samples", &step);
                    let begun = Sampler::moment();
                    self.put_in(live, step.add)?;
                    self.sampler.stopped_since(begun);
                }
            }
        }
        let Some(live_now) = live.as_mut() else {
            return Ok(Over::Found);
        };
        if self.search.measured().is_empty() {
            let named: Vec<Avma> = places_in(live_now.session()).collect();
            let text = format!(
                "measuring {} named, and what they call",
                functions(named.len())
            );
            self.say(&text);
            self.search = Search::within(self.asked.bounds, named);
        }
        let mut base = self.base(live_now)?;
        loop {
            let Some(live_now) = live.as_mut() else {
                return Ok(Over::Found);
            };
            let (over, now) = self.look(live_now, signals)?;
            let window = self.window(&base, &now);
            if let Some(over) = over {
                // A moment says little, if there is more.
                if self.best.get().is_none() || window.ns >= self.asked.step.as_nanos() as u64 / 2 {
                    let explained = self.search.explained(&window);
                    self.note(window, explained);
                }
                return Ok(over);
            }
            self.steps += 1;
            self.take_in();
            let step = self.search.next(&self.stacks, &window);
            let time = Duration::from_nanos(window.ns).as_secs_f64();
            let head = format!(
                "step {}: {time:.1} s of measuring {} explain {}; measuring takes {}",
                self.steps,
                functions(window.measured.len()),
                measured(step.explained),
                percent(window.overhead)
            );
            self.tell(&head, &step);
            self.note(window, step.explained);
            let is_over = step.next == Next::End || self.steps >= STEPS;
            if is_over || self.is_stuck() {
                self.tell_end(&step);
                return Ok(Over::Found);
            }
            if step.next == Next::Look {
                let begun = Sampler::moment();
                self.take_out(live_now, &step.drop)?;
                self.put_in(live, step.add)?;
                self.sampler.stopped_since(begun);
                if let Some(live) = live.as_mut() {
                    base = self.base(live)?;
                }
            }
        }
    }

    /// Says what a step has come to.
    fn tell(&mut self, head: &str, step: &Step) {
        let mut said = vec![head.to_owned()];
        for (function, why) in &step.drop {
            let name = self.name(*function);
            said.push(format!("dropped {name} ({})", reason(why)));
        }
        said.extend(self.added(&step.add));
        said.extend(match step.next {
            Next::LookOn => Some("looking longer: calls take long".to_owned()),
            Next::End | Next::Look => None,
        });
        self.say(&said.join("; "));
    }

    fn added(&mut self, add: &[(Avma, Cost)]) -> Option<String> {
        let named = add.iter().map(|(function, share)| {
            let name = self.name(*function);
            format!("{name} (about {})", sampled(*share))
        });
        let named: Vec<String> = named.collect();
        (!named.is_empty()).then(|| format!("added {}", named.join(", ")))
    }

    /// Samples until there is enough to begin with.
    fn sample(&mut self, signals: &Signals) -> Option<Over> {
        let begin = Instant::now();
        let time = SAMPLING.min(2 * self.asked.step);
        self.say(&format!(
            "sampling for {:.1} s, to see where time goes",
            time.as_secs_f64()
        ));
        loop {
            if let Some(over) = self.pause(signals) {
                return Some(over);
            }
            let passed = begin.elapsed();
            if passed < time {
                continue;
            }
            let shares = self.sampler.shares(0);
            if shares.on + shares.off >= SAMPLES || passed >= MOST_SAMPLING * time {
                self.take_in();
                return None;
            }
        }
    }

    /// Lets the process run a little.
    fn pause(&mut self, signals: &Signals) -> Option<Over> {
        match signals.next() {
            Some(Asked::End) => return Some(Over::Asked),
            Some(Asked::Suspend) => drop(signals.suspend()),
            Some(Asked::Child) if self.process.life() != Presence::Here => {
                return Some(Over::Gone);
            }
            _ => {}
        }
        let left = self
            .end
            .map(|end| end.saturating_duration_since(Instant::now()));
        if left == Some(Duration::ZERO) {
            return Some(Over::Asked);
        }
        let time = left.map_or(A_LOOK, |left| left.min(A_LOOK));
        if signals.wait([], Some(time)).is_err() {
            std::thread::sleep(time);
        }
        self.sampler.look();
        None
    }

    /// Takes in what has been sampled until now, when a step ends.
    fn take_in(&mut self) {
        self.samples.take_in(self.sampler.stacks().stacks);
        self.stacks = self.samples.stacks();
    }

    /// All that is measured and sampled until now, and why there is nothing more to come.
    fn moment(&mut self, live: &mut Live) -> Result<(Moment, Option<Over>), Failure> {
        let sampled = self.sampler.stacks();
        let sample = live.look();
        let sample = sample.map_err(|e| e.failure(self.asked.operation, self.process))?;
        let moment = Moment {
            profile: sample.profile.clone(),
            lived: sampled.lived,
            idle: sampled.idle,
        };
        Ok((moment, sample.ended.map(|_| Over::Gone)))
    }

    /// A moment from which on the same is measured.
    fn base(&mut self, live: &mut Live) -> Result<Moment, Failure> {
        let (base, _) = self.moment(live)?;
        self.overheads = Overheads::begin(&base.profile);
        Ok(base)
    }

    fn window(&mut self, base: &Moment, now: &Moment) -> Window {
        let sampler = &mut self.sampler;
        let functions = self.search.measured();
        let idle = functions.iter().copied();
        let idle = idle.filter(|&f| sampler.is_idle_at(f)).collect();
        Window {
            overhead: self.overheads.usual().share,
            processor: self.overheads.usual().processor,
            ..window(base, now, functions, &idle, |at| sampler.function_at(at))
        }
    }

    /// Looks for a step, or for as long as measuring does not take much too much.
    fn look(
        &mut self,
        live: &mut Live,
        signals: &Signals,
    ) -> Result<(Option<Over>, Moment), Failure> {
        let begin = Instant::now();
        let mut looked = begin;
        loop {
            let over = self.pause(signals);
            let is_over = over.is_some() || begin.elapsed() >= self.asked.step;
            if !is_over && looked.elapsed() < UNTIL_COST {
                continue;
            }
            let (now, gone) = self.moment(live)?;
            let over = gone.or(over);
            looked = Instant::now();
            self.overheads.note(&now.profile);
            let is_too_much = self.overheads.is_above(&self.asked.bounds, TOO_MUCH);
            if is_over || over.is_some() || is_too_much {
                return Ok((over, now));
            }
        }
    }

    /// Stores the result of a step if it is the best so far.
    fn note(&mut self, window: Window, explained: Cost) {
        let sampler = &mut self.sampler;
        let rows = rows(&self.search, &window);
        let found: Vec<Avma> = rows.iter().map(|row| row.function).collect();
        let left = left(&self.search, &self.stacks, &found, |at| sampler.name_at(at));
        let is_within_limit = !self.asked.bounds.is_too_much(&window, TOO_MUCH);
        let outcome = Outcome {
            rows,
            window,
            steps: self.steps,
            left,
        };
        self.best.offer(outcome, explained, is_within_limit);
    }

    /// True if further steps gain nothing. False within named functions: there the first step already
    /// explains all time.
    fn is_stuck(&self) -> bool {
        self.search.is_everywhere() && self.best.is_stuck()
    }

    /// Prints why the search ends, the options that would extend it, and the step of the result.
    fn tell_end(&mut self, step: &Step) {
        let mut said = vec![stopped(&Stopped {
            is_enough: step.is_enough,
            is_stuck: self.is_stuck(),
            bounds: self.asked.bounds,
            costly: costly(&self.search),
            is_full: self.search.measured().len() >= self.asked.bounds.most,
            unreturned: unreturned(&self.search),
        })];
        let best = self.best.get().map_or(self.steps, |best| best.steps);
        if best != self.steps {
            said.push(format!(
                "the result is that of step {best}, which explained most"
            ));
        }
        self.say(&said.join("; "));
    }

    /// Takes functions out.
    fn take_out(&self, live: &mut Live, dropped: &[(Avma, Dropped)]) -> Result<(), Failure> {
        let is_meant = |place: &Avma| dropped.iter().any(|(function, _)| function == place);
        let ids: Vec<usize> = functions_in(live.session())
            .filter(|(_, place)| is_meant(place))
            .map(|(id, _)| id)
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let removed = live.session_mut().remove(&ids);
        let removed = removed.map_err(|e| e.failure(self.asked.operation, self.process));
        removed.map(drop)
    }

    /// Puts functions in, and others in the place of those that cannot be.
    fn put_in(
        &mut self,
        live: &mut Option<Live>,
        mut add: Vec<(Avma, Cost)>,
    ) -> Result<(), Failure> {
        while !add.is_empty() {
            let functions: Vec<Avma> = add.iter().map(|(function, _)| *function).collect();
            let refused = self.instrument(live, &functions)?;
            if refused.is_empty() {
                break;
            }
            let mut said = Vec::new();
            for (function, cause) in refused {
                let name = self.name(function);
                said.push(format!("{name} cannot be instrumented ({cause})"));
                self.search.refuse(function, cause);
            }
            add = self.search.instead(&self.stacks);
            said.extend(self.added(&add));
            self.say(&said.join("; "));
        }
        Ok(())
    }

    /// Puts functions in; those that cannot be, each with the reason.
    fn instrument(
        &mut self,
        live: &mut Option<Live>,
        functions: &[Avma],
    ) -> Result<Vec<(Avma, String)>, Failure> {
        let failure = |e: SessionError| e.failure(self.asked.operation, self.process);
        let pattern = |f: &Avma| Pattern::parse(&format!("{:#x}", f.0)).ok();
        let patterns: Vec<Pattern> = functions.iter().filter_map(pattern).collect();
        let mut selected = match live {
            Some(live) => live.session().select(&patterns, None).map_err(failure)?,
            None => self.select_first(&patterns).map_err(failure)?,
        };
        if self.asked.allow_traps {
            selected.selection.allow_traps();
        }
        let start = |c: &Candidate| c.bias.to_avma(c.plan.function.range.start);
        let candidates = selected.selection.candidates.iter();
        let mut refused: Vec<(Avma, String)> = candidates
            .filter_map(|c| Some((start(c), c.refused()?)))
            .filter(|(function, _)| functions.contains(function))
            .collect();
        let candidates = &mut selected.selection.candidates;
        candidates.retain(|candidate| candidate.refused().is_none());
        let possible: Vec<Avma> = candidates.iter().map(start).collect();
        let is_known = |f: &Avma| possible.contains(f) || refused.iter().any(|(r, _)| r == f);
        let unknown = functions.iter().filter(|f| !is_known(f));
        let unknown = unknown.map(|f| (*f, "no function is known there".to_owned()));
        let unknown: Vec<_> = unknown.collect();
        refused.extend(unknown);
        if possible.is_empty() {
            return Ok(refused);
        }
        let changed = match live {
            Some(live) => live.session_mut().add("search", selected),
            None => self.create(live, selected),
        };
        let changed = match changed {
            Ok(changed) => changed,
            Err(SessionError::Refused(refused)) => Changed {
                refused,
                ..Changed::default()
            },
            Err(error) => return Err(failure(error)),
        };
        let cause = match changed.refused.first() {
            Some((_, reason)) => reason.clone(),
            None => "it was not put in".to_owned(),
        };
        let active: Vec<Avma> = match live {
            Some(live) => places_in(live.session()).collect(),
            None => Vec::new(),
        };
        let is_out = |f: &&Avma| possible.contains(f) && !active.contains(f);
        let out = functions.iter().filter(is_out);
        refused.extend(out.map(|f| (*f, cause.clone())));
        tell_refused(&Changed {
            refused: Vec::new(),
            ..changed
        });
        Ok(refused)
    }

    /// Begins a session with these functions.
    fn create(&self, live: &mut Option<Live>, selected: Selected) -> Result<Changed, SessionError> {
        let created = Session::create(self.process, self.options, selected, Where::Running);
        let (session, changed) = created?;
        crate::segment::sweep();
        *live = Some(Live::new(session, AtEnd::TakeOut));
        Ok(changed)
    }

    fn select_first(&self, patterns: &[Pattern]) -> Result<Selected, SessionError> {
        let mut selected = select_in(self.process, patterns, self.options.wanted())?;
        selected.find_values(&self.options.items());
        Ok(selected)
    }
}

fn functions(n: usize) -> String {
    match n {
        1 => "1 function".to_owned(),
        n => format!("{n} functions"),
    }
}

/// The functions that are in, by id, with where they begin.
fn functions_in(session: &Session) -> impl Iterator<Item = (usize, Avma)> {
    let document = session.document();
    let active = document.measured().filter(|(_, f)| f.active && !f.is_point);
    active.filter_map(|(id, function)| {
        let (bias, address) = document.place_of(function)?;
        Some((id, bias.to_avma(address)))
    })
}

fn places_in(session: &Session) -> impl Iterator<Item = Avma> {
    functions_in(session).map(|(_, place)| place)
}
