//! Recipes from instructions alone against what the compiler says of the same calls: every call of these
//! libraries that has both. `--nocapture` shows the figures.

mod libraries;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, LittleEndian, RegisterRule, UnwindContext, UnwindSection,
    X86_64,
};
use patcher::flow::{Frame, ModuleContext, Recipe, recipes};
use patcher::function::FunctionKind;
use patcher::image::Image;

/// What the compiler says: `None` where a recipe cannot say the same.
fn said(row: &gimli::UnwindTableRow<usize>) -> Option<Recipe> {
    if matches!(row.register(X86_64::RA), Some(RegisterRule::Undefined)) {
        return Some(Recipe::Outermost);
    }
    let caller_frame_pointer = match row.register(X86_64::RBP) {
        None | Some(RegisterRule::SameValue) => 0,
        Some(RegisterRule::Offset(at)) => i16::try_from(at / 8).ok()?,
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
        X86_64::RSP => Some(Recipe::FromStackPointer(frame)),
        X86_64::RBP => Some(Recipe::FromFramePointer(frame)),
        _ => None,
    }
}

#[derive(Default)]
struct Found {
    same: usize,
    /// Both right: a frame with a frame pointer can be left by either register.
    by_other_register: usize,
    different: Vec<String>,
    missing: usize,
}

fn compare(data: &[u8]) -> Found {
    let image = Image::parse(data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let (start, bytes) = image.section(".eh_frame").expect("unwind tables");
    let frames = EhFrame::new(bytes, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(start.0);
    let (header_start, header) = image.section(".eh_frame_hdr").expect("an index");
    let bases = bases.set_eh_frame_hdr(header_start.0);
    let header = gimli::EhFrameHdr::new(header, LittleEndian)
        .parse(&bases, 8)
        .expect("a sound index");
    let table = header.table().expect("a table");
    let mut unwind = UnwindContext::new();
    let mut found = Found::default();
    for function in image.functions().iter() {
        // Those without a name are known by their unwind entries alone, and may be parts of others.
        if function.kind == FunctionKind::Ifunc || function.name().is_empty() {
            continue;
        }
        for (after, ours) in recipes(&image, &context, &function) {
            let row = table.unwind_info_for_address(
                &frames,
                &bases,
                &mut unwind,
                after.0 - 1,
                EhFrame::cie_from_offset,
            );
            let Some(theirs) = row.ok().and_then(said) else {
                found.missing += 1;
                continue;
            };
            match (ours, theirs) {
                _ if ours == theirs => found.same += 1,
                (Recipe::FromStackPointer(a), Recipe::FromFramePointer(b))
                    if a.caller_frame_pointer == b.caller_frame_pointer =>
                {
                    found.by_other_register += 1;
                }
                _ => found.different.push(format!(
                    "{} {:#x}: {ours:?}, the compiler: {theirs:?}",
                    function.name(),
                    after.0
                )),
            }
        }
    }
    found
}

#[test]
fn recipes_are_what_the_compiler_says() {
    let mut all = 0;
    for name in ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3"] {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let found = compare(&data);
        println!(
            "{name}: {} the same, {} by the other register, {} different, {} without the compiler's word",
            found.same,
            found.by_other_register,
            found.different.len(),
            found.missing
        );
        for line in found.different.iter().take(20) {
            println!("  {line}");
        }
        all += found.same;
        assert!(found.different.len() * 10_000 <= found.same, "{name}");
    }
    assert!(all > 10_000, "{all}");
}
