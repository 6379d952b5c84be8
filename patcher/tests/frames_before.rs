//! Compares frames before each instruction with the compiler's unwind tables. The frames are
//! derived from the instructions, with the tables hidden. `--nocapture` shows the figures.

mod compiler;
mod libraries;

use compiler::Compiler;
use goblin::elf::Elf;
use goblin::elf::program_header::PT_GNU_EH_FRAME;
use iced_x86::{Decoder, DecoderOptions};
use patcher::Svma;
use patcher::flow::{Base, Frame, FrameBefore, ModuleContext, Recipe, frames_before};
use patcher::function::{Function, FunctionKind};
use patcher::image::Image;

const LIBRARIES: [&str; 4] = [
    "libc.so.6",
    "libstdc++.so.6",
    "libcrypto.so.3",
    "libpython3.11.so.1.0",
];

/// The file with hidden unwind tables. The reference to their index is removed, and a terminator
/// (LSB 5, 10.6.1) replaces the first entry.
fn without_tables(data: &[u8]) -> Vec<u8> {
    let elf = Elf::parse(data).expect("an ELF file");
    let name = |at| elf.shdr_strtab.get_at(at);
    let mut sections = elf.section_headers.iter();
    let section = sections.find(|s| name(s.sh_name) == Some(".eh_frame"));
    let first = section.expect("unwind tables").sh_offset as usize;
    let mut headers = elf.program_headers.iter();
    let index = headers.position(|p| p.p_type == PT_GNU_EH_FRAME);
    let size = usize::from(elf.header.e_phentsize);
    let header = elf.header.e_phoff as usize + index.expect("an index") * size;
    let mut data = data.to_owned();
    for field in [header, first] {
        data[field..field + 4].fill(0);
    }
    data
}

fn instructions(image: &Image<'_>, function: &Function) -> Vec<Svma> {
    let range = &function.range;
    let code = image.bytes(range.start, range.end.0 - range.start.0);
    let code = code.unwrap_or_default();
    let decoder = Decoder::with_ip(64, code, range.start.0, DecoderOptions::NONE);
    decoder.into_iter().map(|insn| Svma(insn.ip())).collect()
}

/// The functions that have a name and code.
fn functions(image: &Image<'_>) -> Vec<Function> {
    let all = image.functions().iter();
    all.filter(|f| f.kind != FunctionKind::Ifunc && !f.linkage.is_empty())
        .collect()
}

/// The compiler's frame, and the register that it is relative to. `None` if neither the stack
/// pointer nor the frame pointer alone locates the frame.
fn frame(recipe: Recipe) -> Option<(Base, Frame)> {
    match recipe {
        Recipe::FromStackPointer(frame) => Some((Base::StackPointer, frame)),
        Recipe::FromFramePointer(frame) => Some((Base::FramePointer, frame)),
        Recipe::Realigned { .. } | Recipe::Ambiguous | Recipe::Outermost => None,
    }
}

/// The numbers of instructions, by the relation of both frames.
#[derive(Default)]
struct Agreement {
    same: usize,
    /// Both are right, but one is relative to the stack pointer, the other to the frame pointer.
    by_other_register: usize,
    /// The compiler still states the save slot after the caller's rbp has been restored.
    put_back: usize,
    /// The compiler states that the function has no caller.
    outermost: usize,
    missing: usize,
    different: Vec<String>,
}

impl Agreement {
    fn add(&mut self, name: &str, at: Svma, ours: FrameBefore, theirs: Recipe) {
        let same_rbp = |theirs: Frame| {
            let [ours, theirs] = [ours.frame, theirs].map(|f| f.caller_frame_pointer);
            ours == theirs || ours == 0
        };
        match frame(theirs) {
            None => self.outermost += 1,
            Some((base, frame)) if base == ours.base && frame == ours.frame => self.same += 1,
            Some((base, frame)) if base != ours.base && same_rbp(frame) => {
                self.by_other_register += 1;
            }
            Some((_, frame)) if frame.cfa == ours.frame.cfa && same_rbp(frame) => {
                self.put_back += 1;
            }
            _ => self
                .different
                .push(format!("{name} {at}: {ours:?}, the compiler: {theirs:?}")),
        }
    }
}

#[test]
fn frames_by_instructions_are_what_the_compiler_says() {
    for name in LIBRARIES {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let hidden = without_tables(&data);
        let (image, whole) = (Image::parse(&hidden), Image::parse(&data));
        let (image, whole) = (image.expect("an image"), whole.expect("an image"));
        let context = ModuleContext::new(&image);
        let mut compiler = Compiler::new(&whole);
        let mut found = Agreement::default();
        for function in functions(&whole) {
            let points = instructions(&image, &function);
            let frames = frames_before(&image, &context, &function, &points);
            for (&at, ours) in points.iter().zip(frames) {
                match (ours, compiler.says_before(at)) {
                    (Some(ours), Some(theirs)) => found.add(&function.linkage, at, ours, theirs),
                    (None, Some(_)) => found.missing += 1,
                    (_, None) => {}
                }
            }
        }
        println!(
            "{name}: {} the same, {} by the other register, {} put back, {} missing, {} different",
            found.same,
            found.by_other_register,
            found.put_back,
            found.missing,
            found.different.len()
        );
        assert_eq!(found.different, [""; 0], "{name}");
        // At the start of a thread, before the tables declare it outermost.
        assert!(found.outermost < 4, "{name}: {}", found.outermost);
        assert!(found.same > 1000, "{name}");
    }
}

/// Almost all instructions of libraries can be counted by call path.
#[test]
fn frames_are_known_before_almost_every_instruction() {
    for name in LIBRARIES {
        let Some(data) = libraries::library(name) else {
            continue;
        };
        let image = Image::parse(&data).expect("an image");
        let context = ModuleContext::new(&image);
        let (mut all, mut known, mut with_others) = (0, 0, 0);
        for function in functions(&image) {
            let points = instructions(&image, &function);
            let frames = frames_before(&image, &context, &function, &points);
            all += frames.len();
            known += frames.iter().flatten().count();
            with_others += frames
                .iter()
                .flatten()
                .filter(|f| f.others.is_some())
                .count();
        }
        println!("{name}: {known} of {all} known, {with_others} with all registers");
        assert!(known * 100 > all * 90, "{name}: {known} of {all}");
    }
}
