//! The choice of functions before anything is measured: the user chooses from samples of processes.

use crate::commands::failures::ProcessFailure;
use std::collections::HashMap;
use std::time::{Duration, Instant};

use patcher::select::Pattern;

use super::each::in_some;
use super::language::Language;
use super::others::Others;
use super::others::tree;
use super::suggest::{
    self, Candidate, Refusals, Sampled, about, callers, figures, generated, head,
};
use crate::failure::Failure;
use ipath_base::printable::printable;
use ipath_profile::display_name::Link;
use ipath_sampling::sampling::{Sampler, begin_all};
use ipath_target::process::{Presence, Process, ProcessError, Space};
use ipath_target::signals::Signals;
use ipath_view::{Choices, Choosable, Chosen, Finder, View};

/// The most functions to choose from.
const MAX_FUNCTIONS: usize = 50;

/// The reason why the choice ends if the process has called exec(2).
pub(super) const OTHER_PROGRAM: &str = "it has become another program (exec)";

/// The user's choice.
pub(super) enum Wanted {
    /// The user chose these functions.
    Functions(Vec<Pattern>),
    /// The user chose nothing.
    Nothing,
    /// The process has executed another program.
    OtherProgram,
    /// There is nothing left to measure, for this reason.
    Over(String),
}

/// Lets the user choose functions of a process, in the terminal.
pub(super) fn choose(
    operation: &str,
    process: &Process,
    signals: &Signals,
) -> Result<Wanted, Failure> {
    chosen(operation, Finding::begin(operation, process)?, signals)
}

/// Lets the user choose functions of a process and its descendants, in the terminal.
pub(super) fn choose_in_tree(
    operation: &str,
    root: &Process,
    signals: &Signals,
) -> Result<Wanted, Failure> {
    chosen(operation, Finding::begin_tree(operation, root)?, signals)
}

fn chosen(operation: &str, mut finding: Finding, signals: &Signals) -> Result<Wanted, Failure> {
    signals.watch(&finding.processes.iter().collect::<Vec<_>>());
    let failure = |e| Failure::new("show", "terminal", e);
    let chosen = {
        let mut view = View::open(signals).map_err(failure)?;
        view.choose(&mut finding).map_err(failure)?
    };
    let pid = finding.processes[0].pid;
    let pattern = |text: String| Pattern::parse(&text).map_err(|e| Failure::new(operation, pid, e));
    match chosen {
        Chosen::Functions(keys) => {
            let patterns = finding
                .patterns_of(operation, &keys)?
                .into_iter()
                .map(pattern);
            Ok(Wanted::Functions(patterns.collect::<Result<_, _>>()?))
        }
        Chosen::Named(text) => Ok(Wanted::Functions(vec![pattern(text)?])),
        Chosen::Nothing => Ok(Wanted::Nothing),
        Chosen::Over(_) if finding.is_other => Ok(Wanted::OtherProgram),
        Chosen::Over(why) => Ok(Wanted::Over(why)),
    }
}

/// The failure if no function is named and there is no terminal to choose one in.
pub(super) fn nothing_named(operation: &str, subject: &str) -> Failure {
    let cause = "no function is named, and there is no terminal to choose one in";
    Failure::new(operation, subject, cause)
}

/// A function that was shown, and the index of the process in which it is costliest.
struct Shown {
    candidate: Candidate,
    owner: usize,
}

/// Processes that are being sampled: one, or one with its descendants.
pub(super) struct Finding {
    processes: Vec<Process>,
    /// The address space of each process.
    spaces: Vec<Space>,
    samplers: Vec<Sampler>,
    /// For each process, the reasons why its functions cannot be patched.
    refusals: Vec<Refusals>,
    /// The functions shown so far. Their keys are indexes into this list.
    shown: Vec<Shown>,
    /// The key of each function, by file, address in the file, and name.
    keys: HashMap<(String, u64, String), u64>,
    /// The descendants that are not sampled. `None` if all are.
    others: Option<Others>,
    /// The tool that shows the functions of the program's language. `None` if they are native.
    tool: Option<String>,
    /// The time of the last check that the process runs.
    alive: Instant,
    /// True if sampling is over because the first process has executed another program.
    is_other: bool,
    /// True while nothing is sampled and the choices stay as they are.
    is_paused: bool,
    /// The choices shown last.
    last: Choices,
}

impl Finding {
    /// Begins to sample a process.
    pub(super) fn begin(operation: &str, process: &Process) -> Result<Self, Failure> {
        let mut finding = Self::of(operation, vec![process.clone()])?;
        finding.others = Some(Others::of(process));
        Ok(finding)
    }

    /// Begins to sample a process and its descendants.
    fn begin_tree(operation: &str, root: &Process) -> Result<Self, Failure> {
        Self::of(operation, tree(root))
    }

    fn of(operation: &str, processes: Vec<Process>) -> Result<Self, Failure> {
        let begun = processes.iter().zip(begin_all(&processes));
        let begun = begun.map(|(process, sampler)| {
            let gone = |e: ProcessError| e.failure(operation);
            let space = Space::open(process).map_err(gone)?;
            let sampler = sampler.map_err(|e| suggest::failure(operation, process, &e))?;
            Ok(((process.clone(), space), (sampler, Refusals::default())))
        });
        let (found, samplers): (Vec<_>, Vec<_>) = in_some(begun)?.into_iter().unzip();
        let (processes, spaces): (Vec<Process>, Vec<Space>) = found.into_iter().unzip();
        let (samplers, refusals) = samplers.into_iter().unzip();
        let first = processes.first();
        let tool = first.and_then(|p| Some(Language::of_process(p)?.tool(p).to_string()));
        Ok(Self {
            processes,
            spaces,
            samplers,
            refusals,
            shown: Vec::new(),
            keys: HashMap::new(),
            others: None,
            tool,
            alive: Instant::now(),
            is_other: false,
            is_paused: false,
            last: Choices::default(),
        })
    }

    /// Patterns for functions that were shown: addresses for one process, names for several.
    ///
    /// # Errors
    /// The process has ended, or has become another program.
    fn patterns_of(&self, operation: &str, keys: &[u64]) -> Result<Vec<String>, Failure> {
        let chosen = keys.iter().filter_map(|key| self.shown.get(*key as usize));
        match self.spaces.as_slice() {
            [space] => {
                // The addresses are valid only as long as the program is the same.
                space.check().map_err(|e| e.failure(operation))?;
                let address = |shown: &Shown| format!("{:#x}", shown.candidate.function.start.0);
                Ok(chosen.map(address).collect())
            }
            _ => {
                let pattern = |shown: &Shown| {
                    let modules = self.samplers[shown.owner].modules();
                    let modules: Vec<_> = modules.into_iter().map(|(_, module)| module).collect();
                    suggest::pattern_of(&shown.candidate, &modules)
                };
                Ok(chosen.map(pattern).collect())
            }
        }
    }

    /// The key of a function. It stays the same each time the function is shown.
    fn key(&mut self, candidate: Candidate, owner: usize) -> u64 {
        let function = &candidate.function;
        let place = (
            function.path.clone(),
            function.address.0,
            function.name.clone(),
        );
        let key = *self.keys.entry(place).or_insert(self.shown.len() as u64);
        let shown = Shown { candidate, owner };
        match self.shown.get_mut(key as usize) {
            Some(known) => *known = shown,
            None => self.shown.push(shown),
        }
        key
    }
}

impl Finder for Finding {
    fn look(&mut self) -> Option<String> {
        const UNTIL_NEXT_LOOK: Duration = Duration::from_millis(250);
        if !self.is_paused {
            self.samplers.iter_mut().for_each(Sampler::look);
        }
        if self.alive.elapsed() < UNTIL_NEXT_LOOK {
            return None;
        }
        self.alive = Instant::now();
        let mut found = self.spaces.iter().map(Space::is_current);
        let is_over = |presence| matches!(presence, Presence::Ended | Presence::OtherProgram);
        if !found.all(is_over) {
            return None;
        }
        self.is_other = self.spaces[0].is_current() == Presence::OtherProgram;
        Some(match (self.is_other, self.spaces.len()) {
            (true, _) => OTHER_PROGRAM.to_owned(),
            (false, 1) => "the process has ended".to_owned(),
            (false, _) => "the processes have ended".to_owned(),
        })
    }

    fn choices(&mut self) -> Choices {
        if self.is_paused {
            return self.last.clone();
        }
        let sampled = Sampled::of(&self.processes, &mut self.samplers, MAX_FUNCTIONS);
        let candidates = sampled.candidates(&mut self.refusals);
        let sum = sampled.sum;
        let pid = self.processes[0].pid;
        let about = match self.processes.len() {
            1 => about(pid, &sum.shares),
            n => format!("{n} processes: {}", about(pid, &sum.shares)),
        };
        let others = self.others.as_ref();
        let others = others.and_then(|others| others.busier(&self.processes[0]));
        let note = others.or_else(|| generated(&candidates, self.tool.as_deref()));
        let mut rows = Vec::new();
        for (candidate, (owner, _)) in candidates.into_iter().zip(sum.owners) {
            let function = &candidate.function;
            let mut row = Choosable {
                key: 0,
                figures: figures(function).to_vec(),
                name: printable(&function.name).into_owned(),
                module: printable(&function.file).into_owned(),
                refused: candidate.refused(),
            };
            row.key = self.key(candidate, owner);
            rows.push(row);
        }
        let choices = Choices {
            about,
            head: head().to_vec(),
            note,
            rows,
        };
        self.last.clone_from(&choices);
        choices
    }

    fn patterns(&self, keys: &[u64]) -> Result<Vec<String>, String> {
        let patterns = self.patterns_of("add", keys);
        patterns.map_err(|failure| failure.in_one_line())
    }

    fn pause(&mut self) {
        self.samplers.iter_mut().for_each(Sampler::stop);
        self.is_paused = true;
    }

    fn resume(&mut self) {
        // If sampling fails, the old estimates stay.
        let begun: Result<Vec<Sampler>, _> = begin_all(&self.processes).into_iter().collect();
        if let Ok(samplers) = begun {
            self.samplers = samplers;
            self.is_paused = false;
        }
    }

    fn callers(&mut self, key: u64) -> Vec<Link> {
        let Some(Shown { candidate, owner }) = self.shown.get(key as usize) else {
            return Vec::new();
        };
        callers(&self.samplers[*owner].callers(&candidate.function))
    }
}
