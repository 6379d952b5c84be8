//! Leaves frames by recipes, and gives modules to the unwinder.

use std::ops::Range;

use framehop::ExplicitModuleSectionInfo;
use patcher::flow::{Base, Recipe, frames_before};
use patcher::{Bias, Svma};
use unwind::{At, Loaded, Step, step};

use crate::arch::{UnwindRegs, frame_pointer, go_to_caller};
use ipath_base::files::{FileBytes, FilePart};
use ipath_symbols::images::OpenImage;
use ipath_symbols::recipes::rule;
use ipath_target::process::modules::Module;
use ipath_target::process::unread::UnwindTables;

/// The recipe that leaves the frame of the function that is about to run the instruction at `at`.
/// `None` if no function is there or its frame is unknown.
pub(super) fn before(opened: &OpenImage, at: Svma) -> Option<Recipe> {
    let function = opened.image().functions().function_at(at)?;
    let found = frames_before(opened.image(), opened.context(), &function, &[at]);
    let frame = found.into_iter().next()??;
    Some(match frame.base {
        Base::StackPointer => Recipe::FromStackPointer(frame.frame),
        Base::FramePointer => Recipe::FromFramePointer(frame.frame),
    })
}

/// Takes the registers from a frame to its caller's by a recipe. Returns the return address, or
/// `None` from the outermost frame. Fails if the stack cannot be read or the recipe does not fit.
pub(super) fn left(
    registers: &mut UnwindRegs,
    recipe: Recipe,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<u64>, ()> {
    /// Stacks end below, where `read` knows.
    const END: u64 = u64::MAX - 7;
    let at = At {
        pc: 0,
        sp: registers.sp(),
    };
    if at.sp > END - 8 {
        return Err(());
    }
    let mut words = Loaded {
        load: |at| read(at).ok(),
        fp: frame_pointer(registers),
    };
    match step(rule(recipe).encode(), at, END, &mut words) {
        Step::Caller(caller) => {
            go_to_caller(registers, caller.sp, words.fp);
            Ok(Some(caller.pc))
        }
        Step::Root => Ok(None),
        Step::Stop(_) | Step::Astray | Step::Full | Step::Unknown => Err(()),
    }
}

/// A module whose file cannot be read, as the unwinder knows it.
pub(super) fn unwound_in_memory(
    module: &Module,
    tables: &UnwindTables,
    bias: Bias,
) -> framehop::Module<FilePart> {
    let range = |(start, data): &(Svma, FileBytes)| start.0..start.0 + data.bytes().len() as u64;
    let info = ExplicitModuleSectionInfo {
        eh_frame_svma: Some(range(&tables.entries)),
        eh_frame: Some(tables.entries.1.whole()),
        eh_frame_hdr_svma: Some(range(&tables.index)),
        eh_frame_hdr: Some(tables.index.1.whole()),
        ..Default::default()
    };
    let Range { start, end } = module.range.clone();
    framehop::Module::new(module.path.clone(), start.0..end.0, bias.0, info)
}

/// A module as the unwinder knows it.
pub(super) fn unwound(
    module: &Module,
    opened: &OpenImage,
    bias: Bias,
) -> framehop::Module<FilePart> {
    let (image, file) = (opened.image(), opened.bytes());
    let section = |name: &str| {
        let (start, data) = image.section(name)?;
        let range = start.0..start.0 + data.len() as u64;
        Some((range, file.part(data)?))
    };
    let range = |found: &Option<(Range<u64>, FilePart)>| found.as_ref().map(|f| f.0.clone());
    let data = |found: &Option<(Range<u64>, FilePart)>| found.as_ref().map(|f| f.1.clone());
    let (text, got) = (section(".text"), section(".got"));
    let (frames, index) = (section(".eh_frame"), section(".eh_frame_hdr"));
    let info = ExplicitModuleSectionInfo {
        text_svma: range(&text),
        text: data(&text),
        got_svma: range(&got),
        eh_frame_svma: range(&frames),
        eh_frame: data(&frames),
        eh_frame_hdr_svma: range(&index),
        eh_frame_hdr: data(&index),
        ..Default::default()
    };
    let Range { start, end } = module.range.clone();
    framehop::Module::new(module.path.clone(), start.0..end.0, bias.0, info)
}
