//! Exports of the sample profile, as other tools read them.

mod executed;
mod loops;

use super::*;
use crate::sample::{sample, with_inside};

fn folded(profile: &Profile, metric: &str, sites: bool) -> String {
    let callers = Callers {
        sites,
        ..Callers::default()
    };
    let mut out = Vec::new();
    to_folded(profile, metric, callers, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn folded_has_a_line_a_path_from_the_root_to_the_function() {
    assert_eq!(
        folded(&sample(), "count", false),
        "__libc_start_main;main;work 900\n\
         __libc_start_main;main;Store::load(int);work 100\n\
         [callers unknown];app+0x1400;work 4\n\
         __libc_start_main;main;Store::load(int) 100\n"
    );
}

/// Calls on paths beyond the limit have no callers. Each format gives the reason.
#[test]
fn callers_beyond_the_limit_of_paths_have_their_reason() {
    let mut profile = sample();
    let path = profile.paths.iter_mut().find(|path| !path.complete);
    path.expect("an incomplete path").stack.clear();
    let reason = "--max-paths reached";
    let folded = folded(&profile, "count", false);
    let line = "[callers unknown: --max-paths reached: see --collapse-recursion];work 4";
    assert!(folded.lines().any(|l| l == line), "{folded}");
    type Export = fn(&Profile, &mut Vec<u8>) -> Result<(), ExportError>;
    let exports: [(&str, Export); 6] = [
        ("flamegraph", |p, out| {
            to_flamegraph(p, None, "count", Callers::default(), out)
        }),
        ("speedscope", |p, out| {
            to_speedscope(p, None, Callers::default(), out)
        }),
        ("callgrind", |p, out| {
            to_callgrind(p, None, Callers::default(), None, out)
        }),
        ("firefox", |p, out| {
            to_firefox(p, "count", Callers::default(), out)
        }),
        ("hatchet", |p, out| {
            to_hatchet(p, None, Callers::default(), out)
        }),
        ("html", |p, out| {
            to_html(p, None, Callers::default(), false, None, out)
        }),
    ];
    for (format, export) in exports {
        let text = |profile: &Profile| {
            let mut out = Vec::new();
            export(profile, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert!(text(&profile).contains(reason), "{format}");
        assert!(!text(&sample()).contains(reason), "{format}");
    }
}

#[test]
fn folded_with_sites_tells_the_calls_of_one_function_apart() {
    assert_eq!(
        folded(&sample(), "count", true).lines().nth(1),
        Some("__libc_start_main+0x7a;main+0x17;Store::load(int)+0x40;work 100")
    );
}

#[test]
fn folded_time_is_exclusive_of_nested_probed_functions() {
    let mut profile = sample();
    let load = &mut profile.paths[3].metrics.timers;
    let mut wall = load.get("wall").unwrap().clone();
    wall.exclusive = Some(790_000_000);
    load.insert("wall", wall);
    let text = folded(&profile, "wall", false);
    assert!(
        text.ends_with("__libc_start_main;main;Store::load(int) 790000000\n"),
        "{text}"
    );
    assert!(
        text.starts_with("__libc_start_main;main;work 90000000\n"),
        "{text}"
    );
}

#[test]
fn folded_names_cannot_break_its_lines() {
    let mut profile = sample();
    profile.functions[0].name = "a;b\nc".to_owned();
    let text = folded(&profile, "count", false);
    assert_eq!(
        text.lines().next(),
        Some("__libc_start_main;main;a:b\\nc 900")
    );
}

#[test]
fn values_below_0_have_no_width() {
    let mut profile = sample();
    let work = &mut profile.paths[0].metrics.timers;
    let mut wall = work.get("wall").unwrap().clone();
    wall.exclusive = Some(-1);
    work.insert("wall", wall);
    let mut out = Vec::new();
    let error = to_folded(&profile, "wall", Callers::default(), &mut out).unwrap_err();
    let cause = "`wall` is negative on some paths, but widths cannot be negative";
    assert_eq!((error.to_string().as_str(), out.len()), (cause, 0));
}

#[test]
fn a_metric_that_was_not_measured_is_named() {
    let error = to_folded(&sample(), "cpu", Callers::default(), &mut Vec::new()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the profile has no metric `cpu`, only count, wall"
    );
}

#[test]
fn json_is_the_profile() {
    let mut out = Vec::new();
    to_json(&sample(), &mut out).unwrap();
    assert_eq!(serde_json::from_slice::<Profile>(&out).unwrap(), sample());
}

fn lcov(profile: &Profile) -> String {
    let mut out = Vec::new();
    to_lcov(profile, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

/// Line 22 has two blocks, whose counts are 11,044 and 10,040. The function without source lines is
/// left out.
#[test]
fn lcov_has_counts_of_lines_branches_and_functions() {
    let expected = "\
TN:
SF:/src/app/app.c
FN:20,work
FNDA:1004,work
FNF:1
FNH:1
BRDA:22,0,0,10040
BRDA:22,0,1,1004
BRDA:23,0,0,30120
BRDA:23,0,1,10040
BRDA:24,0,0,120
BRDA:24,0,1,30000
BRF:6
BRH:6
DA:20,1004
DA:22,11044
DA:23,40160
DA:24,30120
DA:30,1004
LF:5
LH:5
end_of_record
TN:
SF:/src/app/app.h
FNF:0
FNH:0
BRF:0
BRH:0
DA:3,120
LF:1
LH:1
end_of_record
";
    assert_eq!(lcov(&with_inside()), expected);
}

/// Branches of a block that was never executed have no number. Counts of a line in several
/// functions add up.
#[test]
fn lcov_tells_code_that_was_not_executed() {
    let mut profile = with_inside();
    let table = &mut profile.inside[1];
    table.blocks[0].file = Some("/src/app/app.c".to_owned());
    table.blocks[0].line = Some(40);
    table.blocks[1].file = Some("/src/app/app.h".to_owned());
    table.blocks[1].line = Some(3);
    let text = lcov(&profile);
    for line in [
        "FN:40,_ZN5Store4loadEi",
        "BRDA:40,0,2,0",
        "DA:3,180",
        "BRH:8",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
    for inside in &mut profile.inside {
        let counts = inside.blocks.iter_mut().map(|block| &mut block.count);
        let counts = counts.chain(inside.edges.iter_mut().map(|edge| &mut edge.count));
        counts.for_each(|count| *count = 0);
    }
    profile.functions[1].linkage.clear();
    profile.functions[1].name = "load(int, long)".to_owned();
    let text = lcov(&profile);
    for line in [
        "FNDA:0,load(int; long)",
        "BRDA:22,0,1,-",
        "DA:23,0",
        "LH:0",
        "FNH:0",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
}

/// Two graphs of one function are one function. Another one of the same name has its address in
/// its name.
#[test]
fn lcov_has_each_function_once() {
    let mut profile = with_inside();
    let mut twin = profile.functions[0].clone();
    twin.address += 0x100;
    profile.functions.push(twin);
    let one = profile.inside[0].clone();
    let mut of_twin = one.clone();
    of_twin.function = 2;
    of_twin.blocks.iter_mut().for_each(|b| b.address += 0x100);
    profile.inside = vec![one.clone(), of_twin.clone(), one, of_twin];
    let text = lcov(&profile);
    for line in [
        "FNF:2",
        "FNDA:2008,work",
        "FNDA:2008,work@0x12d0",
        "DA:20,4016",
    ] {
        assert!(text.lines().any(|l| l == line), "{line}: {text}");
    }
}

#[test]
fn lcov_needs_source_lines() {
    for profile in [sample(), {
        let mut without = with_inside();
        without.inside.remove(0);
        without
    }] {
        let error = to_lcov(&profile, &mut Vec::new()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("it has no counts of source lines")
        );
    }
}
