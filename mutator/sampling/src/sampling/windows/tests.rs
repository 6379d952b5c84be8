use super::super::record::Way;
use super::super::thread::Tally;
use super::*;
use ipath_target::process::Activity;
use ipath_target::process::Pid;
use std::collections::HashSet;

#[test]
fn who_does_much_comes_first_and_leaves_room_for_others() {
    let own = Process::find(Pid(std::process::id() as i32)).unwrap();
    let mut windows = Windows::of(&own, Sight::Whole, Pace::default());
    let mut threads = BTreeMap::new();
    for tid in 1..=8 {
        windows.meet(tid);
        let mut thread = Watched::met(0, Activity::default());
        let turns = if tid > 2 { 1000 } else { 0 };
        let activity = Activity {
            turns,
            ..Activity::default()
        };
        thread.follow(activity, 1, 1.0);
        threads.insert(tid, thread);
    }
    windows.sort(&threads);
    let mut order = Vec::new();
    while let Some(tid) = windows.next(4) {
        windows.open += 1;
        order.push(tid);
    }
    assert_eq!(order, [3, 4, 5, 1, 2, 6, 7, 8]);
}

/// A thread that is at two paths in turn, in no order, which have 70 % and 30 % of its time on a
/// processor and of its waiting. The largest ring holds fewer records than come in a window.
struct Planted {
    now: u64,
    cpu: u64,
    random: u64,
}

impl Planted {
    const ROOM: usize = 120;
    /// Paths on a processor and in a wait, each with its share of a turn in percent.
    const TURN: [(u32, u32, u64); 2] = [(1, 3, 70), (2, 4, 30)];

    /// A number without a pattern.
    fn number(&mut self) -> u64 {
        let next = self.random.wrapping_mul(6_364_136_223_846_793_005);
        self.random = next.wrapping_add(1_442_695_040_888_963_407);
        self.random >> 33
    }

    /// The time of a path in a turn, ns: on average 2 ms for a share of 100 %.
    fn time(&mut self, percent: u64) -> u64 {
        percent * (10_000 + self.number() % 20_000)
    }

    /// Runs in a window of `length`. Records beyond the room of the ring are lost.
    fn run(&mut self, thread: &mut Watched, length: u64) {
        let (period, waits) = rates(thread, length);
        thread.time.begin(Met::Running, self.now);
        thread.window = Some(window(self.now, length));
        let ends = self.now + length;
        let (mut records, mut switches, mut counted) = (0, 0, 0);
        while self.now < ends {
            let (on, off, percent) = Self::TURN[(self.number() % 2) as usize];
            let (ran, waited) = (self.time(percent), self.time(percent));
            let samples = (self.cpu + ran) / period - self.cpu / period;
            self.cpu += ran;
            switches += 1;
            for _ in 0..samples {
                records += 1;
                if records <= Self::ROOM {
                    thread.time.on_processor(on, period);
                }
            }
            let is_sampled = switches % waits == 0;
            records += usize::from(is_sampled);
            if is_sampled && records <= Self::ROOM {
                thread.time.about_to_leave(off, switches - counted);
                counted = switches;
            }
            // A switch is a small record, for which there is room.
            self.now += ran;
            thread.time.switched(self.now, Way::Waits);
            self.now += waited;
            thread.time.switched(self.now, Way::In);
        }
        if records > Self::ROOM {
            thread.time.lost();
            let bytes = MOST_OF_RING + abi::PAGE as usize;
            (thread.ring, thread.thin) = after_loss(thread.thin, bytes);
        }
        thread.close(self.now);
    }
}

fn window(begun: u64, length: u64) -> Window {
    Window {
        events: None,
        begun,
        ends: begun + length,
        prepaid: 0.0,
        counted: 0,
        has_lost: false,
    }
}

/// Beside a thread that is not thinned, whose one path is half of the time of the process.
#[test]
fn thinned_samples_have_true_shares() {
    let mut planted = Planted {
        now: 0,
        cpu: 0,
        random: 1,
    };
    let mut thinned = Watched::met(0, Activity::default());
    thinned.pace.turns = 1000.0;
    for _ in 0..400 {
        planted.run(&mut thinned, LONGEST);
    }
    assert!(thinned.thin > 1, "no record was lost");
    let mut other = Watched::met(0, Activity::default());
    other.time.begin(Met::Running, 0);
    other.window = Some(window(0, planted.now));
    for _ in 0..planted.cpu / PERIOD {
        other.time.on_processor(5, PERIOD);
    }
    other.close(planted.now);
    let mut all = Tally::default();
    for thread in [&thinned, &other] {
        assert!(thread.tell(&mut all, planted.now, |_| HashSet::new()));
    }
    let cpu = |path| all.paths[&path].cpu / all.cpu;
    let waited = |path| all.paths[&path].waited / all.waited;
    let shares = [cpu(1), cpu(2), cpu(5), waited(3), waited(4)];
    for (share, planted) in shares.into_iter().zip([0.35, 0.15, 0.5, 0.7, 0.3]) {
        assert!((share - planted).abs() < 0.03, "{planted}: {shares:?}");
    }
}

#[test]
fn who_switches_often_is_looked_at_for_a_short_while() {
    let length = |turns| {
        length(Pace {
            processor: 0.5,
            turns,
        })
    };
    assert_eq!(length(0.0), LONGEST);
    assert_eq!(length(600.0), 100_000_000);
    assert_eq!(length(500_000.0), SHORTEST);
}
