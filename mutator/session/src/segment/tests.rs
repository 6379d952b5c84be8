use patcher::Avma;
use patcher::emit::Patch;

use super::*;
use ipath_target::process::{Pid, Process};

fn create(start_time: u64) -> (Process, Segment) {
    let process = Process {
        pid: Pid(std::process::id() as i32),
        start_time,
    };
    let shape = Shape {
        max_paths: 100,
        columns: 1,
        keeps_single: false,
    };
    let (segment, lock) = Segment::create(&process, &shape).expect("created");
    drop(lock);
    (process, segment)
}

#[test]
fn what_is_written_is_read_by_another() {
    let (process, segment) = create(1);
    assert!(matches!(
        Segment::open(&process),
        Err(SegmentError::Missing)
    ));
    assert!(matches!(
        segment.read_document(),
        Err(SegmentError::Corrupt(_))
    ));
    for round in 0..3 {
        let document = Document {
            exe: format!("program {round}"),
            ..Document::default()
        };
        segment.write_document(&document).expect("fits");
        let other = Segment::open(&process).expect("there");
        assert_eq!(other.read_document().expect("whole").exe, document.exe);
    }
    let patch = Patch {
        at: Avma(0x1234),
        old: vec![1, 2, 3, 4, 5, 6, 7, 8, 9],
        new: vec![9; 9],
    };
    let index = Journal(&segment).add(&patch).expect("fits");
    let other = Segment::open(&process).expect("there");
    assert_eq!(Journal(&other).patch(index).expect("there"), patch);
    assert!(Journal(&other).standing().expect("whole").is_empty());
    Journal(&segment).intend([index]).expect("there");
    assert_eq!(Journal(&other).standing().expect("whole"), [index]);
    segment.remove_name();
    assert!(matches!(
        Segment::open(&process),
        Err(SegmentError::Missing)
    ));
}

#[test]
fn a_hostile_header_is_refused() {
    let (process, segment) = create(2);
    // Without a document, its creator would count as killed.
    segment.header().document_turn.store(1, Relaxed);
    segment.header().columns.store(u32::MAX, Relaxed);
    assert!(matches!(
        Segment::open(&process),
        Err(SegmentError::Corrupt("columns"))
    ));
    segment.header().columns.store(8, Relaxed);
    segment.header().version.store(99, Relaxed);
    assert!(matches!(
        Segment::open(&process),
        Err(SegmentError::Version(99))
    ));
    segment.header().version.store(abi::ABI_VERSION, Relaxed);
    segment.header().pid.store(1, Relaxed);
    assert!(matches!(
        Segment::open(&process),
        Err(SegmentError::Corrupt("process"))
    ));
    segment.header().pid.store(process.pid.0 as u32, Relaxed);
    segment.header().document_len[1].store(u64::MAX, Relaxed);
    let open = Segment::open(&process).expect("sound");
    assert!(matches!(
        open.read_document(),
        Err(SegmentError::Corrupt(_))
    ));
    assert!(open.node(u32::MAX).is_none());
    assert!(open.record(u64::MAX).is_none());
    segment.file().set_len(abi::PAGE).expect("shortened");
    assert!(matches!(
        Segment::open(&process),
        Err(SegmentError::Corrupt("size"))
    ));
    segment.remove_name();
}

/// Another build of ipath may have written the document, or may read it.
#[test]
fn addresses_are_numbers_in_a_document() {
    let site = r#"{"window":[4096,4101],"landing":[0,0],"trampoline":[8192,64],"stone":0,"kept":[4101,[85]],
        "patches":[1],"trap":false,"pcs":[[4096,8200]],"hook_starts":[[4096,8192]]}"#;
    let read: SiteDoc = serde_json::from_str(site).expect("a site");
    assert_eq!(read.window, Avma(4096)..Avma(4101));
    assert_eq!(read.trampoline.end(), Avma(8256));
    assert_eq!(read.kept.at, Avma(4101));
    assert_eq!(read.pcs[0].trampoline, Avma(8200));
    let module = r#"{"path":"/bin/true","build_id":null,"bias":4096,"code":[8192,12288]}"#;
    let module_read: ModuleDoc = serde_json::from_str(module).expect("a module");
    let same = |text: &str, written: String| {
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(text), value(&written));
    };
    same(site, serde_json::to_string(&read).expect("numbers"));
    same(
        module,
        serde_json::to_string(&module_read).expect("numbers"),
    );
}

/// A thread is moved into a window only after the window's original bytes have been restored.
#[test]
fn sites_are_restored_where_a_function_or_its_exits_are_out() {
    let site = r#"{"window":[4096,4101],"landing":[0,0],"trampoline":[8192,64],"stone":0,"kept":[0,[]],
        "patches":[1],"trap":false,"pcs":[],"hook_starts":[]}"#;
    let restored = |state: State, reach: Reach| {
        let text = format!(
            r#"{{"name": "f", "linkage": "f", "aliases": [], "module": 0, "address": 1, "size": 1, "entry": "window",
            "exits": ["window"], "reach": "{reach:?}", "role": "Measured", "state": "{state:?}",
            "generation": 1, "first_sites": 1, "sites": [{site},{site},{site}]}}"#
        );
        let function: FunctionDoc = serde_json::from_str(&text).expect("a function");
        function.sites_restored().len()
    };
    assert_eq!(restored(State::In, Reach::Whole), 0);
    assert_eq!(restored(State::In, Reach::Entry), 2);
    assert_eq!(restored(State::Out, Reach::Whole), 3);
    assert_eq!(restored(State::Out, Reach::Entry), 3);
}
