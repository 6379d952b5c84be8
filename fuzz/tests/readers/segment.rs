//! Segments: the header and the first bytes of each area, as anybody may have written them.

use std::fs::File;
use std::os::fd::FromRawFd;
use std::os::unix::fs::FileExt;

use ipath::collect::{self, Collector};
use ipath::process::{Pid, Process};
use ipath::segment::{Document, Journal, Segment, Shape};
use ipath_fuzz::{Target, corpus, mutate, run};

const TARGET: Target = Target {
    name: "segment",
    corpus: "segment",
    change: mutate::bytes,
    cases: 400,
};

/// Bytes of an input for the header, and for each area.
const HEADER: usize = 4096;
const AREA: usize = 1024;

/// A segment that no target has, to be filled.
pub struct Measured {
    segment: Segment,
    process: Process,
    areas: Vec<u64>,
}

impl Measured {
    /// As the corpus has it.
    pub fn new() -> Self {
        // SAFETY: the name is a C string; the result is checked.
        let fd = unsafe { libc::memfd_create(c"ipath-fuzz".as_ptr(), libc::MFD_CLOEXEC) };
        assert!(fd >= 0, "memfd_create");
        // SAFETY: the descriptor is new, and nobody else's.
        let file = unsafe { File::from_raw_fd(fd) };
        let shape = Shape {
            max_paths: 65536,
            timers: 1,
        };
        file.set_len(shape.size()).expect("a size");
        let process = Process {
            pid: Pid(i32::MAX),
            start_time: 1,
        };
        let (segment, _) = Segment::from_target(file, &process, &shape).expect("a segment");
        let areas = segment.header().areas.iter().map(|a| a.offset()).collect();
        let measured = Self {
            segment,
            process,
            areas,
        };
        measured.fill(&corpus::load("segment")[0]);
        measured
    }

    /// Writes an input where it belongs.
    fn fill(&self, input: &[u8]) {
        let (header, rest) = input.split_at(HEADER.min(input.len()));
        let mut parts = vec![(0, header)];
        parts.extend(self.areas.iter().copied().zip(rest.chunks(AREA)));
        for (at, bytes) in parts {
            let file = self.segment.file();
            file.write_all_at(bytes, at).expect("written");
        }
    }

    /// Makes a profile of it.
    pub fn collect(&self, document: &Document) {
        let profile = Collector::default().profile_of(collect::Measured {
            segment: &self.segment,
            document,
            process: &self.process,
            is_in_target: false,
        });
        profile
            .check_structure()
            .expect("a profile that can be read");
    }
}

#[test]
fn segment() {
    let measured = Measured::new();
    let document = &corpus::load("document")[0];
    let document: Document = serde_json::from_slice(document).expect("a document");
    run(&TARGET, |input| {
        measured.fill(input);
        measured.collect(&document);
        let _ = measured.segment.read_document();
        let _ = Journal(&measured.segment).standing();
        true
    });
}
