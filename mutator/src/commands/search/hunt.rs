//! One search, in one process or several.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use patcher::Avma;

use super::super::remarks::warn;
use super::super::suggest;
use super::asked::Searching;
use super::best::Best;
use super::brief::{Brief, explains};
use super::look::Overheads;
use super::pack::{Lives, Moments, Pack, Prey};
use super::result::{Outcome, costly, left, unreturned};
use super::samples::Samples;
use super::words::{Stopped, measured, reason, sampled, stopped};
use crate::failure::Failure;
use ipath_profile::display_name;
use ipath_profile::report::{human, wrapped};
use ipath_sampling::sampling::Sampler;
use ipath_sampling::search::{Cost, Next, Search, Stack, Step, Window, rows};
use ipath_session::follow::Follower;
use ipath_session::session::Options;
use ipath_target::process::Process;
use ipath_target::signals::{Asked, Signals};

/// The reason why a search is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Over {
    /// There is nothing more to find.
    Found,
    /// The user or the time limit has ended the search.
    Asked,
    /// The program has ended, or has executed another one.
    Gone,
}

/// The time between two looks at the samples.
const A_LOOK: Duration = Duration::from_millis(25);
/// The time between two measurements of the overhead.
const UNTIL_COST: Duration = Duration::from_millis(250);
/// The time to sample before anything is measured. With few samples it is extended, up to
/// `MOST_SAMPLING` times.
const SAMPLING: Duration = Duration::from_secs(2);
const MOST_SAMPLING: u32 = 5;
const LEAST_SAMPLING: Duration = Duration::from_millis(250);
const SAMPLES: u64 = 300;
/// A look ends early if the overhead exceeds this multiple of the limit: its figures are distorted.
const TOO_MUCH: f64 = 2.0;
/// The most steps of a search.
const STEPS: u64 = 50;

/// A search in progress.
pub(super) struct Hunt<'h> {
    pub(super) asked: &'h Searching<'h>,
    pub(super) options: &'h Options,
    /// The process given on the command line.
    process: &'h Process,
    pub(super) pack: Pack,
    pub(super) search: Search,
    samples: Samples,
    /// The sampled stacks as of the end of the last step.
    pub(super) stacks: Vec<Stack>,
    /// The time at which the search ends. `None` if it has no limit.
    end: Option<Instant>,
    /// The number of steps so far.
    steps: u64,
    overheads: Overheads,
    best: Best<Outcome>,
    /// The step that is printed once its functions are in.
    pub(super) step: Brief,
    /// The notes that were printed, each with its function. All processes have the same notes.
    pub(super) told: BTreeSet<(&'static str, String)>,
}

/// True if any process has a session.
fn is_any(lives: &Lives) -> bool {
    lives.iter().any(Option::is_some)
}

/// The terminal columns of a name in a line about a step.
const LONGEST_NAME: usize = 60;

impl<'h> Hunt<'h> {
    /// Begins sampling.
    pub(super) fn begin(
        asked: &'h Searching<'h>,
        options: &'h Options,
        process: &'h Process,
        preys: Vec<Prey>,
        follower: Option<Follower>,
    ) -> Result<Self, Failure> {
        let following = follower.map(|follower| (process.clone(), follower));
        let hunt = Self {
            asked,
            options,
            process,
            pack: Pack::begin(asked.operation, preys, following)?,
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
            step: Brief::default(),
            told: BTreeSet::new(),
        };
        if let Some(remark) = suggest::less(hunt.pack.seeing()) {
            hunt.say(remark);
        }
        Ok(hunt)
    }

    /// The best result, with its processes. `None` if the search has no result.
    pub(super) fn outcome(self) -> Option<(Outcome, Pack)> {
        Some((self.best.into_inner()?, self.pack))
    }

    /// The name of a function in a line about a step.
    pub(super) fn name(&mut self, function: Avma) -> String {
        let (name, _) = self.pack.name_at(function);
        display_name::fit(&name, LONGEST_NAME)
    }

    /// Prints a line about the search.
    pub(super) fn say(&self, text: &str) {
        if let Some(width) = self.asked.brief {
            let lines = wrapped(text.split(' '), " ", width);
            return lines.iter().for_each(|line| warn(line));
        }
        warn(&format!(
            "{} {}: {text}",
            self.asked.operation, self.process.pid
        ));
    }

    /// Searches to the end, within the functions of a session or the given ones, if there are any.
    /// Adds its new sessions to `lives`.
    pub(super) fn run(&mut self, lives: &mut Lives, signals: &Signals) -> Result<Over, Failure> {
        let over = self.steps(lives, signals);
        match over {
            // The failure was caused by the end of the process.
            Err(_) if self.pack.is_gone(Process::settled) => Ok(Over::Gone),
            over => over,
        }
        .inspect(|over| match over {
            Over::Found => {}
            Over::Asked => self.say("the search was ended early"),
            Over::Gone => self.say("the program has ended, and with it the search"),
        })
    }

    fn steps(&mut self, lives: &mut Lives, signals: &Signals) -> Result<Over, Failure> {
        if !is_any(lives) {
            if let Some(over) = self.sample(lives, signals) {
                return Ok(over);
            }
            let begun = Sampler::moment();
            if self.pack.is_given() {
                self.create_given(lives)?
            } else {
                let step = self.search.begin(&self.stacks);
                self.tell("by samples", &step);
                self.put_in(lives, step.add)?;
                self.print_step();
            }
            self.pack.stopped_since(begun);
        }
        if !is_any(lives) {
            return Ok(Over::Found);
        }
        if self.search.measured().is_empty() {
            let named = self.pack.functions_in(lives);
            let text = format!(
                "measuring {} named with -f, and the functions that they call",
                functions(named.len())
            );
            self.say(&text);
            self.search = Search::within(self.asked.bounds, named);
        }
        let mut base = self.base(lives)?;
        loop {
            let (over, now) = self.look(lives, signals)?;
            let window = self.window(&base, &now);
            if let Some(over) = over {
                // A very short window is not representative. It counts only if there is no other.
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
                human::rounded(window.overhead)
            );
            self.tell(&head, &step);
            self.step.head = format!("step {}: {}", self.steps, explains(step.explained));
            self.note(window, step.explained);
            let is_over = step.next == Next::End || self.steps >= STEPS;
            if is_over || self.is_stuck() {
                self.print_step();
                self.tell_end(&step);
                return Ok(Over::Found);
            }
            if step.next == Next::Look {
                let begun = Sampler::moment();
                self.take_out(lives, &step.drop)?;
                self.put_in(lives, step.add)?;
                self.pack.stopped_since(begun);
                self.print_step();
                base = self.base(lives)?;
            }
            self.print_step();
        }
    }

    /// Prints a pending step on one line, if there is one.
    fn print_step(&mut self) {
        let step = std::mem::take(&mut self.step);
        if let Some(width) = self.asked.brief.filter(|_| !step.head.is_empty()) {
            warn(&step.line(width));
        }
    }

    /// Prints a step in full, or stores it for its line.
    fn tell(&mut self, head: &str, step: &Step) {
        if self.asked.brief.is_some() {
            let mut names = |all: &mut dyn Iterator<Item = Avma>| -> Vec<String> {
                all.map(|function| self.pack.name_at(function).0).collect()
            };
            self.step = Brief {
                head: head.to_owned(),
                dropped: names(&mut step.drop.iter().map(|(function, _)| *function)),
                added: names(&mut step.add.iter().map(|(function, _)| *function)),
                refused: Vec::new(),
                note: (step.next == Next::LookOn).then_some("looking longer"),
            };
            return;
        }
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

    /// The text about added functions, each with its sampled share. `None` if there are none.
    pub(super) fn added(&mut self, add: &[(Avma, Cost)]) -> Option<String> {
        let named = add.iter().map(|(function, share)| {
            let name = self.name(*function);
            format!("{name} (about {})", sampled(*share))
        });
        let named: Vec<String> = named.collect();
        (!named.is_empty()).then(|| format!("added {}", named.join(", ")))
    }

    /// Samples until there are enough samples to begin. Returns the reason if the search is over
    /// before.
    fn sample(&mut self, lives: &mut Lives, signals: &Signals) -> Option<Over> {
        let begin = Instant::now();
        let mut looked = begin;
        // A short search spends most of its time on measuring.
        let quarter = |end: Instant| end.saturating_duration_since(begin) / 4;
        let most = self.end.map_or(MOST_SAMPLING * SAMPLING, quarter);
        let most = most.max(LEAST_SAMPLING);
        let time = SAMPLING.min(2 * self.asked.step).min(most);
        self.say(&format!(
            "sampling for {:.1} s, to see where time goes",
            time.as_secs_f64()
        ));
        loop {
            if let Some(over) = self.pause(signals) {
                return Some(over);
            }
            if looked.elapsed() >= UNTIL_COST {
                self.pack.take_in_processes(lives);
                looked = Instant::now();
            }
            let passed = begin.elapsed();
            if passed < time {
                continue;
            }
            if self.pack.samples() >= SAMPLES || passed >= most.min(MOST_SAMPLING * time) {
                self.take_in();
                return None;
            }
        }
    }

    /// Lets the process run for a moment. Returns the reason if the search is over.
    fn pause(&mut self, signals: &Signals) -> Option<Over> {
        match signals.next() {
            Some(Asked::End) => return Some(Over::Asked),
            Some(Asked::Suspend) => drop(signals.suspend()),
            Some(Asked::Child) if self.pack.is_gone(Process::life) => {
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
        self.pack.look();
        None
    }

    /// Takes in the samples up to now, the end of a step.
    fn take_in(&mut self) {
        self.samples.take_in(self.pack.stacks());
        self.stacks = self.samples.stacks();
    }

    /// All measurements and samples up to now, and the reason for an end, if there is one.
    fn moments(&mut self, lives: &mut Lives) -> Result<(Moments, Option<Over>), Failure> {
        let (moments, is_over) = self.pack.moments(self.asked.operation, lives)?;
        Ok((moments, is_over.then_some(Over::Gone)))
    }

    /// The start of a window with a fixed set of measured functions.
    fn base(&mut self, lives: &mut Lives) -> Result<Moments, Failure> {
        self.catch_up(lives)?;
        let (base, _) = self.moments(lives)?;
        self.overheads = Overheads::begin(self.pack.spent(lives));
        Ok(base)
    }

    fn window(&mut self, base: &Moments, now: &Moments) -> Window {
        let usual = self.overheads.usual();
        // The calls limit the overhead: see `Spent::overhead_since`.
        let all = now.spent().overhead_since(base.spent());
        Window {
            overhead: usual.share.min(all.share),
            processor: usual.processor.min(all.processor),
            ..self.pack.window(base, now, self.search.measured())
        }
    }

    /// Waits for the length of a step, or until the overhead far exceeds its limit. Returns the
    /// measurements up to then, and the reason if the search is over.
    fn look(
        &mut self,
        lives: &mut Lives,
        signals: &Signals,
    ) -> Result<(Option<Over>, Moments), Failure> {
        let begin = Instant::now();
        let mut looked = begin;
        loop {
            let over = self.pause(signals);
            let is_over = over.is_some() || begin.elapsed() >= self.asked.step;
            if !is_over && looked.elapsed() < UNTIL_COST {
                continue;
            }
            looked = Instant::now();
            self.overheads.note(self.pack.spent(lives));
            let is_too_much = self.overheads.is_above(&self.asked.bounds, TOO_MUCH);
            if is_over || is_too_much {
                let (now, gone) = self.moments(lives)?;
                return Ok((gone.or(over), now));
            }
        }
    }

    /// Stores the result of a step if it is the best so far.
    fn note(&mut self, window: Window, explained: Cost) {
        let pack = &mut self.pack;
        let rows = rows(&self.search, &window);
        let found: Vec<Avma> = rows.iter().map(|row| row.function).collect();
        let mut left = left(&self.search, &self.stacks, &found, |at| pack.name_at(at));
        left.extend(pack.generated(self.asked.bounds.min_share));
        left.sort_by(|a, b| b.share().total_cmp(&a.share()));
        let is_within_limit = !self.asked.bounds.is_too_much(&window, TOO_MUCH);
        let outcome = Outcome {
            rows,
            explained,
            window,
            steps: self.steps,
            left,
        };
        self.best.offer(outcome, explained, is_within_limit);
    }

    /// True if further steps gain nothing. False within named functions: there the first step
    /// already explains all time.
    fn is_stuck(&self) -> bool {
        self.search.is_everywhere() && self.best.is_stuck()
    }

    /// Prints the reason why the search ends, the options that would extend it, and the step of the
    /// result.
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
            let among = if self.best.has_left_out() {
                " of the steps within the overhead limit"
            } else {
                ""
            };
            said.push(format!(
                "the result is that of step {best}, which explained most{among}"
            ));
        }
        self.say(&said.join("; "));
    }
}

fn functions(n: usize) -> String {
    match n {
        1 => "1 function".to_owned(),
        n => format!("{n} functions"),
    }
}
