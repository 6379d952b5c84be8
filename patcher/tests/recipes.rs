//! Compares recipes from instructions alone with the compiler's unwind tables. It covers every call
//! of these libraries that has both. `--nocapture` shows the figures.

mod compiler;
mod libraries;

use std::collections::{BTreeMap, BTreeSet};

use compiler::Compiler;
use gimli::{BaseAddresses, CieOrFde, EhFrame, LittleEndian, UnwindSection};

use iced_x86::{Decoder, DecoderOptions, FlowControl};
use patcher::Svma;
use patcher::flow::{
    Frame, ModuleContext, Recipe, callees_of, callees_seen, frames_around, frames_called,
    frames_seen, recipes,
};
use patcher::function::FunctionKind;
use patcher::image::Image;

/// The numbers of calls, by the relation of both recipes.
#[derive(Default)]
struct Agreement {
    same: usize,
    /// Both are right: a frame with a frame pointer can be left by either register.
    by_other_register: usize,
    different: Vec<String>,
    missing: usize,
}

impl Agreement {
    fn print(&self, what: &str, missing: &str) {
        println!(
            "{what}: {} the same, {} by the other register, {} different, {} {missing}",
            self.same,
            self.by_other_register,
            self.different.len(),
            self.missing
        );
        for line in self.different.iter().take(20) {
            println!("  {line}");
        }
    }
}

impl Agreement {
    fn add(&mut self, after: Svma, ours: Recipe, theirs: Recipe, name: &str) {
        match (ours, theirs) {
            _ if ours == theirs => self.same += 1,
            (Recipe::FromStackPointer(a), Recipe::FromFramePointer(b))
                if a.caller_frame_pointer == b.caller_frame_pointer =>
            {
                self.by_other_register += 1;
            }
            _ => self.different.push(format!(
                "{name} {:#x}: {ours:?}, the compiler: {theirs:?}",
                after.0
            )),
        }
    }
}

fn compare(data: &[u8]) -> Agreement {
    let image = Image::parse(data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let mut compiler = Compiler::new(&image);
    let mut found = Agreement::default();
    for function in image.functions().iter() {
        // Functions without a name are known from unwind entries only, and may be parts of others.
        if function.kind == FunctionKind::Ifunc || function.name().is_empty() {
            continue;
        }
        for (after, ours) in recipes(&image, &context, &function) {
            match compiler.says(after) {
                Some(theirs) => found.add(after, ours, theirs, &function.name()),
                None => found.missing += 1,
            }
        }
    }
    found
}

/// The file without its symbols, as if it never had any: without sections.
fn nameless(data: &[u8]) -> Vec<u8> {
    const SECTIONS: [std::ops::Range<usize>; 2] = [0x28..0x30, 0x3c..0x40];
    let mut data = data.to_owned();
    for field in SECTIONS {
        data[field].fill(0);
    }
    data
}

/// The file without its symbols, and also without the segment for the unwind tables.
fn blind(data: &[u8]) -> Vec<u8> {
    const PT_NULL: [u8; 4] = [0; 4];
    const PT_GNU_EH_FRAME: [u8; 4] = 0x6474_e550_u32.to_le_bytes();
    let mut data = nameless(data);
    let word = |at: usize| u64::from_le_bytes(data[at..at + 8].try_into().expect("8 bytes"));
    let (table, count) = (word(0x20) as usize, usize::from(data[0x38]));
    for header in (0..count).map(|i| table + i * 56) {
        if data[header..header + 4] == PT_GNU_EH_FRAME {
            data[header..header + 4].copy_from_slice(&PT_NULL);
        }
    }
    data
}

/// The ranges of all code with unwind entries.
fn described(image: &Image<'_>) -> Vec<(Svma, Svma)> {
    let (start, bytes) = image.section(".eh_frame").expect("unwind tables");
    let bases = BaseAddresses::default().set_eh_frame(start.0);
    let frames = EhFrame::new(bytes, LittleEndian);
    let mut entries = frames.entries(&bases);
    let mut found = Vec::new();
    while let Some(entry) = entries.next().expect("a sound section") {
        if let CieOrFde::Fde(partial) = entry {
            let fde = partial
                .parse(EhFrame::cie_from_offset)
                .expect("a sound entry");
            let start = Svma(fde.initial_address());
            found.push((start, start.plus(fde.len())));
        }
    }
    found
}

/// The file without sections, and with unwind entries for all code, except that every `each`-th
/// entry is made to cover no bytes.
fn one_eyed(data: &[u8], each: usize) -> Vec<u8> {
    /// The offset of the covered length in an entry of the 32-bit format as compilers make them, in
    /// bytes. The entry's length, CIE pointer and address precede it.
    const LENGTH: usize = 12;
    let mut found = nameless(data);
    let image = Image::parse(data).expect("an ELF image");
    let (address, section) = image.section(".eh_frame").expect("unwind tables");
    let start = section.as_ptr() as usize - data.as_ptr() as usize;
    let frames = EhFrame::new(section, LittleEndian);
    let bases = BaseAddresses::default().set_eh_frame(address.0);
    let mut entries = frames.entries(&bases);
    let mut number = 0;
    while let Some(entry) = entries.next().expect("a sound section") {
        let CieOrFde::Fde(fde) = entry else { continue };
        number += 1;
        if number % each == 0 {
            let at = start + fde.offset() + LENGTH;
            found[at..at + 4].fill(0);
        }
    }
    found
}

/// Compares the recipes for `hidden`, a library without symbols and with few or no tables, with the
/// tables in `data`. Only calls that the tables in `hidden` do not cover count. Also returns the
/// number of these calls.
fn compare_hidden(data: &[u8], hidden: &[u8]) -> (Agreement, usize) {
    let image = Image::parse(hidden).expect("an ELF image");
    let ours = patcher::flow::unnamed_recipes(&image, &ModuleContext::new(&image));
    let seeing = Image::parse(data).expect("an ELF image");
    let mut compiler = Compiler::new(&seeing);
    let mut found = Agreement::default();
    let mut calls = 0;
    for (start, end) in described(&seeing) {
        let len = end.0 - start.0;
        let code = seeing.bytes(start, len).unwrap_or_default();
        for insn in Decoder::with_ip(64, code, start.0, DecoderOptions::NONE) {
            let is_call = matches!(
                insn.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            let after = Svma(insn.next_ip());
            let is_hidden = is_call && image.fde(Svma(after.0 - 1)).is_none();
            let Some(theirs) = compiler.says(after).filter(|_| is_hidden) else {
                continue;
            };
            calls += 1;
            match ours.get(&after) {
                Some(&ours) => found.add(after, ours, theirs, ""),
                None => found.missing += 1,
            }
        }
    }
    (found, calls)
}

/// The return addresses of all calls in code with unwind entries, each with the compiler's recipe.
fn said_of_calls(data: &[u8]) -> Vec<(Svma, Recipe)> {
    let image = Image::parse(data).expect("an ELF image");
    let mut compiler = Compiler::new(&image);
    let mut found = Vec::new();
    for (start, end) in described(&image) {
        let code = image.bytes(start, end.0 - start.0).unwrap_or_default();
        for insn in Decoder::with_ip(64, code, start.0, DecoderOptions::NONE) {
            let after = Svma(insn.next_ip());
            let is_call = matches!(
                insn.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            found.extend(
                is_call
                    .then(|| compiler.says(after))
                    .flatten()
                    .map(|said| (after, said)),
            );
        }
    }
    found
}

/// Recipes from returns for each observed rbp: at the right address, and at another, as if rbp was
/// not a frame pointer.
#[test]
fn frames_by_epilogues_are_not_wrong() {
    /// The distance from the canonical frame address down to the address in a frame pointer, in
    /// bytes.
    const BELOW: i64 = 16;
    let (mut right, mut by_chance, mut all) = (0, 0, 0);
    let mut ahead = 0;
    for name in ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3"] {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let hidden = blind(&data);
        let image = Image::parse(&hidden).expect("an ELF image");
        let said_of: BTreeMap<Svma, Recipe> = said_of_calls(&data).into_iter().collect();
        for (&after, &said) in &said_of {
            all += 1;
            let seen_with_others = |distance| frames_seen(&image, &[(after, distance)]);
            let seen = |distance| seen_with_others(distance).get(&after).copied();
            let frame = match said {
                Recipe::FromStackPointer(frame) | Recipe::FromFramePointer(frame) => frame,
                Recipe::Realigned { .. } | Recipe::Ambiguous | Recipe::Outermost => continue,
            };
            let by_frame = |found| matches!(found, Recipe::FromFramePointer(_));
            let there = i64::from(frame.cfa) - BELOW;
            match seen(there) {
                Some(found) if found == said => {
                    right += 1;
                    for (at, recipe) in seen_with_others(there) {
                        let said = said_of.get(&at);
                        let is_right = said.is_none_or(|&said| said == recipe);
                        assert!(
                            is_right,
                            "{name} {:#x} by {:#x}: {recipe:?} {said:?}",
                            at.0, after.0
                        );
                        ahead += usize::from(at != after && said.is_some());
                    }
                }
                Some(found) if by_frame(found) => panic!("{name} {:#x}: {found:?}", after.0),
                // If rbp holds a number, it may match by chance.
                Some(_) => by_chance += 1,
                None => {}
            }
            let elsewhere = (there + 8 * (1 + (after.0 % 97) as i64)) % 1024;
            let is_wrong = |found| found != said && !by_frame(found) && !by_frame(said);
            by_chance += usize::from(seen(elsewhere).is_some_and(is_wrong));
        }
    }
    println!(
        "{all} calls: {right} right, {ahead} others right with them, {by_chance} wrong if rbp was somewhere by chance"
    );
    assert!(right > 5_000, "{right}");
    assert!(by_chance * 200 < all, "{by_chance} of {all}");
}

/// Recipes from the instructions alone. A missing recipe makes paths incomplete; `--nocapture`
/// shows how many are missing.
#[test]
fn recipes_of_stripped_code_are_never_wrong() {
    let mut all = 0;
    for name in [
        "libc.so.6",
        "libm.so.6",
        "libstdc++.so.6",
        "libcrypto.so.3",
        "libgfortran.so.5",
        "libmpi.so.40",
        "libpython3.11.so.1.0",
    ] {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let hidden = blind(&data);
        let is_blind = Image::parse(&hidden).is_ok_and(|image| image.functions().is_empty());
        assert!(is_blind, "nothing is known");
        let (found, calls) = compare_hidden(&data, &hidden);
        found.print(&format!("{name}: {calls} calls"), "missing");
        all += found.same;
        assert!(found.different.is_empty(), "{name}");
    }
    assert!(all > 10_000, "{all}");
}

/// Some functions without unwind entries among others with entries, and no symbols.
#[test]
fn recipes_of_gaps_are_never_wrong() {
    let mut all = 0;
    for (name, each) in [
        ("libc.so.6", 20),
        ("libc.so.6", 3),
        ("libm.so.6", 20),
        ("libstdc++.so.6", 20),
        ("libcrypto.so.3", 20),
        ("libcrypto.so.3", 101),
        ("libgfortran.so.5", 20),
        ("libmpi.so.40", 20),
        ("libpython3.11.so.1.0", 20),
        ("libpython3.11.so.1.0", 101),
    ] {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let (found, calls) = compare_hidden(&data, &one_eyed(&data, each));
        found.print(&format!("{name}, 1 of {each}: {calls} calls"), "missing");
        all += found.same;
        assert!(found.different.is_empty(), "{name}");
    }
    assert!(all > 1000, "{all}");
}

#[test]
fn recipes_are_what_the_compiler_says() {
    let mut all = 0;
    for name in ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3"] {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let found = compare(&data);
        found.print(name, "without the compiler's word");
        all += found.same;
        assert!(found.different.len() * 10_000 <= found.same, "{name}");
    }
    assert!(all > 10_000, "{all}");
}

/// True if the recipes agree. If the compiler's recipe uses a frame pointer right below the return
/// address, it does not state the stack pointer.
fn is_same_frame(said: Recipe, found: Recipe) -> bool {
    let by_frame = Recipe::FromFramePointer(Frame {
        cfa: 16,
        caller_frame_pointer: -2,
    });
    let has_frame = |recipe| match recipe {
        Recipe::FromStackPointer(frame) => frame.caller_frame_pointer == -2,
        _ => false,
    };
    said == found || said == by_frame && has_frame(found)
}

/// Recipes from functions that set up a frame pointer at once, for every call that leads to one.
#[test]
fn frames_of_called_functions_are_not_wrong() {
    let (mut right, mut around, mut all) = (0, 0, 0);
    for name in ["libc.so.6", "libm.so.6", "libstdc++.so.6", "libcrypto.so.3"] {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let hidden = blind(&data);
        let image = Image::parse(&hidden).expect("an ELF image");
        let said_of: BTreeMap<Svma, Recipe> = said_of_calls(&data).into_iter().collect();
        // True if the compiler has a recipe for the call. It must be the same.
        let is_told = |at: Svma, recipe: Recipe, by: Svma| {
            let said = said_of.get(&at);
            let is_right = said.is_none_or(|&said| is_same_frame(said, recipe));
            assert!(
                is_right,
                "{name} {:#x} by {:#x}: {recipe:?} {said:?}",
                at.0, by.0
            );
            said.is_some()
        };
        let called = said_of
            .keys()
            .flat_map(|&after| callees_seen(&image, after));
        let called: BTreeSet<Svma> = called.collect();
        let further = called.iter().flat_map(|&entry| callees_of(&image, entry));
        let called: BTreeSet<Svma> = called.iter().copied().chain(further).collect();
        for entry in called {
            for (after, recipe) in frames_called(&image, entry) {
                right += usize::from(is_told(after, recipe, entry));
            }
        }
        for &after in said_of.keys().step_by(11) {
            for (at, recipe) in frames_around(&image, after) {
                around += usize::from(is_told(at, recipe, after));
            }
        }
        all += said_of.len();
    }
    println!(
        "{all} calls: {right} right of functions that are called, {around} of those around a call"
    );
    assert!(right > 100 && around > 100, "{right} {around}");
}
