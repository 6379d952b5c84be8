//! Recipes for the frames of Go's functions, from the table of Go's runtime. They are compared with
//! the linker's `.debug_frame` for the same calls, and with the instructions. `--nocapture` shows
//! the figures.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use gimli::{
    BaseAddresses, CfaRule, CieOrFde, DebugFrame, LittleEndian, UnwindContext, UnwindSection,
    X86_64,
};
use iced_x86::{Decoder, DecoderOptions, FlowControl, Mnemonic, Register};
use patcher::Svma;
use patcher::flow::{ModuleContext, Recipe, frames, recipes};
use patcher::image::Image;

/// The program `go_switch.go`, built with the flag `mode`.
fn built(mode: &str) -> Vec<u8> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/programs/go_switch.go");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    // Several tests may build at the same time.
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let (process, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let out = folder.join(format!("go_switch-{process}-{number}"));
    let built = Command::new("go")
        .args(["build", mode, "-ldflags=-compressdwarf=false", "-o"])
        .args([&out, &source])
        .env("GOCACHE", folder.join("go-cache"))
        .output()
        .expect("go runs");
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    let data = std::fs::read(&out).expect("a program");
    // Only the bytes are needed.
    let _ = std::fs::remove_file(out);
    data
}

/// The function around each return address in the file's text, and the linker's distance from rsp
/// to the canonical frame address, in bytes.
fn said(image: &Image<'_>) -> BTreeMap<Svma, (Svma, i64)> {
    let (_, section) = image.section(".debug_frame").expect("it is not stripped");
    let mut section = DebugFrame::new(section, LittleEndian);
    section.set_address_size(8);
    let bases = BaseAddresses::default();
    let mut context = UnwindContext::new();
    let mut entries = section.entries(&bases);
    let mut found = BTreeMap::new();
    while let Some(entry) = entries.next().expect("a sound section") {
        let CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let fde = partial.parse(DebugFrame::cie_from_offset).expect("sound");
        let start = fde.initial_address();
        let code = image.bytes(Svma(start), fde.len()).unwrap_or_default();
        for insn in Decoder::with_ip(64, code, start, DecoderOptions::NONE) {
            let is_call = matches!(
                insn.flow_control(),
                FlowControl::Call | FlowControl::IndirectCall
            );
            let row = is_call
                .then(|| fde.unwind_info_for_address(&section, &bases, &mut context, insn.ip()));
            if let Some(Ok(row)) = row
                && let CfaRule::RegisterAndOffset {
                    register: X86_64::RSP,
                    offset,
                } = *row.cfa()
            {
                found.insert(Svma(insn.next_ip()), (Svma(start), offset));
            }
        }
    }
    found
}

/// True if the function switches to another stack or aligns the stack. The linker's statements on
/// its calls are wrong in this case.
fn switches(image: &Image<'_>, function: Svma) -> bool {
    let found = image.functions().function_at(function);
    let range = found.expect("it is in the table").range;
    let code = image.bytes(range.start, range.end.0 - range.start.0);
    let code = code.unwrap_or_default();
    Decoder::with_ip(64, code, range.start.0, DecoderOptions::NONE)
        .into_iter()
        .any(|insn| {
            matches!(insn.mnemonic(), Mnemonic::Mov | Mnemonic::And)
                && insn.op0_register() == Register::RSP
        })
}

#[test]
fn frames_of_go_are_what_its_linker_says() {
    for mode in ["-buildmode=exe", "-buildmode=pie"] {
        let data = built(mode);
        let image = Image::parse(&data).expect("an ELF image");
        let context = ModuleContext::new(&image);
        let ours = frames(&image, &&context, None);
        let (mut same, mut otherwise) = (0, 0);
        for (after, (function, cfa)) in said(&image) {
            match ours.get(&after) {
                Some(Recipe::FromStackPointer(frame)) => {
                    assert_eq!(i64::from(frame.cfa), cfa, "{function} {after}");
                    same += 1;
                }
                Some(Recipe::Outermost) => {}
                Some(_) | None => {
                    assert!(switches(&image, function), "{function} {after}");
                    otherwise += 1;
                }
            }
        }
        println!("{mode}: {same} the same, {otherwise} where the stack is switched");
        assert!(same > 5_000, "{same}");
    }
}

/// If the instructions alone give a recipe, it is the same, including the caller's frame pointer.
#[test]
fn frames_of_go_are_what_its_instructions_say() {
    let data = built("-buildmode=exe");
    let image = Image::parse(&data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let table = frames(&image, &&context, None);
    let mut same = 0;
    for function in image.functions().iter() {
        for (after, recipe) in recipes(&image, &context, &function) {
            match table.get(&after) {
                Some(Recipe::Outermost) => {}
                stated => {
                    assert_eq!(stated, Some(&recipe), "{} {after}", function.name());
                    same += 1;
                }
            }
        }
    }
    println!("{same} the same");
    assert!(same > 5_000, "{same}");
}

/// The header lacks the text start, as Go's linker writes it from Go 1.26 on, and as an external
/// linker does. The module record contains it.
#[test]
fn frames_of_go_are_known_without_the_start_of_its_text() {
    for mode in ["-buildmode=exe", "-buildmode=pie"] {
        let mut data = built(mode);
        let known = frames_in(&data);
        assert!(known.len() > 1000, "{mode}: {}", known.len());
        let image = Image::parse(&data).expect("an ELF image");
        let names = [".gopclntab", ".data.rel.ro.gopclntab"];
        let table = names.iter().find_map(|name| image.section(name));
        let (_, table) = table.expect("a table of functions");
        let at = table.as_ptr() as usize - data.as_ptr() as usize + TEXT;
        assert_ne!(data[at..at + 8], [0; 8], "{mode}: nothing to take away");
        data[at..at + 8].fill(0);
        assert!(frames_in(&data) == known, "{mode}");
    }
}

/// The offset of the text start in the header.
const TEXT: usize = 24;

fn frames_in(data: &[u8]) -> BTreeMap<Svma, Recipe> {
    let image = Image::parse(data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    frames(&image, &&context, None)
}
