//! A program in memory, and documents of its sessions.

use std::sync::{Arc, LazyLock};

use abi::schema::{SCHEMA_COUNT, SCHEMA_WALL};
use ipath_base::files::FileBytes;
use ipath_symbols::images::{self, OpenImage};
use ipath_target::process::maps::parse;
use ipath_target::process::modules::{Module, modules};
use ipath_target::process::{Extent, Mapping, Pid, Process, ProcessError};
use patcher::function::Function;
use patcher::plan::{Allowed, Effects, plan_allowed};
use patcher::{Avma, Bias, Svma};

use super::super::{Change, decide};
use crate::metric::Metric;
use crate::segment::{
    Document, FunctionDoc, KeptDoc, MadeFor, MetricDoc, ModuleDoc, Reach, Role, SchemaDoc, SiteDoc,
    State,
};
use crate::session::candidate::Origin;
use crate::session::{Candidate, Selection, SessionError};

/// `push rbp; mov rbp, rsp; mov eax, 1; mov ecx, 2; pop rbp; ret`.
const PLAIN: [u8; 16] = [
    0x55, 0x48, 0x89, 0xe5, 0xb8, 1, 0, 0, 0, 0xb9, 2, 0, 0, 0, 0x5d, 0xc3,
];
/// `mov eax, 1; mov ecx, 2; jmp rel32`.
const TAIL: [u8; 11] = [0xb8, 1, 0, 0, 0, 0xb9, 2, 0, 0, 0, 0xe9];

/// Address of the code in the file, and as loaded.
const TEXT: u64 = 0x1000;
/// Distance in bytes between the starts of functions.
const EACH: u64 = 0x40;
/// The bias of the program.
pub(super) const BIAS: Bias = Bias(0x5000_0000);
pub(super) const HZ: u64 = 1_000_000_000;

pub(super) const NAMES: [&str; 7] = [
    "plain",
    "caller",
    "other",
    "tiny",
    "__cxa_begin_catch",
    "_dl_debug_state",
    "further",
];

/// An ELF file with these functions: `caller` ends in a tail call of `plain`, and `further` in one
/// of `caller`.
fn file() -> Vec<u8> {
    let mut text = vec![0xcc; EACH as usize * NAMES.len()];
    let mut symbols = vec![0; 24];
    let mut strings = vec![0];
    let mut add = |name: &str, number: usize, code: &[u8]| {
        let at = EACH as usize * number;
        text[at..at + code.len()].copy_from_slice(code);
        symbols.extend((strings.len() as u32).to_le_bytes());
        symbols.extend([0x12, 0, 1, 0]);
        symbols.extend((TEXT + at as u64).to_le_bytes());
        symbols.extend((code.len() as u64).to_le_bytes());
        strings.extend(name.bytes().chain([0]));
    };
    for (number, name) in NAMES.into_iter().enumerate() {
        let tail = |to: usize| {
            let from = EACH as usize * number + TAIL.len() + 4;
            let distance = (EACH as usize * to) as i32 - from as i32;
            [&TAIL[..], &distance.to_le_bytes()].concat()
        };
        match name {
            "caller" => add(name, number, &tail(0)),
            "further" => add(name, number, &tail(1)),
            // Another function follows immediately.
            "tiny" => {
                add(name, number, &[0xc3]);
            }
            _ => add(name, number, &PLAIN),
        }
    }
    let tiny = EACH as usize * 3;
    text[tiny + 1..tiny + 17].copy_from_slice(&PLAIN);
    symbols.extend((strings.len() as u32).to_le_bytes());
    symbols.extend([0x12, 0, 1, 0]);
    symbols.extend((TEXT + tiny as u64 + 1).to_le_bytes());
    symbols.extend((PLAIN.len() as u64).to_le_bytes());
    strings.extend(b"after\0");
    let names = b"\0.text\0.symtab\0.strtab\0".to_vec();
    let symbols_at = TEXT + text.len() as u64;
    let strings_at = symbols_at + symbols.len() as u64;
    let names_at = strings_at + strings.len() as u64;
    let sections_at = (names_at + names.len() as u64).next_multiple_of(8);
    let mut file = b"\x7fELF\x02\x01\x01".to_vec();
    file.resize(16, 0);
    let words = |file: &mut Vec<u8>, words: &[u64]| {
        file.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    };
    file.extend([3, 0, 62, 0, 1, 0, 0, 0]);
    words(&mut file, &[TEXT, 64, sections_at]);
    file.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 4, 0, 3, 0]);
    // The segment: read and execute.
    file.extend([1, 0, 0, 0, 5, 0, 0, 0]);
    let len = text.len() as u64;
    words(&mut file, &[TEXT, TEXT, TEXT, len, len, 0x1000]);
    file.resize(TEXT as usize, 0);
    file.extend(&text);
    file.extend(&symbols);
    file.extend(&strings);
    file.extend(&names);
    file.resize(sections_at as usize, 0);
    let mut section =
        |name: u32, kind: u32, [flags, at, start, size, align, each]: [u64; 6], link: u32| {
            file.extend(name.to_le_bytes());
            file.extend(kind.to_le_bytes());
            words(&mut file, &[flags, at, start, size]);
            file.extend(link.to_le_bytes());
            file.extend([u8::from(kind == 2), 0, 0, 0]);
            words(&mut file, &[align, each]);
        };
    section(0, 0, [0; 6], 0);
    section(1, 1, [6, TEXT, TEXT, len, 16, 0], 0);
    section(7, 2, [0, 0, symbols_at, symbols.len() as u64, 8, 24], 3);
    let all = strings.len() as u64 + names.len() as u64;
    section(15, 3, [0, 0, strings_at, all, 1, 0], 0);
    file
}

/// The program's image.
fn image() -> Arc<OpenImage> {
    static IMAGE: LazyLock<Arc<OpenImage>> = LazyLock::new(|| {
        let key = ("08:01".to_owned(), 77);
        let bytes = || Ok(FileBytes::of_bytes(file()));
        images::of_file(PATH, &key, bytes).expect("an ELF file")
    });
    Arc::clone(&IMAGE)
}

const PATH: &str = "/decided/program";

/// The program as mapped by a process.
pub(super) fn program() -> Vec<Module> {
    image();
    let (start, end) = (BIAS.0 + TEXT, BIAS.0 + TEXT + 0x1000);
    let line = format!("{start:x}-{end:x} r-xp {TEXT:08x} 08:01 77 {PATH}\n");
    // No test inspects this process.
    let process = Process {
        pid: Pid(i32::MAX),
        start_time: 0,
    };
    let program = modules(&process, &parse(&line));
    assert_eq!(program.len(), 1);
    program
}

/// A function of the program.
pub(super) fn function(name: &str) -> Function {
    let found = image().image().functions().with_name(|known| known == name);
    found.into_iter().next().expect("a function of the program")
}

/// The candidate for a pattern that names a function. No jump is punned.
pub(super) fn candidate(name: &str, exits: bool) -> Candidate {
    let allowed = Allowed {
        puns: false,
        ..Allowed::ALL
    };
    planned(name, exits, allowed)
}

/// The candidate in a process that allows these code forms.
pub(super) fn planned(name: &str, exits: bool, allowed: Allowed) -> Candidate {
    let image = image();
    let want = Effects { entry: true, exits };
    let function = function(name);
    let plan = plan_allowed(image.image(), image.context(), &function, want, allowed);
    let origin = Origin {
        module: 0,
        image,
        bias: BIAS,
    };
    Candidate::new(origin, Role::Measured, name.to_owned(), plan)
}

/// A selection of these candidates.
pub(super) fn selection(candidates: Vec<Candidate>) -> Selection {
    Selection::of(candidates, Allowed::ALL)
}

/// A session of the program that counts calls, or measures wall-clock times.
pub(super) fn session(has_times: bool) -> Document {
    let metric = |name: &str| MetricDoc {
        name: name.to_owned(),
        mult: 1,
        ..MetricDoc::default()
    };
    let mut document = Document {
        metrics: vec![metric("count")],
        ..Document::default()
    };
    for (metrics, number) in [(&[][..], SCHEMA_COUNT), (&[Metric::Wall], SCHEMA_WALL)] {
        let schema = SchemaDoc::of(metrics, None, HZ, &[]).expect("a schema");
        assert_eq!(document.number_of(schema).expect("room"), number);
    }
    if has_times {
        document.schema = document.measure(&[Metric::Wall], None, HZ).expect("room");
    }
    document.modules.push(ModuleDoc {
        path: PATH.to_owned(),
        build_id: None,
        bias: BIAS,
        code: Avma(BIAS.0 + TEXT)..Avma(BIAS.0 + TEXT + 0x1000),
        file: ("08:01".to_owned(), 77),
        stamp: image().stamp(),
        is_gone: false,
    });
    document
}

/// Adds a row for a function of the program. Returns its id.
pub(super) fn add(document: &mut Document, name: &str, role: Role, state: State) -> usize {
    let function = function(name);
    let start = BIAS.to_avma(function.range.start);
    let has_exits = document.needs_exits(document.schema) && role == Role::Measured;
    let row = FunctionDoc {
        name: name.to_owned(),
        linkage: name.to_owned(),
        aliases: Vec::new(),
        module: 0,
        address: function.range.start,
        size: function.size(),
        entry: "window".to_owned(),
        exits: vec!["window".to_owned(); usize::from(has_exits)],
        reach: Reach::Whole,
        first_sites: 1,
        remeasured: false,
        since_ns: None,
        out_ns: None,
        away_ns: 0,
        throttled: None,
        clones: Vec::new(),
        inlined: 0,
        role,
        children: None,
        is_phase: false,
        lends: Vec::new(),
        ends: role == Role::Ender || has_exits,
        lending: 0,
        is_lending: false,
        state,
        schema: document.schema,
        values: 0,
        inside: None,
        copy: None,
        carried_by: None,
        generation: 1,
        sites: vec![site(start..start.plus(9))],
    };
    document.functions.push(row);
    document.functions.len() - 1
}

/// Adds a point at an address of the file, and its carrier. Returns both ids, the carrier's first.
pub(super) fn add_point(document: &mut Document, at: Svma, state: State) -> (usize, usize) {
    let carrier = add(document, "other", Role::Carrier, state);
    let point = add(document, "other", Role::Point, state);
    let row = &mut document.functions[point];
    row.address = at;
    row.size = 0;
    row.sites.clear();
    row.carried_by = Some(carrier);
    (carrier, point)
}

pub(super) fn site(window: std::ops::Range<Avma>) -> SiteDoc {
    SiteDoc {
        window,
        landing: Avma(0)..Avma(0),
        trampoline: Extent::from((0x10000, 64)),
        stone: Avma(0),
        kept: KeptDoc::default(),
        patches: Vec::new(),
        trap: false,
        pcs: Vec::new(),
        hook_starts: Vec::new(),
        banked: Vec::new(),
    }
}

/// The limits and the time for schemas in tests.
pub(super) const MADE: MadeFor = MadeFor {
    hz: HZ,
    room: 8,
    now_ns: Some(1),
};

/// Decides without reading mappings.
pub(super) fn decided(document: &Document, selection: Selection) -> Result<Change, SessionError> {
    let maps = || -> Result<Vec<Mapping>, ProcessError> { panic!("no jump is punned") };
    decide(document, selection, &program(), &maps, MADE)
}

/// Like [`decided`], for candidates with the session's metrics.
pub(super) fn change(document: &Document, names: &[&str]) -> Change {
    let exits = document.needs_exits(document.schema);
    let candidates = names.iter().map(|name| candidate(name, exits));
    decided(document, selection(candidates.collect())).expect("a decision")
}

/// The names and roles of a change's new functions, in order.
pub(super) fn fresh(change: &Change) -> Vec<(&str, Role)> {
    let fresh = change.fresh.iter();
    fresh.map(|c| (c.name.as_str(), c.role)).collect()
}
