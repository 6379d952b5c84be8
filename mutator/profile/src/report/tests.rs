//! Reports compared with goldens. `UPDATE_GOLDENS=1 cargo test` rewrites them.

mod callers;
mod inside;

use super::*;
use crate::profile::{FunctionTotals, Losses, Metric, Overhead, Stop, Thread, TimerStats};
use crate::sample::{largest, sample};
use std::path::Path;

/// Asserts that `text` equals `report/goldens/NAME.txt`. If `UPDATE_GOLDENS` is set, writes the
/// file before.
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

/// The head shows the id of the process that started all others, but not if there are several such
/// processes.
#[test]
fn the_head_has_the_id_of_what_has_begun_all() {
    let mut profile = sample();
    let own = profile.target.pid;
    let mut has_id = |processes: &[(u32, Option<u32>)]| {
        let process = |&(pid, parent): &(u32, Option<u32>)| {
            let json = serde_json::json!({"pid": pid, "exe": "/bin/one", "parent": parent});
            serde_json::from_value(json).unwrap()
        };
        profile.processes = processes.iter().map(process).collect();
        let head = report(&profile, &Options::default());
        head.contains(&format!("pid {own} on "))
    };
    let child = (own + 1, Some(own));
    assert!(has_id(&[(own, None), child]));
    assert!(has_id(&[child]));
    assert!(!has_id(&[(own, None), child, (own + 2, None)]));
    assert!(!has_id(&[(own, None), (own + 2, None)]));
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
fn text_of_the_costliest_of_many() {
    let options = Options {
        limit: Some(1),
        quiet: true,
        all_by: "--limit 0 shows all",
        ..Options::default()
    };
    let profile = sample();
    golden("text-limit", &report(&profile, &options));
}

/// The names of the functions, and the paths' calls, in the order shown.
fn order(options: &Options) -> (Vec<String>, Vec<u64>) {
    order_of(sample(), options)
}

fn order_of(profile: Profile, options: &Options) -> (Vec<String>, Vec<u64>) {
    let shown = json(&profile, &Selection::all(&profile), options);
    let value = serde_json::to_value(&shown).unwrap();
    let list = |key: &str| value[key].as_array().unwrap().clone();
    (
        list("functions")
            .iter()
            .map(|f| f["name"].as_str().unwrap().to_owned())
            .collect(),
        list("paths")
            .iter()
            .map(|p| p["metrics"]["count"].as_u64().unwrap())
            .collect(),
    )
}

#[test]
fn order_follows_what_is_asked_for() {
    let by = |by| {
        order(&Options {
            by,
            ..Options::default()
        })
    };
    assert_eq!(by(By::Total).1, [100, 100, 900, 4]);
    assert_eq!(by(By::Calls).0, ["work", "Store::load(int)"]);
    assert_eq!(by(By::Calls).1, [900, 100, 100, 4]);
    assert_eq!(by(By::Mean).1, [100, 100, 900, 4]);
    assert_eq!(by(By::Name).0, ["Store::load(int)", "work"]);
    // A function with calls and a negative sum precedes functions without calls.
    let mut negative = sample();
    let first = negative.paths[0].function;
    negative.paths.retain(|path| path.function == first);
    for path in &mut negative.paths {
        path.metrics
            .timers
            .stats_mut()
            .for_each(|stats| stats.sum = -stats.sum);
    }
    let called = negative.functions[first].name.clone();
    assert_eq!(order_of(negative, &Options::default()).0[0], called);
    let few = Options {
        min_share: 0.05,
        ..Options::default()
    };
    assert_eq!(order(&few).1, [100, 100, 900]);
}

fn filter(functions: &[&str], under: &[&str], threads: &[&str]) -> Filter {
    let patterns = |texts: &[&str]| {
        let parse = |text: &&str| patcher::select::Pattern::parse(text).unwrap();
        texts.iter().map(parse).collect()
    };
    Filter {
        functions: patterns(functions),
        under: patterns(under),
        threads: threads.iter().map(|&t| t.to_owned()).collect(),
        phases: Vec::new(),
        processes: Vec::new(),
    }
}

/// Paths of two ranks of two programs are kept apart and can be selected by id, program or rank.
/// Each rank has its part of a function.
#[test]
fn processes_are_chosen_and_told_apart() {
    use crate::merge::{Merger, PathsOf};
    let rank = |pid: u32, exe: &str| {
        let mut profile = various();
        profile.target.pid = pid;
        profile.target.exe = exe.to_owned();
        let label = ("rank".to_owned(), (pid - 1).to_string());
        profile.target.labels = [label].into();
        profile
    };
    let sum = |paths_of: PathsOf, programs: [&str; 2]| {
        let mut merger = Merger::new(paths_of);
        merger.add(&rank(1, programs[0])).unwrap();
        merger.add(&rank(2, programs[1])).unwrap();
        merger.finish().unwrap()
    };
    let apart = sum(PathsOf::Each, ["/bin/one", "/bin/two"]);
    let chosen = |asked: &str| {
        let filter = Filter {
            processes: vec![asked.to_owned()],
            ..Filter::default()
        };
        filter.of(&apart)
    };
    for asked in ["2", "two", "rank 1", "rank=1", "rank1"] {
        let paths = chosen(asked).unwrap().paths;
        let of_it = |&path: &usize| apart.paths[path].process == Some(1);
        assert!(
            paths.len() == 4 && paths.iter().all(of_it),
            "{asked}: {paths:?}"
        );
    }
    assert_eq!(
        chosen("rank 2"),
        Err(NotThere::Process("rank 2".to_owned()))
    );
    let text = |profile: &Profile, shown: &Selection| {
        let mut out = Vec::new();
        selected(profile, shown, &Options::default(), &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let of_both = text(&apart, &Selection::all(&apart));
    assert!(of_both.contains("one, 1 process\n"), "{of_both}");
    let of_one = text(&apart, &chosen("rank 1").unwrap());
    assert!(of_one.contains("rank 1, pid 2 (two)"), "{of_one}");
    assert!(!of_one.contains("rank 0"), "{of_one}");
    let together = sum(PathsOf::All, ["/bin/one"; 2]);
    let shown = text(&together, &Selection::all(&together));
    assert!(shown.contains("rank 0, pid 1\n"), "{shown}");
    let filter = Filter {
        processes: vec!["1".to_owned()],
        ..Filter::default()
    };
    assert_eq!(filter.of(&together), Err(NotThere::Processes));
}

#[test]
fn filters_keep_what_is_named() {
    let profile = various();
    let paths = |f: &[&str], u: &[&str], t: &[&str]| filter(f, u, t).of(&profile).map(|s| s.paths);
    assert_eq!(paths(&[], &[], &[]).unwrap(), [0, 1, 2, 3]);
    assert_eq!(paths(&["w*"], &[], &[]).unwrap(), [0, 1, 2]);
    assert_eq!(paths(&["Store::load"], &[], &[]).unwrap(), [3]);
    // The inlined function follows the function that contains it, from the root on.
    assert_eq!(
        paths(&[], &["main", "helper", "Store::load"], &[]).unwrap(),
        [1]
    );
    assert!(paths(&[], &["helper", "main"], &[]).is_err());
    assert_eq!(paths(&[], &[], &["app", "4243"]).unwrap(), [0, 1]);
    let said = |f: &[&str], u: &[&str], t: &[&str]| paths(f, u, t).unwrap_err().to_string();
    assert_eq!(said(&["nix"], &[], &[]), "it has no function `nix`");
    let mut folded = various();
    folded.functions[0].aliases = vec!["_Z4betal".to_owned()];
    for name in ["beta", "beta(long)", "_Z4betal", "bet*"] {
        let kept = filter(&[name], &[], &[]).of(&folded).expect(name);
        assert_eq!(kept.functions, [0], "{name}");
    }
    assert_eq!(
        said(&[], &["main", "nix"], &[]),
        "no path passes through `main` and then `nix`"
    );
    assert_eq!(said(&[], &[], &["nix"]), "it has no thread `nix`");
    let whole = filter(&[], &[], &["app"]).of(&sample());
    assert_eq!(whole, Err(NotThere::Threads));
}

#[test]
fn trees_fold_equal_callers() {
    let tree_of = |profile: &Profile, options: &Options| {
        let mut out = Vec::new();
        tree(profile, &Selection::all(profile), options, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let quiet = Options {
        quiet: true,
        ..Options::default()
    };
    golden("tree", &tree_of(&sample(), &quiet));
    let few = Options {
        limit: Some(1),
        ..quiet
    };
    golden("tree-limit", &tree_of(&counted(), &few));
}

/// Each form shows the losses. None claims that nothing was lost if times are incomplete.
#[test]
fn what_is_not_whole_is_marked_in_every_form() {
    let mut profile = sample();
    profile.paths.retain(|p| p.complete);
    profile.losses = Losses::default();
    for path in &mut profile.paths {
        (path.unwound, path.open) = (Some(0), Some(0));
        path.tail = 0;
        let count = path.metrics.count;
        path.metrics
            .timers
            .stats_mut()
            .for_each(|s| s.hist = vec![(20, count)]);
    }
    let forms = |profile: &Profile| {
        let mut out = Vec::new();
        let all = Selection::all(profile);
        let options = Options::default();
        tree(profile, &all, &options, &mut out).unwrap();
        let mut last = Vec::new();
        let screen = Screen {
            width: 100,
            height: 40,
        };
        answer(profile, screen, None, &mut last).unwrap();
        let json = serde_json::to_string(&json(profile, &all, &options)).unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        [
            report(profile, &options),
            text(out),
            text(last),
            summarize(profile, None),
            json,
        ]
    };
    for text in &forms(&profile)[..3] {
        assert!(text.contains("Nothing was lost"), "{text}");
    }
    let mut tailing = profile.clone();
    tailing.functions[0].tail = 3;
    tailing.paths[0].tail = 3;
    for text in forms(&tailing) {
        assert!(!text.contains("Nothing was lost"), "{text}");
        assert!(
            text.contains("3 left by a tail call") && text.contains(" ≥")
                || text.contains("\"tail\":3"),
            "{text}"
        );
    }
    let mut partly = profile.clone();
    let timers = &mut partly.paths[0].metrics.timers;
    timers.stats_mut().for_each(|s| s.hist[0].1 -= 7);
    for text in forms(&partly) {
        assert!(!text.contains("Nothing was lost"), "{text}");
        let says = text.contains("7 not measured") || text.contains("\"unmeasured\":7");
        assert!(says, "{text}");
    }
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

/// A profile with metrics of every kind, named threads, and the cost of measuring.
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
        libraries_ns: 129_000_000,
        corrected: true,
        unreliable: false,
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

/// One of the paths had no memory for its histogram.
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

/// Typical rows fit into a hundred columns. Long names and remarks have lines of their own.
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
    summary(profile, prev, None, &mut out).unwrap();
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
fn sums_of_the_largest_numbers_stay_at_the_limit_in_reports() {
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
