//! Rules that the runtime asks for while the program runs: of return addresses in code without unwind entries that
//! there is too much of to be looked through beforehand, and of those whose entries go by the frame pointer.

use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::Duration;

use abi::segment::AREA_ASKED;
use nix::sys::signal::SigSet;
use patcher::Avma;

use super::tables::{answers, generated_answer, quick_answers, table_key};
use super::{Session, SessionError};
use crate::clock;
use crate::process::modules::{Module, modules};
use crate::process::{Mapping, Process};

/// Most return addresses that are looked up in instructions at a time: a second's work.
const MOST: usize = 256;

/// How often it is looked whether there are any: a walk gets further by each answer.
const PERIOD: Duration = Duration::from_millis(10);

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
            // They are the main thread's.
            let _ = SigSet::all().thread_block();
            let Ok(session) = Session::open_to_change(&process) else {
                return;
            };
            let mut answers = Answers::of(session, &is_over);
            // Paths stay incomplete where that fails, and say so.
            while !answers.is_over(PERIOD) && answers.look().is_ok() {}
        };
        // Without a thread nothing is answered.
        let _ = thread::Builder::new().name("rules".into()).spawn(work);
        Self { _until: until }
    }
}

/// What has been asked, and is being answered.
struct Answers<'r> {
    session: Session,
    is_over: &'r Receiver<()>,
    /// How many have been looked at.
    seen: u64,
    /// Those of them whose instructions have to be looked at more closely.
    left: Vec<Avma>,
}

/// A return address, and the bytes from the stack pointer to where rbp points to, or 0.
type Question = (Avma, i64);

impl<'r> Answers<'r> {
    fn of(session: Session, is_over: &'r Receiver<()>) -> Self {
        let seen = session.segment.header().asked_done.load(Acquire);
        Self {
            session,
            is_over,
            seen,
            left: Vec::new(),
        }
    }

    /// True once nobody waits for answers any more.
    fn is_over(&self, patience: Duration) -> bool {
        self.is_over.recv_timeout(patience) != Err(RecvTimeoutError::Timeout)
    }

    /// Answers what has been asked since the last time as far as that is quick, else some of what is left.
    fn look(&mut self) -> Result<(), SessionError> {
        let header = self.session.segment.header();
        let asked = header.asked_used.load(Acquire);
        let used = self.session.segment.used(AREA_ASKED, asked);
        // One that is still being written ends what can be read.
        let next = (self.seen..used).map_while(|index| self.asked(index));
        let mut asked: Vec<Question> = next.collect();
        self.seen += asked.len() as u64;
        asked.sort_unstable();
        asked.dedup_by_key(|question| question.0);
        if !asked.is_empty() {
            let answered = self.answer(&asked, quick_answers, true)?;
            let is_left = |at: &Avma| answered.binary_search(at).is_err();
            self.left.extend(asked.iter().map(|q| q.0).filter(is_left));
            return Ok(());
        }
        let some = self.left.len().saturating_sub(MOST);
        let mut some = self.left.split_off(some);
        some.sort_unstable();
        if !some.is_empty() {
            self.publish_tables_of(&some)?;
            let some: Vec<Question> = some.into_iter().map(|at| (at, 0)).collect();
            let find = |module: &Module, asked: &[Question]| {
                let asked: Vec<Avma> = asked.iter().map(|question| question.0).collect();
                answers(module, &asked)
            };
            self.answer(&some, find, false)?;
        }
        if self.left.is_empty() {
            let done = &self.session.segment.header().asked_done;
            done.fetch_max(self.seen, Relaxed);
        }
        Ok(())
    }

    /// Publishes the tables of modules that have been loaded since functions were last added, where calls in them return
    /// to `asked`.
    fn publish_tables_of(&mut self, asked: &[Avma]) -> Result<(), SessionError> {
        self.session.refresh()?;
        let maps = self.session.process.maps()?;
        let mut new = modules(&self.session.process, &maps);
        new.retain(|module| {
            let is_new = !self.session.document.tables.contains(&table_key(module));
            is_new && asked.iter().any(|&at| is_call_in(module, at))
        });
        if new.is_empty() || self.is_over(Duration::ZERO) {
            return Ok(());
        }
        self.session.locked(None, |locked| {
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
                .locked(None, |locked| locked.publish_rules(found, seen))?;
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
