//! Checks that only files below `src/isa/` depend on the processor. No other file names a register,
//! an opcode or the decoder. Only files below `src/elf/` read ELF files.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

/// The folder of all code that depends on the processor.
const SEAM: &str = "isa";
/// Folders whose byte constants are those of file formats: numbers of ELF and DWARF, and
/// variable-length numbers.
const FORMATS: [&str; 2] = ["elf", "tables"];

/// Names of registers, in code and in comments.
const REGISTERS: &str =
    r"\b(?i:[re]?(ax|bx|cx|dx|si|di|bp|sp|ip)|r(8|9|1[0-5])[dwb]?|[xyz]mm\d+)\b";
/// The decoder and its types, machine types, and assembly.
const NAMES: &str = r"\biced_x86\b|\bMnemonic\b|\bOpKind\b|X86_64|\b(global_)?asm!";
/// The crate that reads ELF files.
const READER: &str = r"\bgoblin::";
/// The only folder that may use it, apart from the processor's numbers.
const READING: &str = "elf";
/// Bytes in the notation of opcodes.
const BYTES: &str = r"\b0x[0-9a-fA-F]{2}(_?u8)?\b";

/// Collects the files of a folder, by path relative to `root`.
fn files(root: &Path, below: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let path = below.join(entry.unwrap().file_name());
        if root.join(&path).is_dir() {
            files(root, &path, found);
        } else {
            found.push(path);
        }
    }
}

/// The text of a file without its tests, and the names of its test modules. Tests contain programs,
/// and these name registers and bytes.
fn without_tests(text: &str) -> (String, Vec<String>) {
    let (mut kept, mut modules) = (String::new(), Vec::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line != "#[cfg(test)]" {
            kept.push_str(line);
            kept.push('\n');
            continue;
        }
        let item = lines.next().unwrap_or_default();
        match item.trim_start_matches("pub(crate) ").strip_prefix("mod ") {
            Some(module) if module.ends_with(';') => modules.push(module.replace(';', "")),
            // Skip to the end of the item.
            _ if item.ends_with('{') => {
                let _ = lines.find(|line| *line == "}");
            }
            _ => {}
        }
    }
    (kept, modules)
}

#[test]
fn no_other_file_knows_the_processor() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut all = Vec::new();
    files(&root, Path::new(""), &mut all);
    let read = |path: &PathBuf| without_tests(&fs::read_to_string(root.join(path)).unwrap());
    let tests = all.iter().flat_map(|path| {
        let folder = path.parent().unwrap();
        let stem = path.file_stem().unwrap();
        let is_root = stem == "lib";
        let folder = if is_root {
            folder.to_owned()
        } else {
            folder.join(stem)
        };
        let modules = read(path).1;
        modules
            .into_iter()
            .map(move |name| folder.join(name + ".rs"))
    });
    let tests: BTreeSet<PathBuf> = tests.collect();
    let rules = [REGISTERS, NAMES, BYTES, READER];
    let [registers, names, bytes, reader] = rules.map(|rule| Regex::new(rule).unwrap());
    let mut found = Vec::new();
    let mut below = 0;
    for path in &all {
        let layer = path.components().next().unwrap().as_os_str();
        let layer = Path::new(layer).file_stem().unwrap();
        if layer == SEAM {
            below += 1;
            continue;
        }
        if tests.contains(path) {
            continue;
        }
        let is_format = FORMATS.iter().any(|format| layer == *format);
        for (number, line) in read(path).0.lines().enumerate() {
            let is_known = registers.is_match(line)
                || names.is_match(line)
                || !is_format && bytes.is_match(line)
                || layer != READING && reader.is_match(line);
            if is_known {
                found.push(format!("{}:{}: {line}", path.display(), number + 1));
            }
        }
    }
    assert!(below > 10 && all.len() > 5 * below, "the sources are seen");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn what_knows_the_processor_is_seen() {
    let rules = [REGISTERS, NAMES, BYTES].map(|rule| Regex::new(rule).unwrap());
    let is_seen = |line: &str| rules.iter().any(|rule| rule.is_match(line));
    for line in [
        "// rbp is kept",
        "Register::RSP",
        "use iced_x86::Code;",
        "mov %r10d, %eax",
        "[0x0f, opcode]",
        "asm!(\"nop\")",
    ] {
        assert!(is_seen(line), "{line}");
    }
    for line in ["let sum = 0x1000;", "the register", "let r = sip.ripe;"] {
        assert!(!is_seen(line), "{line}");
    }
}
