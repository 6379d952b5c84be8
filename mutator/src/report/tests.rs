//! Reports against goldens; `UPDATE_GOLDENS=1 cargo test` writes them anew.

use super::*;
use crate::profile::tests::{largest, sample};
use crate::profile::{FunctionTotals, Metric, Overhead, Stop, Thread};
use std::path::Path;

/// Compares with `report/goldens/NAME.txt`.
pub(super) fn golden(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/report/goldens/{name}.txt"));
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "differs from {}", path.display());
}

fn report(profile: &Profile, options: &Options) -> String {
    let mut out = Vec::new();
    text(profile, options, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// The sample with a second timer, threads, notes and every kind of loss.
fn rich() -> Profile {
    let mut profile = sample();
    profile.metrics.push(Metric {
        name: "cycles".to_owned(),
        unit: "cycles".to_owned(),
        since_ns: None,
    });
    let cycles = |wall: &TimerStats| TimerStats {
        sum: wall.sum * 3,
        min: wall.min * 3,
        max: wall.max * 3,
        ..TimerStats::default()
    };
    for function in &mut profile.functions {
        let FunctionTotals { counts, .. } = &mut function.totals;
        let stats = cycles(counts.timers.get("wall").unwrap());
        counts.timers.insert("cycles", stats);
    }
    for (i, path) in profile.paths.iter_mut().enumerate() {
        let wall = path.metrics.timers.get("wall").unwrap();
        let stats = TimerStats {
            hist: wall.hist.iter().map(|&(k, n)| (k + 1, n)).collect(),
            ..cycles(wall)
        };
        path.metrics.timers.insert("cycles", stats);
        path.thread = Some(4242 + i as u32);
    }
    profile.session.notes = vec!["cycles: reference cycles (TSC)".to_owned()];
    profile
        .target
        .labels
        .insert("rank".to_owned(), "3".to_owned());
    profile.target.state = Some("exit status 0".to_owned());
    profile.losses.missed = 1;
    profile.losses.overflow = 7;
    profile
}

/// The sample without any timer.
fn counted() -> Profile {
    let mut profile = sample();
    profile.metrics.truncate(1);
    for function in &mut profile.functions {
        function.exits.clear();
        let totals = &mut function.totals;
        totals.counts.timers = Default::default();
        (totals.unwound, totals.open) = (None, None);
    }
    for path in &mut profile.paths {
        path.metrics.timers = Default::default();
        (path.unwound, path.open) = (None, None);
    }
    (profile.losses.unwound, profile.losses.open) = (None, None);
    profile
}

#[test]
fn text_of_one_timer() {
    golden("text", &report(&sample(), &Options::default()));
}

#[test]
fn text_of_several_timers_threads_and_losses() {
    golden("text-rich", &report(&rich(), &Options::default()));
}

#[test]
fn text_of_counts_alone() {
    golden("text-counts", &report(&counted(), &Options::default()));
}

#[test]
fn text_cut_to_few_paths_and_frames() {
    let options = Options {
        metric: Some("count".to_owned()),
        paths: Some(1),
        depth: Some(1),
        ..Options::default()
    };
    golden("text-cut", &report(&sample(), &options));
}

#[test]
fn text_of_nothing_measured_yet() {
    let mut profile = sample();
    profile.paths.clear();
    profile.functions.clear();
    profile.refused.clear();
    profile.frames.clear();
    profile.losses = Default::default();
    profile.session.stops = vec![Stop {
        why: "attach".to_owned(),
        ns: 900_000,
    }];
    golden("text-empty", &report(&profile, &Options::default()));
}

#[test]
fn text_warns_of_a_profile_that_contradicts_itself() {
    let mut profile = sample();
    profile.functions[0].totals.counts.count += 1;
    let text = report(&profile, &Options::default());
    let warning = "warning: this profile contradicts itself: \
                   functions[0].totals.count is 1005, but the paths give 1004\n";
    assert!(text.contains(warning), "{text}");
}

/// The sample with metrics of every kind, named threads, and what the measuring has cost.
fn various() -> Profile {
    let mut profile = rich();
    let metric = |name: &str, unit: &str| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        since_ns: None,
    };
    profile.metrics.extend([
        metric("instructions", "instructions"),
        metric("cpu", "ns"),
        metric("arg1", "bytes"),
        metric("ret", ""),
    ]);
    for path in &mut profile.paths {
        let timers = &mut path.metrics.timers;
        let wall = timers.get("wall").unwrap().clone();
        let n = wall.values();
        let times = |factor: i64| TimerStats {
            sum: wall.sum * i128::from(factor),
            min: wall.min * factor,
            max: wall.max * factor,
            hist: wall
                .hist
                .iter()
                .map(|&(k, n)| (k + factor.ilog2() as u8, n))
                .collect(),
            ..TimerStats::default()
        };
        timers.insert("instructions", times(8));
        timers.insert("cpu", times(1));
        timers.insert(
            "arg1",
            TimerStats {
                sum: i128::from(n) * 65_536,
                min: 16,
                max: 4_194_304,
                hist: vec![(4, 1), (15, n - 2), (22, 1)],
                ..TimerStats::default()
            },
        );
        timers.insert(
            "ret",
            TimerStats {
                sum: i128::from(n) * 3 - 11,
                min: -11,
                max: 1_000,
                hist: vec![(0, n - 2), (9, 1)],
                hist_negative: vec![(3, 1)],
                ..TimerStats::default()
            },
        );
    }
    for (i, function) in profile.functions.iter_mut().enumerate() {
        let total = Total::of(profile.paths.iter().filter(|p| p.function == i));
        function.totals.counts = total.counts;
    }
    let thread = |tid, name: &str| Thread {
        tid,
        name: name.to_owned(),
    };
    profile.threads = vec![
        thread(4242, "app"),
        thread(4243, "work\ner"),
        thread(4244, "work\ner"),
    ];
    profile.session.cpu_ns = Some(4_000_000_000);
    profile.session.overhead = Some(Overhead {
        call_ns: 24.1,
        total_ns: 1_200_000,
        share: 0.012,
        corrected: true,
    });
    profile
}

#[test]
fn text_of_metrics_of_every_kind() {
    let profile = various();
    profile.check().unwrap();
    golden("text-various", &report(&profile, &Options::default()));
}

#[test]
fn text_with_histograms() {
    let options = Options {
        histogram: true,
        paths: Some(0),
        ..Options::default()
    };
    golden("text-histogram", &report(&various(), &options));
}

/// A path that there was no memory for, among others.
#[test]
fn text_of_a_histogram_that_was_not_kept() {
    let mut profile = sample();
    let timers = &mut profile.paths[1].metrics.timers;
    let mut wall = timers.get("wall").unwrap().clone();
    wall.hist = vec![(3, 97)];
    timers.insert("wall", wall);
    profile.check().unwrap();
    let options = Options {
        histogram: true,
        ..Options::default()
    };
    golden("text-unknown", &report(&profile, &options));
}

/// What fits into a hundred columns when it is typical: names and remarks have lines of their own.
#[test]
fn lines_of_numbers_fit_into_a_hundred_columns() {
    for profile in [sample(), rich(), various()] {
        let options = Options {
            histogram: true,
            ..Options::default()
        };
        for line in report(&profile, &options).lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
    }
}

fn summarize(profile: &Profile, prev: Option<&Profile>) -> String {
    let mut out = Vec::new();
    summary(profile, prev, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn summary_of_all_the_time() {
    golden(
        "summary",
        &(summarize(&sample(), None) + "\n" + &summarize(&counted(), None)),
    );
}

#[test]
fn summary_of_an_interval_shows_only_what_changed() {
    let old = sample();
    let mut new = old.clone();
    new.session.elapsed_ns += 2_000_000_000;
    let path = &mut new.paths[0].metrics;
    path.count += 50;
    let mut wall = path.timers.get("wall").unwrap().clone();
    wall.sum += 5_000_000;
    wall.hist = vec![(16, 950)];
    path.timers.insert("wall", wall);
    golden("summary-interval", &summarize(&new, Some(&old)));
}

#[test]
fn sums_of_the_largest_numbers_stay_at_the_limit() {
    let mut profile = largest();
    let text = report(&profile, &Options::default());
    assert!(text.contains("  1 call not recorded (0.0 %)\n"), "{text}");
    for path in &mut profile.paths {
        path.complete = false;
    }
    let text = report(&profile, &Options::default());
    let incomplete = format!("{} incomplete (100.0 %)", u64::MAX);
    assert!(text.contains(&incomplete), "{text}");
    let whole = format!("work: {} calls", u64::MAX);
    for prev in [None, Some(&negative())] {
        let text = summarize(&profile, prev);
        assert!(text.contains(&whole), "{text}");
        assert!(!text.contains("wall -"), "{text}");
    }
}

/// An earlier profile with sums below zero, as those of arguments can be.
fn negative() -> Profile {
    let mut profile = sample();
    for path in &mut profile.paths {
        let stats = TimerStats {
            sum: i128::MIN,
            ..TimerStats::default()
        };
        path.metrics.count = 0;
        path.metrics.timers.insert("wall", stats);
    }
    profile
}
