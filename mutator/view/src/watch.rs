//! The loop that connects the state with its source, a screen and keys.

use super::choice::{Chosen, choose};
use super::draw::draw;
use super::inputs::{Edited, Input, Inputs, wipe};
use super::{Action, Event, Source, State};
use ipath_profile::Changed;
use ipath_target::fault_injection::stumble;
use ratatui::Terminal;
use ratatui::backend::Backend;
use ratatui::layout::Size;
use std::io;
use std::time::{Duration, Instant};

/// Shows `source` until the user, the deadline, a signal or the source ends it.
///
/// # Errors
/// The terminal fails.
pub(super) fn watch<B: Backend>(
    terminal: &mut Terminal<B>,
    inputs: &mut dyn Inputs,
    source: &mut dyn Source,
    interval: Duration,
    deadline: Option<Instant>,
) -> io::Result<()>
where
    B::Error: Send + Sync + 'static,
{
    /// The time between two checks for results from the background.
    const A_MOMENT: Duration = Duration::from_millis(30);
    /// The time from the first sample, which mostly precedes the first calls, to the next. It then
    /// doubles with each sample.
    const SOON: Duration = Duration::from_millis(50);
    let mut state = State::default();
    let size = terminal.size().map_err(io::Error::other)?;
    state.update(Event::Resize {
        width: size.width,
        height: size.height,
    });
    let mut samples = Samples { are_missed: true };
    let mut due = Instant::now();
    let mut until_next = SOON;
    let mut sampled = due - SOON;
    loop {
        let now = Instant::now();
        if deadline.is_some_and(|deadline| now >= deadline) {
            return Ok(());
        }
        if now >= due {
            if samples.take(&mut state, source) {
                return Ok(());
            }
            // Counted from now, not from the time that it was due: a source slower than the
            // interval must leave time for the keys.
            sampled = Instant::now();
            due = sampled + until_next.min(interval);
            until_next = until_next.saturating_mul(2).min(interval);
        }
        if state.wants_names()
            && let Some(names) = source.names()
        {
            state.give_names(names);
        }
        state.read_source();
        state.find_names();
        stumble("draw");
        terminal
            .draw(|frame| draw(&state, frame))
            .map_err(io::Error::other)?;

        let wake = deadline.map_or(due, |deadline| deadline.min(due));
        let mut timeout = wake.saturating_duration_since(Instant::now());
        if state.wants_names() {
            timeout = timeout.min(A_MOMENT);
        }
        // All pending keys are handled before the screen is redrawn.
        while let Some(input) = inputs.next(timeout)? {
            timeout = Duration::ZERO;
            match obey(
                input,
                &mut state,
                terminal,
                inputs,
                source,
                &mut samples,
                deadline,
            )? {
                Then::GoOn => {}
                // Hundreds of children may end in a second.
                Then::Sample => due = due.min(Instant::now().max(sampled + SOON)),
                Then::End => return Ok(()),
            }
        }
    }
}

/// The consequence of an input.
enum Then {
    GoOn,
    /// A sample is due.
    Sample,
    End,
}

/// Handles an input, and performs the action that it leads to.
fn obey<B: Backend>(
    input: Input,
    state: &mut State,
    terminal: &mut Terminal<B>,
    inputs: &mut dyn Inputs,
    source: &mut dyn Source,
    samples: &mut Samples,
    deadline: Option<Instant>,
) -> io::Result<Then>
where
    B::Error: Send + Sync + 'static,
{
    let event = match input {
        Input::Key(key) => Event::Key(key),
        Input::Mouse(mouse) => Event::Mouse(mouse),
        Input::Resize(width, height) => {
            // Also if the size is the same as before: the terminal has moved its content.
            wipe(terminal)?;
            Event::Resize { width, height }
        }
        Input::Continued => {
            wipe(terminal)?;
            Event::Continued
        }
        Input::Child => return Ok(Then::Sample),
        Input::Stop => return Ok(Then::End),
    };
    let Some(action) = state.update(event) else {
        return Ok(Then::GoOn);
    };
    // Show the announcement before the action, which may take a while.
    terminal
        .draw(|frame| draw(state, frame))
        .map_err(io::Error::other)?;
    let answer = match action {
        Action::Quit => return Ok(Then::End),
        Action::Suspend => {
            inputs.suspend();
            return Ok(Then::GoOn);
        }
        Action::Redraw => {
            wipe(terminal)?;
            return Ok(Then::GoOn);
        }
        Action::Look => return Ok(Then::Sample),
        Action::Copy(text) => {
            inputs.copy(&text)?;
            return Ok(Then::GoOn);
        }
        Action::Edit(file, line) => {
            // The state takes in the changes with the next sample.
            samples.are_missed = true;
            let mut is_over = || source.sample().is_ok_and(|sample| sample.ended.is_some());
            let edited = match inputs.edit(&file, line, deadline, &mut is_over) {
                Ok(Edited::Left) => return Ok(Then::End),
                Ok(Edited::Done) => Ok(()),
                Err(error) => Err(ipath_base::error::io_text(&error)),
            };
            wipe(terminal)?;
            let Size { width, height } = terminal.size().map_err(io::Error::other)?;
            state.update(Event::Resize { width, height });
            if let Err(cause) = edited {
                state.update(Event::Answer(Err(cause)));
            }
            return Ok(Then::Sample);
        }
        Action::Write(file) => {
            let written = source.write(&file);
            state.update(Event::Answer(written));
            return Ok(Then::GoOn);
        }
        Action::Estimate => match estimate(terminal, inputs, source, deadline)? {
            Some(answer) => answer,
            None => return Ok(Then::Sample),
        },
        Action::Add(pattern) => source.add(&pattern),
        Action::Callees(function) => {
            let event = match source.callees(function) {
                Ok(callees) => Event::Callees(callees),
                Err(cause) => Event::Answer(Err(cause)),
            };
            state.update(event);
            return Ok(Then::GoOn);
        }
        Action::AddCallees(callees) => source.add_callees(&callees),
        Action::Change(function, metrics) => source.change(function, &metrics),
        Action::Remove(function) => source.remove(function),
        Action::Edges(function) => source.edges(function),
    };
    let is_changed = answer.is_ok();
    state.update(Event::Answer(answer));
    if is_changed && samples.take(state, source) {
        Ok(Then::End)
    } else {
        Ok(Then::GoOn)
    }
}

/// Lets the user choose further functions by the time they take. Returns the result of adding them,
/// or the reason why there is nothing to choose from. `None` if nothing was chosen. A typed pattern
/// counts as a choice.
fn estimate<B: Backend>(
    terminal: &mut Terminal<B>,
    inputs: &mut dyn Inputs,
    source: &mut dyn Source,
    deadline: Option<Instant>,
) -> io::Result<Option<Result<String, String>>>
where
    B::Error: Send + Sync + 'static,
{
    let mut finder = match source.finder() {
        Ok(finder) => finder,
        Err(cause) => return Ok(Some(Err(cause))),
    };
    let chosen = choose(terminal, inputs, finder.as_mut(), true, deadline);
    wipe(terminal)?;
    Ok(match chosen? {
        Chosen::Functions(keys) => Some(
            finder
                .patterns(&keys)
                .and_then(|patterns| source.add_found(&patterns)),
        ),
        Chosen::Named(pattern) => Some(source.add(&pattern)),
        Chosen::Nothing | Chosen::Over(_) => None,
    })
}

/// Takes samples from a source.
struct Samples {
    /// True if the state has not seen the changes of earlier samples.
    are_missed: bool,
}

impl Samples {
    /// Takes a sample into the state, with its messages. True if the source has ended.
    fn take(&mut self, state: &mut State, source: &mut dyn Source) -> bool {
        match source.sample() {
            Ok(sample) => {
                let changed = if self.are_missed {
                    Changed::All
                } else {
                    sample.changed
                };
                self.are_missed = state.paused;
                state.stand(sample.stands);
                state.sample(sample.profile, &changed);
                for text in sample.said.into_iter().chain(sample.doubt) {
                    state.update(Event::Failed(text));
                }
                sample.ended.is_some()
            }
            Err(cause) => {
                state.update(Event::Failed(cause));
                false
            }
        }
    }
}
