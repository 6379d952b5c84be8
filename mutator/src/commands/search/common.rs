//! Common addresses for code of several processes. A file is at the same common addresses in each
//! of them.
//!
//! The common address of code is its address in the first process that has its file. Forked
//! processes have the same files at the same addresses, so there all addresses are equal.

use std::collections::BTreeMap;
use std::ops::Range;

use patcher::Avma;

use ipath_target::process::modules::Module;

/// A file, or a part of one that is mapped more than once: its path, the mapped file, and the
/// offset of its first code in the file, in bytes.
type File = (String, (String, u64), u64);

/// Above all addresses of programs, which have 47 bits (Documentation/arch/x86/x86_64/mm.rst).
const FREE: u64 = 1 << 48;

/// The common addresses of each file.
#[derive(Default)]
pub(super) struct Common {
    files: BTreeMap<File, Range<u64>>,
    /// The end of the addresses given to files whose own addresses were taken.
    end: u64,
}

/// Maps addresses of one process to common addresses and back.
#[derive(Default)]
pub(super) struct Shifts {
    /// The range of each file in the process and its first common address. `None` if all addresses
    /// are equal.
    files: Option<Vec<(Range<u64>, u64)>>,
}

impl Common {
    /// The shifts of a process with these modules.
    pub(super) fn shifts<'m>(&mut self, modules: impl Iterator<Item = &'m Module>) -> Shifts {
        let shift = |module: &Module| {
            let range = module.range.start.0..module.range.end.0;
            let first = module.code.first();
            let file = first.map(|mapping| mapping.file.clone());
            let offset = first.map_or(0, |mapping| mapping.offset.0);
            let file = (module.path.clone(), file.unwrap_or_default(), offset);
            let common = self.place(file, range.clone());
            (range, common)
        };
        Shifts {
            files: Some(modules.map(shift).collect()),
        }
    }

    /// The first common address of a file that a process has mapped in this range.
    fn place(&mut self, file: File, range: Range<u64>) -> u64 {
        if let Some(known) = self.files.get(&file) {
            return known.start;
        }
        let overlaps = |known: &Range<u64>| known.start < range.end && range.start < known.end;
        let start = if self.files.values().any(overlaps) {
            self.end.max(FREE)
        } else {
            range.start
        };
        let end = start.saturating_add(range.end - range.start);
        if start >= FREE {
            self.end = end;
        }
        self.files.insert(file, start..end);
        start
    }
}

impl Shifts {
    /// The common address of one of the process's own. Code outside files keeps its address.
    pub(super) fn to_common(&self, at: Avma) -> Avma {
        let mut files = self.files.iter().flatten();
        match files.find(|(range, _)| range.contains(&at.0)) {
            Some((range, common)) => Avma(at.0 - range.start + common),
            None => at,
        }
    }

    /// The process's own address of a common address. `None` if the process does not have the file.
    pub(super) fn to_own(&self, at: Avma) -> Option<Avma> {
        let Some(files) = &self.files else {
            return Some(at);
        };
        let contains = |(range, common): &&(Range<u64>, u64)| {
            (*common..common + (range.end - range.start)).contains(&at.0)
        };
        let (range, common) = files.iter().find(contains)?;
        Some(Avma(at.0 - common + range.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_same_common_addresses_in_each_process() {
        let file = |name: &str| (name.to_owned(), (String::new(), 0), 0);
        let mut common = Common::default();
        let mut shifts = |files: &[(&str, u64)]| {
            let shift = |&(name, start): &(&str, u64)| {
                let range = start..start + 0x1000;
                let at = common.place(file(name), range.clone());
                (range, at)
            };
            Shifts {
                files: Some(files.iter().map(shift).collect()),
            }
        };
        let first = shifts(&[("app", 0x5000), ("libc", 0x9000)]);
        // The second program has libc elsewhere, and overlaps the address of the first one's
        // program.
        let second = shifts(&[("tool", 0x5800), ("libc", 0x7000)]);
        assert_eq!(first.to_common(Avma(0x9010)), Avma(0x9010));
        assert_eq!(second.to_common(Avma(0x7010)), Avma(0x9010));
        assert_eq!(second.to_own(Avma(0x9010)), Some(Avma(0x7010)));
        let tool = second.to_common(Avma(0x5810));
        assert_eq!(tool, Avma(FREE + 0x10));
        assert_eq!(second.to_own(tool), Some(Avma(0x5810)));
        assert_eq!(
            (first.to_own(tool), second.to_own(Avma(0x5010))),
            (None, None)
        );
        let same = Shifts::default();
        assert_eq!(
            (same.to_common(tool), same.to_own(tool)),
            (tool, Some(tool))
        );
    }
}
