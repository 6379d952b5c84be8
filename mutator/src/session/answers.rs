//! Rules that the runtime asks for while the program runs: of return addresses in code without unwind entries that
//! there is too much of to be looked through beforehand, and of those whose entries go by the frame pointer.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use abi::segment::AREA_ASKED;
use patcher::Avma;

use super::tables::{answers, generated_answer, quick_answers, table_key};
use super::{Session, SessionError};
use crate::clock;
use crate::process::modules::{Module, modules};
use crate::process::{Mapping, Process};
use crate::segment::SegmentError;

/// Most return addresses that are looked up in instructions at a time: a second's work.
const MOST: usize = 256;

/// How often it is looked whether there are any: a walk gets further by each answer.
const PERIOD: Duration = Duration::from_millis(10);

/// The same where that has failed.
const LONGEST_PERIOD: Duration = Duration::from_secs(5);

/// Most questions that are waited for while they are being written.
const MOST_UNWRITTEN: usize = 1 << 10;

/// A thread that finds the rules that the runtime of a session asks for, as long as this lives.
pub struct Answering {
    /// Nothing is ever sent: it ends with this.
    _until: Sender<()>,
}

impl Answering {
    /// Begins; nothing happens where the session cannot be changed.
    pub fn begin(process: &Process) -> Self {
        let (until, is_over) = mpsc::channel::<()>();
        let process = process.clone();
        let work = move || {
            let Ok(session) = Session::open_to_change(&process) else {
                return;
            };
            let mut answers = Answers::of(session, &is_over);
            let mut patience = PERIOD;
            while !answers.is_over(patience) {
                patience = match answers.look() {
                    Ok(()) => PERIOD,
                    Err(error) if is_end(&error) => return,
                    // Somebody else may have the lock, or there are no descriptors.
                    Err(_) => (2 * patience).min(LONGEST_PERIOD),
                };
            }
        };
        // Without a thread nothing is answered. It has the signal mask of who begins it.
        let _ = thread::Builder::new().name("rules".into()).spawn(work);
        Self { _until: until }
    }
}

/// What has been asked, and is being answered.
struct Answers<'r> {
    session: Session,
    is_over: &'r Receiver<()>,
    /// How many have been looked at, and the indexes of those among them that are still being written.
    seen: u64,
    unwritten: Vec<u64>,
    /// Those whose instructions have to be looked at more closely.
    left: Vec<Question>,
}

/// A return address, and the bytes from the stack pointer to where rbp points to; negative where that is not known.
type Question = (Avma, i64);

impl<'r> Answers<'r> {
    fn of(session: Session, is_over: &'r Receiver<()>) -> Self {
        let seen = session.segment.header().asked_done.load(Acquire);
        Self {
            session,
            is_over,
            seen,
            unwritten: Vec::new(),
            left: Vec::new(),
        }
    }

    /// True once nobody waits for answers any more.
    fn is_over(&self, patience: Duration) -> bool {
        self.is_over.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }

    /// Answers what has been asked since the last time as far as that is quick, else some of what is left.
    fn look(&mut self) -> Result<(), SessionError> {
        let mut asked = self.next();
        asked.sort_unstable();
        asked.dedup_by_key(|question| question.0);
        if !asked.is_empty() {
            let answered = self.answer(&asked, quick_answers, true);
            let is_left = |question: &Question| match &answered {
                Ok(answered) => answered.binary_search(&question.0).is_err(),
                Err(_) => true,
            };
            self.left.extend(asked.into_iter().filter(is_left));
            return answered.map(drop);
        }
        let some = self.left.len().saturating_sub(MOST);
        let mut some = self.left.split_off(some);
        some.sort_unstable();
        if !some.is_empty() {
            let answered = self.answer_some(&some);
            if answered.is_err() {
                self.left.append(&mut some);
            }
            answered?;
        }
        if self.left.is_empty() && self.unwritten.is_empty() {
            let done = &self.session.segment.header().asked_done;
            done.fetch_max(self.seen, Relaxed);
        }
        Ok(())
    }

    /// What has been asked since the last time.
    fn next(&mut self) -> Vec<Question> {
        let used = self.session.segment.header().asked_used.load(Acquire);
        let used = self.session.segment.used(AREA_ASKED, used);
        let mut unwritten = std::mem::take(&mut self.unwritten);
        unwritten.extend(self.seen..used);
        self.seen = self.seen.max(used);
        let mut found = Vec::new();
        for index in unwritten {
            match self.asked(index) {
                Some(question) => found.push(question),
                None if self.unwritten.len() < MOST_UNWRITTEN => self.unwritten.push(index),
                None => {}
            }
        }
        found
    }

    /// The same for those that take longer.
    fn answer_some(&mut self, asked: &[Question]) -> Result<(), SessionError> {
        self.publish_tables_of(asked)?;
        self.answer(asked, answers, false).map(drop)
    }

    /// Publishes the tables of modules that have been loaded since functions were last added, where calls in them return
    /// to `asked`.
    fn publish_tables_of(&mut self, asked: &[Question]) -> Result<(), SessionError> {
        self.session.refresh()?;
        let maps = self.session.process.maps()?;
        let mut new = modules(&self.session.process, &maps);
        new.retain(|module| {
            let is_new = !self.session.document.tables.contains(&table_key(module));
            is_new && asked.iter().any(|&(at, _)| is_call_in(module, at))
        });
        if new.is_empty() || self.is_over(Duration::ZERO) {
            return Ok(());
        }
        self.session.locked_as_it_is(|locked| {
            locked.publish_tables(&new)?;
            Ok(locked.segment().write_document(locked.document())?)
        })
    }

    /// Publishes the rules that `find` has for ascending return addresses: for which.
    fn answer(
        &mut self,
        asked: &[Question],
        find: impl Fn(&Module, &[Question]) -> Vec<(Avma, u64)>,
        with_generated: bool,
    ) -> Result<Vec<Avma>, SessionError> {
        let seen = clock::tsc();
        let maps = self.session.process.maps()?;
        let mut found = Vec::new();
        for module in modules(&self.session.process, &maps) {
            let is_in = |(at, _): &&Question| is_call_in(&module, *at);
            let of_module: Vec<Question> = asked.iter().filter(is_in).copied().collect();
            if !of_module.is_empty() {
                found.extend(find(&module, &of_module));
            }
        }
        if with_generated {
            found.extend(self.in_generated(&maps, asked));
        }
        found.sort_unstable();
        let answered = found.iter().map(|answer| answer.0).collect();
        if !found.is_empty() && !self.is_over(Duration::ZERO) {
            self.session
                .locked_as_it_is(|locked| locked.publish_rules(found, seen))?;
        }
        Ok(answered)
    }

    /// Those in code that is in no file.
    fn in_generated(&self, maps: &[Mapping], asked: &[Question]) -> Vec<(Avma, u64)> {
        /// Bytes before and after a return address that its function's returns are looked for in.
        const NEAR: u64 = 32 << 10;
        let Ok(memory) = self.session.process.open_memory() else {
            return Vec::new();
        };
        let rule = |&(at, distance): &Question| {
            let is_in = |m: &&Mapping| m.execute && !m.name.starts_with('/') && m.contains(at);
            let range = &maps.iter().find(is_in)?.range;
            let start = range.start.max(Avma(at.0.saturating_sub(NEAR)));
            let end = range.end.min(at.plus(NEAR));
            let code = memory.read_vec(start, (end.0 - start.0) as usize).ok()?;
            Some((at, generated_answer(start, &code, at, distance)?))
        };
        asked.iter().filter_map(rule).collect()
    }

    fn asked(&self, index: u64) -> Option<Question> {
        let asked = self.session.segment.asked(index)?;
        let address = asked.address.load(Acquire);
        let distance = asked.frame_pointer.load(Relaxed) as i64;
        (address != 0).then_some((Avma(address), distance))
    }
}

/// Is the call that returns to `at` in the module?
fn is_call_in(module: &Module, at: Avma) -> bool {
    let call = Avma(at.0.wrapping_sub(1));
    module.code.iter().any(|mapping| mapping.contains(call))
}

/// Is there no session any more that could be answered?
fn is_end(error: &SessionError) -> bool {
    match error {
        SessionError::Gone(_) => true,
        SessionError::Segment(error) => {
            matches!(error, SegmentError::Missing | SegmentError::Corrupt(_))
        }
        SessionError::Process(error) => error.loss().is_some(),
        _ => false,
    }
}
