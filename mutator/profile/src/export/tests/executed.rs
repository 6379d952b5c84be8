//! The executions of source lines in formats with calls.

use super::*;
use crate::profile::Inside;
use std::fs;
use std::path::Path;

fn callgrind(profile: &Profile, metric: Option<&str>, code: Option<&Code>) -> String {
    let mut out = Vec::new();
    to_callgrind(profile, metric, Callers::default(), code, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn callgrind_has_the_executions_of_lines_as_an_event() {
    let text = callgrind(&with_inside(), None, Some(&Code::default()));
    let text = text.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/export/goldens/callgrind.txt");
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        fs::write(&path, &text).unwrap();
    }
    assert_eq!(text, fs::read_to_string(&path).unwrap_or_default());
}

/// The other events, and files without the event, are those of a profile without counts inside.
#[test]
fn callgrind_keeps_its_other_events() {
    let plain = callgrind(&sample(), None, None);
    let (profile, code) = (with_inside(), Code::default());
    assert_eq!(callgrind(&profile, None, None), plain);
    assert_eq!(
        callgrind(&profile, Some("wall"), Some(&code)),
        callgrind(&sample(), Some("wall"), None)
    );
    assert_eq!(callgrind(&sample(), None, Some(&code)), plain);
}

/// Numbers of the format have 64 bits.
#[test]
fn sums_of_executions_that_do_not_fit_are_refused() {
    let mut profile = with_inside();
    for block in &mut profile.inside[0].blocks {
        block.count = u64::MAX / 2;
    }
    let code = Some(&Code::default());
    let error = to_callgrind(&profile, None, Callers::default(), code, &mut Vec::new());
    assert!(matches!(error, Err(ExportError::TooLarge(event)) if event == "executed"));
    profile.inside[0].blocks[0].count = u64::MAX;
    let error = to_pprof(&profile, None, Callers::default(), code, &mut Vec::new());
    assert!(matches!(error, Err(ExportError::TooLarge(event)) if event == "executed"));
}

/// A sample for each line has the executions. Those of calls have none, and their other values are
/// unchanged.
#[test]
fn pprof_has_the_executions_of_lines_as_a_sample_type() {
    let message = |profile: &Profile, code: Option<&Code>| {
        let mut zipped = Vec::new();
        to_pprof(profile, None, Callers::default(), code, &mut zipped).unwrap();
        let mut bytes = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(&zipped[..]);
        std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
        <pprof_format::Profile as prost::Message>::decode(&bytes[..]).unwrap()
    };
    let plain = message(&sample(), None);
    let made = message(&with_inside(), Some(&Code::default()));
    let kinds = |of: &pprof_format::Profile| -> Vec<String> {
        let kind = |kind: &pprof_format::ValueType| of.string_table[kind.r#type as usize].clone();
        of.sample_type.iter().map(kind).collect()
    };
    assert_eq!(kinds(&made), ["count", "wall", "executed"]);
    let (calls, lines) = made.sample.split_at(plain.sample.len());
    for (call, plain) in calls.iter().zip(&plain.sample) {
        assert_eq!(call.value.split_last(), Some((&0, &plain.value[..])));
    }
    let line = |sample: &pprof_format::Sample| {
        assert_eq!(sample.value[..2], [0, 0]);
        let of = made
            .location
            .iter()
            .find(|l| l.id == sample.location_id[0])
            .unwrap();
        let function = &made.function[of.line[0].function_id as usize - 1];
        let file = made.string_table[function.filename as usize].as_str();
        (file, of.line[0].line, sample.value[2], of.address)
    };
    let lines: Vec<_> = lines.iter().map(line).collect();
    let (own, header) = ("/src/app/app.c", "/src/app/app.h");
    assert_eq!(lines[1], (own, 22, 11_044, 0x11d9), "{lines:?}");
    assert_eq!(lines[5], (header, 3, 120, 0x11ec), "{lines:?}");
    assert_eq!(lines.len(), 6 + 5, "{lines:?}");
}

/// Counts of a function that no path leads to.
#[test]
fn functions_without_calls_have_their_lines() {
    let mut profile = with_inside();
    let mut alone = profile.functions[0].clone();
    alone.name = "alone".to_owned();
    profile.functions.push(alone);
    let of_alone = |inside: &Inside| Inside {
        function: profile.functions.len() - 1,
        ..inside.clone()
    };
    profile.inside = vec![of_alone(&profile.inside[0])];
    let text = callgrind(&profile, None, Some(&Code::default()));
    let section = text
        .split("\n\n")
        .find(|part| part.contains(") alone\n"))
        .unwrap();
    for line in [
        "fl=/src/app/app.c",
        "22 0 0 11044",
        "fi=/src/app/app.h",
        "3 0 0 120",
    ] {
        assert!(section.lines().any(|l| l == line), "{line}: {section}");
    }
}

/// The counted functions are in the data of a page, escaped like the rest.
#[test]
fn html_has_the_rows_of_counted_functions() {
    let page = |profile: &Profile, code: Option<&Code>| {
        let mut out = Vec::new();
        to_html(profile, None, Callers::default(), false, code, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        let data = text.split_once("id=\"data\">").unwrap().1;
        let data = data.split_once("</script>").unwrap().0;
        serde_json::from_str::<serde_json::Value>(data).unwrap()
    };
    let mut profile = with_inside();
    profile.functions[0].name = "</script><b>".to_owned();
    assert_eq!(page(&profile, None)["inside"], serde_json::json!([]));
    let made = &page(&profile, Some(&Code::default()))["inside"];
    assert_eq!(made[0]["name"], "</script><b>");
    let rows = made[0]["rows"].as_array().unwrap();
    let row = |place: &str| rows.iter().find(|row| row[3] == place).unwrap();
    assert_eq!(row("app.c:23")[1], 40_160);
    let share = row("to block2")[2].as_f64().unwrap();
    assert!((share - 10_040.0 / 11_044.0).abs() < 1e-9, "{share}");
    assert_eq!(made[1]["notes"].as_array().map(Vec::len), Some(2));
    // A block that was never executed has no shares.
    let never = made[1]["rows"].as_array().unwrap();
    let never = never
        .iter()
        .skip_while(|row| row[3] != "block3")
        .nth(1)
        .unwrap();
    assert!(never[2].is_null() && never[1] == 0, "{never}");
}
