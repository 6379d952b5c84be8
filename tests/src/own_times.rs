//! Programs that measure the time of each call inside the function and around the call. ipath's
//! value must be between the two, on a busy machine and with any options.

use crate::command::Run;
use crate::place::Scratch;
use crate::profile::{CallPath, Profile, count};
use crate::program::{Program, ipath_arguments};
use crate::racing::Chance;
use crate::session::counts_of;
use std::path::Path;

/// Options of `run` that change neither counts nor times.
#[derive(Clone, Debug)]
pub struct Options {
    /// The value of `-m`.
    pub metrics: &'static str,
    /// All other options.
    pub others: Vec<String>,
}

impl Options {
    /// Fixed options, with the metrics `count,wall`.
    pub fn of(others: &[&str]) -> Self {
        Self {
            metrics: "count,wall",
            others: others.iter().map(|&option| option.to_owned()).collect(),
        }
    }

    /// Random options.
    pub fn drawn(chance: &mut Chance) -> Self {
        const METRICS: [&str; 6] = [
            "count,wall",
            "wall",
            "wall,cpu",
            "count,wall,blocked",
            "wall,cpu,blocked,context-switches",
            "wall,page-faults",
        ];
        let mut others = Vec::new();
        let depth = chance.below(7);
        if depth > 0 {
            others.extend(["--depth".to_owned(), depth.to_string()]);
        }
        for option in ["--collapse-recursion", "--per-thread", "--no-correction"] {
            if chance.below(3) == 0 {
                others.push(option.to_owned());
            }
        }
        if chance.below(3) == 0 {
            let most = 200 + chance.below(1000);
            others.extend(["--max-paths".to_owned(), most.to_string()]);
        }
        Self {
            metrics: METRICS[chance.below(METRICS.len() as u64) as usize],
            others,
        }
    }
}

/// Runs a program under ipath with these options, and writes the profile to `file`. Returns the
/// program's output.
fn run(program: &Program, function: &str, options: &Options, file: &Path) -> String {
    let mut arguments = ipath_arguments(&[function], options.metrics, file);
    let end = arguments.len() - 1;
    arguments.splice(end..end, options.others.iter().cloned());
    program.under_ipath_as(arguments).expect(0).stdout
}

/// The function that contains the innermost call site of a path.
///
/// # Panics
/// If it has no name.
fn caller(profile: &Profile, path: &CallPath) -> String {
    let frame = path.stack.first().map(|&frame| &profile.frames[frame]);
    frame
        .and_then(|frame| frame.function.clone())
        .expect("a caller")
}

/// The total time of a function's calls below the caller `name`, as `ipath report` shows it, in
/// nanoseconds; `None` if it shows none.
fn wall_under(file: &Path, name: &str) -> Option<u64> {
    let report = Run::ipath(["report", "--json", "--limit", "0", "--under", name]);
    let report = report.arg(file).run().expect(0).json();
    report["functions"][0]["totals"]["wall"]["sum"].as_u64()
}

/// Checks that each caller's calls have their own times, and that no call is lost. Returns the
/// profile.
///
/// # Panics
/// If a check fails.
pub fn assert_own_times(program: &Program, function: &str, options: &Options) -> Profile {
    let scratch = Scratch::new("own-times");
    let file = scratch.file("p.json");
    let stdout = run(program, function, options, &file);
    let profile = Profile::read(&file);
    let what = format!("{:?} {options:?}\n{stdout}", program.args);
    let number = |of: &str| counts_of(&stdout, of)[function];
    assert_eq!(profile.calls(function), number("calls"), "{what}");
    let losses = &profile.losses;
    assert_eq!(losses.open, Some(0), "{what}: {losses:?}");
    assert_eq!(losses.unwound, Some(number("left")), "{what}: {losses:?}");
    let (inside, outside) = (counts_of(&stdout, "inside"), counts_of(&stdout, "outside"));
    for (name, &least) in &inside {
        let paths = profile.paths.iter();
        let own = || paths.clone().filter(|path| caller(&profile, path) == *name);
        let wall: u64 = own()
            .filter_map(|path| path.metrics["wall"]["sum"].as_u64())
            .sum();
        let calls: u64 = own().map(|path| count(&path.metrics)).sum();
        // The difference allowed between the two clocks.
        let apart = |ns: u64| ns / 500 + 1000 * calls;
        let (least, most) = (least - apart(least), outside[name] + apart(outside[name]));
        assert!(
            (least..=most).contains(&wall),
            "{name}: {wall} ns of {least} to {most}: {what}"
        );
        assert_eq!(wall_under(&file, name), Some(wall), "{name}: {what}");
    }
    profile
}
