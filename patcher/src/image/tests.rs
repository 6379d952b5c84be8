use std::path::Path;

use super::{CfaAt, Image, ImageError};
use crate::addr::Svma;
use crate::oracle::{self, Folder, LIBC};

fn expected(cfa: &str) -> CfaAt {
    match cfa.strip_prefix("rsp+") {
        Some(offset) => CfaAt::StackPointerPlus(offset.parse().unwrap()),
        None => CfaAt::Other,
    }
}

/// Compares every frame description and row of a file with readelf's output. Returns the number of
/// rows.
fn agrees_with_readelf(file: &Path) -> usize {
    let data = std::fs::read(file).unwrap();
    let image = Image::parse(&data).unwrap();
    let frames = oracle::frames(file);
    let mut count = 0;
    for frame in &frames {
        let fde = image.fde(Svma(frame.start)).expect("each is found");
        assert_eq!(fde.range, Svma(frame.start)..Svma(frame.end));
        assert_eq!(
            image.fde(Svma(frame.end - 1)).map(|f| f.range),
            Some(fde.range)
        );
        let ends = frame.rows.iter().skip(1).map(|r| r.0).chain([frame.end]);
        for ((at, cfa, is_outermost), end) in frame.rows.iter().zip(ends) {
            assert_eq!(
                image.cfa_from_stack_pointer(Svma(*at)),
                expected(cfa),
                "at {at:#x}"
            );
            assert_eq!(
                image.cfa_from_stack_pointer(Svma(end - 1)),
                expected(cfa),
                "before {end:#x}"
            );
            assert_eq!(image.is_outermost(Svma(*at)), *is_outermost, "at {at:#x}");
            count += 1;
        }
    }
    // An address between two of them has no description.
    let covered = |at| frames.iter().any(|f| f.start <= at && at < f.end);
    let gap = frames
        .iter()
        .map(|f| f.end)
        .find(|&end| !covered(end))
        .unwrap();
    assert_eq!(image.fde(Svma(gap)), None);
    assert_eq!(image.cfa_from_stack_pointer(Svma(gap)), CfaAt::Unknown);
    count
}

#[test]
fn frame_rows_of_libc_are_those_of_readelf() {
    assert!(agrees_with_readelf(Path::new(LIBC)) > 10_000);
}

#[test]
fn frame_rows_of_a_cpp_program_are_those_of_readelf() {
    let folder = Folder::new();
    folder.build("c++", &["-O2"], &[oracle::CPP]);
    assert!(agrees_with_readelf(&folder.0.join("out")) > 20);
}

#[test]
fn frames_are_found_without_section_headers() {
    let data = std::fs::read(LIBC).unwrap();
    let image = Image::parse(&data).unwrap();
    let stripped = oracle::without_sections(data.clone());
    let stripped = Image::parse(&stripped).unwrap();
    assert!(stripped.section(".text").is_none());
    let frames = |image: &Image<'_>| image.unwind().ranges().collect::<Vec<_>>();
    assert!(frames(&image).len() > 1000);
    assert_eq!(frames(&image), frames(&stripped));
}

#[test]
fn frames_after_a_terminator_are_found_through_the_index() {
    let mut data = std::fs::read(LIBC).unwrap();
    let before: Vec<_> = Image::parse(&data).unwrap().unwind().ranges().collect();
    let offset = {
        let image = Image::parse(&data).unwrap();
        let (_, bytes) = image.section(".eh_frame").unwrap();
        bytes.as_ptr() as usize - data.as_ptr() as usize
    };
    // The second entry becomes the terminator; the index still lists all others.
    let len = u32::from_le_bytes(data[offset..offset + 4].try_into().unwrap()) as usize;
    data[offset + 4 + len..][..4].fill(0);
    let after: Vec<_> = Image::parse(&data).unwrap().unwind().ranges().collect();
    assert_eq!(after.len(), before.len() - 1);
}

#[test]
fn landing_pads_are_where_exceptions_go() {
    let folder = Folder::new();
    let data = folder.build("c++", &["-O2", "-fcf-protection=none"], &[oracle::CPP]);
    let image = Image::parse(&data).unwrap();
    let catches = image
        .functions()
        .iter()
        .find(|f| f.name() == "catches(int)")
        .unwrap();
    // GCC puts the handlers into the cold part, which has a description of its own.
    let ranges = catches.ranges();
    let fdes: Vec<_> = ranges.map(|r| image.fde(r.start).unwrap()).collect();
    let pads: Vec<Svma> = fdes
        .iter()
        .flat_map(|f| image.all_landing_pads(f).unwrap())
        .collect();
    assert!(!pads.is_empty());
    let within =
        |at: &Svma| catches.range.contains(at) || catches.cold.iter().any(|c| c.contains(at));
    assert!(pads.iter().all(within), "{pads:?}");
    assert_eq!(
        pads,
        fdes.iter()
            .flat_map(|f| image.landing_pads(f))
            .collect::<Vec<_>>()
    );
    let main = image
        .functions()
        .iter()
        .find(|f| f.linkage == "_ZN2ns4workEi")
        .unwrap();
    assert!(
        image
            .landing_pads(&image.fde(main.range.start).unwrap())
            .is_empty()
    );
}

#[test]
fn an_unreadable_exception_table_is_told_from_an_empty_one() {
    let folder = Folder::new();
    let mut data = folder.build("c++", &["-O2"], &[oracle::CPP]);
    let (at, len) = {
        let image = Image::parse(&data).unwrap();
        let (_, bytes) = image.section(".gcc_except_table").unwrap();
        (
            bytes.as_ptr() as usize - data.as_ptr() as usize,
            bytes.len(),
        )
    };
    data[at..at + len].fill(0x7e);
    let image = Image::parse(&data).unwrap();
    let with_lsda: Vec<_> = image
        .functions()
        .iter()
        .filter_map(|f| image.fde(f.range.start))
        .collect();
    let with_lsda: Vec<_> = with_lsda.iter().filter(|f| f.lsda.is_some()).collect();
    assert!(!with_lsda.is_empty());
    assert!(
        with_lsda
            .iter()
            .all(|f| image.all_landing_pads(f).is_none())
    );
}

#[test]
fn stubs_are_named_after_what_they_call() {
    let folder = Folder::new();
    let data = folder.build("cc", &["-O2"], &oracle::C);
    let image = Image::parse(&data).unwrap();
    let plts = image.sections().iter().filter(|s| s.is_plt());
    let stubs = plts.flat_map(|s| (s.range().start.0..s.range().end.0).step_by(16));
    let names: Vec<&str> = stubs.filter_map(|at| image.plt_name(Svma(at))).collect();
    assert!(
        names.contains(&"puts") && names.contains(&"rand"),
        "{names:?}"
    );
    assert_eq!(image.plt_name(image.entry()), None);
}

#[test]
fn headers_are_read() {
    let folder = Folder::new();
    let data = folder.build("cc", &["-O2", "-Wl,--build-id=0x0123456789ab"], &oracle::C);
    let image = Image::parse(&data).unwrap();
    assert_eq!(
        image.build_id(),
        Some(&[0x01, 0x23, 0x45, 0x67, 0x89, 0xab][..])
    );
    assert_eq!(image.interpreter(), Some("/lib64/ld-linux-x86-64.so.2"));
    assert!(image.is_position_independent());
    assert!(image.is_code(image.entry()));
    let (text, bytes) = image.section(".text").unwrap();
    assert_eq!(image.bytes(text, bytes.len() as u64), Some(bytes));
    assert!(image.section(".bss").is_none());
    let bss = image
        .sections()
        .iter()
        .find(|s| s.name == ".bss")
        .unwrap()
        .range();
    assert_eq!(image.bytes(bss.start, bss.end.0 - bss.start.0), None);
    assert_eq!(image.bytes(text, u64::MAX), None);
    assert_eq!(image.segments().iter().filter(|s| s.execute).count(), 1);

    let compressed = folder.build("cc", &["-g", "-gz"], &oracle::C);
    let compressed = Image::parse(&compressed).unwrap();
    assert!(compressed.section(".debug_info").is_none());
    assert!(
        compressed
            .section_compressed(".debug_info")
            .is_some_and(|s| s.len() > 24)
    );
    assert!(compressed.section_compressed(".text").is_none());
}

#[test]
fn other_files_are_no_images() {
    let error = |data: &[u8]| Image::parse(data).err().unwrap();
    assert_eq!(error(b""), ImageError::NotElf);
    assert_eq!(error(b"#!/bin/sh\n"), ImageError::NotElf);
    assert!(matches!(error(b"\x7fELF"), ImageError::Malformed { .. }));
    let mut data = std::fs::read(LIBC).unwrap();
    data[4] = 1;
    assert_eq!(
        error(&data),
        ImageError::OtherMachine {
            class: 1,
            machine: 62
        }
    );
    data[4] = 2;
    data[18] = 183;
    assert_eq!(
        error(&data),
        ImageError::OtherMachine {
            class: 2,
            machine: 183
        }
    );
    assert!(matches!(
        error(&data[..100]),
        ImageError::OtherMachine { .. }
    ));
    data[18] = 62;
    assert!(matches!(error(&data[..100]), ImageError::Malformed { .. }));
}

/// Agrees with readelf's output of the property.
#[test]
fn shadow_stack_property() {
    let folder = Folder::new();
    for (flags, bears) in [
        (&["-Wl,-z,shstk"][..], true),
        (&["-Wl,-z,ibt"], false),
        (&["-Wl,-z,shstk,-z,ibt", "-static"], true),
        (&[], false),
    ] {
        let data = folder.build("cc", flags, &oracle::C);
        let notes = std::process::Command::new("readelf")
            .arg("-nW")
            .arg(folder.0.join("out"))
            .output();
        let notes = String::from_utf8_lossy(&notes.expect("binutils").stdout).into_owned();
        assert_eq!(notes.contains("SHSTK"), bears, "{flags:?}: {notes}");
        assert_eq!(
            Image::parse(&data).expect("an image").bears_shadow_stack(),
            bears,
            "{flags:?}"
        );
    }
}
