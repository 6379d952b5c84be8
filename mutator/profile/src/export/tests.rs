//! Exports of the sample profile, as other tools read them.

use super::*;
use crate::sample::sample;

fn folded(profile: &Profile, metric: &str, sites: bool) -> String {
    let mut out = Vec::new();
    to_folded(profile, metric, sites, &mut out).unwrap();
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

/// Calls on paths beyond the limit have no callers. Each format says why.
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
            to_flamegraph(p, None, "count", false, out)
        }),
        ("speedscope", |p, out| to_speedscope(p, None, false, out)),
        ("callgrind", |p, out| to_callgrind(p, None, false, out)),
        ("firefox", |p, out| to_firefox(p, "count", false, out)),
        ("hatchet", |p, out| to_hatchet(p, None, false, out)),
        ("html", |p, out| to_html(p, None, false, false, out)),
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
    let error = to_folded(&profile, "wall", false, &mut out).unwrap_err();
    let cause = "`wall` is negative on some paths, and widths are not";
    assert_eq!((error.to_string().as_str(), out.len()), (cause, 0));
}

#[test]
fn a_metric_that_was_not_measured_is_named() {
    let error = to_folded(&sample(), "cpu", false, &mut Vec::new()).unwrap_err();
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
