//! Frames of return addresses in files, cached for all sessions of this command. The processes of a
//! job run the same files. Files must not be read again for each process that runs a millisecond.
//!
//! The number of frames is bounded. Source positions are kept for as long as their image is open.

use std::collections::HashMap;
use std::fs::{self, Metadata};
use std::path::Path;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};

use patcher::Svma;
use patcher::function::is_of_blocks;

use super::loops::ImageLoops;
use ipath_base::files::Stamp;
use ipath_profile::{Frame, FrameLoop};
use ipath_symbols::images::{ImageId, OpenImage};
use ipath_symbols::lines::FileLines;
use ipath_target::process::identity::{FileId, file_id};
use ipath_target::process::modules::VDSO;
use ipath_target::progress::Step;

/// The maximum number of cached frames. The cache is emptied when it is full.
const MAX_FRAMES: usize = 1 << 16;

/// The cache of frames and source positions.
#[derive(Default)]
struct Described {
    frames: HashMap<(ImageId, Svma), Frame>,
    lines: HashMap<ImageId, ImageLines>,
    /// The number of debug files that had arrived when the frames were described.
    arrived: u64,
}

/// The source positions of an image.
struct ImageLines {
    image: Weak<OpenImage>,
    /// `None` for a file without any.
    lines: Option<FileLines>,
    loops: ImageLoops,
}

fn described() -> MutexGuard<'static, Described> {
    static DESCRIBED: LazyLock<Mutex<Described>> = LazyLock::new(Mutex::default);
    DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The frame of a return address in an image that was mapped from the file `file` at `path`. It has
/// no source positions if that file was written to after it was opened. `arrived` is the number of
/// debug files so far; if it changes, the cached frames are discarded. `None` if the opened file
/// has been overwritten or truncated.
pub(super) fn frame(
    image: &Arc<OpenImage>,
    at: Svma,
    path: &str,
    file: &FileId,
    arrived: u64,
) -> Option<Frame> {
    if !image.is_intact() {
        return None;
    }
    let id = image.id();
    let known = &mut *described();
    if known.arrived != arrived {
        known.arrived = arrived;
        known.frames.clear();
        known.lines.retain(|_, of| of.lines.is_some());
    }
    if let Some(frame) = known.frames.get(&(id, at)) {
        return Some(frame.clone());
    }
    if image.bytes().is_cut() {
        return None;
    }
    if known.frames.len() >= MAX_FRAMES {
        known.frames.clear();
    }
    let _step = Step::begin(format!("reading the debug information of {path}"));
    let (lines, _) = known.lines_of(image, path);
    let mut frame = describe(image, at, lines);
    // The file may have changed during the read.
    if !image.is_intact() || image.bytes().is_cut() {
        return None;
    }
    if is_rewritten(image, path, file) {
        frame.file = None;
        frame.line = None;
        frame.inlined.clear();
    }
    known.frames.insert((id, at), frame.clone());
    Some(frame)
}

/// The loops around a call site in an image whose [`frame`] has `inlined` functions. Empty if the
/// mapped file `file` was written to after it was opened.
pub(super) fn loops(
    image: &Arc<OpenImage>,
    at: Svma,
    path: &str,
    file: &FileId,
    inlined: usize,
) -> Vec<FrameLoop> {
    let known = &mut *described();
    let (lines, loops) = known.lines_of(image, path);
    let mut around = loops.around(image, at, lines);
    // The file may have changed during the read.
    if !image.is_intact() || image.bytes().is_cut() || is_rewritten(image, path, file) {
        return Vec::new();
    }
    for of in &mut around {
        // The call may be in fewer copies than the start of its block.
        of.inlined = of.inlined.min(inlined);
    }
    around
}

/// True if the mapped file is still at `path` and was written to since it was opened. Bytes that
/// were lost from the last page of a truncated file read as zeroes without a signal.
fn is_rewritten(image: &OpenImage, path: &str, file: &FileId) -> bool {
    // A file that replaced the mapped one by rename(2) leaves its contents unchanged.
    let is_it = |there: &Metadata| file_id(there) == *file;
    let there = fs::metadata(path).ok().filter(is_it);
    there.is_some_and(|there| Stamp::of(&there) != image.stamp())
}

/// True if debug files with units of this file's debug information were not found. False if its
/// source positions have not been read.
pub(super) fn lacks_units(image: &OpenImage) -> bool {
    let known = described();
    let of = known.lines.get(&image.id());
    let lines = of.and_then(|of| of.lines.as_ref());
    lines.is_some_and(|lines| lines.with(|lines| lines.lacks_units()))
}

/// Frees the source positions. The next call of [`frame`] reads them again.
pub(super) fn forget_lines() {
    described().lines.clear();
}

impl Described {
    /// The source positions of an image, which are read at the first call, and its loops. `None` if
    /// it has no positions.
    fn lines_of(
        &mut self,
        image: &Arc<OpenImage>,
        path: &str,
    ) -> (Option<&FileLines>, &mut ImageLoops) {
        if !self.lines.contains_key(&image.id()) {
            self.lines.retain(|_, of| of.image.strong_count() > 0);
        }
        let known = self.lines.entry(image.id());
        let of = known.or_insert_with(|| ImageLines {
            image: Arc::downgrade(image),
            lines: lines_of(image, path),
            loops: ImageLoops::default(),
        });
        (of.lines.as_ref(), &mut of.loops)
    }
}

/// Reads the source positions of an image. If it has none, requests its debug file and returns
/// `None`.
fn lines_of(image: &OpenImage, path: &str) -> Option<FileLines> {
    let file = Path::new(path);
    let lines = image.lines(file);
    if lines.is_none() && path != VDSO {
        image.want_debug_file(file);
    }
    lines
}

/// The frame of the return address `at`, named from the image's symbols and from `lines`.
fn describe(image: &OpenImage, at: Svma, lines: Option<&FileLines>) -> Frame {
    let function = image.image().functions().containing(at);
    let mut frame = Frame {
        module: None,
        address: at.0,
        function: function.and_then(|f| f.linkage).map(str::to_owned),
        offset: function.map(|f| at.0 - f.start.0),
        ..Frame::default()
    };
    if frame.function.as_deref().is_some_and(is_of_blocks)
        && let Some(owner) = image.image().functions().function_at(at)
    {
        // If the section starts before the function, there is no offset.
        frame.offset = at.0.checked_sub(owner.range.start.0);
        frame.function = Some(owner.linkage);
    }
    if let Some(lines) = lines {
        lines.with(|lines| lines.describe(at, &mut frame));
    }
    frame
}
