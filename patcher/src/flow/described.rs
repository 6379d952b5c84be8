//! Recipes from `.debug_frame` (DWARF 5, section 6.4), for code without unwind entries that are
//! loaded with it.

use super::recipe::{Frame, Recipe};
use super::sweep;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{WORD, dwarf};
use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, FrameDescriptionEntry, LittleEndian, Reader,
    RegisterRule, UnwindContext, UnwindSection, UnwindTableRow,
};

/// The recipes of all calls that the section `.debug_frame` describes, by return address, in code
/// without loaded unwind entries.
///
/// Calls whose frames need other registers are left out. Go's functions are left out too: for
/// these, the section repeats the table of Go's runtime and ignores switches of stacks.
pub(super) fn described(image: &Image<'_>, section: &[u8]) -> Vec<(Svma, Recipe)> {
    const ADDRESS_SIZE: u8 = 8;
    let mut frames = DebugFrame::new(section, LittleEndian);
    frames.set_address_size(ADDRESS_SIZE);
    let bases = BaseAddresses::default();
    let mut context = UnwindContext::new();
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    let table = image.pclntab();
    let is_of_go = |at| table.is_some_and(|table| table.function_at(at).is_some());
    // Each byte of code is described at most once. An excess is not believed.
    let code = image.segments().iter().filter(|s| s.execute);
    let mut left: u64 = code.map(|s| s.range.end.0 - s.range.start.0).sum();
    // An entry that cannot be read ends the list, because the next cannot be located.
    while let Ok(Some(entry)) = entries.next() {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let Ok(fde) = partial.parse(DebugFrame::cie_from_offset) else {
            continue;
        };
        // Code that the linker has discarded is described at address 0.
        let start = Svma(fde.initial_address());
        if !image.is_code(start) || image.fde(start).is_some() || is_of_go(start) {
            continue;
        }
        let Some(rest) = left.checked_sub(fde.len()) else {
            break;
        };
        left = rest;
        let row = |after: Svma| {
            let at = after.0.checked_sub(1)?;
            let row = fde.unwind_info_for_address(&frames, &bases, &mut context, at);
            recipe(row.ok()?)
        };
        found.extend(of_calls(image, &fde, row));
    }
    found
}

fn of_calls<R: Reader<Offset = usize>>(
    image: &Image<'_>,
    fde: &FrameDescriptionEntry<R>,
    mut recipe: impl FnMut(Svma) -> Option<Recipe>,
) -> Vec<(Svma, Recipe)> {
    let start = Svma(fde.initial_address());
    let Some(swept) = sweep::linear(image, &[start..start.plus(fde.len())]) else {
        return Vec::new();
    };
    let calls = swept.insns.iter().filter(|insn| insn.is_call());
    calls
        .map(|insn| Svma(insn.end()))
        .filter_map(|after| Some((after, recipe(after)?)))
        .collect()
}

/// The row as a recipe: [`Recipe::Outermost`] if the row states that there is no return address.
///
/// Otherwise, `None` unless the return address is right below the canonical frame address, which is
/// relative to the stack pointer or the frame pointer, and the caller's frame pointer is in its
/// register or at a fixed location.
pub(super) fn recipe(row: &UnwindTableRow<usize>) -> Option<Recipe> {
    match row.register(dwarf::RETURN_ADDRESS) {
        Some(RegisterRule::Undefined) => return Some(Recipe::Outermost),
        Some(RegisterRule::Offset(at)) if at == -WORD => {}
        _ => return None,
    }
    let caller_frame_pointer = match row.register(dwarf::FRAME_POINTER) {
        None | Some(RegisterRule::SameValue) => 0,
        Some(RegisterRule::Offset(at)) if at < 0 && at % WORD == 0 => {
            i16::try_from(at / WORD).ok()?
        }
        _ => return None,
    };
    let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
        return None;
    };
    let frame = Frame {
        cfa: i32::try_from(offset).ok()?,
        caller_frame_pointer,
    };
    match register {
        dwarf::STACK_POINTER => Some(Recipe::FromStackPointer(frame)),
        dwarf::FRAME_POINTER => Some(Recipe::FromFramePointer(frame)),
        _ => None,
    }
}
