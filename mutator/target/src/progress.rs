//! Progress of long steps: lines on standard error name the current step and how much of it is
//! done.
//!
//! A separate thread checks the steps, because one step can be a single long computation. It has
//! real-time priority, because its lines are needed most on a saturated machine. It sleeps nearly
//! all the time.

use std::borrow::Cow;
use std::io::{self, IsTerminal};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, SigmaskHow};

use crate::priority::Priority;

/// How long the command is busy before a line on a terminal names its step.
const SOON: Duration = Duration::from_secs(4);
/// The value of [`SOON`] if standard error is not a terminal: a log gets a line only for a step
/// that hangs.
const LATER: Duration = Duration::from_secs(30);
/// Time between two lines.
const AGAIN: Duration = Duration::from_secs(10);
/// Time between two checks of the steps.
const A_LOOK: Duration = Duration::from_millis(500);

struct One {
    /// The step's number: the value of [`State::begun`] after it began.
    number: u64,
    /// The description of the step.
    what: Cow<'static, str>,
    /// The number of parts that are done, and of all parts. `None` if they are not counted.
    done: Option<(usize, usize)>,
    /// The time at which the step began.
    since: Instant,
    /// True if the step is one of a series with pauses between them: only its own time counts.
    is_recurrent: bool,
}

struct State {
    /// The steps in progress, the oldest first.
    steps: Vec<One>,
    /// The number of steps begun so far.
    begun: u64,
    /// True once the thread that prints the lines has been started.
    has_thread: bool,
    /// The command and its subject, at the start of each line.
    subject: String,
    /// Prints a line. `None` until the command allows it.
    say: Option<fn(&str)>,
    /// How long the command is busy before the first line.
    patience: Duration,
}

static STATE: Mutex<State> = Mutex::new(State {
    steps: Vec::new(),
    begun: 0,
    has_thread: false,
    subject: String::new(),
    say: None,
    patience: SOON,
});
static BEGUN: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Enables lines about long steps. Each begins with `subject` and is passed to `say`.
pub fn tell(subject: String, say: fn(&str)) {
    let mut state = lock();
    (state.subject, state.say) = (subject, Some(say));
    state.patience = if io::stderr().is_terminal() {
        SOON
    } else {
        LATER
    };
}

/// A step that is in progress as long as this value lives.
#[must_use]
pub struct Step(u64);

impl Step {
    /// Begins a step. `what` reads as "stopping its threads".
    pub fn begin(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(what.into(), false)
    }

    /// Begins a step that the command repeats at intervals. The command counts as busy only since
    /// this step began.
    pub fn recurrent(what: impl Into<Cow<'static, str>>) -> Self {
        Self::of(what.into(), true)
    }

    fn of(what: Cow<'static, str>, is_recurrent: bool) -> Self {
        let mut state = lock();
        state.begun += 1;
        let number = state.begun;
        state.steps.push(One {
            number,
            what,
            done: None,
            since: Instant::now(),
            is_recurrent,
        });
        // Without a thread there are no lines.
        if !state.has_thread && state.say.is_some() {
            state.has_thread = spawn();
        }
        drop(state);
        BEGUN.notify_one();
        Self(number)
    }

    /// Notes that `done` of `all` parts are done.
    pub fn at(&self, done: usize, all: usize) {
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

/// Starts the thread that checks the steps, with all signals blocked. False if that fails.
fn spawn() -> bool {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let thread = std::thread::Builder::new().spawn(look);
    if let Ok(before) = before {
        // This mask was valid a moment ago.
        let _ = before.thread_set_mask();
    }
    thread.is_ok()
}

/// Iterates over `items` as a step with one part for each item.
pub fn over<T>(what: &'static str, items: Vec<T>) -> impl Iterator<Item = T> {
    let (step, all) = (Step::begin(what), items.len());
    let numbered = items.into_iter().enumerate();
    numbered.map(move |(done, item)| {
        step.at(done, all);
        item
    })
}

/// The name of a step that inspects each thread of a process.
pub const THREADS: &str = "inspecting its threads";

/// Writes lines about long steps until the command ends.
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
        busy_since = self::busy_since(&state, busy_since.unwrap_or(begun));
        let Some(since) = busy_since else { continue };
        let is_due = last.is_none_or(|at| now.duration_since(at) >= AGAIN);
        let line = line(&state, since, now).filter(|_| is_due);
        let say = state.say;
        // Writing the line may block, and must not block the begin or end of a step.
        drop(state);
        if let (Some(line), Some(say)) = (line, say) {
            last = Some(now);
            say(&line);
        }
    }
}

/// The time since which the command is busy: the beginning of the oldest step if that is recurrent,
/// else `before`, the time determined earlier. `None` if no step is in progress.
fn busy_since(state: &State, before: Instant) -> Option<Instant> {
    let oldest = state.steps.first()?;
    Some(if oldest.is_recurrent {
        oldest.since
    } else {
        before
    })
}

/// A line with the oldest step, and the newest one that has lasted for at least [`A_LOOK`]. `None`
/// if the command has been busy for less than its patience.
fn line(state: &State, busy_since: Instant, now: Instant) -> Option<String> {
    let busy = now.duration_since(busy_since);
    let oldest = state.steps.first().filter(|_| busy >= state.patience)?;
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
            is_recurrent: false,
        };
        let mut state = State {
            steps: Vec::new(),
            begun: 0,
            has_thread: true,
            subject: "attach 7".to_owned(),
            say: None,
            patience: SOON,
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
    #[test]
    fn looks_at_intervals_are_no_long_step() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut state = State {
            steps: Vec::new(),
            begun: 0,
            has_thread: true,
            subject: "top 7".to_owned(),
            say: None,
            patience: SOON,
        };
        assert_eq!(busy_since(&state, begin), None);
        let one = |number, is_recurrent, since| One {
            number,
            what: "naming the call sites".into(),
            done: None,
            since,
            is_recurrent,
        };
        // Each check finds another look in progress.
        let mut since = begin;
        for number in 1..20 {
            state.steps = vec![one(number, true, at(500 * number - 10))];
            since = busy_since(&state, since).expect("busy");
            assert_eq!(line(&state, since, at(500 * number)), None);
        }
        // A look that takes long is reported.
        let said = line(&state, since, at(500 * 19 + 4000));
        assert_eq!(
            said.as_deref(),
            Some("top 7: naming the call sites (4 s so far)")
        );
        // Other steps in a row count as one.
        state.steps = vec![one(20, false, at(10_000))];
        assert_eq!(busy_since(&state, at(5000)), Some(at(5000)));
    }
}
