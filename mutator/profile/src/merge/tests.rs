//! Sums of profiles compared with their parts.

use super::*;
use crate::clock::ExitClock;
use crate::profile::{Losses, Overhead, Throttled, Throttling};
use crate::sample::sample;

/// The profile of another process: its code is at other addresses, and its lists have another
/// order.
fn other(pid: u32) -> Profile {
    let mut profile = sample();
    profile.target.pid = pid;
    profile
        .target
        .labels
        .insert("rank".to_owned(), pid.to_string());
    profile
        .modules
        .iter_mut()
        .for_each(|m| m.base = Some(u64::from(pid) << 12));
    profile.functions.swap(0, 1);
    profile.frames.swap(0, 3);
    profile.paths.reverse();
    for path in &mut profile.paths {
        path.function = 1 - path.function;
        for frame in &mut path.stack {
            *frame = match *frame {
                0 => 3,
                3 => 0,
                other => other,
            };
        }
    }
    profile.check().unwrap();
    profile
}

/// A profile with no metric but `count`.
fn counted(pid: u32) -> Profile {
    let mut counted = other(pid);
    counted.metrics.truncate(1);
    for function in &mut counted.functions {
        function.totals.counts.timers = Default::default();
    }
    for path in &mut counted.paths {
        path.metrics.timers = Default::default();
    }
    counted
}

fn merged(profiles: &[Profile]) -> Profile {
    let mut merger = Merger::default();
    for profile in profiles {
        merger.add(profile).unwrap();
    }
    let sum = merger.finish().unwrap();
    sum.check().unwrap();
    let text = serde_json::to_vec(&sum).unwrap();
    assert_eq!(
        Profile::parse(std::path::Path::new("f"), &text).unwrap(),
        sum
    );
    sum
}

#[test]
fn processes_are_added_up_and_stay_known() {
    let sum = merged(&[other(1), other(2), sample()]);
    let one = sample();
    assert_eq!(sum.paths.len(), one.paths.len());
    assert_eq!(sum.calls(), 3 * one.calls());
    assert_eq!(sum.losses.incomplete, 3 * one.losses.incomplete);
    assert_eq!(sum.frames.len(), one.frames.len());
    assert_eq!(sum.refused, one.refused);
    assert!(sum.modules.iter().all(|m| m.base.is_none()));
    let ranks: Vec<_> = sum
        .processes
        .iter()
        .map(|p| p.labels.get("rank").cloned())
        .collect();
    assert_eq!(ranks, [Some("1".to_owned()), Some("2".to_owned()), None]);
    let work = sum.functions.iter().find(|f| f.name == "work").unwrap();
    let old = one.functions.iter().find(|f| f.name == "work").unwrap();
    let (wall, was) =
        (|f: &Function| f.totals.counts.timers.get("wall").unwrap().clone()).pair(work, old);
    assert_eq!(wall.sum, 3 * was.sum);
    assert_eq!((wall.min, wall.max), (was.min, was.max));
    let spread = &work.spread.as_ref().unwrap()["wall"];
    assert_eq!(
        (spread.min, spread.max, spread.present),
        (was.sum, was.sum, 3)
    );
    assert_eq!(spread.imbalance, 0.0);
}

/// One function applied to two values.
trait Pair<A, B>: Fn(A) -> B {
    fn pair(&self, a: A, b: A) -> (B, B) {
        (self(a), self(b))
    }
}

impl<A, B, F: Fn(A) -> B> Pair<A, B> for F {}

#[test]
fn a_process_that_differs_is_named() {
    let mut slow = other(7);
    let path = &mut slow.paths[0];
    path.metrics.timers.stats_mut().for_each(|s| {
        s.sum *= 3;
        s.outermost = Some(s.sum);
        s.exclusive = Some(s.sum);
    });
    let (function, was) = (
        path.function,
        sample().paths[3].metrics.timers.get("wall").unwrap().sum,
    );
    let totals = Total::of(slow.paths.iter().filter(|p| p.function == function));
    slow.functions[function].totals.counts = totals.counts;
    let mut without = other(8);
    without.paths.remove(0);
    without.functions[function].totals = {
        let total = Total::of(without.paths.iter().filter(|p| p.function == function));
        crate::profile::FunctionTotals {
            counts: Counts {
                count: total.counts.count,
                timers: [("wall", TimerStats::default())].into_iter().collect(),
            },
            unwound: Some(0),
            open: Some(0),
        }
    };
    without.losses.open = Some(without.losses.open.unwrap_or(0) - 1);
    let parts = [other(1), slow, without];
    let at = |sum: &Profile| {
        let load = sum
            .paths
            .iter()
            .find(|p| sum.functions[p.function].name.starts_with("Store"));
        load.unwrap().spread.as_ref().unwrap()["wall"].clone()
    };
    let sum = merged(&parts);
    let spread = at(&sum);
    assert_eq!((spread.min, spread.max, spread.present), (0, 3 * was, 2));
    assert_eq!(sum.processes[spread.max_process].pid, 7);
    assert!((spread.mean - 4.0 * was as f64 / 3.0).abs() < 1.0);
    assert!(
        (spread.imbalance - 1.25).abs() < 1e-9,
        "{}",
        spread.imbalance
    );
    let told = |sum: &Profile| {
        let load = sum.paths.iter().find_map(|p| p.spread.as_ref());
        crate::report::spread(sum, ("wall", "ns"), load.map(|s| &**s)).unwrap()
    };
    assert!(told(&sum).starts_with("called in 2 of 3 processes: "));
    let mut of_programs = sum.clone();
    of_programs.processes[1].pid = of_programs.processes[0].pid;
    assert!(told(&of_programs).starts_with("called in 2 of 3 programs in 2 processes: "));
    // The order of merging does not matter.
    let [a, b, c] = parts;
    let again = merged(&[merged(&[a, b]), c]);
    assert_eq!(at(&again), spread);
    assert_eq!(again.calls(), sum.calls());
}

#[test]
fn threads_are_added_up() {
    let mut profile = sample();
    let mut second = profile.paths[0].clone();
    profile.paths[0].thread = Some(1);
    second.thread = Some(2);
    profile.paths.push(second);
    let path = profile.paths[0].function;
    let totals = Total::of(profile.paths.iter().filter(|p| p.function == path));
    profile.functions[path].totals.counts = totals.counts;
    profile.check().unwrap();
    let sum = merged(&[profile.clone(), other(2)]);
    assert_eq!(sum.paths.len(), sample().paths.len());
    let spread = &sum.paths[0].spread.as_ref().unwrap()["count"];
    let count = i128::from(profile.paths[0].metrics.count);
    assert_eq!(
        (spread.min, spread.max, spread.present),
        (count, 2 * count, 2)
    );
}

#[test]
fn what_does_not_go_together_is_refused() {
    let mut merger = Merger::default();
    merger.add(&sample()).unwrap();
    let twice = merger.add(&sample()).unwrap_err().to_string();
    assert_eq!(
        twice,
        "the same session of process 4242 on n1 was in another file"
    );
    let mut unit = other(2);
    unit.metrics[1].unit = "bytes".to_owned();
    let units = merger.add(&unit).unwrap_err().to_string();
    assert_eq!(
        units,
        "its `wall` is in `bytes`, but the other profiles have it in `ns`"
    );
    let sum = merger.finish().unwrap();
    assert_eq!((sum.calls(), sum.processes.len()), (sample().calls(), 1));
}

/// If a metric is missing from one profile, the sum notes that not all calls are measured.
#[test]
fn metrics_of_some_are_kept() {
    let counted = counted(2);
    for parts in [[sample(), counted.clone()], [counted.clone(), sample()]] {
        let sum = merged(&parts);
        assert_eq!(sum.metrics, sample().metrics);
        assert!(sum.functions.iter().all(|f| f.measured.is_some()));
        assert!(sum.unmeasured() > 0);
    }
}

/// The calls without a time are added up. They are not known if the function is out in a process.
#[test]
fn throttled_functions_are_added_up() {
    let with = |mut profile: Profile, throttled: Throttled| {
        let first = sample().functions[0].linkage.clone();
        let found = profile.functions.iter_mut().find(|f| f.linkage == first);
        found.unwrap().throttled = Some(throttled);
        profile
    };
    let state = |calls_not_timed, since_ns, how| Throttled {
        calls_not_timed,
        since_ns,
        how,
    };
    let counted = with(sample(), state(Some(3), 70, Throttling::Counted));
    let also = with(other(2), state(Some(4), 50, Throttling::Counted));
    let out = with(other(3), state(None, 90, Throttling::Out));
    for (parts, expected) in [
        (
            vec![counted.clone()],
            state(Some(3), 70, Throttling::Counted),
        ),
        (
            vec![counted.clone(), also, other(4)],
            state(Some(7), 50, Throttling::Counted),
        ),
        (vec![out, counted], state(None, 70, Throttling::Out)),
        (
            vec![
                other(2),
                with(sample(), state(Some(1), 2, Throttling::Counted)),
            ],
            state(Some(1), 2, Throttling::Counted),
        ),
    ] {
        let sum = merged(&parts);
        let first = &sample().functions[0].linkage;
        for function in &sum.functions {
            let throttled = (function.linkage == *first).then_some(expected);
            assert_eq!(function.throttled, throttled, "{}", function.linkage);
        }
    }
}

/// The cost per call is the total cost divided by the calls of all processes, including processes
/// without a cost, in any order of merging.
#[test]
fn what_measuring_takes_is_by_calls() {
    let with = |pid: u32, total_ns: u64, cpu_ns: u64| {
        let mut profile = other(pid);
        profile.session.cpu_ns = Some(cpu_ns);
        profile.session.overhead = Some(Overhead {
            call_ns: total_ns as f64 / profile.calls() as f64,
            total_ns,
            share: total_ns as f64 / cpu_ns as f64,
            libraries_ns: 0,
            corrected: true,
            unreliable: false,
        });
        profile
    };
    let mut idle = with(3, 0, 500);
    idle.session.overhead = None;
    idle.paths.clear();
    for function in &mut idle.functions {
        function.totals.counts.count = 0;
        function.totals.unwound = Some(0);
        function.totals.open = Some(0);
        let stats = function.totals.counts.timers.stats_mut();
        stats.for_each(|stats| *stats = TimerStats::default());
    }
    idle.losses = Losses::default();
    idle.check().unwrap();
    let parts = [with(1, 100, 1000), with(2, 900, 2500), idle];
    let check = |sum: &Profile| {
        let overhead = sum.session.overhead.as_ref().unwrap();
        let calls = sum.calls() as f64;
        assert_eq!(overhead.total_ns, 1000);
        assert!(
            (overhead.call_ns - 1000.0 / calls).abs() < 1e-9,
            "{overhead:?}"
        );
        assert!((overhead.share - 0.25).abs() < 1e-9, "{overhead:?}");
        assert!(
            sum.session
                .notes
                .iter()
                .all(|note| !note.contains("measuring"))
        );
    };
    check(&merged(&parts));
    let [a, b, idle] = parts.clone();
    check(&merged(&[merged(&[idle, b]), a]));
    // If the CPU time of one process is not known, the share is of the time measured in all
    // processes.
    let mut ended = parts.clone();
    ended[1].session.cpu_ns = None;
    ended[1].session.elapsed_ns = 4000;
    ended[1].session.overhead.as_mut().unwrap().share = 900.0 / 4000.0;
    ended[0].session.elapsed_ns = 14_000;
    ended[2].session.elapsed_ns = 2000;
    let [a, b, idle] = ended.clone();
    for sum in [merged(&ended), merged(&[a, merged(&[b, idle])])] {
        let overhead = sum.session.overhead.as_ref().unwrap();
        assert_eq!((overhead.total_ns, sum.session.cpu_ns), (1000, None));
        assert!((overhead.share - 0.05).abs() < 1e-9, "{overhead:?}");
    }
    let mut unknown = other(4);
    unknown.session.overhead = None;
    let notes = merged(&[parts[0].clone(), unknown]).session.notes;
    assert!(
        notes.iter().any(|note| note.contains("measuring")),
        "{notes:?}"
    );
}

/// Exits that read the clock in another way change the times of short calls.
#[test]
fn different_clocks_are_noted_once() {
    let of = |number, clock| {
        let mut profile = other(number);
        profile.session.clock = Some(clock);
        profile
    };
    let (ordered, loose) = (ExitClock::Ordered, ExitClock::Loose);
    for (clocks, notes) in [([ordered, loose, ordered], 1), ([loose; 3], 0)] {
        let parts: Vec<Profile> = (1..).zip(clocks).map(|(n, clock)| of(n, clock)).collect();
        let sum = merged(&parts);
        let about = sum
            .session
            .notes
            .iter()
            .filter(|note| note.contains("--clock"));
        assert_eq!(about.count(), notes);
    }
}

/// Each process has its part of a function, whatever the order and the metrics of the profiles.
#[test]
fn each_process_has_its_part_in_any_order_of_merging() {
    let counted = counted(3);
    let one = sample();
    let was = one.functions.iter().find(|f| f.name == "work").unwrap();
    let (count, wall) = (
        was.totals.counts.count,
        was.totals.counts.timers.get("wall").unwrap().sum,
    );
    let check = |sum: &Profile, pids: &[u32]| {
        let work = sum.functions.iter().find(|f| f.name == "work").unwrap();
        let found: Vec<_> = work
            .processes
            .iter()
            .map(|of| {
                (
                    sum.processes[of.process].pid,
                    of.count,
                    of.sums.get("wall").copied().unwrap_or(0),
                )
            })
            .collect();
        let expected: Vec<_> = pids
            .iter()
            .map(|&pid| (pid, count, if pid == 3 { 0 } else { wall }))
            .collect();
        assert_eq!(found, expected);
    };
    let parts = [other(1), counted, other(2)];
    check(&merged(&parts), &[1, 3, 2]);
    let [a, b, c] = parts;
    let both = merged(&[b, c]);
    check(&merged(&[a.clone(), both.clone()]), &[1, 3, 2]);
    // A sum written by an earlier version does not record the parts.
    let mut earlier = both;
    earlier
        .functions
        .iter_mut()
        .for_each(|f| f.processes.clear());
    check(&merged(&[a, earlier]), &[]);
}

/// Kept apart, each process has the paths that it has alone. Merged again, they add up to the same
/// sum.
#[test]
fn paths_of_each_process_are_kept_apart() {
    let parts = [other(1), other(2), sample()];
    let mut merger = Merger::new(PathsOf::Each);
    for part in &parts {
        merger.add(part).unwrap();
    }
    let apart = merger.finish().unwrap();
    apart.check().unwrap();
    assert_eq!(apart.paths.len(), 3 * sample().paths.len());
    for (index, part) in parts.iter().enumerate() {
        let of_it = apart.paths.iter().filter(|p| p.process == Some(index));
        let counts = |paths: &mut dyn Iterator<Item = &PathEntry>| {
            let mut counts: Vec<u64> = paths.map(|p| p.metrics.count).collect();
            counts.sort_unstable();
            counts
        };
        assert_eq!(counts(&mut { of_it }), counts(&mut part.paths.iter()));
    }
    assert!(apart.paths.iter().all(|path| path.spread.is_none()));
    assert_eq!(merged(&[apart]), merged(&parts));
    // Paths that are already merged stay merged.
    let mut merger = Merger::new(PathsOf::Each);
    merger.add(&merged(&parts)).unwrap();
    merger.add(&other(9)).unwrap();
    let sum = merger.finish().unwrap();
    sum.check().unwrap();
    let known = sum.paths.iter().filter(|path| path.process == Some(3));
    assert_eq!(known.count(), sample().paths.len());
    assert_eq!(sum.paths.len(), 2 * sample().paths.len());
}

/// The denominator of `of run` is the time in which the function was measured, over all processes.
#[test]
fn the_time_of_a_function_is_that_in_each_process() {
    const S: u64 = 1_000_000_000;
    let part = |pid: u32, since: Option<u64>, away: u64| {
        let mut profile = other(pid);
        profile.session.elapsed_ns = 5 * S;
        for function in &mut profile.functions {
            (function.since_ns, function.away_ns) = (since, away);
        }
        profile
    };
    let parts = [
        part(1, Some(S), S),
        part(2, Some(3 * S), 0),
        part(3, Some(2 * S), 0),
    ];
    let check = |sum: &Profile, expected: u64| {
        let wall = sum.timers().find(|metric| metric.name == "wall");
        let presence = sum.functions[0].presence();
        assert_eq!(sum.run_of(wall.unwrap(), presence), Some(expected));
    };
    check(&merged(&parts[..1]), 3 * S);
    check(&merged(&parts), 8 * S);
    let [a, b, c] = parts;
    check(&merged(&[merged(&[a, b]), c]), 8 * S);
    check(&merged(&[part(4, None, 0), part(5, Some(3 * S), 0)]), 7 * S);
}

/// Counts of equal graphs add up. Different graphs of one function are kept apart.
#[test]
fn control_flow_is_added_up_if_the_graph_is_the_same() {
    let with_graphs = |pid: u32| {
        let mut profile = other(pid);
        profile.inside = crate::sample::with_inside().inside;
        for inside in &mut profile.inside {
            inside.function = 1 - inside.function;
        }
        profile.check().unwrap();
        profile
    };
    let first = with_graphs(1);
    let mut second = with_graphs(2);
    second.inside.swap(0, 1);
    // The debug information was not found in the first profile.
    let mut first_without = first.clone();
    for block in &mut first_without.inside[0].blocks {
        (block.file, block.line) = (None, None);
    }
    let sum = merged(&[first_without, second.clone()]);
    assert_eq!(sum.inside.len(), 2);
    for (both, one) in sum.inside.iter().zip(&first.inside) {
        assert_eq!(both.function, one.function);
        assert_eq!(both.uncertain, 2 * one.uncertain);
        for (both, one) in both.blocks.iter().zip(&one.blocks) {
            assert_eq!(both.count, 2 * one.count);
            assert_eq!((&both.file, both.line), (&one.file, one.line));
        }
        let doubled = one.edges.iter().map(|edge| 2 * edge.count);
        assert!(both.edges.iter().map(|edge| edge.count).eq(doubled));
        let doubled = one.loops.iter().map(|l| (2 * l.entries, 2 * l.iterations));
        let in_both = both.loops.iter().map(|l| (l.entries, l.iterations));
        assert!(in_both.eq(doubled));
    }
    second.inside[1].blocks[0].size += 1;
    let sum = merged(&[first.clone(), second, with_graphs(3)]);
    let counts = |count: fn(&crate::profile::Inside) -> u64| -> Vec<(usize, u64)> {
        let all = sum.inside.iter();
        all.map(|inside| (inside.function, count(inside))).collect()
    };
    assert_eq!(
        counts(|inside| inside.blocks[0].count),
        [(1, 2 * 1004), (0, 3 * 100), (1, 1004)]
    );
}
