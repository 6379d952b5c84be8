//! Compares a profile with gdb's result: functions, stacks and number of calls.

use crate::oracle::{Frame, Oracle};
use crate::profile::{Profile, count};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

/// The number of calls by probed function and stack.
type Calls = BTreeMap<(Frame, Vec<Frame>), u64>;

/// The number of paths that a message shows of those that only one side has.
const SHOWN: usize = 6;

/// A readable list of all differences; empty if the profile is complete and exactly what gdb found.
pub fn differences(profile: &Profile, oracle: &Oracle) -> String {
    let (ours, gdbs) = (of_profile(profile), of_oracle(oracle));
    let mut text = String::new();
    let incomplete = profile.paths.iter().filter(|path| !path.complete).count();
    if incomplete > 0 {
        let _ = writeln!(text, "{incomplete} paths of the profile are not complete");
    }
    let total = |calls: &Calls| calls.values().sum::<u64>();
    if total(&ours) != total(&gdbs) {
        let _ = writeln!(text, "{} calls, gdb found {}", total(&ours), total(&gdbs));
    }
    let names = names(profile);
    let missing = gdbs.iter().filter(|(key, _)| !ours.contains_key(*key));
    section(&mut text, "only found by gdb", missing, &names);
    let extra = ours.iter().filter(|(key, _)| !gdbs.contains_key(*key));
    section(&mut text, "only in the profile", extra, &names);
    for (key, calls) in &ours {
        if let Some(gdb) = gdbs.get(key).filter(|gdb| *gdb != calls) {
            let _ = writeln!(
                text,
                "{calls} calls, gdb found {gdb}:\n{}",
                show(key, &names)
            );
        }
    }
    text
}

/// Checks that the profile is exactly what gdb found.
///
/// # Panics
/// With the differences.
pub fn assert_equal(profile: &Profile, oracle: &Oracle) {
    let found = differences(profile, oracle);
    assert!(
        found.is_empty(),
        "profile and gdb disagree ({}):\n{found}",
        oracle.summary()
    );
}

fn of_oracle(oracle: &Oracle) -> Calls {
    let mut calls = Calls::new();
    for path in &oracle.paths {
        let site = &oracle.sites[path.site];
        let key = ((site.module.clone(), site.address), path.stack.clone());
        *calls.entry(key).or_default() += path.hits;
    }
    calls
}

fn of_profile(profile: &Profile) -> Calls {
    let module = |index: usize| file_name(&profile.modules[index].path);
    let mut calls = Calls::new();
    for path in profile.paths.iter().filter(|path| count(&path.metrics) > 0) {
        let function = &profile.functions[path.function];
        let stack = path.stack.iter().map(|&index| {
            let frame = &profile.frames[index];
            (
                frame
                    .module
                    .map_or_else(|| "[no module]".to_owned(), module),
                frame.address,
            )
        });
        let key = ((module(function.module), function.address), stack.collect());
        *calls.entry(key).or_default() += count(&path.metrics);
    }
    calls
}

fn file_name(path: &str) -> String {
    Path::new(path)
        .file_name()
        .map_or(path.to_owned(), |name| name.to_string_lossy().into_owned())
}

/// The names of the functions that contain the call sites, by frame, from the profile; used only in
/// messages.
fn names(profile: &Profile) -> BTreeMap<Frame, String> {
    let frames = profile.frames.iter().filter_map(|frame| {
        let module = file_name(&profile.modules[frame.module?].path);
        Some(((module, frame.address), frame.function.clone()?))
    });
    frames.collect()
}

fn section<'a>(
    text: &mut String,
    title: &str,
    paths: impl Iterator<Item = (&'a (Frame, Vec<Frame>), &'a u64)>,
    names: &BTreeMap<Frame, String>,
) {
    let paths: Vec<_> = paths.collect();
    if paths.is_empty() {
        return;
    }
    let _ = writeln!(text, "{} paths {title}:", paths.len());
    for (key, calls) in paths.iter().take(SHOWN) {
        let _ = writeln!(text, "{calls} calls:\n{}", show(key, names));
    }
}

fn show((site, stack): &(Frame, Vec<Frame>), names: &BTreeMap<Frame, String>) -> String {
    let mut text = format!("    {}+{:#x} called from", site.0, site.1);
    for frame in stack {
        let name = names.get(frame).map_or("", String::as_str);
        let _ = write!(text, "\n        {}+{:#x} {name}", frame.0, frame.1);
    }
    text
}
