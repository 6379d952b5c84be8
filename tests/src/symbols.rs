//! Addresses of functions by binutils' nm, independent of ipath's own ELF reader.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// A function's first instruction, as the virtual address in its module's file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Site {
    /// The file name of the module, without folders and with links resolved.
    pub module: String,
    /// The virtual address in the file.
    pub address: u64,
}

/// Every function of `file` with this linkage or demangled name, by ascending address. A version
/// (`@...`) or parameters (`(...)`) after the name are ignored.
///
/// # Panics
/// If there is none.
pub fn sites(file: &Path, name: &str) -> Vec<Site> {
    let path = file
        .canonicalize()
        .unwrap_or_else(|e| panic!("find {}: {e}", file.display()));
    let module = path
        .file_name()
        .expect("a file has a name")
        .to_string_lossy()
        .into_owned();
    let wanted = |symbol: &str| {
        symbol == name
            || symbol.split(['@', '(']).next() == Some(name) && !symbol.contains("[clone")
    };
    let mut found = BTreeSet::new();
    for flags in [&[][..], &["-C"], &["-D"], &["-D", "-C"]] {
        let output = Command::new("nm")
            .args(flags)
            .arg("--defined-only")
            .arg(&path)
            .output();
        let output = output.unwrap_or_else(|e| panic!("start nm: {e}"));
        for line in String::from_utf8_lossy(&output.stdout).lines() {
            let mut fields = line.splitn(3, ' ');
            let (address, kind, symbol) = (fields.next(), fields.next(), fields.next());
            let code = matches!(kind, Some("T" | "t" | "W" | "w" | "i"));
            let address = address.and_then(|a| u64::from_str_radix(a, 16).ok());
            if let (true, Some(address), Some(symbol)) = (code, address, symbol)
                && wanted(symbol)
            {
                found.insert(address);
            }
        }
    }
    assert!(
        !found.is_empty(),
        "{} has no function {name}",
        path.display()
    );
    found
        .into_iter()
        .map(|address| Site {
            module: module.clone(),
            address,
        })
        .collect()
}

/// The file offset of the only function with this name. Requires a program whose code has equal
/// offsets and virtual addresses.
///
/// # Panics
/// If the file has no function with this name, or several.
pub fn file_offset(file: &Path, name: &str) -> u64 {
    let found = sites(file, name);
    assert_eq!(found.len(), 1, "{name} in {}", file.display());
    found[0].address
}

/// The address in the memory of a process of the function of [`file_offset`]. The process runs or
/// loads the file.
///
/// # Panics
/// If the process has not mapped it.
pub fn address_in(pid: u32, file: &Path, name: &str) -> u64 {
    let offset = file_offset(file, name);
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
    let number = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
    let path = file.canonicalize().expect("there");
    for line in maps
        .lines()
        .filter(|l| l.ends_with(&*path.to_string_lossy()))
    {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (start, end) = fields[0].split_once('-').expect("a range");
        let (start, end, first) = (number(start), number(end), number(fields[2]));
        if first <= offset && offset - first < end - start {
            return start + (offset - first);
        }
    }
    panic!("{name} of {} is not mapped in {pid}", file.display());
}

/// The sizes in bytes of all functions of the file whose size is known, by virtual address.
pub fn functions(file: &Path) -> BTreeMap<u64, u64> {
    let output = Command::new("nm")
        .args(["-S", "--defined-only"])
        .arg(file)
        .output();
    let output = output.unwrap_or_else(|e| panic!("start nm: {e}"));
    let text = String::from_utf8_lossy(&output.stdout);
    let number = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
    let sized = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        let &[start, size, kind, _] = fields.as_slice() else {
            return None;
        };
        matches!(kind, "T" | "t" | "W" | "w").then(|| (number(start), number(size)))
    });
    sized.collect()
}
