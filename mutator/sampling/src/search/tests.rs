//! Searches in made-up programs whose costly paths are known.

mod world;

use std::collections::BTreeSet;

use patcher::Avma;
use proptest::prelude::*;

use super::*;
use world::World;

fn cpu(ns: f64) -> Cost {
    Cost { cpu: ns, off: 0.0 }
}

fn off(ns: f64) -> Cost {
    Cost { cpu: 0.0, off: ns }
}

/// The functions of a row, the measured one first.
fn names(row: &Row) -> Vec<u64> {
    let callers = row.callers.iter().map(|site| site.function.0);
    std::iter::once(row.function.0).chain(callers).collect()
}

const MAIN: u64 = 1;

#[test]
fn the_guilty_caller_of_a_utility_is_named() {
    const LOOKUP: u64 = 50;
    let mut world = World::new(MAIN);
    for caller in 10..20 {
        let at = world.call(0, caller, 100, cpu(1e6));
        world.call(at, LOOKUP, 1000, cpu(1e6));
    }
    let slow = world.call(0, 30, 100, cpu(1e6));
    world.call(slow, LOOKUP, 1000, cpu(300e6));
    let found = world.search(BOUNDS, 7);
    assert_eq!(names(&found.rows[0]), [LOOKUP, 30, MAIN]);
    assert_eq!(found.rows.len(), 1);
    assert_eq!((found.rows[0].calls, found.rows[0].paths), (1000, 1));
}

#[test]
fn who_waits_is_found_beside_who_computes() {
    let (barrier, compute) = (60, 61);
    let mut world = World::new(MAIN);
    let (phase, slow) = (
        world.call(0, 40, 100, off(0.0)),
        world.call(0, 41, 100, off(0.0)),
    );
    world.call(phase, barrier, 100, off(3000e6));
    world.call(slow, barrier, 100, off(2e6));
    world.call(slow, compute, 100, cpu(100e6));
    let found = world.search(BOUNDS, 7);
    let all: Vec<_> = found.rows.iter().map(names).collect();
    assert_eq!(all, [[compute, 41, MAIN], [barrier, 40, MAIN]]);
}

/// One path has nearly all of the program's waiting, but the program hardly waits.
#[test]
fn a_short_wait_ranks_below_a_computation() {
    let (write, sort, parse) = (60, 61, 62);
    let mut world = World::new(MAIN);
    let reply = world.call(0, 40, 100, cpu(0.0));
    world.call(reply, write, 100, off(25e6));
    for (function, time) in [(sort, 60e6), (parse, 50e6), (63, 50e6)] {
        world.call(0, function, 100, cpu(time));
    }
    let found = world.search(BOUNDS, 7);
    let first: Vec<u64> = found.rows.iter().map(|row| row.function.0).collect();
    assert_eq!(first[0], sort, "{first:?}");
    assert!(first.contains(&write), "{first:?}");
}

/// The CPU time of beginning and ending waits for work is apart from the work itself.
#[test]
fn waiting_for_work_ranks_below_work() {
    let (epoll, sort) = (60, 61);
    let mut world = World::new(MAIN);
    let idle = world.call(0, epoll, 2000, cpu(90e6));
    world.set_idle(idle);
    world.call(0, sort, 10, cpu(50e6));
    let found = world.search(BOUNDS, 7);
    let all: Vec<_> = found.rows.iter().map(names).collect();
    assert_eq!(all, [[sort, MAIN], [epoll, MAIN]]);
    assert!(found.rows[1].is_idle && found.rows[1].share.cpu > 0.5);
}

/// A function that calls another one at many places is one caller.
#[test]
fn a_caller_with_many_call_sites_is_named() {
    let (digest, report, worker) = (60, 50, 40);
    let site = |function: u64, at: u64| Site {
        function: Avma(function),
        at: Avma(at),
    };
    let path = |at: u64| MeasuredPath {
        callers: vec![site(report, at), site(worker, 1)],
        calls: 10,
        cost: cpu(1e6 + at as f64),
        idle: 0.0,
    };
    let window = Window {
        ns: 1_000_000_000,
        whole: cpu(20e6),
        measured: vec![Measured {
            function: Avma(digest),
            paths: (0..20).map(path).collect(),
        }],
        ..Window::default()
    };
    let rows = rows(&Search::new(BOUNDS), &window);
    assert_eq!(rows.len(), 1);
    assert_eq!(names(&rows[0]), [digest, report, worker]);
    // The call site with the most time stands for all.
    assert_eq!(rows[0].callers[0].at, Avma(19));
    assert_eq!((rows[0].paths, rows[0].calls), (20, 200));
}

/// A recursion by several call sites is one path.
#[test]
fn a_recursion_counts_as_a_whole() {
    let (sort, parse) = (60, 61);
    let mut world = World::new(MAIN);
    let query = world.call(0, 50, 100, cpu(1e6));
    let first = world.call(query, sort, 100, cpu(20e6));
    let left = world.call(first, sort, 100, cpu(20e6));
    world.call(first, sort, 100, cpu(20e6));
    world.call(left, sort, 100, cpu(20e6));
    world.call(0, parse, 100, cpu(30e6));
    let found = world.search(BOUNDS, 7);
    assert_eq!(names(&found.rows[0]), [sort, 50, MAIN]);
    assert!(found.rows[0].share.cpu > 0.7, "{:?}", found.rows[0]);
}

#[test]
fn what_is_called_too_often_goes_and_its_caller_comes() {
    let (tiny, work) = (70, 71);
    let mut world = World::new(MAIN);
    let at = world.call(0, work, 100, cpu(10e6));
    world.call(at, tiny, 50_000_000, cpu(400e6));
    let found = world.search(BOUNDS, 7);
    assert_eq!(names(&found.rows[0]), [work, MAIN]);
    assert!(matches!(
        found.search.dropped()[&Avma(tiny)],
        Dropped::Costly { each, .. } if each == 8.0
    ));
}

/// The limit is a share of the CPU time, but at least a hundredth of a processor.
#[test]
fn a_process_that_is_mostly_idle_keeps_what_it_calls_often() {
    const PARSE: u64 = 70;
    let mut world = World::new(MAIN);
    world.call(0, PARSE, 150_000, cpu(20e6));
    let window = world.window(&[Avma(PARSE)].into(), 1_000_000_000);
    assert!(window.overhead > BOUNDS.max_overhead, "{window:?}");
    let found = world.search(BOUNDS, 7);
    assert_eq!(names(&found.rows[0]), [PARSE, MAIN]);
}

#[test]
fn many_small_functions_are_explained_by_their_caller() {
    let parse = 80;
    let mut world = World::new(MAIN);
    let at = world.call(0, parse, 100, cpu(1e6));
    for small in 100..300 {
        world.call(at, small, 100, cpu(2e6));
    }
    let found = world.search(BOUNDS, 7);
    let all: Vec<_> = found.rows.iter().map(names).collect();
    assert_eq!(all, [[parse, MAIN]]);
}

#[test]
fn a_recursion_is_one_row() {
    let (walk, visit) = (90, 91);
    let mut world = World::new(MAIN);
    let mut at = 0;
    for _ in 0..200 {
        at = world.call(at, walk, 10, cpu(0.0));
        world.call(at, visit, 10, cpu(1e6));
    }
    let found = world.search(BOUNDS, 7);
    assert_eq!(found.rows.len(), 1);
    assert_eq!(names(&found.rows[0])[..2], [visit, walk]);
    // It ends where a tenth of the paths have left it.
    assert_eq!(found.rows[0].paths, 180);
    assert!(!found.rows[0].is_whole);
}

#[test]
fn a_call_that_does_not_return_is_waited_for_and_given_up() {
    let mut world = World::new(MAIN);
    world.call(0, 10, 100, cpu(100e6));
    // In `main` itself, which was called before the search began.
    world.own(0, cpu(100e6));
    let found = world.search(BOUNDS, 7);
    assert_eq!(names(&found.rows[0]), [10, MAIN]);
    assert_eq!(found.search.dropped()[&Avma(MAIN)], Dropped::Unreturned);
    assert!(found.looked_on > 0);
    assert!((found.explained.cpu - 0.5).abs() < 0.01);
}

#[test]
fn within_a_function_nothing_else_is_looked_at() {
    let mut world = World::new(MAIN);
    let named = world.call(0, 10, 100, cpu(1e6));
    let deep = world.call(named, 11, 100, cpu(1e6));
    world.call(deep, 12, 100, cpu(50e6));
    world.call(0, 12, 100, cpu(900e6));
    world.call(0, 20, 100, cpu(900e6));
    let found = world.search_within(BOUNDS, [10], 7);
    assert_eq!(found.rows.len(), 1);
    assert_eq!(names(&found.rows[0]), [12, 11, 10, MAIN]);
    assert!(!found.measured.contains(&Avma(20)));
}

#[test]
fn callers_are_measured_in_the_place_of_a_function_that_was_named() {
    let (tiny, work) = (70, 71);
    let mut world = World::new(MAIN);
    let at = world.call(0, work, 100, cpu(10e6));
    world.call(at, tiny, 50_000_000, cpu(400e6));
    world.call(0, 20, 100, cpu(900e6));
    let found = world.search_within(BOUNDS, [tiny], 7);
    assert!(!found.rows.is_empty(), "{:#?}", found.search);
    assert_eq!(names(&found.rows[0]), [work, MAIN]);
    assert!(!found.measured.contains(&Avma(20)));
    // This also holds if no sample contains it.
    let mut search = Search::within(BOUNDS, [Avma(tiny)]);
    let measured = search.measured().clone();
    let step = search.next(&[], &world.window(&measured, 1_000_000_000));
    assert_eq!(step.add[0].0, Avma(work));
}

#[test]
fn what_cannot_be_instrumented_is_explained_by_its_callers() {
    let mut world = World::new(MAIN);
    let at = world.call(0, 10, 100, cpu(1e6));
    world.call(at, 11, 100, cpu(100e6));
    world.refused.insert(Avma(11));
    let found = world.search(BOUNDS, 7);
    assert_eq!(names(&found.rows[0]), [10, MAIN]);
}

#[test]
fn samples_that_are_wrong_are_corrected() {
    let mut world = World::new(MAIN);
    world.call(0, 10, 100, cpu(100e6));
    world.call(0, 11, 100, cpu(0.0));
    let mut sampled = world.sampled(7, 1000);
    // The samples claim that all time is in a function that costs hardly anything.
    for stack in &mut sampled {
        stack.functions[0] = Avma(11);
    }
    let mut search = Search::new(BOUNDS);
    let step = search.begin(&sampled);
    assert_eq!(step.add[0].0, Avma(11));
    let step = search.next(&sampled, &world.window(search.measured(), BOUNDS.patience));
    assert!(matches!(step.drop[..], [(Avma(11), Dropped::Small(_))]));
}

pub(super) const BOUNDS: Bounds = Bounds {
    min_share: 0.01,
    explain: 0.9,
    most: 16,
    max_overhead: 0.05,
    patience: 8_000_000_000,
};

proptest! {
    /// If one path of a program has most of the time, it is found, however few samples there are.
    #[test]
    fn the_guilty_path_is_found(
        shape in prop::collection::vec((any::<u16>(), 2u64..30, 0.0f64..1.0), 1..60),
        guilty in any::<prop::sample::Index>(),
        waits in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut world = World::random(MAIN, &shape);
        let node = guilty.index(shape.len()) + 1;
        let most = 4.0 * world.all().sum() + 1e6;
        world.own(node, if waits { off(most) } else { cpu(most) });
        let found = world.search(BOUNDS, seed);
        let path = world.path(node);
        // A recursion is one path.
        let recursion = path.windows(2).take_while(|pair| pair[0] == pair[1]).count();
        let path = &path[recursion..];
        // The row names the function itself, or if that alone is too small, one of its callers.
        let names_it = |row: &Row| path.starts_with(&names(row)) || names(row).starts_with(path);
        prop_assert!(found.rows.iter().any(names_it), "{path:?}\n{:#?}", found.rows);
    }

    /// In any program the bounds hold, the search ends, and the result adds up.
    #[test]
    fn the_bounds_hold(
        shape in prop::collection::vec((any::<u16>(), 2u64..40, 0.0f64..1.0), 1..120),
        calls in prop::collection::vec(1u64..10_000_000, 120),
        most in 1usize..8,
        seed in any::<u64>(),
    ) {
        let mut world = World::random(MAIN, &shape);
        world.set_calls(&calls);
        let bounds = Bounds { most, ..BOUNDS };
        let found = world.search(bounds, seed);
        prop_assert!(found.most_measured <= most);
        prop_assert!(!found.is_over || found.search.measured().is_empty());
        let shares: Cost = found.rows.iter().map(|row| row.share).sum();
        prop_assert!(shares.cpu <= 1.0 + 1e-6, "{shares:?}");
        let (mut seen, all) = (BTreeSet::new(), &found.added);
        prop_assert!(all.iter().all(|f| seen.insert(*f)), "twice: {all:?}");
    }

    /// If nothing prevents it, enough is explained.
    #[test]
    fn enough_is_explained(
        shape in prop::collection::vec((any::<u16>(), 2u64..12, 0.1f64..1.0), 1..80),
        seed in any::<u64>(),
    ) {
        let world = World::random(MAIN, &shape);
        let found = world.search(BOUNDS, seed);
        prop_assert!(found.explained.cpu >= 0.9, "{:?}", found.explained);
    }
}
