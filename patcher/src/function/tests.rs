use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{Function, FunctionKind};
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::decode;
use crate::oracle::{self, Folder, LIBC};

fn by_name<'f>(functions: &'f [Function], name: &str) -> &'f Function {
    let mut found = functions.iter().filter(|f| f.linkage == name);
    let first = found.next().unwrap_or_else(|| panic!("no {name}"));
    assert!(found.next().is_none(), "{name} twice");
    first
}

fn names(function: &Function) -> BTreeSet<&str> {
    let all = std::iter::once(&function.linkage).chain(&function.aliases);
    all.map(String::as_str).filter(|n| !n.is_empty()).collect()
}

/// Compares every function with readelf's list of symbols. Returns the number of symbols.
fn agrees_with_readelf(file: &Path) -> usize {
    let data = std::fs::read(file).unwrap();
    let image = Image::parse(&data).unwrap();
    let table = image.functions();
    let functions: BTreeMap<u64, Function> = table.iter().map(|f| (f.range.start.0, f)).collect();
    let mut known: BTreeMap<u64, BTreeSet<&str>> = BTreeMap::new();
    let symbols = oracle::symbols(file);
    let in_code = |s: &&oracle::Symbol| image.is_code(Svma(s.address));
    for symbol in symbols.iter().filter(in_code) {
        known
            .entry(symbol.address)
            .or_default()
            .insert(&symbol.name);
    }
    let is_function = |s: &&oracle::Symbol| s.kind == "FUNC" || s.kind == "IFUNC";
    let mut count = 0;
    for symbol in symbols.iter().filter(in_code).filter(is_function) {
        count += 1;
        let at = Svma(symbol.address);
        assert_eq!(table.containing(at).unwrap().start, at, "{symbol:?}");
        let Some(function) = functions.get(&symbol.address) else {
            assert!(symbol.name.contains(".cold"), "{symbol:?}");
            let owner = table.function_at(at).unwrap();
            assert!(owner.cold.iter().any(|c| c.start == at), "{symbol:?}");
            assert!(symbol.name.starts_with(&format!("{}.cold", owner.linkage)));
            continue;
        };
        assert!(
            names(function).contains(symbol.name.as_str()),
            "{symbol:?} {function:?}"
        );
        assert!(
            symbol.size == 0 || function.size() >= symbol.size,
            "{symbol:?}"
        );
        if symbol.kind == "IFUNC" {
            assert_eq!(function.kind, FunctionKind::Ifunc, "{symbol:?}");
        }
    }
    for (start, function) in &functions {
        let names = names(function);
        match function.kind {
            FunctionKind::UnwindOnly => assert!(names.is_empty()),
            _ => assert!(names.is_subset(&known[start]), "{function:?}"),
        }
        assert!(function.size() > 0);
    }
    for frame in oracle::frames(file) {
        let start = Svma(frame.start);
        let in_plt = image
            .sections()
            .iter()
            .any(|s| s.is_plt() && s.range().contains(&start));
        // Some descriptions begin with the padding before their function.
        let is_padded = known
            .range(frame.start + 1..frame.end)
            .any(|k| k.0 - frame.start < 16);
        if !in_plt && !frame.is_signal && !is_padded {
            assert!(table.containing(start).is_some(), "{start}");
        }
    }
    count
}

#[test]
fn functions_of_libc_are_those_of_readelf() {
    assert!(agrees_with_readelf(Path::new(LIBC)) > 2000);
}

#[test]
fn functions_of_a_c_program_are_those_of_readelf() {
    for flags in [
        &["-O2"][..],
        &["-O3"],
        &["-O0"],
        &["-O2", "-static"],
        &["-O2", "-no-pie"],
    ] {
        let folder = Folder::new();
        folder.build("cc", flags, &oracle::C);
        assert!(agrees_with_readelf(&folder.0.join("out")) > 10, "{flags:?}");
    }
}

#[test]
fn functions_of_a_cpp_program_are_those_of_readelf() {
    let folder = Folder::new();
    folder.build("c++", &["-O2"], &[oracle::CPP]);
    assert!(agrees_with_readelf(&folder.0.join("out")) > 10);
}

fn c_program(flags: &[&str]) -> Vec<u8> {
    Folder::new().build("cc", flags, &oracle::C)
}

#[test]
fn the_first_name_is_the_global_one() {
    let data = c_program(&["-O2"]);
    let image = Image::parse(&data).unwrap();
    let functions: Vec<Function> = image.functions().iter().collect();
    let function = by_name(&functions, "global_name");
    assert_eq!(function.aliases, ["weak_name"]);
    assert_eq!(function.kind, FunctionKind::Code);
}

#[test]
fn functions_of_one_name_are_kept_apart_with_their_cold_parts() {
    let folder = Folder::new();
    let data = folder.build("cc", &["-O2"], &oracle::C);
    // Without the names of source files, only the jumps determine the owners of parts.
    folder.run("objcopy", &["-N", "a.c", "-N", "b.c", "out", "no-files"]);
    for data in [data, folder.read("no-files")] {
        let image = Image::parse(&data).unwrap();
        let table = image.functions();
        let twice: Vec<Function> = table.iter().filter(|f| f.linkage == "twice").collect();
        assert_eq!(twice.len(), 2);
        for function in &twice {
            let [cold] = function.cold.as_slice() else {
                panic!("{function:?}")
            };
            let bytes = image.bytes(function.range.start, function.size()).unwrap();
            let jumps = decode(bytes, function.range.start).any(|i| i.target() == cold.start.0);
            assert!(jumps, "{function:?}");
            assert_eq!(table.function_at(cold.start).as_ref(), Some(function));
            let part = table.containing(cold.start).unwrap();
            assert_eq!(part.linkage, Some("twice.cold"));
        }
        assert_ne!(twice[0].cold, twice[1].cold);
    }
}

#[test]
fn numbered_cold_code_is_a_part_only_where_it_is_jumped_to() {
    let data = c_program(&["-O2"]);
    let image = Image::parse(&data).unwrap();
    let functions: Vec<Function> = image.functions().iter().collect();
    // LLVM's hot-cold splitting calls the functions that it splits off.
    assert!(by_name(&functions, "called").cold.is_empty());
    assert_eq!(by_name(&functions, "called.cold.1").size(), 1);
    assert_eq!(by_name(&functions, "jumped").cold.len(), 1);
    assert!(functions.iter().all(|f| f.linkage != "jumped.cold.0"));
}

#[test]
fn clones_are_kept_apart_and_named() {
    let data = c_program(&["-O2"]);
    let image = Image::parse(&data).unwrap();
    let table = image.functions();
    let clone = table
        .iter()
        .find(|f| f.linkage.starts_with("cloned."))
        .expect("a clone");
    let (base, suffix) = clone.base_and_clone();
    assert_eq!(base, "cloned");
    assert_eq!(format!("cloned.{}", suffix.unwrap()), clone.linkage);
    let original = Function {
        linkage: "cloned".to_owned(),
        range: Svma(0)..Svma(0),
        ..clone.clone()
    };
    assert_eq!(table.clones(&original), [clone.linkage]);
    let alone = table.iter().find(|f| f.linkage == "fixed").unwrap();
    assert!(table.clones(&alone).is_empty());
}

#[test]
fn assembler_labels_are_functions_where_nothing_else_is() {
    let data = c_program(&["-O2"]);
    let image = Image::parse(&data).unwrap();
    let functions: Vec<Function> = image.functions().iter().collect();
    // `xor eax, eax; ret`, up to the next symbol.
    assert_eq!(by_name(&functions, "labelled").size(), 3);
    assert_eq!(by_name(&functions, "sized_code").size(), 2);
    assert!(by_name(&functions, "unsized_code").size() >= 5);
    // One description covers more than the symbol's size.
    assert_eq!(by_name(&functions, "undersized_code").size(), 3);
    let absent = [
        "inside_label",
        "second_entry",
        "absolute_name",
        "in_data",
        "_etext",
        "etext",
    ];
    for function in &functions {
        assert!(
            absent.iter().all(|a| !names(function).contains(a)),
            "{function:?}"
        );
    }
    let inside = image
        .functions()
        .containing(by_name(&functions, "sized_code").range.start.plus(1));
    assert_eq!(inside.unwrap().linkage, Some("sized_code"));
}

#[test]
fn resolvers_are_marked() {
    let data = c_program(&["-O2"]);
    let image = Image::parse(&data).unwrap();
    let ifunc = image
        .functions()
        .iter()
        .find(|f| names(f).contains("resolved"))
        .unwrap();
    assert_eq!(ifunc.kind, FunctionKind::Ifunc);
    assert_eq!(names(&ifunc), BTreeSet::from(["resolve", "resolved"]));
}

#[test]
fn functions_of_a_stripped_file_are_known_from_their_frames() {
    let folder = Folder::new();
    let data = folder.build("cc", &["-O2"], &oracle::C);
    folder.run("strip", &["-o", "stripped", "out"]);
    let stripped = folder.read("stripped");
    let without_sections = oracle::without_sections(data.clone());
    let image = Image::parse(&data).unwrap();
    for bare in [&stripped, &without_sections] {
        let bare = Image::parse(bare).unwrap();
        let found: BTreeMap<Svma, Function> = bare
            .functions()
            .iter()
            .map(|f| (f.range.start, f))
            .collect();
        assert!(
            found
                .values()
                .all(|f| f.kind == FunctionKind::UnwindOnly && f.linkage.is_empty())
        );
        let mut count = 0;
        for function in image.functions().iter() {
            if image
                .fde(function.range.start)
                .is_some_and(|f| f.range == function.range)
            {
                let same = found.get(&function.range.start).map(|f| &f.range);
                assert_eq!(same, Some(&function.range), "{function:?}");
                count += 1;
            }
        }
        assert!(count > 8);
        for section in image.sections().iter().filter(|s| s.is_plt()) {
            let in_plt = found.range(section.range()).next();
            assert!(in_plt.is_none(), "{} {in_plt:?}", section.name);
        }
    }
}

/// The symbols of a debug file name the functions of the stripped file as in the original. Those of
/// another program do not.
#[test]
fn symbols_of_a_separate_file() {
    let folder = Folder::new();
    let whole = folder.build("cc", &["-O2"], &oracle::C);
    folder.run("objcopy", &["--only-keep-debug", "out", "symbols"]);
    folder.run("objcopy", &["--strip-all", "out", "stripped"]);
    let (stripped, symbols) = (folder.read("stripped"), folder.read("symbols"));
    let other = folder.build("cc", &["-O1"], &oracle::C);
    let all = |image: &Image<'_>| image.functions().iter().collect::<Vec<_>>();
    let expected = all(&Image::parse(&whole).unwrap());
    let bare = || Image::parse(&stripped).unwrap();
    assert_ne!(all(&bare()), expected);
    assert_eq!(all(&bare().with_symbols_of(&symbols)), expected);
    assert_eq!(all(&bare().with_symbols_of(&other)), all(&bare()));
    for len in 0..symbols.len() / 64 {
        all(&bare().with_symbols_of(&symbols[..len * 64]));
    }
}
