//! ELF images: functions, plans, selection, source lines, values.

use ipath_fuzz::{Target, mutate, run};
use ipath_symbols::lines::{Lines, Places, symbol_file};
use ipath_symbols::values::{Item, Values};
use patcher::flow::{frames, recipes};
use patcher::image::Image;
use patcher::isa::{Texts, decode};
use patcher::plan::{Effects, ModuleContext, plan};
use patcher::select::Pattern;

const TARGET: Target = Target {
    name: "elf",
    corpus: "elf",
    change: mutate::elf,
    cases: 400,
};

/// The number of functions planned for a file.
const FUNCTIONS: usize = 24;
/// The number of bytes of a function that are written as instructions.
const LISTED: u64 = 256;

#[test]
fn elf_of_any_bytes_is_read_or_rejected() {
    let patterns = ["work*", "/r.g/", "main"].map(|text| Pattern::parse(text).expect("a pattern"));
    run(&TARGET, |input| read(input, &patterns));
}

fn read(input: &[u8], patterns: &[Pattern]) -> bool {
    // The command also uses the parser directly.
    if let Ok(elf) = goblin::elf::Elf::parse(input) {
        assert!(elf.dynrelas.iter().count() <= input.len());
    }
    let Ok(image) = Image::parse(input) else {
        return false;
    };
    let (_, _, _) = (image.build_id(), image.interpreter(), image.entry());
    let context = ModuleContext::new(&image);
    let want = Effects {
        entry: true,
        exits: true,
    };
    for function in image.functions().iter().take(FUNCTIONS) {
        let plan = plan(&image, &context, &function, want);
        assert_eq!(plan.function, function);
        let start = function.range.start;
        if let Some(fde) = image.fde(start) {
            let _ = (
                image.landing_pads(&fde),
                image.cfa_from_stack_pointer(start),
            );
        }
        let _ = (image.plt_name(start), recipes(&image, &context, &function));
    }
    let mut texts = Texts::default();
    for function in image.functions().iter().take(FUNCTIONS) {
        let start = function.range.start;
        let size = (function.range.end.0 - start.0).min(LISTED);
        for insn in decode(image.bytes(start, size).unwrap_or_default(), start) {
            assert!(!texts.of(&insn).is_empty());
        }
    }
    for pattern in patterns {
        let _ = (
            pattern.select(&image, "app"),
            pattern.suggestions(&image, 3),
        );
    }
    if let Ok(image) = Image::parse(input) {
        image.with_symbols_of(input).functions();
    }
    let gaps = image.uncovered_calls();
    assert!(gaps.is_sorted_by(|a, b| a.end <= b.start));
    assert!(image.functions().overlapping(&gaps).len() <= image.functions().len());
    if let Some(frames) = image.frames() {
        assert!(frames.entries.is_sorted_by_key(|entry| entry.0));
    }
    let described = ipath_symbols::lines::section(input, ".debug_frame");
    frames(&image, &&context, described.as_deref());
    if let Some(symbols) = symbol_file(input, &Places::default()) {
        let _ = Image::parse(symbols.bytes());
    }
    let lines = Lines::load(input, &Places::default());
    let values = Values::new(input, lines.as_ref());
    for function in image.functions().iter().take(FUNCTIONS) {
        let signature = values.of(&function);
        for item in Item::all() {
            let _ = signature.read(item);
        }
    }
    if let Some(lines) = lines {
        for function in image.functions().iter().take(FUNCTIONS) {
            lines.lookup(function.range.start);
        }
        lines.inlined_copies(usize::MAX, |_| true, |_| None);
    }
    true
}
