//! Leaves frames by recipes, and gives modules to the unwinder.

use std::ops::Range;

use framehop::ExplicitModuleSectionInfo;
use framehop::x86_64::UnwindRegsX86_64;
use patcher::flow::{Base, Recipe, frames_before};
use patcher::{Bias, Svma};

use ipath_symbols::images::OpenImage;
use ipath_target::process::modules::Module;
use ipath_target::process::unread::UnwindTables;

/// How the frame of a function is left that is about to run an instruction.
pub(super) fn before(opened: &OpenImage, at: Svma) -> Option<Recipe> {
    let function = opened.image.functions().function_at(at)?;
    let found = frames_before(opened.image, &opened.context, &function, &[at]);
    let frame = found.into_iter().next()??;
    Some(match frame.base {
        Base::StackPointer => Recipe::FromStackPointer(frame.frame),
        Base::FramePointer => Recipe::FromFramePointer(frame.frame),
    })
}

/// Leaves a frame by its canonical frame address; the return address.
pub(super) fn left(
    registers: &mut UnwindRegsX86_64,
    cfa: u64,
    caller_frame_pointer: i16,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<u64>, ()> {
    // A frame has its return address at least.
    if cfa <= registers.sp() {
        return Err(());
    }
    let after = read(cfa.wrapping_sub(8))?;
    if caller_frame_pointer != 0 {
        let at = cfa.wrapping_add((8 * i64::from(caller_frame_pointer)) as u64);
        registers.set_bp(read(at)?);
    }
    registers.set_sp(cfa);
    Ok(Some(after))
}

/// Leaves a realigned frame, found by the words around rbp. Returns the return address.
pub(super) fn left_realigned(
    registers: &mut UnwindRegsX86_64,
    cfa_at: i32,
    caller_frame_pointer: i16,
    read: &mut impl FnMut(u64) -> Result<u64, ()>,
) -> Result<Option<u64>, ()> {
    let bp = registers.bp();
    let cfa = read(bp.wrapping_add(i64::from(cfa_at) as u64))?;
    let caller = read(bp.wrapping_add((8 * i64::from(caller_frame_pointer)) as u64))?;
    let after = left(registers, cfa, 0, read)?;
    registers.set_bp(caller);
    Ok(after)
}

/// A module whose file cannot be read, as the unwinder knows it.
pub(super) fn unwound_in_memory(
    module: &Module,
    tables: &'static UnwindTables,
    bias: Bias,
) -> framehop::Module<&'static [u8]> {
    let range = |(start, data): &(Svma, Vec<u8>)| start.0..start.0 + data.len() as u64;
    let info = ExplicitModuleSectionInfo {
        eh_frame_svma: Some(range(&tables.entries)),
        eh_frame: Some(tables.entries.1.as_slice()),
        eh_frame_hdr_svma: Some(range(&tables.index)),
        eh_frame_hdr: Some(tables.index.1.as_slice()),
        ..Default::default()
    };
    let Range { start, end } = module.range.clone();
    framehop::Module::new(module.path.clone(), start.0..end.0, bias.0, info)
}

/// A module as the unwinder knows it.
pub(super) fn unwound(
    module: &Module,
    opened: &'static OpenImage,
    bias: Bias,
) -> framehop::Module<&'static [u8]> {
    let image = opened.image;
    let section = |name: &str| {
        let (start, data) = image.section(name)?;
        Some((start.0..start.0 + data.len() as u64, data))
    };
    let range = |found: &Option<(Range<u64>, &'static [u8])>| found.as_ref().map(|f| f.0.clone());
    let data = |found: &Option<(Range<u64>, &'static [u8])>| found.as_ref().map(|f| f.1);
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
