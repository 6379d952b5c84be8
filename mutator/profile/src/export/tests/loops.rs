//! The loops around calls in exports.

use super::*;
use crate::export::pprof_format;
use crate::profile::{FrameLoop, SingleCall};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The values of each stack of names, the root first. Values of equal stacks are added up.
type Stacks = BTreeMap<Vec<String>, Vec<i128>>;

const LOOPS: Callers = Callers {
    sites: false,
    loops: true,
};

/// The sample with a loop in an inlined function, in two loops of `main`, and a loop without lines.
fn looping() -> Profile {
    let lines = |file: &str, line, end_line, inlined| FrameLoop {
        header: 4700,
        file: Some(format!("/src/app/{file}")),
        line: Some(line),
        end_line: Some(end_line),
        inlined,
    };
    let mut profile = sample();
    profile.frames[0].loops = vec![
        lines("app.h", 2, 4, 1),
        lines("app.c", 11, 13, 0),
        lines("app.c", 9, 20, 0),
    ];
    profile.frames[2].loops = vec![FrameLoop {
        header: 0x1300 - 64 + 0x1f,
        ..FrameLoop::default()
    }];
    profile
}

/// A profile with a single call on its first path.
fn traced(mut profile: Profile) -> Profile {
    let function = profile.paths[0].function;
    profile.functions[function].trace = vec![SingleCall {
        path: 0,
        process: None,
        thread: 7,
        start_ns: 1,
        end_ns: 3,
        wall: 2,
        nested: 0,
        callees: Vec::new(),
        cpu: None,
        args: Vec::new(),
        ret: None,
    }];
    profile
}

/// All files of a folder, one after the other.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn written(name: &str, profile: &Profile, callers: Callers) -> Vec<u8> {
    let asked = Asked {
        callers,
        ..Asked::default()
    };
    let mut out = Vec::new();
    match &format(name).unwrap().writes {
        Writes::File(write) => {
            let result = write(profile, &asked, &mut out);
            let is_missing = matches!(result, Err(ExportError::NoInside | ExportError::NoLines));
            assert!(result.is_ok() || is_missing, "{name}: {result:?}");
        }
        Writes::Folder(_) => {
            let all = Shared::default();
            to_tau(profile, None, callers, |_| Ok(all.clone())).unwrap();
            out.extend(all.0.borrow().iter());
        }
    }
    out
}

fn text(name: &str, callers: Callers) -> String {
    String::from_utf8(written(name, &looping(), callers)).unwrap()
}

fn is_loop(name: &str) -> bool {
    name.starts_with("loop at ")
}

/// Stacks with these values, without the loops. Fails if there is no loop.
fn without_loops(stacks: Vec<(Vec<String>, Vec<i128>)>) -> Stacks {
    let mut all = Stacks::new();
    let mut loops = 0;
    for (mut stack, values) in stacks {
        let before = stack.len();
        stack.retain(|name| !is_loop(name));
        loops += before - stack.len();
        let sums = all.entry(stack).or_insert_with(|| vec![0; values.len()]);
        sums.iter_mut().zip(values).for_each(|(sum, n)| *sum += n);
    }
    assert!(loops > 0);
    all
}

#[test]
fn loops_are_between_their_function_and_the_callee() {
    let text = text("folded", LOOPS);
    let all = "main;loop at app.c:9-20;loop at app.c:11-13;loop at app.h:2-4";
    let first = format!("__libc_start_main;{all};work 90000000\n");
    assert!(text.starts_with(&first), "{text}");
    // Without lines, the function is in the name, because views list names by themselves.
    let load =
        format!("__libc_start_main;{all};Store::load(int);loop at Store::load(int)+0x1f;work");
    assert!(text.contains(&load), "{text}");
    let speedscope = self::text("speedscope", LOOPS);
    let value: Value = serde_json::from_str(&speedscope).unwrap();
    let named = stacks_of_speedscope(&value, 0);
    let inlined = ["loop at app.c:11-13", "helper", "loop at app.h:2-4", "work"];
    assert!(
        named
            .iter()
            .any(|(stack, _)| stack.ends_with(&inlined.map(str::to_owned)))
    );
    let frames = value["shared"]["frames"].as_array().unwrap();
    let frame = |name: &str| frames.iter().find(|frame| frame["name"] == name).unwrap();
    assert_eq!(frame("loop at app.h:2-4")["file"], "/src/app/app.h");
    let sites = Callers {
        sites: true,
        loops: true,
    };
    let text = self::text("folded", sites);
    assert!(text.contains(";main+0x17;loop at app.c:9-20;"), "{text}");
}

fn stacks_of_speedscope(value: &Value, profile: usize) -> Vec<(Vec<String>, Vec<i128>)> {
    let name = |at: &Value| {
        let frame = &value["shared"]["frames"][at.as_u64().unwrap() as usize];
        frame["name"].as_str().unwrap().to_owned()
    };
    let profile = &value["profiles"][profile];
    let samples = profile["samples"].as_array().unwrap().iter();
    let weights = profile["weights"].as_array().unwrap().iter();
    let stack = |stack: &Value| stack.as_array().unwrap().iter().map(name).collect();
    let all = samples.zip(weights);
    all.map(|(s, weight)| (stack(s), vec![weight.as_u64().unwrap().into()]))
        .collect()
}

fn stacks_of_folded(text: &str) -> Vec<(Vec<String>, Vec<i128>)> {
    let line = |line: &str| {
        let (stack, value) = line.rsplit_once(' ').unwrap();
        let stack = stack.split(';').map(str::to_owned).collect();
        (stack, vec![value.parse().unwrap()])
    };
    text.lines().map(line).collect()
}

fn stacks_of_hatchet(text: &str) -> Vec<(Vec<String>, Vec<i128>)> {
    let roots: Value = serde_json::from_str(text).unwrap();
    let mut open: Vec<(Vec<String>, Value)> = Vec::new();
    open.extend(
        roots
            .as_array()
            .unwrap()
            .iter()
            .map(|r| (vec![], r.clone())),
    );
    let mut all = Vec::new();
    while let Some((mut stack, node)) = open.pop() {
        let name = node["frame"]["name"].as_str().unwrap().to_owned();
        let kind = if is_loop(&name) { "loop" } else { "function" };
        assert_eq!(node["frame"]["type"], kind, "{name}");
        stack.push(name);
        let children = node["children"].as_array().unwrap().iter();
        open.extend(children.map(|child| (stack.clone(), child.clone())));
        let own = ["count", "wall"].map(|name| node["metrics"][name].as_i64().unwrap().into());
        all.push((stack, own.to_vec()));
    }
    all
}

fn stacks_of_csv(text: &str) -> Vec<(Vec<String>, Vec<i128>)> {
    let line = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let stack = fields[4].split(';').map(str::to_owned).collect();
        (stack, vec![fields[7].parse().unwrap()])
    };
    text.lines().skip(1).map(line).collect()
}

fn stacks_of_pprof(zipped: &[u8]) -> Vec<(Vec<String>, Vec<i128>)> {
    let mut bytes = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(zipped);
    std::io::Read::read_to_end(&mut reader, &mut bytes).unwrap();
    let made = <pprof_format::Profile as prost::Message>::decode(&bytes[..]).unwrap();
    let name = |line: &pprof_format::Line| {
        let function = &made.function[line.function_id as usize - 1];
        made.string_table[function.name as usize].clone()
    };
    let stack = |sample: &pprof_format::Sample| {
        let ids = sample.location_id.iter().rev();
        let locations = ids.map(|&id| &made.location[id as usize - 1]);
        let lines = locations.flat_map(|location| location.line.iter().rev());
        lines.map(name).collect()
    };
    let samples = made.sample.iter();
    samples
        .map(|s| (stack(s), s.value.iter().map(|&n| n.into()).collect()))
        .collect()
}

/// Without the loops, the stacks and their values are those of the default.
#[test]
fn loops_do_not_change_values() {
    type Read = fn(&[u8]) -> Vec<(Vec<String>, Vec<i128>)>;
    let of_text: fn(&[u8]) -> &str = |bytes| std::str::from_utf8(bytes).unwrap();
    let readers: [(&str, Read); 5] = [
        ("folded", |b| {
            stacks_of_folded(std::str::from_utf8(b).unwrap())
        }),
        ("speedscope", |b| {
            stacks_of_speedscope(&serde_json::from_slice(b).unwrap(), 1)
        }),
        ("hatchet", |b| {
            stacks_of_hatchet(std::str::from_utf8(b).unwrap())
        }),
        ("csv", |b| stacks_of_csv(std::str::from_utf8(b).unwrap())),
        ("pprof", stacks_of_pprof),
    ];
    for (name, read) in readers {
        let with = read(&written(name, &looping(), LOOPS));
        let mut plain = Stacks::new();
        for (stack, values) in read(&written(name, &looping(), Callers::default())) {
            let sums = plain.entry(stack).or_insert_with(|| vec![0; values.len()]);
            sums.iter_mut().zip(values).for_each(|(sum, n)| *sum += n);
        }
        // Nodes of loops have no value of their own.
        assert_eq!(without_loops(with), plain, "{name}");
    }
    let weights = |callers| -> Value {
        let written = written("firefox", &looping(), callers);
        let value: Value = serde_json::from_slice(&written).unwrap();
        value["threads"][0]["samples"]["weight"].clone()
    };
    assert_eq!(weights(LOOPS), weights(Callers::default()));
    // The line of all rows, and the sum below the picture.
    for (name, sum) in [("tau", "TAU application\" 1"), ("flamegraph", " of wall<")] {
        let line = |callers| {
            let written = written(name, &looping(), callers);
            let lines = of_text(&written).lines().map(str::to_owned);
            lines.filter(|line| line.contains(sum)).collect::<Vec<_>>()
        };
        assert!(!line(LOOPS).is_empty(), "{name}");
        assert_eq!(line(LOOPS), line(Callers::default()), "{name}");
    }
}

/// Only the option shows loops, and only in formats that take them.
#[test]
fn loops_are_shown_if_they_are_asked_for() {
    for Format {
        name, takes_loops, ..
    } in &FORMATS
    {
        if *name == "json" {
            continue;
        }
        let plain = written(name, &traced(sample()), Callers::default());
        let looping = traced(looping());
        let without = written(name, &looping, Callers::default());
        assert_eq!(without, plain, "{name}");
        let with = written(name, &looping, LOOPS);
        assert_eq!(with != without, *takes_loops, "{name}");
    }
}
