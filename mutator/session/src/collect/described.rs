//! What has been found out about return addresses in files, for all sessions of this command: the processes of a job run the same
//! files, and of one that has run for a millisecond nothing is to be read anew.

use std::collections::HashMap;
use std::path::Path;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use patcher::Svma;
use patcher::function::is_of_blocks;

use ipath_profile::Frame;
use ipath_symbols::images::OpenImage;
use ipath_symbols::lines::{self, Lines};
use ipath_target::process::modules::VDSO;
use ipath_target::progress::Step;

/// Frames that are kept; with more, it begins anew.
const MOST: usize = 1 << 16;

/// A file, which is opened once and stays: where it is.
type File = usize;

#[derive(Default)]
struct Described {
    frames: HashMap<(File, Svma), Frame>,
    /// Source positions; `None` of a file that has none.
    lines: HashMap<File, Option<Lines<'static>>>,
    /// How many debug files had come.
    arrived: u64,
}

fn described() -> MutexGuard<'static, Described> {
    static DESCRIBED: LazyLock<Mutex<Described>> = LazyLock::new(Mutex::default);
    DESCRIBED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The frame of a call in a file that was mapped from this path, as it is known by so many debug files.
pub(super) fn frame(image: &'static OpenImage, at: Svma, path: &str, arrived: u64) -> Frame {
    let file = std::ptr::from_ref(image).addr();
    let known = &mut *described();
    if known.arrived != arrived {
        known.arrived = arrived;
        known.frames.clear();
        known.lines.retain(|_, lines| lines.is_some());
    }
    if let Some(frame) = known.frames.get(&(file, at)) {
        return frame.clone();
    }
    if known.frames.len() >= MOST {
        known.frames.clear();
    }
    let lines = known.lines.entry(file);
    let _step = Step::begin(format!("reading the debug information of {path}"));
    let frame = describe(image, at, lines.or_insert_with(|| lines_of(image, path)));
    known.frames.insert((file, at), frame.clone());
    frame
}

/// True if debug files with units of this file's debug information were not found.
pub(super) fn lacks_units(image: &'static OpenImage) -> bool {
    let file = std::ptr::from_ref(image).addr();
    let known = described();
    let lines = known.lines.get(&file).and_then(Option::as_ref);
    lines.is_some_and(Lines::lacks_units)
}

/// Spends no more memory on source positions until one is asked for again.
pub(super) fn forget_lines() {
    described().lines.clear();
}

fn lines_of(image: &'static OpenImage, path: &str) -> Option<Lines<'static>> {
    let file = Path::new(path);
    let lines = Lines::load(image.image.data(), &lines::Places::for_file(file));
    if lines.is_none() && path != VDSO {
        image.want_debug_file(file);
    }
    lines
}

fn describe(image: &OpenImage, at: Svma, lines: &Option<Lines<'_>>) -> Frame {
    let function = image.image.functions().containing(at);
    let mut frame = Frame {
        module: None,
        address: at.0,
        function: function.and_then(|f| f.linkage).map(str::to_owned),
        offset: function.map(|f| at.0 - f.start.0),
        ..Frame::default()
    };
    if frame.function.as_deref().is_some_and(is_of_blocks)
        && let Some(owner) = image.image.functions().function_at(at)
    {
        // If the section starts before the function, there is no offset.
        frame.offset = at.0.checked_sub(owner.range.start.0);
        frame.function = Some(owner.linkage);
    }
    if let Some(lines) = lines {
        lines.describe(at, &mut frame);
    }
    frame
}
