//! Compares updated profiles with profiles built from scratch, in a segment that changes at random.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use abi::cause::Cause;
use abi::segment::{
    Column, FIRST_NODE, NODE_IS_PATH, ROOT_COMPLETE, ROOT_CUT, ROOT_OVERFLOW, RecordHead,
};
use patcher::{Avma, Bias, Svma};
use proptest::prelude::*;

use super::*;
use crate::metric::Metric;
use crate::segment::{Document, FunctionDoc, MetricDoc, ModuleDoc, Segment, Shape, State};
use ipath_base::files::Stamp;
use ipath_profile::PathEntry;
use ipath_target::process::identity::FileId;
use ipath_target::process::{Pid, Process};

const FUNCTIONS: usize = 3;
const NAMES: [&str; 4] = ["wall", "cpu", "blocked", "arg1"];

/// A session in which the test writes the counters in place of a target.
struct Session {
    segment: Segment,
    document: Document,
    process: Process,
    schemas: Vec<u8>,
}

impl Session {
    fn new(per_thread: bool, has_heir: bool) -> Self {
        static SESSIONS: AtomicU64 = AtomicU64::new(0);
        let process = Process {
            pid: Pid(std::process::id() as i32),
            start_time: 900_000 + SESSIONS.fetch_add(1, SeqCst),
        };
        let shape = Shape {
            max_paths: 100,
            columns: 8,
            keeps_single: false,
        };
        let (segment, _) = Segment::create(&process, &shape).expect("created");
        segment.remove_name();
        let metric = |name: &str| MetricDoc {
            name: name.to_owned(),
            mult: 3,
            shift: 1,
            is_value: name == "arg1",
            ..MetricDoc::default()
        };
        let mut document = Document {
            metrics: ["count"].iter().chain(&NAMES).map(|n| metric(n)).collect(),
            per_thread,
            modules: vec![ModuleDoc {
                path: "/no/file".to_owned(),
                build_id: None,
                bias: Bias::between(Svma(0), Avma(0)),
                code: Avma(0)..Avma(1),
                file: FileId::default(),
                stamp: Stamp::default(),
                is_gone: false,
            }],
            ..Document::default()
        };
        let metrics = |names: &[&str]| -> Vec<Metric> {
            let named = names.iter().map(|name| Metric::named(name));
            named.map(|metric| metric.expect("known")).collect()
        };
        let lists = [&["wall"][..], &["wall", "cpu", "blocked"], &["arg1"], &[]];
        let schemas = lists.map(|names| document.measure(&metrics(names), None, 1).expect("room"));
        document.functions = (0..FUNCTIONS).map(function).collect();
        if has_heir {
            let mut retired = function(1);
            retired.state = State::Retired;
            document.functions.push(retired);
        }
        for (index, node) in [ROOT_COMPLETE, ROOT_CUT, ROOT_OVERFLOW, Cause::ALL[0] as u32]
            .into_iter()
            .enumerate()
        {
            let caller = FIRST_NODE + index as u32;
            put_node(&segment, caller, 0x1000 + u64::from(node), node, 1);
        }
        Self {
            segment,
            document,
            process,
            schemas: schemas.to_vec(),
        }
    }

    fn measured(&self) -> Measured<'_> {
        Measured {
            segment: &self.segment,
            document: &self.document,
            process: &self.process,
            is_in_target: false,
            is_replaced: false,
        }
    }

    fn records(&self) -> u64 {
        self.segment.header().records_used.load(Relaxed)
    }

    /// Acts like the runtime.
    fn act(&self, act: &Act) {
        match *act {
            Act::New {
                function,
                end,
                thread,
                schema,
            } => self.begin(function, end, thread, schema),
            Act::Enter(record) => self.with(record, |_, head| add(&head.entered, 1)),
            Act::Unwind(record) => self.with(record, |_, head| {
                add(&head.entered, 1);
                add(&head.unwound, 1);
            }),
            Act::Half(record) => self.with(record, |index, head| {
                // A writer that stands still in the middle has not reached all of the columns.
                let schema = &self.document.schemas[usize::from(head.schema.load(Relaxed))];
                if head.sequence.load(Relaxed) % 2 == 1 && !schema.columns.is_empty() {
                    count(self.segment.column(index, 0).expect("there"), 1);
                }
            }),
            Act::Narrow(record) => self.with(record, |index, head| {
                // The minimum grows, as after another reading was repaired.
                let column = self.segment.column(index, 0).expect("there");
                let least = column.min.load(Relaxed);
                if least < 250 {
                    column.min.store(least + 7, Relaxed);
                    column.max.fetch_max(least + 7, Relaxed);
                    add(&head.entered, 1);
                }
            }),
            Act::Move(from, to) => {
                self.with(from, |_, head| add(&head.moved_out, 1));
                self.with(to, |_, head| add(&head.moved_in, 1));
            }
            Act::Close {
                record,
                value,
                is_tail,
                is_whole,
            } => self.with(record, |index, head| {
                let sequence = head.sequence.load(Relaxed) | 1;
                head.sequence.store(sequence, Relaxed);
                add(&head.entered, 1);
                add(&head.closed, 1);
                add(&head.tail, is_tail.into());
                let number = head.schema.load(Relaxed);
                let schema = &self.document.schemas[usize::from(number)];
                for number in 0..schema.columns.len() {
                    let column = self.segment.column(index, number).expect("there");
                    // Not every column has a number for every call.
                    if number == 0 || value % 3 == 0 {
                        count(column, value / (number as u64 + 1));
                    }
                }
                if is_whole {
                    head.sequence.store(sequence + 1, Relaxed);
                }
            }),
        }
    }

    fn begin(&self, function: usize, end: u32, thread: u32, schema: usize) {
        let index = self.records();
        let head = self.segment.record(index).expect("room");
        // Each path has its own leaf, and the records of one path share it.
        let leaf = FIRST_NODE + 10 + end * 8 + function as u32;
        let parent = match end {
            4 => ROOT_OVERFLOW,
            end => FIRST_NODE + end,
        };
        put_node(
            &self.segment,
            leaf,
            NODE_IS_PATH | function as u64,
            parent,
            1,
        );
        let schema = self.schemas[schema];
        head.schema.store(schema, Relaxed);
        head.tid.store(thread, Relaxed);
        head.thread.store(thread as u16, Relaxed);
        for number in 0..self.document.schemas[usize::from(schema)].columns.len() {
            let column = self.segment.column(index, number).expect("there");
            column.min.store(u64::MAX, Relaxed);
        }
        self.segment.header().records_used.store(index + 1, Relaxed);
        head.path.store(leaf, Relaxed);
    }

    fn with(&self, record: usize, act: impl FnOnce(u64, &RecordHead)) {
        if let Some(index) = (record as u64).checked_rem(self.records()) {
            act(index, self.segment.record(index).expect("there"));
        }
    }
}

fn function(id: usize) -> FunctionDoc {
    let text = format!(
        r#"{{"name": "f{id}", "linkage": "f{id}", "aliases": [], "module": 0, "address": {id}, "size": 1, "entry": "window",
        "exits": ["window"], "reach": "{}", "role": "Measured", "state": "In", "generation": 1, "sites": []}}"#,
        if id == 2 { "Entry" } else { "Whole" }
    );
    serde_json::from_str(&text).expect("a function")
}

fn put_node(segment: &Segment, index: u32, key: u64, parent: u32, depth: u32) {
    let node = segment.node(index).expect("room");
    node.key.store(key, Relaxed);
    node.parent.store(parent, Relaxed);
    node.depth.store(depth, Relaxed);
}

fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Relaxed);
}

fn count(column: &Column, value: u64) {
    add(&column.sum, value);
    add(&column.outermost, value);
    add(&column.exclusive, value / 2);
    column.min.fetch_min(value, Relaxed);
    column.max.fetch_max(value, Relaxed);
    let bucket = (value | 1).ilog2().min(7) as usize;
    column.buckets[bucket].fetch_add(1, Relaxed);
}

#[derive(Clone, Debug)]
enum Act {
    New {
        function: usize,
        end: u32,
        thread: u32,
        schema: usize,
    },
    Enter(usize),
    Unwind(usize),
    Half(usize),
    Narrow(usize),
    Move(usize, usize),
    Close {
        record: usize,
        value: u64,
        is_tail: bool,
        is_whole: bool,
    },
}

fn act(functions: usize) -> impl Strategy<Value = Act> {
    let record = || 0usize..60;
    let new = (0..functions, 0u32..5, 1u32..4, 0usize..4);
    let close = (
        record(),
        0u64..300,
        any::<bool>(),
        prop::bool::weighted(0.9),
    );
    prop_oneof![
        2 => new.prop_map(|(function, end, thread, schema)| Act::New {
            function,
            end,
            thread,
            schema,
        }),
        2 => record().prop_map(Act::Enter),
        1 => record().prop_map(Act::Unwind),
        2 => record().prop_map(Act::Half),
        1 => record().prop_map(Act::Narrow),
        1 => (record(), record()).prop_map(|(from, to)| Act::Move(from, to)),
        6 => close.prop_map(|(record, value, is_tail, is_whole)| Act::Close {
            record,
            value,
            is_tail,
            is_whole,
        }),
    ]
}

/// Identifies a path: its function, the addresses of its frames, and its thread.
type Identity = (usize, Vec<u64>, Option<u32>);

fn identity(profile: &Profile, path: &PathEntry) -> Identity {
    let frames = path
        .stack
        .iter()
        .map(|&frame| profile.frames[frame].address);
    (path.function, frames.collect(), path.thread)
}

/// The profile in a form that does not depend on time or on the order of paths and frames.
fn settled(profile: &Profile) -> (Profile, Vec<(Identity, PathEntry)>) {
    let mut profile = profile.clone();
    let mut paths: Vec<(Identity, PathEntry)> = Vec::new();
    for path in &profile.paths {
        let mut same = path.clone();
        same.stack.clear();
        paths.push((identity(&profile, path), same));
    }
    paths.sort_by(|(a, _), (b, _)| a.cmp(b));
    profile.session.elapsed_ns = 0;
    profile.session.overhead = None;
    profile.paths.clear();
    profile.frames.sort_by_key(|frame| frame.address);
    (profile, paths)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_look_finds_what_a_whole_build_does(
        per_thread in any::<bool>(),
        has_heir in any::<bool>(),
        rounds in prop::collection::vec(prop::collection::vec(act(FUNCTIONS + 1), 0..25), 1..8),
    ) {
        let session = Session::new(per_thread, has_heir);
        let mut collector = Collector::default();
        let mut before: Option<Profile> = None;
        for (nth, acts) in rounds.iter().enumerate() {
            acts.iter().for_each(|act| session.act(act));
            let (profile, changed) = collector.look_at(session.measured(), 7);
            let whole = Collector::default().profile_of(session.measured());
            let (found, wanted) = (settled(profile), settled(&whole));
            prop_assert_eq!(found, wanted);
            prop_assert!(profile.check_structure().is_ok());
            match (nth, changed, before.replace(profile.clone())) {
                (0, Changed::All, None) => {}
                (_, Changed::Paths(changed), Some(before)) => {
                    prop_assert!(changed.is_sorted());
                    for (index, path) in profile.paths.iter().enumerate() {
                        let is_told = changed.binary_search(&(index as u32)).is_ok();
                        prop_assert!(is_told || before.paths.get(index) == Some(path));
                    }
                    prop_assert!(profile.frames.starts_with(&before.frames));
                }
                (_, changed, _) => prop_assert!(false, "round {}: {:?}", nth, changed),
            }
        }
    }
}

/// Looks at a session with a collector. The result must be the same as with a new collector.
fn look(collector: &mut Collector, session: &Session, reading: u64) -> (Profile, Changed) {
    let (profile, changed) = collector.look_at(session.measured(), reading);
    let whole = Collector::default().profile_of(session.measured());
    assert_eq!(settled(profile), settled(&whole));
    (profile.clone(), changed)
}

#[test]
fn a_writer_that_stands_in_the_middle_is_read_again_and_no_other() {
    let session = Session::new(false, false);
    let mut collector = Collector::default();
    let close = |is_whole| Act::Close {
        record: 0,
        value: 40,
        is_tail: false,
        is_whole,
    };
    session.begin(0, 0, 1, 0);
    session.act(&close(true));
    assert_eq!(look(&mut collector, &session, 1).1, Changed::All);
    assert_eq!(look(&mut collector, &session, 1).1, Changed::Paths(vec![]));
    session.act(&close(false));
    let (before, changed) = look(&mut collector, &session, 1);
    assert_eq!(changed, Changed::Paths(vec![0]));
    session.act(&Act::Half(0));
    let (after, changed) = look(&mut collector, &session, 1);
    assert_eq!(changed, Changed::Paths(vec![0]));
    assert_ne!(before.paths, after.paths);
}

#[test]
fn another_document_and_records_of_other_paths_are_begun_anew() {
    let mut session = Session::new(true, false);
    let mut collector = Collector::default();
    session.begin(0, 0, 1, 0);
    session.begin(1, 0, 1, 0);
    assert_eq!(look(&mut collector, &session, 1).1, Changed::All);
    session.document.functions[0].state = State::Retired;
    let (profile, changed) = look(&mut collector, &session, 2);
    assert_eq!((profile.paths.len(), changed), (1, Changed::All));
    session.with(1, |_, head| head.tid.store(9, Relaxed));
    let (profile, changed) = look(&mut collector, &session, 2);
    assert_eq!((profile.paths[0].thread, changed), (Some(9), Changed::All));
}

#[test]
fn further_paths_of_a_function_share_one_where_there_are_too_many_frames() {
    let session = Session::new(false, false);
    let mut collector = Collector::default();
    for end in 0..4 {
        session.begin(0, end, 1, 0);
        let leaf = session
            .segment
            .record(end.into())
            .expect("there")
            .path
            .load(Relaxed);
        // More than half of the frames that there is room for.
        put_node(
            &session.segment,
            leaf,
            NODE_IS_PATH,
            FIRST_NODE + end,
            (1 << 23) + 1,
        );
        session.act(&Act::Enter(end as usize));
        let (profile, _) = look(&mut collector, &session, 1);
        assert_eq!(profile.paths.len(), (end as usize + 1).min(2));
        assert_eq!(profile.losses.overflow, u64::from(end));
        assert_eq!(profile.calls(), u64::from(end) + 1);
    }
    session.act(&Act::Enter(3));
    assert_eq!(look(&mut collector, &session, 1).1, Changed::Paths(vec![1]));
}
