//! Finding what is to be measured before it is: samples of the process, from which the user chooses.

use std::time::{Duration, Instant};

use patcher::select::Pattern;

use super::suggest::{self, Candidate, Refusals, about, callers, figures, head};
use crate::error::Failure;
use crate::printable::printable;
use crate::process::{Presence, Process, ProcessError, Space};
use crate::sampling::{Function, Sampler};
use crate::signals::Signals;
use crate::view::{Choices, Choosable, Chosen, Finder, View};

/// Functions to choose from, at most.
const MOST: usize = 50;

/// Why there is nothing to choose any more in a process that has called exec(2).
pub(super) const OTHER_PROGRAM: &str = "it has become another program (exec)";

/// What the user wants measured.
pub(super) enum Wanted {
    /// These functions.
    Functions(Vec<Pattern>),
    /// None.
    Nothing,
    /// It has become another program.
    OtherProgram,
    /// There is nothing to measure any more, and why.
    Over(String),
}

/// Has the user choose functions of a process, in the terminal.
pub(super) fn choose(
    operation: &str,
    process: &Process,
    signals: &Signals,
) -> Result<Wanted, Failure> {
    signals.watch(&[process]);
    let failure = |e| Failure::new("show", "terminal", e);
    let gone = |e: ProcessError| e.failure(operation);
    let mut finding = Finding::begin(operation, process)?;
    let chosen = {
        let mut view = View::open(signals).map_err(failure)?;
        view.choose(&mut finding).map_err(failure)?
    };
    let pattern = |start: &u64| Pattern::parse(&format!("{start:#x}"));
    match chosen {
        Chosen::Functions(starts) => {
            // Addresses mean what they meant.
            finding.space.check().map_err(gone)?;
            let patterns: Result<Vec<Pattern>, _> = starts.iter().map(pattern).collect();
            let patterns = patterns.map_err(|e| Failure::new(operation, process.pid, e))?;
            Ok(Wanted::Functions(patterns))
        }
        Chosen::Named(text) => {
            let pattern = Pattern::parse(&text);
            let pattern = pattern.map_err(|e| Failure::new(operation, process.pid, e))?;
            Ok(Wanted::Functions(vec![pattern]))
        }
        Chosen::Nothing => Ok(Wanted::Nothing),
        Chosen::Over(_) if finding.is_other => Ok(Wanted::OtherProgram),
        Chosen::Over(why) => Ok(Wanted::Over(why)),
    }
}

/// No function is named, and there is no terminal to choose one in.
pub(super) fn nothing_named(operation: &str, subject: &str) -> Failure {
    let cause = "no function is named, and there is no terminal to choose one in";
    Failure::new(operation, subject, cause)
}

/// A process that is being sampled.
pub(super) struct Finding {
    sampler: Sampler,
    refusals: Refusals,
    /// The functions that there were to choose from last.
    shown: Vec<Function>,
    /// When it was last seen to run.
    alive: Instant,
    is_other: bool,
    is_paused: bool,
    /// The choices that were shown last.
    last: Choices,
    space: Space,
}

impl Finding {
    /// Begins to sample.
    pub(super) fn begin(operation: &str, process: &Process) -> Result<Self, Failure> {
        let gone = |e: ProcessError| e.failure(operation);
        let space = Space::open(process).map_err(gone)?;
        let sampler = Sampler::begin(process);
        Ok(Self {
            sampler: sampler.map_err(|e| suggest::failure(operation, process, &e))?,
            refusals: Refusals::default(),
            shown: Vec::new(),
            alive: Instant::now(),
            is_other: false,
            is_paused: false,
            last: Choices::default(),
            space,
        })
    }
}

impl Finder for Finding {
    fn look(&mut self) -> Option<String> {
        const UNTIL_NEXT_LOOK: Duration = Duration::from_millis(250);
        if !self.is_paused {
            self.sampler.look();
        }
        if self.alive.elapsed() < UNTIL_NEXT_LOOK {
            return None;
        }
        self.alive = Instant::now();
        match self.space.is_current() {
            Presence::Ended => Some("the process has ended".to_owned()),
            Presence::OtherProgram => {
                self.is_other = true;
                Some(OTHER_PROGRAM.to_owned())
            }
            _ => None,
        }
    }

    fn choices(&mut self) -> Choices {
        if self.is_paused {
            return self.last.clone();
        }
        let shares = self.sampler.shares(MOST);
        let modules = self.sampler.modules();
        let (process, refusals) = (self.space.process(), &mut self.refusals);
        let found = suggest::candidates(process, &modules, &shares.functions, refusals);
        let row = |candidate: &Candidate| Choosable {
            key: candidate.function.start.0,
            figures: figures(&candidate.function).to_vec(),
            name: format!(
                "{}  {}",
                printable(&candidate.function.name),
                printable(&candidate.function.file)
            ),
            refused: candidate.reason.clone(),
        };
        let choices = Choices {
            about: about(process.pid, &shares),
            head: head().to_vec(),
            rows: found.iter().map(row).collect(),
        };
        self.shown = shares.functions;
        self.last.clone_from(&choices);
        choices
    }

    fn pause(&mut self) {
        self.sampler.stop();
        self.is_paused = true;
    }

    fn resume(&mut self) {
        // If sampling fails, the old estimates stay.
        if let Ok(sampler) = Sampler::begin(self.space.process()) {
            self.sampler = sampler;
            self.is_paused = false;
        }
    }

    fn callers(&mut self, key: u64) -> String {
        let function = self.shown.iter().find(|f| f.start.0 == key);
        let stack = function.map(|function| self.sampler.callers(function));
        callers(&stack.unwrap_or_default())
    }
}
