//! Damaged files: whatever they contain, nothing panics and memory stays bounded.

use std::sync::LazyLock;

use proptest::prelude::*;

use super::Pattern;
use crate::addr::Svma;
use crate::image::Image;
use crate::oracle::{self, Folder};

static C: LazyLock<Vec<u8>> = LazyLock::new(|| Folder::new().build("cc", &["-O2"], &oracle::C));
static CPP: LazyLock<Vec<u8>> =
    LazyLock::new(|| Folder::new().build("c++", &["-O2"], &[oracle::CPP]));

/// Runs every query on a file.
fn exercise(data: &[u8]) {
    let Ok(image) = Image::parse(data) else {
        return;
    };
    let _ = (image.build_id(), image.interpreter(), image.entry());
    for section in image.sections() {
        image.section(section.name);
        image.section_compressed(section.name);
    }
    let table = image.functions();
    // A file needs at least two bytes to describe a function.
    assert!(table.len() <= data.len() / 2, "{} functions", table.len());
    for function in table.iter() {
        let (start, end) = (function.range.start, function.range.end);
        assert!(start < end, "{function:?}");
        assert!(image.bytes(start, 1).is_some(), "{function:?}");
        assert!(function.aliases.len() <= data.len() / 24);
        let found = table.containing(start).expect("it is in its own range");
        assert!(found.start <= start && start.0 - found.start.0 < found.size);
        let _ = (function.name(), function.base_and_clone());
        for at in [start, Svma(end.0 - 1), end] {
            image.cfa_from_stack_pointer(at);
            image.plt_name(at);
            if let Some(fde) = image.fde(at) {
                assert!(fde.range.contains(&at));
                assert!(image.landing_pads(&fde).len() <= data.len());
                image.all_landing_pads(&fde);
            }
        }
    }
    for text in [
        "main",
        "ns::work",
        "*w*",
        "/t.*e/",
        "twice",
        "ns::templated<int>(int)",
        "a+0x1189",
    ] {
        let pattern = Pattern::parse(text).expect("a pattern");
        pattern.select(&image, "app");
        pattern.suggestions(&image, 3);
    }
}

/// The offsets at which damage has the most effect: headers, and sections that are read.
fn sensitive(data: &[u8]) -> Vec<usize> {
    let image = Image::parse(data).expect("it is whole");
    let mut places: Vec<usize> = (0..64 + 56 * 13).collect();
    let section_headers = u64::from_le_bytes(data[0x28..0x30].try_into().unwrap()) as usize;
    places.extend(section_headers..data.len());
    for name in [
        ".symtab",
        ".dynsym",
        ".eh_frame",
        ".eh_frame_hdr",
        ".gcc_except_table",
        ".rela.plt",
    ] {
        if let Some((_, bytes)) = image.section(name) {
            let at = bytes.as_ptr() as usize - data.as_ptr() as usize;
            places.extend(at..at + bytes.len());
        }
    }
    places
}

static PLACES: LazyLock<[Vec<usize>; 2]> = LazyLock::new(|| [sensitive(&C), sensitive(&CPP)]);

/// A byte that is likely to cause an error.
fn byte() -> impl Strategy<Value = u8> {
    prop_oneof![any::<u8>(), Just(0), Just(0xff), Just(0x7f), Just(0x80)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn damaged_headers_and_tables(
        cpp in any::<bool>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), byte(), 1usize..9), 1..12),
    ) {
        let places = &PLACES[usize::from(cpp)];
        let mut data = if cpp { CPP.clone() } else { C.clone() };
        for (place, byte, len) in changes {
            let at = places[place.index(places.len())];
            let end = (at + len).min(data.len());
            data[at..end].fill(byte);
        }
        exercise(&data);
    }

    #[test]
    fn files_cut_short(cpp in any::<bool>(), len in any::<prop::sample::Index>()) {
        let data: &[u8] = if cpp { &CPP } else { &C };
        exercise(&data[..len.index(data.len())]);
    }

    #[test]
    fn damage_without_section_headers(
        changes in prop::collection::vec((any::<prop::sample::Index>(), byte(), 1usize..9), 1..12),
    ) {
        let places = &PLACES[1];
        let mut data = oracle::without_sections(CPP.clone());
        for (place, byte, len) in changes {
            let at = places[place.index(places.len())];
            let end = (at + len).min(data.len());
            data[at..end].fill(byte);
        }
        exercise(&data);
    }

    #[test]
    fn any_text_is_a_pattern_or_an_error(text in "\\PC{0,40}", mangled in "_[ZR][A-Za-z0-9_.$]{0,60}") {
        for text in [text, mangled] {
            if let Ok(pattern) = Pattern::parse(&text) {
                assert_eq!(pattern.text(), text);
                pattern.module_matches(&text);
                pattern.select(&Image::parse(&C).expect("it is whole"), "app");
            }
            crate::function::demangle(&text);
            crate::function::demangle_without_arguments(&text);
        }
    }
}

#[test]
fn whole_files_pass() {
    exercise(&C);
    exercise(&CPP);
}
