//! Segments: the header and the first bytes of each area, with arbitrary contents.

use std::fs::{File, remove_file};
use std::mem::offset_of;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::Relaxed;

use abi::segment::{AREA_DOCUMENT_0, AREA_DOCUMENT_1, Header};
use ipath_fuzz::mutate::{AREA, HEADER};
use ipath_fuzz::{Target, corpus, mutate, run};
use ipath_session::collect::{self, Collector};
use ipath_session::segment::{Claim, Document, Journal, Segment, SegmentError};
use ipath_target::process::{Pid, Process};

const TARGET: Target = Target {
    name: "segment",
    corpus: "segment",
    change: mutate::segment,
    cases: 400,
};

/// The process of the segment in the corpus. It does not exist.
const PROCESS: Process = Process {
    pid: Pid(i32::MAX),
    start_time: 1,
};

/// A segment file, opened as commands open one.
pub struct Scratch {
    path: PathBuf,
    file: File,
    /// The original segment.
    kept: Vec<u8>,
    /// Its complete document.
    document: Vec<u8>,
}

impl Scratch {
    /// Creates the file for a target.
    pub fn new(target: &str) -> Self {
        let name = format!("ipath-fuzz-{target}-{}", std::process::id());
        // In memory if possible, because each case rewrites it.
        let folder = if Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let path = folder.join(name);
        let file = File::options()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path);
        Self {
            file: file.expect("made"),
            path,
            kept: corpus::load("segment").swap_remove(0),
            document: corpus::load("document").swap_remove(0),
        }
    }

    /// The document of the corpus.
    pub fn document(&self) -> Document {
        serde_json::from_slice(&self.document).expect("a document")
    }

    /// The segment of the corpus.
    pub fn segment(&self) -> Segment {
        self.fill(&self.kept);
        self.open().expect("a segment").1
    }

    /// Opens the segment after writing `input` to the file. True if its creator may have touched
    /// the process.
    fn of(&self, input: &[u8]) -> Result<(bool, Segment), SegmentError> {
        self.fill(input);
        self.open()
    }

    fn open(&self) -> Result<(bool, Segment), SegmentError> {
        let claim = Claim::of_file(&self.path)?;
        let is_begun = claim.is_begun()?;
        Ok((is_begun, Segment::of(claim, &PROCESS)?))
    }

    /// Writes an input into the file: the header, then the areas at their offsets in the corpus.
    /// The rest of a document, for which an input has no room, comes from the corpus.
    fn fill(&self, input: &[u8]) {
        let size = self.word(offset_of!(Header, size));
        let stated = field(input, offset_of!(Header, size));
        // A plausible size, or a size that contradicts the header.
        let len = if stated <= 2 * size { stated } else { size };
        self.file.set_len(0).expect("emptied");
        self.file.set_len(len).expect("a size");
        let (header, rest) = input.split_at(HEADER.min(input.len()));
        self.write(0, header, len);
        let version = offset_of!(Header, version);
        if header.get(version..version + 4) == self.kept.get(version..version + 4) {
            self.write(version as u64, &abi::ABI_VERSION.to_le_bytes(), len);
        }
        for (area, bytes) in rest.chunks(AREA).enumerate().take(abi::segment::AREAS) {
            let start = self.word(offset_of!(Header, areas) + 16 * area);
            self.write(start, bytes, len);
            if [AREA_DOCUMENT_0, AREA_DOCUMENT_1].contains(&area) && bytes.len() == AREA {
                self.write(start + AREA as u64, &self.document[AREA..], len);
            }
        }
    }

    /// Writes the part of `bytes` that is before the end of the file.
    fn write(&self, at: u64, bytes: &[u8], len: u64) {
        let room = usize::try_from(len.saturating_sub(at)).unwrap_or(usize::MAX);
        let bytes = &bytes[..room.min(bytes.len())];
        self.file.write_all_at(bytes, at).expect("written");
    }

    /// A field of the header in the corpus.
    fn word(&self, offset: usize) -> u64 {
        field(&self.kept, offset)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = remove_file(&self.path);
    }
}

fn field(input: &[u8], offset: usize) -> u64 {
    let bytes = input.get(offset..offset + 8).and_then(|b| b.first_chunk());
    bytes.map_or(0, |b| u64::from_le_bytes(*b))
}

/// Makes a profile of a segment.
pub fn collect(segment: &Segment, document: &Document) {
    let profile = Collector::default().profile_of(collect::Measured {
        segment,
        document,
        process: &PROCESS,
        is_in_target: false,
        is_replaced: false,
    });
    profile
        .check_structure()
        .expect("a profile that can be read");
}

#[test]
fn segment_of_any_bytes_is_read_or_rejected() {
    let scratch = Scratch::new("segment");
    let known = scratch.document();
    let own = scratch.segment().read_document().expect("its document");
    assert_eq!(own.functions.len(), known.functions.len());
    run(&TARGET, |input| {
        let Ok((is_begun, segment)) = scratch.of(input) else {
            return false;
        };
        collect(&segment, &segment.read_document().unwrap_or(known.clone()));
        let journal = Journal(&segment);
        for index in journal.standing().expect("within the capacity") {
            let _ = journal.patch(index);
        }
        let is_whole = segment.check_whole().is_ok();
        assert!(is_whole, "nobody makes it shorter");
        is_begun && segment.header().state.load(Relaxed) != 0
    });
}
