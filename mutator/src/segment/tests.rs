use patcher::Avma;
use patcher::emit::Patch;

use super::*;
use crate::process::{Pid, Process};

fn create(start_time: u64) -> (Process, Segment) {
    let process = Process {
        pid: Pid(std::process::id() as i32),
        start_time,
    };
    let shape = Shape {
        max_paths: 100,
        timers: 1,
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
    Journal(&segment).intend(index).expect("there");
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
    // Without a document it would be one whose maker has been killed.
    segment.header().document_turn.store(1, Relaxed);
    segment.header().timers.store(u32::MAX, Relaxed);
    assert!(matches!(
        Segment::open(&process),
        Err(SegmentError::Corrupt("timers"))
    ));
    segment.header().timers.store(1, Relaxed);
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
