//! Where functions are, according to binutils' nm: independent of ipath's own reading of ELF.

use std::collections::BTreeSet;
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

/// Every function of `file` with exactly this linkage or demangled name.
///
/// # Panics
/// When there is none.
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
