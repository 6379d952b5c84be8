use super::super::tests::golden;
use super::*;
use crate::profile::{COUNT, Frame, InlineFrame, Module, PathEntry, Process};
use crate::report::summary;
use crate::sample::sample;
use ipath_base::hint::{CommandLine, hint};
use std::path::Path;

fn shown(profile: &Profile, width: usize, height: usize) -> String {
    let next = hint!("{}", CommandLine::ipath("report profile.json"));
    let mut out = Vec::new();
    answer(profile, Screen { width, height }, Some(&next), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_costliest_path_is_nearest_to_the_prompt() {
    golden("answer", &shown(&sample(), 100, 40));
    let mut counted = sample();
    counted.metrics.retain(|metric| metric.name == COUNT);
    golden("answer-counts", &shown(&counted, 100, 40));
    let mut uncalled = sample();
    uncalled.paths.clear();
    uncalled.functions.clear();
    golden("answer-empty", &shown(&uncalled, 100, 40));
}

/// A caller that consists of functions inlined into each other: standard library functions, in
/// another one, in a function of the program.
fn inlined_library() -> Profile {
    let mut profile = sample();
    profile.paths.truncate(1);
    let inlined = |name: &str| InlineFrame {
        function: Some(name.to_owned()),
        file: Some("/rustc/1/library/core/src/iter.rs".to_owned()),
        line: Some(1),
    };
    let mut add = |name: &str, inlined: Vec<InlineFrame>| {
        profile.frames.push(Frame {
            address: 7000 + profile.frames.len() as u64,
            function: Some(name.to_owned()),
            file: Some("/srv/shop.rs".to_owned()),
            line: Some(9),
            inlined,
            ..profile.frames[0].clone()
        });
        profile.frames.len() - 1
    };
    let folded = || vec![inlined("core::iter::fold"), inlined("core::iter::sum")];
    let stack = vec![
        add("core::slice::sort::insertion_sort_shift_left", folded()),
        add("shop::orders::collect_all_of_them", folded()),
        add("std::panicking::try", Vec::new()),
        add("std::panic::catch_unwind", Vec::new()),
        add("shop::handle", Vec::new()),
    ];
    profile.paths[0].stack = stack;
    profile
}

#[test]
fn the_function_of_the_program_is_named_behind_those_of_libraries() {
    let profile = inlined_library();
    for (width, path) in [
        (90, "_all_of_them < … < shop::handle"),
        (138, "_all_of_them < … < shop::handle"),
        (
            200,
            " < shop::orders::collect_all_of_them < [2 frames of the Rust runtime] < shop::handle",
        ),
    ] {
        let text = shown(&profile, width, 40);
        assert!(!text.contains("std]"), "{width}: {text}");
        let line = text.lines().find(|line| line.contains("  work <"));
        assert!(
            line.is_some_and(|line| line.ends_with(path)),
            "{width}: {text}"
        );
    }
}

/// A profile with `lines` paths through the same functions and different call sites.
fn alike(lines: u32) -> Profile {
    let mut profile = sample();
    profile.paths.truncate(1);
    let path = profile.paths[0].clone();
    for line in 1..lines {
        let frame = Frame {
            address: 5000 + u64::from(line),
            line: Some(100 + line),
            inlined: Vec::new(),
            ..profile.frames[0].clone()
        };
        profile.frames.push(frame);
        let caller = profile.frames.len() - 1;
        profile.paths.push(PathEntry {
            stack: vec![caller, 1],
            ..path.clone()
        });
    }
    profile
}

#[test]
fn paths_of_the_same_functions_show_where_they_call() {
    let text = shown(&alike(4), 100, 40);
    for line in 101..104 {
        assert!(
            text.contains(&format!(" < main at app.c:{line} < ")),
            "{text}"
        );
    }
}

#[test]
fn an_answer_fits_the_screen() {
    let profile = alike(60);
    for (width, height) in [(60, 16), (80, 24), (140, 40), (220, 60)] {
        let text = shown(&profile, width, height);
        let rows = text.lines().map(|line| line.width().div_ceil(width).max(1));
        assert!(rows.sum::<usize>() < height, "{width}x{height}: {text}");
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        let last: Vec<&str> = text.lines().rev().take(2).collect();
        assert_eq!(last[0], "next: ipath report profile.json");
        assert!(last[1].ends_with("calls."), "{text}");
    }
}

/// A time longer than the run is the work of several threads.
#[test]
fn more_than_the_whole_is_a_number_of_threads() {
    let mut profile = sample();
    profile.session.elapsed_ns = 10_000_000;
    let text = shown(&profile, 100, 40);
    assert!(
        text.contains("On average 201x threads") || text.contains("x  "),
        "{text}"
    );
    assert!(!text.contains("00 %"), "{text}");
}

/// The end of `ipath run` for tests/programs/shop.{cc,rs,go} and examples/c/ledger.c, as recorded.
#[test]
fn answers_for_four_languages_fit_three_terminals() {
    for language in ["cc", "rs", "go", "c"] {
        let file = format!("src/report/goldens/profiles/{language}.json");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let profile = Profile::load(&file).unwrap();
        let screens = [(80, 24), (140, 40), (220, 50)].map(|(width, height)| {
            let text = shown(&profile, width, height);
            assert!(text.lines().all(|line| line.width() <= width), "{text}");
            assert!(text.lines().count() < height, "{text}");
            let mut interval = Vec::new();
            summary(&profile, None, Some(width), &mut interval).unwrap();
            let interval = String::from_utf8(interval).unwrap();
            assert!(
                interval.lines().all(|line| line.width() <= width),
                "{interval}"
            );
            format!("{width} columns\n\n{interval}\n{text}\n")
        });
        golden(&format!("screens-{language}"), &screens.concat());
    }
}

/// The answer to a search in which one path of the sample has these times in ms, CPU time and
/// waiting, of the times `of`.
fn searched(cpu: u64, waiting: u64, of: (u64, u64)) -> String {
    let mut profile = sample();
    let share = |part: u64, whole: u64| part as f64 / whole as f64;
    profile.search = Some(SearchResult {
        ns: 1_000_000_000,
        cpu_ns: of.0 * 1_000_000,
        waiting_ns: of.1 * 1_000_000,
        steps: 4,
        paths: vec![FoundPath {
            stack: vec![0],
            paths: 1,
            calls: 1,
            cpu_ns: cpu * 1_000_000,
            waiting_ns: waiting * 1_000_000,
            cpu_share: share(cpu, of.0),
            waiting_share: share(waiting, of.1),
            ..FoundPath::default()
        }],
        ..SearchResult::default()
    });
    shown(&profile, 400, 40)
}

#[test]
fn the_sentence_of_a_search_is_of_the_larger_time() {
    let little = searched(260, 15, (319, 15));
    assert!(
        little.contains("\nIn the best step (1.00 s), 81.5 % of the CPU time is in "),
        "{little}"
    );
    assert!(!little.contains("of the time off"), "{little}");
    let both = searched(260, 100, (319, 200));
    assert!(
        both.contains("\nIn the best step (1.00 s), 81.5 % of the CPU time is in "),
        "{both}"
    );
    let second = " 50.0 % of the time off a processor is in ";
    assert!(both.contains(second), "{both}");
    let waits = searched(10, 900, (319, 1000));
    assert!(
        waits.contains("\nIn the best step (1.00 s), 90.0 % of the time off a processor is in "),
        "{waits}"
    );
    assert!(!waits.contains("of the CPU time is in"), "{waits}");
}

/// A function that several paths reach has callers, though the search names none of them.
#[test]
fn a_function_on_several_paths_is_not_without_a_caller() {
    let mut profile = sample();
    profile.search = Some(SearchResult {
        ns: 1_000_000_000,
        cpu_ns: 1_000_000_000,
        paths: vec![FoundPath {
            paths: 5,
            calls: 5,
            cpu_ns: 900_000_000,
            cpu_share: 0.9,
            ..FoundPath::default()
        }],
        ..SearchResult::default()
    });
    let text = shown(&profile, 400, 40);
    assert!(!text.contains("no caller"), "{text}");
    assert!(text.contains(" < [5 paths]"), "{text}");
    assert!(text.contains("is in work, on several paths"), "{text}");
}

/// A measured library function, called by other functions of the library and by the program.
fn through_library() -> Profile {
    let mut profile = sample();
    profile.paths.truncate(1);
    profile.functions[0].name =
        "std::shared_ptr<shop::Connection> shop::BoundedBlockingQueue<std::shared_ptr<shop::Connection> >::push(std::shared_ptr<shop::Connection> const&, std::chrono::duration<long>)"
            .to_owned();
    let template = profile.frames[0].clone();
    let names = [
        (
            "_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJRKiEEEvN9__gnu_cxx17__normal_iteratorIPiS1_EEDpOT_",
            "/src/shop",
        ),
        (
            "operator new(unsigned long)",
            "/usr/lib/x86_64-linux-gnu/libstdc++.so.6",
        ),
        (
            "_ZN4shop23recommend_for_everybodyERNS_5CacheERKSt6vectorISsSaISsEE",
            "/src/shop",
        ),
        ("main", "/src/shop"),
    ];
    let path = &mut profile.paths[0];
    path.stack.clear();
    for (number, (name, file)) in names.into_iter().enumerate() {
        let module = profile
            .modules
            .iter()
            .position(|module| module.path == file);
        let module = module.unwrap_or_else(|| {
            profile.modules.push(Module {
                path: file.to_owned(),
                ..profile.modules[0].clone()
            });
            profile.modules.len() - 1
        });
        path.stack.push(profile.frames.len());
        profile.frames.push(Frame {
            address: 9000 + number as u64,
            module: Some(module),
            function: Some(name.to_owned()),
            inlined: Vec::new(),
            ..template.clone()
        });
    }
    (path.complete, path.thread) = (true, Some(4242));
    path.open = Some(3);
    path.metrics.count = 7_012_000;
    profile
}

/// The lines of the table.
fn table(text: &str) -> Vec<&str> {
    let lines = text.lines().skip_while(|line| !line.ends_with("  PATH"));
    lines.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn a_row_keeps_its_function_and_its_first_own_caller() {
    let profile = through_library();
    for width in [80, 100, 140, 220] {
        let text = shown(&profile, width, 24);
        let table = table(&text);
        let row = table[1];
        assert!(row.contains("push"), "{width}: {text}");
        assert!(
            row.contains("ecommend_for") || row.contains("_everybody"),
            "{width}: {text}"
        );
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        // Remarks are on the row or below it.
        assert!(
            table.concat().contains("3 still running"),
            "{width}: {text}"
        );
    }
    let narrow = shown(&profile, 80, 24);
    let below = table(&narrow)[2];
    assert!(below.trim_start().starts_with("thread 4242"), "{narrow}");
}

/// The sentence names the first caller that is not a library function.
#[test]
fn the_sentence_names_the_first_own_caller() {
    let text = shown(&through_library(), 400, 24);
    assert!(
        text.contains(", reached from shop::recommend_for_everybody"),
        "{text}"
    );
}

#[test]
fn every_metric_has_a_column_or_stands_below_the_path() {
    let mut profile = sample();
    let wall = profile.metrics.iter().find(|metric| metric.name == "wall");
    let wall = wall.unwrap().clone();
    let further = ["cpu", "blocked", "run-delay", "cycles"];
    for name in further {
        let name = name.to_owned();
        profile.metrics.retain(|metric| metric.name != name);
        profile.metrics.push(Metric {
            name,
            ..wall.clone()
        });
        for path in &mut profile.paths {
            let stats = path.metrics.timers.get("wall").cloned();
            let stats = stats.unwrap_or_default();
            path.metrics
                .timers
                .insert(further[profile.metrics.len() % 4].to_owned(), stats);
        }
    }
    for width in [80, 100, 140, 220] {
        let text = shown(&profile, width, 24);
        let headings = table(&text)[0];
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
        let rows = table(&text).join(" ");
        let rows: Vec<&str> = rows.split_whitespace().collect();
        for name in ["cpu", "off-cpu", "run-delay", "cycles"] {
            let heading = format!(" {} TOTAL", name.to_uppercase());
            assert!(
                headings.contains(&heading) != rows.contains(&name),
                "{width}, {name}: {text}"
            );
        }
    }
}

/// A note explains the mark only if a row has the mark.
#[test]
fn a_note_on_a_mark_is_beside_a_marked_row() {
    let mut profile = alike(8);
    profile.losses = Default::default();
    let last = profile.paths.len() - 1;
    for path in &mut profile.paths {
        path.unwound = None;
    }
    let stats = profile.paths[last].metrics.timers.stats_mut();
    stats.for_each(|stats| stats.sum = 1);
    profile.paths[last].tail = 3;
    profile.functions[profile.paths[last].function].tail = 3;
    for (height, is_seen) in [(14, false), (40, true)] {
        let text = shown(&profile, 100, height);
        let is_marked = table(&text).iter().any(|line| line.contains('≥'));
        assert_eq!(is_marked, is_seen, "{text}");
        assert!(
            text.contains("3 calls left by a tail call, timed without"),
            "{text}"
        );
        assert_eq!(text.contains("marked ≥"), is_marked, "{text}");
    }
}

/// The sentence names the function of the program that locks, and the lock.
#[test]
fn a_service_is_named_by_what_the_program_calls() {
    let mut profile = sample();
    profile.functions[0].name = "syscall".to_owned();
    profile.functions[0].module = profile.modules.len();
    profile.modules.push(Module {
        path: "/lib/libc.so.6".to_owned(),
        ..profile.modules[0].clone()
    });
    let frame = |function: &str, address: u64| Frame {
        function: Some(function.to_owned()),
        address,
        inlined: Vec::new(),
        ..profile.frames[0].clone()
    };
    let contended = "<std::sys::sync::mutex::futex::Mutex>::lock_contended";
    let frames = [frame(contended, 70), frame("app::query", 80)];
    profile.frames.extend(frames);
    let at = profile.frames.len() - 2;
    profile.search = Some(SearchResult {
        ns: 1_000_000_000,
        cpu_ns: 1_000_000,
        waiting_ns: 100_000_000,
        paths: vec![FoundPath {
            stack: vec![at, at + 1],
            complete: true,
            paths: 1,
            calls: 1,
            waiting_ns: 90_000_000,
            waiting_share: 0.9,
            ..FoundPath::default()
        }],
        ..SearchResult::default()
    });
    let text = shown(&profile, 400, 40);
    let sentence = "lock_contended (syscall), called by app::query at app.c:";
    assert!(text.contains(sentence), "{text}");
}

/// Paths on which threads wait for work do not explain a long run time.
#[test]
fn an_idle_path_is_not_in_the_sentence() {
    let mut profile = sample();
    let path = |cpu: u64, waiting: u64, function: usize, idle: bool| FoundPath {
        function,
        paths: 1,
        calls: 1,
        cpu_ns: cpu * 1_000_000,
        waiting_ns: waiting * 1_000_000,
        cpu_share: cpu as f64 / 100.0,
        waiting_share: waiting as f64 / 200.0,
        idle,
        ..FoundPath::default()
    };
    profile.search = Some(SearchResult {
        ns: 1_000_000_000,
        cpu_ns: 100_000_000,
        waiting_ns: 200_000_000,
        paths: vec![path(30, 180, 0, false), path(60, 0, 1, true)],
        ..SearchResult::default()
    });
    let text = shown(&profile, 400, 40);
    assert!(
        text.contains("90.0 % of the time off a processor is in "),
        "{text}"
    );
    assert!(text.contains(" 30.0 % of the CPU time is in "), "{text}");
    assert!(!text.contains("60.0 % of the CPU time is in "), "{text}");
}

/// Shares of several processes are of the sum of their times.
#[test]
fn shares_of_several_processes_are_of_all_of_them() {
    let mut profile = sample();
    let process = |pid: u32| Process {
        pid,
        elapsed_ns: profile.session.elapsed_ns,
        ..Process::default()
    };
    profile.processes = vec![process(1), process(2)];
    let text = shown(&profile, 400, 40);
    assert!(
        text.contains("\n20.0 % of the time of all 2 processes is in "),
        "{text}"
    );
    profile
        .processes
        .iter_mut()
        .for_each(|process| process.elapsed_ns = 1_000_000);
    let text = shown(&profile, 400, 40);
    assert!(
        text.contains(" threads at a time of each process are in "),
        "{text}"
    );
}

/// Functions with equal names show the line of their definition, or their address.
#[test]
fn functions_of_one_name_show_where_they_are() {
    let mut profile = sample();
    let lines = [Some(45), Some(60)];
    for (function, line) in profile.functions.iter_mut().zip(lines) {
        function.name = "main::{{closure}}".to_owned();
        (function.file, function.line) = (Some("/src/shop.rs".to_owned()), line);
    }
    for width in [80, 140] {
        let text = shown(&profile, width, 40);
        for place in ["{{closure}} (shop.rs:45) < ", "{{closure}} (shop.rs:60) < "] {
            let rows = table(&text).concat();
            assert!(rows.contains(place), "{width}: {text}");
        }
        assert!(text.lines().all(|line| line.width() <= width), "{text}");
    }
    profile.functions[1].line = Some(45);
    let text = shown(&profile, 100, 40);
    let address = format!(
        "main::{{{{closure}}}} (app+{:#x}) < ",
        profile.functions[1].address
    );
    assert!(text.contains(&address), "{text}");
}
