//! Profiles for examples and tests.

mod inside;

pub use inside::{with_inside, with_paths};

use crate::profile::*;

fn timer(sum: i128, min: i64, max: i64, hist: &[(u8, u64)]) -> TimerStats {
    TimerStats {
        sum,
        min,
        max,
        outermost: Some(sum),
        exclusive: Some(sum),
        hist: hist.to_vec(),
        hist_negative: Vec::new(),
    }
}

fn frame(module: Option<usize>, address: u64, function: Option<&str>, offset: u64) -> Frame {
    Frame {
        module,
        address,
        function: function.map(str::to_owned),
        offset: function.map(|_| offset),
        ..Frame::default()
    }
}

/// One call path: `(stack, complete, count, unwound, open, wall)`.
type Path<'a> = (&'a [usize], bool, u64, u64, u64, TimerStats);

fn function(profile: &mut Profile, name: &str, linkage: &str, address: u64, paths: &[Path<'_>]) {
    let index = profile.functions.len();
    let mut totals = FunctionTotals {
        counts: Counts::default(),
        unwound: Some(0),
        open: Some(0),
    };
    let mut wall = TimerStats::default();
    let mut closed_before = 0;
    for (stack, complete, count, unwound, open, stats) in paths {
        profile.paths.push(PathEntry {
            function: index,
            stack: stack.to_vec(),
            complete: *complete,
            contradicted: None,
            thread: None,
            process: None,
            phase: None,
            by: None,
            slower: false,
            unwound: Some(*unwound),
            open: Some(*open),
            tail: 0,
            metrics: Counts {
                count: *count,
                timers: [("wall".to_owned(), stats.clone())].into_iter().collect(),
            },
            spread: None,
        });
        totals.counts.count += count;
        totals.unwound = totals.unwound.map(|n| n + unwound);
        totals.open = totals.open.map(|n| n + open);
        let closed = count - unwound - open;
        if closed > 0 {
            wall.absorb(stats, closed_before == 0);
        }
        closed_before += closed;
        let losses = &mut profile.losses;
        losses.unwound = losses.unwound.map(|n| n + unwound);
        losses.open = losses.open.map(|n| n + open);
        losses.incomplete += if *complete { 0 } else { *count };
    }
    wall.hist.clear();
    totals.counts.timers.insert("wall", wall);
    profile.functions.push(Function {
        name: name.to_owned(),
        linkage: linkage.to_owned(),
        module: 0,
        address,
        size: 80,
        file: None,
        line: None,
        entry: "window".to_owned(),
        exits: vec!["window".to_owned(), "padding".to_owned()],
        since_ns: None,
        away_ns: 0,
        measured: None,
        throttled: None,
        aliases: Vec::new(),
        clones: Vec::new(),
        inlined: 0,
        point: false,
        of_loop: None,
        inlined_copy: None,
        timed_paths: false,
        tail: 0,
        is_removed: false,
        only_edges: false,
        totals,
        spread: None,
        processes: Vec::new(),
        slowest: Vec::new(),
        trace: Vec::new(),
    });
}

fn target() -> Target {
    Target {
        pid: 4242,
        exe: "/usr/bin/app".to_owned(),
        args: vec!["app".to_owned(), "--fast".to_owned()],
        host: "n1".to_owned(),
        ..Target::default()
    }
}

fn session() -> Session {
    Session {
        started_unix_ns: 1_700_000_000_000_000_000,
        elapsed_ns: 5_000_000_000,
        clock_hz: 2_596_000_000,
        stops: vec![
            Stop {
                why: "attach".to_owned(),
                ns: 1_200_000,
            },
            Stop {
                why: "add".to_owned(),
                ns: 400_000,
            },
        ],
        ..Session::default()
    }
}

fn modules() -> Vec<Module> {
    vec![
        Module {
            path: "/usr/bin/app".to_owned(),
            started_as: None,
            build_id: Some("ab12".to_owned()),
            base: None,
        },
        Module {
            path: "/usr/lib/libc.so.6".to_owned(),
            started_as: None,
            build_id: None,
            base: None,
        },
    ]
}

fn frames() -> Vec<Frame> {
    let mut main = frame(Some(0), 4711, Some("main"), 23);
    main.file = Some("/src/app/app.c".to_owned());
    main.line = Some(12);
    main.inlined = vec![InlineFrame {
        function: Some("helper".to_owned()),
        file: Some("/src/app/app.h".to_owned()),
        line: Some(3),
    }];
    vec![
        main,
        frame(Some(1), 0x2724a, Some("__libc_start_main"), 122),
        frame(Some(0), 0x1300, Some("_ZN5Store4loadEi"), 64),
        frame(Some(0), 0x1400, None, 0),
    ]
}

/// Two functions of one program: with source positions, an inlined frame, C++ names, code without
/// a symbol, an incomplete path and one that ends in an exception.
pub fn sample() -> Profile {
    let metric = |name: &str, unit: &str| Metric {
        name: name.to_owned(),
        unit: unit.to_owned(),
        since_ns: None,
    };
    let mut profile = Profile::empty(
        target(),
        session(),
        vec![metric(COUNT, "calls"), metric("wall", "ns")],
    );
    profile.ipath = "0.1.0".to_owned();
    profile.losses.unwound = Some(0);
    profile.losses.open = Some(0);
    profile.modules = modules();
    profile.frames = frames();
    function(
        &mut profile,
        "work",
        "work",
        0x11d0,
        &[
            (
                &[0, 1],
                true,
                900,
                0,
                0,
                timer(90_000_000, 80_000, 120_000, &[(16, 900)]),
            ),
            (
                &[2, 0, 1],
                true,
                100,
                2,
                1,
                timer(1_210_000_000, 9_000_000, 15_000_000, &[(23, 97)]),
            ),
            (
                &[3],
                false,
                4,
                0,
                0,
                timer(8_000, 1_900, 2_100, &[(10, 3), (11, 1)]),
            ),
        ],
    );
    function(
        &mut profile,
        "Store::load(int)",
        "_ZN5Store4loadEi",
        0x12c0,
        &[(
            &[0, 1],
            true,
            100,
            0,
            1,
            timer(2_000_000_000, 9_000_000, 40_000_000, &[(24, 99)]),
        )],
    );
    profile.refused = vec![Refused {
        name: "tiny".to_owned(),
        module: 0,
        address: 0x1004,
        reason: "branch-into-window".to_owned(),
    }];
    profile
}

/// The sample with the largest possible numbers.
pub fn largest() -> Profile {
    let mut profile = sample();
    let largest = |counts: &mut Counts| {
        counts.count = u64::MAX;
        let stats = TimerStats {
            sum: i128::MAX,
            min: i64::MAX,
            max: i64::MAX,
            outermost: Some(i128::MAX),
            exclusive: Some(i128::MAX),
            hist: vec![(63, u64::MAX)],
            hist_negative: Vec::new(),
        };
        counts.timers.insert("wall", stats);
    };
    for function in &mut profile.functions {
        largest(&mut function.totals.counts);
    }
    for path in &mut profile.paths {
        largest(&mut path.metrics);
    }
    profile.losses.missed = 1;
    profile
}
