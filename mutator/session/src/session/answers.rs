//! Answering the questions of the runtime, which asks for unwind rules while the program runs.
//!
//! It asks about return addresses in code without unwind entries, if there is too much of it to
//! analyze in advance. It also asks about return addresses whose unwind entry uses the frame
//! pointer. A walk by such an entry has to compare the saved frame pointer. A walk by the stack
//! pointer does not.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use patcher::Avma;

use super::ahead::Ahead;
use super::departing::Departures;
use super::exchange::Exchanging;
use super::generated::{Call, Generated};
use super::pending::LookedThrough;
use super::published::publish_tables;
use super::registered::RegisteredCode;
use super::tables::{answers, prepare, publish_rules, publish_unasked, quick_answers, table_key};
use super::{Session, SessionError};
use crate::segment::{Asking, Question};
use ipath_profile::clock;
use ipath_symbols::jit::makes_code;
use ipath_target::process::Process;
use ipath_target::process::modules::{Module, modules};

/// The most return addresses to analyze at a time. Others may be asked for meanwhile.
const MAX_ADDRESSES: usize = 32;

/// The longest sleep while there are no questions. The runtime wakes the thread, but the thread
/// must also notice its own end.
const PERIOD: Duration = Duration::from_millis(100);

/// The longest sleep while a question is being written, and the longest rest after an answer.
const SHORT: Duration = Duration::from_millis(1);

/// The first rest after a failed look or a failed sleep. It doubles with each failed look.
const REST: Duration = Duration::from_millis(10);
/// The longest rest after failed looks.
const LONGEST_REST: Duration = Duration::from_secs(5);

/// The most unfinished questions that a thread waits for.
const MOST_UNWRITTEN: usize = 1 << 10;

/// A thread that finds the rules that a session's runtime asks for, and one that exchanges
/// counters. They end when this is dropped.
pub struct Answering {
    /// Carries no messages: dropping it ends the thread.
    _until: Sender<()>,
    _exchanging: Option<Exchanging>,
}

impl Answering {
    /// Starts answering. Does nothing if the session cannot be changed. `departures` is notified of
    /// threads that leave the program. Counters are only exchanged if this command `measures`.
    pub fn begin(
        process: &Process,
        departures: Option<Arc<dyn Departures>>,
        measures: bool,
    ) -> Self {
        let (until, is_over) = mpsc::channel::<()>();
        let exchanging = measures.then(|| Exchanging::begin(process));
        let process = process.clone();
        let work = move || {
            let Ok(session) = Session::open_to_change(&process) else {
                return;
            };
            let mut answers = Answers::of(session, &is_over);
            let departures = departures.as_deref();
            let mut rest = Duration::ZERO;
            let mut failures = 0;
            let mut bounded = Instant::now();
            while !answers.is_over(rest) {
                let begun = Instant::now();
                answers.session.look_at_departures(departures);
                if bounded.elapsed() >= PERIOD {
                    answers.session.bound_memory();
                    bounded = Instant::now();
                }
                if let Err(error) = answers.look_at_loads()
                    && error.is_end()
                {
                    return;
                }
                let looked = answers.look();
                failures = match looked {
                    Ok(_) => 0,
                    Err(_) => failures + 1,
                };
                rest = match looked {
                    // As long as the look took, so that this uses at most half of a processor.
                    Ok(true) => begun.elapsed().min(SHORT),
                    Ok(false) => answers.sleep(),
                    Err(error) if error.is_end() => return,
                    // Another command may hold the lock, or descriptors may have run out.
                    Err(_) => (REST * (1 << failures.min(10))).min(LONGEST_REST),
                };
            }
        };
        // Without a thread nothing is answered. The thread inherits its creator's signal mask.
        let _ = thread::Builder::new().name("rules".into()).spawn(work);
        Self {
            _until: until,
            _exchanging: exchanging,
        }
    }
}

/// The state of an answering thread.
struct Answers<'r> {
    session: Session,
    is_over: &'r Receiver<()>,
    /// The number of questions seen.
    seen: u64,
    /// The numbers of the questions that are still being written.
    unwritten: Vec<u64>,
    /// Questions that need a closer analysis of instructions, and have not been answered.
    left: Vec<Question>,
    /// Rules found before they are asked for.
    ahead: Ahead,
    /// The modules inspected for waiting patterns.
    looked_through: LookedThrough,
    /// The generators of code in the process.
    generated: Generated,
    /// The unwind entries that the process has registered.
    registered: RegisteredCode,
}

impl Drop for Answers<'_> {
    fn drop(&mut self) {
        if self.session.document.is_waited_in() {
            self.session.note_unwatched();
        }
    }
}

impl<'r> Answers<'r> {
    fn of(session: Session, is_over: &'r Receiver<()>) -> Self {
        Self {
            session,
            is_over,
            seen: 0,
            unwritten: Vec::new(),
            left: Vec::new(),
            ahead: Ahead::default(),
            looked_through: LookedThrough::default(),
            generated: Generated::default(),
            registered: RegisteredCode::default(),
        }
    }

    fn look_at_loads(&mut self) -> Result<(), SessionError> {
        self.session.look_at_loads(&mut self.looked_through)
    }

    /// Waits for up to `patience`. Returns true, at once, when the `Answering` is dropped.
    fn is_over(&self, patience: Duration) -> bool {
        self.is_over.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }

    /// Sleeps until there is a question. Returns how long to rest after that.
    fn sleep(&self) -> Duration {
        let patience = if self.unwritten.is_empty() {
            PERIOD
        } else {
            SHORT
        };
        let begun = Instant::now();
        self.session.segment.await_question(self.seen, patience);
        let is_asked = !self.session.segment.asked_since(self.seen).is_empty();
        // If the sleep on the segment fails at once, rest instead of spinning.
        let segment = &self.session.segment;
        let is_awaited = segment.unseen_loads().is_some() || segment.departing().is_some();
        if is_asked || is_awaited || begun.elapsed() >= patience {
            Duration::ZERO
        } else {
            REST
        }
    }

    /// Answers new questions if that is quick, or else some of those left. Returns true if there
    /// may be more work.
    fn look(&mut self) -> Result<bool, SessionError> {
        let asked = self.next();
        if !asked.is_empty() {
            let answered = self.answer(&asked, quick_answers, Closely::No);
            let is_left = |question: &Question| match &answered {
                Ok(answered) => answered.binary_search(&question.at).is_err(),
                Err(_) => true,
            };
            self.left
                .extend(asked.iter().filter(|asked| is_left(asked)));
            return answered.map(|_| true);
        }
        let mut some = self
            .left
            .split_off(self.left.len().saturating_sub(MAX_ADDRESSES));
        some.retain(|question| self.session.segment.is_open(question));
        some.sort_unstable();
        if !some.is_empty() {
            let answered = self.answer_some(&some);
            if answered.is_err() {
                self.left.append(&mut some);
            }
            answered?;
        }
        if self.left.is_empty() {
            self.generated.look_ahead(&mut self.session)?;
            self.look_at_registered()?;
            self.answer_unasked()?;
        }
        Ok(!self.left.is_empty() || !self.ahead.is_over())
    }

    /// Reads the process's registered unwind entries, if that is due.
    fn look_at_registered(&mut self) -> Result<(), SessionError> {
        if !self.registered.is_due(&self.session) {
            return Ok(());
        }
        let maps = self.session.process.maps()?;
        let modules = modules(&self.session.process, &maps);
        self.registered.look(&mut self.session, &modules, &maps)
    }

    /// Publishes some of the rules that may be asked for next.
    fn answer_unasked(&mut self) -> Result<(), SessionError> {
        if self.ahead.is_over() {
            return Ok(());
        }
        let seen = clock::tsc();
        let maps = self.session.process.maps()?;
        let rules = self.ahead.look(&modules(&self.session.process, &maps));
        if rules.is_empty() || self.is_over(Duration::ZERO) {
            return Ok(());
        }
        self.session.locked_as_it_is(|locked| {
            if locked.view().has_room_for_unasked() {
                publish_unasked(locked, rules, seen)
            } else {
                Ok(())
            }
        })
    }

    /// The new questions, and earlier ones that have been written completely since, ascending.
    fn next(&mut self) -> Vec<Question> {
        let segment = &self.session.segment;
        let new = segment.asked_since(self.seen);
        self.seen = self.seen.max(new.end);
        let mut found = Vec::new();
        let mut unwritten = Vec::new();
        for number in self.unwritten.drain(..).chain(new) {
            match segment.asking(number) {
                Asking::Open(question) => found.push(question),
                Asking::Begun if unwritten.len() < MOST_UNWRITTEN => unwritten.push(number),
                Asking::Begun | Asking::Over => {}
            }
        }
        self.unwritten = unwritten;
        found.sort_unstable();
        found
    }

    /// Answers questions that need a closer analysis.
    fn answer_some(&mut self, asked: &[Question]) -> Result<(), SessionError> {
        self.publish_tables_of(asked)?;
        self.answer(asked, answers, Closely::Yes).map(drop)
    }

    /// Publishes the tables of modules that contain calls returning to `asked` and were loaded
    /// since functions were last added.
    fn publish_tables_of(&mut self, asked: &[Question]) -> Result<(), SessionError> {
        self.session.refresh()?;
        let maps = self.session.process.maps()?;
        let mut new = modules(&self.session.process, &maps);
        new.retain(|module| {
            let is_new = !self.session.document.tables.contains(&table_key(module));
            is_new && asked.iter().any(|question| is_call_in(module, question.at))
        });
        // Prepared before the lock is taken, so that other commands need not wait for it.
        new.iter().for_each(prepare);
        if new.is_empty() || self.is_over(Duration::ZERO) {
            return Ok(());
        }
        self.session.locked_as_it_is(|locked| {
            publish_tables(locked, &new)?;
            Ok(locked.segment().write_document(locked.document())?)
        })
    }

    /// Publishes the rules that `find` returns for ascending questions. Returns the return
    /// addresses that have an answer, ascending. After a close look, closes the questions without
    /// one too.
    fn answer(
        &mut self,
        asked: &[Question],
        find: impl Fn(&Module, &[Call]) -> Vec<(Avma, u64)>,
        closely: Closely,
    ) -> Result<Vec<Avma>, SessionError> {
        let seen = clock::tsc();
        let maps = self.session.process.maps()?;
        let mut calls: Vec<Call> = asked.iter().map(|q| (q.at, q.distance)).collect();
        calls.dedup_by_key(|call| call.0);
        let mut found = Vec::new();
        let modules = modules(&self.session.process, &maps);
        for module in &modules {
            let is_in = |(at, _): &&Call| is_call_in(module, *at);
            let of_module: Vec<Call> = calls.iter().filter(is_in).copied().collect();
            if !of_module.is_empty() {
                found.extend(find(module, &of_module));
            }
        }
        let mut by_tables = Vec::new();
        if closely == Closely::No && !self.is_over(Duration::ZERO) {
            self.generated.look(&mut self.session, &modules)?;
            let is_generated = |call: &&Call| {
                let mut maps = maps.iter();
                maps.any(|mapping| makes_code(mapping) && mapping.contains(call.0))
            };
            if calls.iter().any(|call| is_generated(&call)) {
                self.registered.look(&mut self.session, &modules, &maps)?;
                let tables = self.session.segment.registered();
                calls.retain(|&(at, _)| {
                    let is_known = tables.iter().any(|table| table.has_rule(at));
                    by_tables.extend(is_known.then_some(at));
                    !is_known
                });
            }
            let process = &self.session.process;
            found.extend(self.generated.rules(process, &modules, &maps, &calls));
        }
        found.sort_unstable();
        let mut answered: Vec<Avma> = found.iter().map(|answer| answer.0).collect();
        answered.append(&mut by_tables);
        answered.sort_unstable();
        let is_over = |question: &&Question| {
            closely == Closely::Yes || answered.binary_search(&question.at).is_ok()
        };
        let over: Vec<Question> = asked.iter().filter(is_over).copied().collect();
        self.publish(found, &over, seen)?;
        Ok(answered)
    }

    /// Publishes rules and closes the ascending questions `over`. Skips questions that another
    /// command has answered meanwhile. `seen` is the value of the time-stamp counter before the
    /// mappings were read.
    fn publish(
        &mut self,
        mut rules: Vec<(Avma, u64)>,
        over: &[Question],
        seen: u64,
    ) -> Result<(), SessionError> {
        if over.is_empty() || self.is_over(Duration::ZERO) {
            return Ok(());
        }
        let is_for =
            |questions: &[Question], at| questions.binary_search_by_key(&at, |q| q.at).is_ok();
        rules.retain(|&(at, _)| is_for(over, at) || self.ahead.publish(at));
        let closed = self.session.locked_as_it_is(|locked| {
            let is_open = |question: &&Question| locked.segment.is_open(question);
            let open: Vec<Question> = over.iter().filter(is_open).copied().collect();
            rules.retain(|&(at, _)| is_for(&open, at) || !is_for(over, at));
            if !open.is_empty() {
                publish_rules(locked, rules, seen)?;
            }
            locked.segment.close_questions(&open);
            Ok(open)
        })?;
        closed
            .iter()
            .for_each(|question| self.ahead.begin(question.at));
        Ok(())
    }
}

/// How thoroughly questions are analyzed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Closely {
    Yes,
    No,
}

/// True if the call that returns to `at` is in the module.
fn is_call_in(module: &Module, at: Avma) -> bool {
    let call = Avma(at.0.wrapping_sub(1));
    module.code.iter().any(|mapping| mapping.contains(call))
}
