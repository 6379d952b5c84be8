//! Steps that take long: a line on standard error says what is being done and how far it is.
//!
//! A thread of its own looks at the steps, because one step can be a single long computation. It has
//! real-time priority: it sleeps nearly all the time, and on a saturated machine it has the most to
//! say.

use std::borrow::Cow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::priority::Priority;

/// How long a step lasts before it is named.
const SOON: Duration = Duration::from_secs(4);
/// Time between two lines.
const AGAIN: Duration = Duration::from_secs(10);
/// Time between two looks at the steps.
const A_LOOK: Duration = Duration::from_millis(500);

struct One {
    number: u64,
    what: Cow<'static, str>,
    /// How much of how much is done, if it is counted.
    done: Option<(usize, usize)>,
    since: Instant,
}

struct State {
    /// The steps that are under way, the oldest first.
    steps: Vec<One>,
    begun: u64,
    has_thread: bool,
    /// The command and its subject, as a line begins.
    subject: String,
    say: Option<fn(&str)>,
}

static STATE: Mutex<State> = Mutex::new(State {
    steps: Vec::new(),
    begun: 0,
    has_thread: false,
    subject: String::new(),
    say: None,
});
static BEGUN: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has lines about long steps said by `say`, each beginning with `subject`.
pub(crate) fn tell(subject: String, say: fn(&str)) {
    let mut state = lock();
    (state.subject, state.say) = (subject, Some(say));
}

/// A step that is under way for as long as this lives.
#[must_use]
pub(crate) struct Step(u64);

impl Step {
    /// Begins a step. `what` reads as "stopping its threads".
    pub(crate) fn begin(what: impl Into<Cow<'static, str>>) -> Self {
        let mut state = lock();
        state.begun += 1;
        let number = state.begun;
        state.steps.push(One {
            number,
            what: what.into(),
            done: None,
            since: Instant::now(),
        });
        // Without a thread nothing is said.
        if !state.has_thread && state.say.is_some() {
            state.has_thread = spawn();
        }
        drop(state);
        BEGUN.notify_one();
        Self(number)
    }

    /// Says that `done` of `all` is done.
    pub(crate) fn at(&self, done: usize, all: usize) {
        let mut state = lock();
        if let Some(one) = state.steps.iter_mut().find(|one| one.number == self.0) {
            one.done = Some((done, all));
        }
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        lock().steps.retain(|one| one.number != self.0);
    }
}

/// Begins the thread that looks, to which no signal comes; false if it cannot be made.
fn spawn() -> bool {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let thread = std::thread::Builder::new().spawn(look);
    if let Ok(before) = before {
        // It was the mask a moment ago.
        let _ = before.thread_set_mask();
    }
    thread.is_ok()
}

/// Gives these items one after another, as a step of as many parts.
pub(crate) fn over<T>(what: &'static str, items: Vec<T>) -> impl Iterator<Item = T> {
    let (step, all) = (Step::begin(what), items.len());
    let numbered = items.into_iter().enumerate();
    numbered.map(move |(done, item)| {
        step.at(done, all);
        item
    })
}

/// A step that goes through the threads of a process.
pub(crate) const THREADS: &str = "looking at its threads";

/// Says what takes long, for as long as the command lasts.
fn look() {
    let _priority = Priority::raise();
    let (mut busy_since, mut last): (Option<Instant>, Option<Instant>) = (None, None);
    loop {
        let state = BEGUN.wait_while(lock(), |state| state.steps.is_empty());
        let begun = Instant::now();
        drop(state.unwrap_or_else(PoisonError::into_inner));
        std::thread::sleep(A_LOOK);
        let state = lock();
        let now = Instant::now();
        if state.steps.is_empty() {
            busy_since = None;
            continue;
        }
        let since = *busy_since.get_or_insert(begun);
        let is_due = last.is_none_or(|at| now.duration_since(at) >= AGAIN);
        let line = line(&state, since, now).filter(|_| is_due);
        let say = state.say;
        // The line may wait for somebody who begins or ends a step.
        drop(state);
        if let (Some(line), Some(say)) = (line, say) {
            last = Some(now);
            say(&line);
        }
    }
}

/// The oldest step and the newest one that has lasted for as long as a look takes; none if the
/// command has not been busy for long.
fn line(state: &State, busy_since: Instant, now: Instant) -> Option<String> {
    let busy = now.duration_since(busy_since);
    let oldest = state.steps.first().filter(|_| busy >= SOON)?;
    let mut later = state.steps.iter().skip(1).rev();
    let newest = later.find(|one| now.duration_since(one.since) >= A_LOOK);
    let said = |one: &One| match one.done {
        Some((done, all)) => format!("{}, {done} of {all}", one.what),
        None => one.what.to_string(),
    };
    let steps = [Some(oldest), newest].into_iter().flatten().map(said);
    let steps = steps.collect::<Vec<_>>().join(": ");
    let (subject, seconds) = (&state.subject, busy.as_secs());
    Some(format!("{subject}: {steps} ({seconds} s so far)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_oldest_step_and_the_newest() {
        let begin = Instant::now();
        let one = |number: u64, what: &'static str, done, after: u64| One {
            number,
            what: what.into(),
            done,
            since: begin + Duration::from_millis(after),
        };
        let mut state = State {
            steps: Vec::new(),
            begun: 0,
            has_thread: true,
            subject: "attach 7".to_owned(),
            say: None,
        };
        let line = |state: &State, after| line(state, begin, begin + Duration::from_millis(after));
        assert_eq!(line(&state, 9000), None);
        state
            .steps
            .push(one(1, "looking up functions", Some((3, 12)), 0));
        assert_eq!(line(&state, 3900), None);
        let expected = "attach 7: looking up functions, 3 of 12 (4 s so far)";
        assert_eq!(line(&state, 4100).as_deref(), Some(expected));
        state.steps.push(one(2, "reading b.so", None, 1000));
        state.steps.push(one(3, "reading c.so", None, 4000));
        let expected = "attach 7: looking up functions, 3 of 12: reading b.so (4 s so far)";
        assert_eq!(line(&state, 4100).as_deref(), Some(expected));
    }
}
