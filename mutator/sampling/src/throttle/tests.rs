//! Decisions for made-up loads.

use proptest::prelude::*;

use super::*;

/// A function of a made-up program. Its numbers are per second.
#[derive(Clone, Copy, Debug)]
struct Made {
    calls: u64,
    /// The time of a call itself, in nanoseconds.
    each: f64,
    /// The cost of measuring a call in full and of counting it, in nanoseconds.
    cost: [f64; 2],
}

/// A function that is called often, with the costs that the estimates expect.
fn called(calls: u64, each: f64) -> Made {
    Made {
        calls,
        each,
        cost: [66.0, 28.0],
    }
}

/// A program with one thread, which does the work of a second in a second while nothing is
/// measured. The rest of its time is in functions that are not measured.
#[derive(Clone)]
struct World {
    made: Vec<Made>,
    lowered: Vec<Option<Lowered>>,
    load: Load,
}

impl World {
    fn new(made: &[Made]) -> Self {
        let function = |id: usize| FunctionLoad {
            id,
            is_timed: true,
            may_count: true,
            ..FunctionLoad::default()
        };
        Self {
            made: made.to_vec(),
            lowered: vec![None; made.len()],
            load: Load {
                functions: (0..made.len()).map(function).collect(),
                ..Load::default()
            },
        }
    }

    /// The cost of a function's calls in a second of the program's own time, in nanoseconds.
    fn cost(&self, id: usize) -> f64 {
        let [timed, counted] = self.made[id].cost;
        let each = match self.lowered[id] {
            None => timed,
            Some(Lowered::Counted) => counted,
            Some(Lowered::Out) => 0.0,
        };
        self.made[id].calls as f64 * each
    }

    /// The share of the CPU time that measuring takes.
    fn share(&self) -> f64 {
        let cost: f64 = (0..self.made.len()).map(|id| self.cost(id)).sum();
        cost / (1e9 + cost)
    }

    /// The load after the program has run for this time.
    fn run(&mut self, ms: u64) -> Load {
        let passed = ms as f64 / 1e3;
        let cost: f64 = (0..self.made.len()).map(|id| self.cost(id)).sum();
        let own = passed * 1e9 / (1e9 + cost);
        self.load.elapsed_ns += ms * 1_000_000;
        self.load.cpu_ns += ms * 1_000_000;
        let mut seen = 0.0;
        for function in &mut self.load.functions {
            let made = self.made[function.id];
            let lowered = self.lowered[function.id];
            if lowered == Some(Lowered::Out) {
                continue;
            }
            let calls = own * made.calls as f64;
            function.calls += calls as u64;
            let [timed, counted] = made.cost;
            if lowered.is_none() {
                function.own_ns += (calls * made.each) as u64;
            }
            // The runtime does not see its jumps.
            seen += calls
                * if lowered.is_none() {
                    timed - 6.0
                } else {
                    counted - 3.0
                };
        }
        self.load.measuring_ns += seen as u64;
        let is_in = |f: &&FunctionLoad| self.lowered[f.id] != Some(Lowered::Out);
        let mut load = self.load.clone();
        load.functions = self.load.functions.iter().filter(is_in).copied().collect();
        for function in &mut load.functions {
            function.is_timed = self.lowered[function.id].is_none();
        }
        load
    }

    /// Runs for 2 s under a limit. Returns the time until the last change, in ms, and the number of
    /// changes.
    fn under(&mut self, limit: f64) -> (u64, usize) {
        let mut throttle = Throttle::new(limit);
        throttle.begin(self.run(0));
        let (mut pace, mut passed, mut last) = (Pace::default(), 0, (0, 0));
        while passed < 2000 {
            let pause = pace.pause().as_millis() as u64;
            passed += pause;
            let changes = throttle.next(self.run(pause));
            pace.looked(std::time::Duration::ZERO, !changes.is_empty());
            if changes.is_empty() {
                continue;
            }
            last = (passed, last.1 + 1);
            for (id, to) in changes {
                assert!(self.lowered[id] < Some(to), "{id} is measured no less");
                self.lowered[id] = Some(to);
            }
            throttle.begin(self.run(0));
        }
        last
    }
}

#[test]
fn a_tiny_function_goes_at_once() {
    let mut world = World::new(&[called(200_000_000, 2.0), called(50_000, 10_000.0)]);
    let (at, changes) = world.under(0.05);
    assert_eq!(world.lowered, [Some(Lowered::Out), None]);
    assert!(at < 50 && changes == 1, "{at} ms, {changes}");
}

#[test]
fn counting_is_enough_where_it_is_cheap_enough() {
    let mut world = World::new(&[called(1_200_000, 100.0), called(1_000, 100_000.0)]);
    world.under(0.05);
    assert_eq!(world.lowered, [Some(Lowered::Counted), None]);
    assert!(world.share() < 0.05, "{}", world.share());
}

#[test]
fn what_is_under_the_limit_is_not_touched() {
    let mut world = World::new(&[called(600_000, 500.0), called(10_000, 10_000.0)]);
    assert!(world.share() < 0.05);
    assert_eq!(world.under(0.05), (0, 0));
}

#[test]
fn new_paths_are_expensive_only_once() {
    let mut world = World::new(&[called(100_000, 500.0)]);
    let mut throttle = Throttle::new(0.05);
    throttle.begin(world.run(0));
    for paths in [200, 90, 0] {
        world.load.functions[0].paths += paths;
        world.load.measuring_ns += paths * 3_000;
        let load = world.run(4);
        assert_eq!(throttle.next(load), [], "{paths}");
    }
}

#[test]
fn an_idle_process_is_measured() {
    let mut world = World::new(&[called(1000, 100.0)]);
    let mut throttle = Throttle::new(0.05);
    throttle.begin(world.run(0));
    for _ in 0..20 {
        let mut load = world.run(250);
        load.cpu_ns /= 10_000;
        assert_eq!(throttle.next(load), []);
    }
}

/// A thread that loses its processor while it measures seems to measure all the while.
#[test]
fn a_lost_processor_is_no_overhead() {
    let mut world = World::new(&[called(30_000, 1000.0)]);
    let mut throttle = Throttle::new(0.05);
    throttle.begin(world.run(0));
    for _ in 0..20 {
        world.load.measuring_ns += 50_000_000;
        assert_eq!(throttle.next(world.run(100)), []);
    }
}

#[test]
fn a_part_that_cannot_be_counted_is_taken_out() {
    let mut world = World::new(&[called(1_200_000, 100.0)]);
    world.load.functions[0].may_count = false;
    world.under(0.05);
    assert_eq!(world.lowered, [Some(Lowered::Out)]);
}

#[test]
fn the_pauses_grow_until_something_changes() {
    let mut pace = Pace::default();
    let first = pace.pause();
    let mut all = Vec::new();
    for _ in 0..40 {
        all.push(pace.pause());
        pace.looked(std::time::Duration::ZERO, false);
    }
    assert!(all.is_sorted() && all[39] > 50 * first, "{all:?}");
    pace.looked(std::time::Duration::ZERO, true);
    assert_eq!(pace.pause(), first);
    // Looking takes no more than a small part of a processor.
    (0..40).for_each(|_| pace.looked(all[39], false));
    assert!(pace.pause() > 5 * all[39]);
}

fn any_function() -> impl Strategy<Value = Made> {
    let cost = (30.0..400.0, 0.1..0.9_f64);
    (0..40_000_000_u64, 1.0..100_000.0, cost).prop_map(|(calls, each, (timed, part))| Made {
        // No function takes longer than the program.
        calls: calls.min((1e8 / each) as u64),
        each,
        cost: [timed, timed * part],
    })
}

proptest! {
    /// Any program is soon below its limit, or close to it: the estimates are not exact. What is
    /// below it from the start is not touched.
    #[test]
    fn any_program_is_soon_below_the_limit(
        made in prop::collection::vec(any_function(), 1..200),
        limit in 0.01..0.5_f64,
    ) {
        let mut world = World::new(&made);
        let before = world.share();
        let (_, changes) = world.under(limit);
        prop_assert!(world.share() <= 2.0 * limit, "{} of {limit}", world.share());
        if before < limit / 3.0 {
            prop_assert_eq!(changes, 0);
        }
    }

    /// The cost fits the room, and no single change could be taken back.
    #[test]
    fn no_more_than_needed_is_chosen(
        all in prop::collection::vec((0.0..1e6_f64, 0.0..1.0_f64, 0.0..0.1_f64, any::<bool>()), 1..60),
        part in 0.0..1.2_f64,
    ) {
        let candidates: Vec<Candidate> = all.iter().enumerate().map(|(id, &(now, counted, told, is_timed))| Candidate {
            id,
            is_timed,
            may_count: is_timed,
            now,
            counted: now * if is_timed { counted } else { 1.0 },
            told,
        }).collect();
        let whole: f64 = candidates.iter().map(|c| c.now).sum();
        let room = part * whole;
        let changes = choose(candidates.clone(), room);
        let after: f64 = candidates.iter().map(|c| {
            match changes.iter().find(|(id, _)| *id == c.id) {
                None => c.now,
                Some((_, Lowered::Counted)) => c.counted,
                Some((_, Lowered::Out)) => 0.0,
            }
        }).sum();
        prop_assert!(after <= room + 1.0);
        if part >= 1.0 {
            prop_assert!(changes.is_empty());
        }
        for (id, to) in &changes {
            let saved = candidates[*id].now - match to {
                Lowered::Counted => candidates[*id].counted,
                Lowered::Out => 0.0,
            };
            prop_assert!(saved > 0.0);
            prop_assert!(after + saved > room - 1.0, "{id} was not needed");
        }
    }
}
