//! Tests of the loop with an artificial source and artificial inputs.

use super::*;
use crate::inputs::{Edited, Input, Inputs};
use crate::watch::watch;
use crate::{Callees, Choices, Finder, Names, Sample, Source};
use ipath_profile::display_name::Link;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[derive(Default)]
struct Fake {
    samples: u64,
    profile: Option<Profile>,
    ends_after: Option<u64>,
    fails: bool,
    doubt: Option<String>,
    added: Vec<String>,
    changed: Vec<(usize, String)>,
    removed: Vec<usize>,
    written: Vec<String>,
    is_sampled: bool,
}

/// A finder without functions to choose.
struct Sampled(Instant);

impl Finder for Sampled {
    fn pause(&mut self) {}

    fn resume(&mut self) {}

    fn look(&mut self) -> Option<String> {
        assert!(self.0.elapsed() < Duration::from_secs(60), "no end of it");
        None
    }

    fn choices(&mut self) -> Choices {
        Choices::default()
    }

    fn callers(&mut self, _: u64) -> Vec<Link> {
        Vec::new()
    }

    fn patterns(&self, _: &[u64]) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }
}

impl Source for Fake {
    fn sample(&mut self) -> Result<Sample<'_>, String> {
        self.samples += 1;
        if self.fails {
            return Err("the segment is gone".to_owned());
        }
        let ended = self
            .ends_after
            .filter(|&n| self.samples >= n)
            .map(|_| "exit status 0".to_owned());
        self.profile = Some(later(&sample(), 0, self.samples));
        let profile = self.profile.as_ref().ok_or_else(String::new)?;
        Ok(Sample {
            profile,
            changed: Changed::Paths(vec![0]),
            stands: None,
            ended,
            doubt: self.doubt.clone(),
            said: None,
        })
    }

    fn add(&mut self, pattern: &str) -> Result<String, String> {
        self.added.push(pattern.to_owned());
        Ok(format!("added {pattern}"))
    }

    fn callees(&mut self, function: usize) -> Result<Callees, String> {
        Err(format!("{function} calls nothing"))
    }

    fn add_callees(&mut self, callees: &Callees) -> Result<String, String> {
        Err(format!("{callees:?}"))
    }

    fn edges(&mut self, function: usize) -> Result<String, String> {
        Err(format!("{function} cannot be counted"))
    }

    fn names(&mut self) -> Option<Arc<Names>> {
        let mut names = Names::default();
        let module = names.module("app");
        names.push("work".to_owned(), module, 0x1000);
        Some(Arc::new(names))
    }

    fn finder(&mut self) -> Result<Box<dyn Finder>, String> {
        if self.is_sampled {
            Ok(Box::new(Sampled(Instant::now())))
        } else {
            Err("it cannot be sampled".to_owned())
        }
    }

    fn add_found(&mut self, _: &[String]) -> Result<String, String> {
        Ok("added".to_owned())
    }

    fn write(&mut self, file: &str) -> Result<String, String> {
        self.written.push(file.to_owned());
        Ok(format!("written to {file}"))
    }

    fn change(&mut self, function: usize, metrics: &str) -> Result<String, String> {
        self.changed.push((function, metrics.to_owned()));
        Ok(format!("measured by {metrics}"))
    }

    fn remove(&mut self, function: usize) -> Result<String, String> {
        self.removed.push(function);
        Err("remove 4242: busy".to_owned())
    }
}

/// Returns each input at once, and sleeps for the timeout if there is none.
#[derive(Default)]
struct Script {
    inputs: VecDeque<Option<Input>>,
    suspended: usize,
    copied: Vec<String>,
    edited: Vec<(String, u32)>,
}

impl Inputs for Script {
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Input>> {
        match self.inputs.pop_front() {
            Some(Some(input)) => Ok(Some(input)),
            // The user pauses: the loop continues.
            Some(None) => Ok(None),
            None => {
                std::thread::sleep(timeout);
                Ok(None)
            }
        }
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        self.copied.push(text.to_owned());
        Ok(())
    }

    fn edit(
        &mut self,
        file: &str,
        line: u32,
        _: Option<Instant>,
        _: &mut dyn FnMut() -> bool,
    ) -> io::Result<Edited> {
        self.edited.push((file.to_owned(), line));
        Err(io::Error::other("no editor"))
    }

    fn suspend(&mut self) {
        self.suspended += 1;
        self.inputs.push_front(Some(Input::Continued));
    }
}

fn script(keys: &[Key]) -> Script {
    Script {
        inputs: keys.iter().map(|&key| Some(Input::Key(key))).collect(),
        ..Script::default()
    }
}

fn stop() -> Script {
    Script {
        inputs: [Some(Input::Stop)].into(),
        ..Script::default()
    }
}

fn screen_of(terminal: &Terminal<TestBackend>) -> String {
    let width = usize::from(terminal.backend().buffer().area.width);
    let cells: Vec<_> = terminal
        .backend()
        .buffer()
        .content
        .iter()
        .map(|c| c.symbol())
        .collect();
    cells
        .chunks(width)
        .map(|line| line.concat() + "\n")
        .collect()
}

fn watched(source: &mut Fake, mut inputs: Script, interval: u64, deadline: Option<u64>) -> String {
    let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
    let deadline = deadline.map(|ms| Instant::now() + Duration::from_millis(ms));
    let interval = Duration::from_millis(interval);
    watch(&mut terminal, &mut inputs, source, interval, deadline).unwrap();
    screen_of(&terminal)
}

const LONG: u64 = 3_600_000;

#[test]
fn q_ends_it_after_the_first_sample_was_shown() {
    let mut source = Fake::default();
    let screen = watched(&mut source, script(&[Key::Char('q')]), LONG, None);
    assert_eq!(source.samples, 1);
    assert!(screen.contains("Store::load(int)"), "{screen}");
}

#[test]
fn samples_come_every_interval_until_the_deadline() {
    let mut source = Fake::default();
    watched(&mut source, script(&[]), 10, Some(200));
    assert!((3..=21).contains(&source.samples), "{}", source.samples);
}

#[test]
fn the_deadline_ends_it_while_functions_are_chosen() {
    let mut source = Fake {
        is_sampled: true,
        ..Fake::default()
    };
    watched(&mut source, script(&[Key::Char('S')]), LONG, Some(200));
}

#[test]
fn the_end_of_the_source_ends_it() {
    let mut source = Fake {
        ends_after: Some(4),
        ..Fake::default()
    };
    watched(&mut source, script(&[]), 1, None);
    assert_eq!(source.samples, 4);
}

#[test]
fn a_signal_ends_it() {
    let mut source = Fake::default();
    watched(&mut source, stop(), LONG, None);
    assert_eq!(source.samples, 1);
}

#[test]
fn a_pattern_is_added_its_answer_shown_and_the_table_is_new() {
    let mut source = Fake::default();
    let mut inputs = script(&[Key::Char('a'), Key::Char('m'), Key::Char('*'), Key::Enter]);
    inputs.inputs.extend([None, Some(Input::Stop)]);
    let screen = watched(&mut source, inputs, LONG, None);
    assert_eq!(source.added, ["m*"]);
    assert_eq!(source.samples, 2);
    assert!(screen.contains("added m*"), "{screen}");
}

#[test]
fn a_function_is_removed_and_a_refusal_is_shown() {
    let mut source = Fake::default();
    let mut inputs = script(&[Key::Char('d'), Key::Char('y')]);
    inputs.inputs.extend([None, Some(Input::Stop)]);
    let screen = watched(&mut source, inputs, LONG, None);
    assert_eq!(source.removed, [1]);
    assert!(screen.contains("remove 4242: busy"), "{screen}");
}

#[test]
fn metrics_are_changed_and_the_table_is_new() {
    let mut source = Fake::default();
    let mut inputs = script(&[Key::Char('c'), Key::Ctrl('u'), Key::Char('x'), Key::Enter]);
    inputs.inputs.extend([None, Some(Input::Stop)]);
    let screen = watched(&mut source, inputs, LONG, None);
    assert_eq!(source.changed, [(1, "x".to_owned())]);
    assert_eq!(source.samples, 2);
    assert!(screen.contains("measured by x"), "{screen}");
}

#[test]
fn a_sample_that_fails_is_shown_and_tried_again() {
    let mut source = Fake {
        fails: true,
        ..Fake::default()
    };
    let screen = watched(&mut source, script(&[]), 5, Some(100));
    assert!(source.samples > 2);
    assert!(screen.contains("the segment is gone"), "{screen}");
}

#[test]
fn a_doubt_is_shown_and_the_watching_goes_on() {
    let mut source = Fake {
        doubt: Some("top 42: too many open files".to_owned()),
        ends_after: Some(3),
        ..Fake::default()
    };
    let screen = watched(&mut source, script(&[]), 1, None);
    assert_eq!(source.samples, 3);
    assert!(screen.contains("too many open files"), "{screen}");
}

#[test]
fn ctrl_z_stops_from_everywhere_and_the_screen_is_drawn_anew() {
    for before in [
        &[][..],
        &[Key::Char('a')],
        &[Key::Char('?'), Key::Char('x')],
    ] {
        let mut terminal = Terminal::new(TestBackend::new(80, 12)).unwrap();
        let mut source = Fake::default();
        let mut inputs = script(&[before, &[Key::Ctrl('z')]].concat());
        inputs.inputs.extend([None, Some(Input::Stop)]);
        watch(
            &mut terminal,
            &mut inputs,
            &mut source,
            Duration::from_millis(LONG),
            None,
        )
        .unwrap();
        assert_eq!(inputs.suspended, 1);
        assert!(screen_of(&terminal).contains("pid 4242"));
    }
}
