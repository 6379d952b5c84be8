//! Instructions of source lines: DWARF 5 section 6.2, the rows of line number programs.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use gimli::{Dwarf, LineProgramHeader, Reader as _, Unit};
use patcher::Svma;

use super::Lines;
use super::bytes::Reader;

impl Lines<'_> {
    /// The statements of files whose path `is_wanted`: the line of each, from 1, and the address of
    /// the instruction at which it begins (`is_stmt`). Ascending, each once. A path is as complete
    /// as the DWARF gives it. Includes addresses of code that the linker has left out. Unreadable
    /// units are skipped.
    pub fn statements(&self, is_wanted: impl Fn(&str) -> bool) -> BTreeSet<(u32, Svma)> {
        let mut found = BTreeSet::new();
        // As for lookups: the file may change while it is read.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            let dwarf = self.debug.dwarf();
            let mut headers = dwarf.units();
            while let Ok(Some(header)) = headers.next() {
                if let Ok(unit) = dwarf.unit(header) {
                    let _ = add_of_unit(&dwarf, &unit, &is_wanted, &mut found);
                }
            }
        }));
        found
    }
}

fn add_of_unit(
    dwarf: &Dwarf<Reader<'_>>,
    unit: &Unit<Reader<'_>>,
    is_wanted: impl Fn(&str) -> bool,
    found: &mut BTreeSet<(u32, Svma)>,
) -> gimli::Result<()> {
    let Some(program) = unit.line_program.clone() else {
        return Ok(());
    };
    let header = program.header();
    // Before version 5, files are numbered from 1.
    let first = u64::from(header.version() < 5);
    let numbers = first..first + header.file_names().len() as u64;
    let files: BTreeSet<u64> = numbers
        .filter(|&number| path(dwarf, unit, header, number).is_some_and(|path| is_wanted(&path)))
        .collect();
    if files.is_empty() {
        return Ok(());
    }
    let mut rows = program.rows();
    while let Some((_, row)) = rows.next_row()? {
        let line = row.line().and_then(|line| u32::try_from(line.get()).ok());
        if let Some(line) = line
            && row.is_stmt()
            && !row.end_sequence()
            && files.contains(&row.file_index())
        {
            found.insert((line, Svma(row.address())));
        }
    }
    Ok(())
}

/// The path of a file in a line number program.
pub(super) fn path(
    dwarf: &Dwarf<Reader<'_>>,
    unit: &Unit<Reader<'_>>,
    header: &LineProgramHeader<Reader<'_>>,
    number: u64,
) -> Option<String> {
    let file = header.file(number)?;
    let text = |value| {
        let text = dwarf.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().ok()?.into_owned())
    };
    let mut path = unit.comp_dir.as_ref().and_then(|dir| {
        let dir = dir.to_string_lossy().ok()?;
        Some(dir.into_owned())
    });
    let mut push = |part: String| match &mut path {
        Some(path) if !part.starts_with('/') => {
            path.push('/');
            path.push_str(part.trim_start_matches("./"));
        }
        _ => path = Some(part),
    };
    // In version 5, directory 0 is that of the unit.
    let directory = file.directory(header).and_then(text);
    directory.into_iter().for_each(&mut push);
    push(text(file.path_name())?);
    path.map(|path| plain(&path))
}

/// The path without `.`, and without `..` and the component before it. A link to a folder is not
/// resolved.
fn plain(path: &str) -> String {
    let mut components: Vec<&str> = Vec::new();
    for component in path.split('/') {
        let is_in_folder = components
            .last()
            .is_some_and(|last| !last.is_empty() && *last != "..");
        match component {
            "." => {}
            ".." if is_in_folder => drop(components.pop()),
            other => components.push(other),
        }
    }
    components.join("/")
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn paths_are_without_steps_up() {
        for (path, expected) in [
            ("/src/app/a.c", "/src/app/a.c"),
            ("/src/build/../app/./a.c", "/src/app/a.c"),
            ("/src/x/y/../../a.c", "/src/a.c"),
            ("../a.c", "../a.c"),
            ("../../x/../a.c", "../../a.c"),
            ("/../a.c", "/../a.c"),
        ] {
            assert_eq!(plain(path), expected);
        }
    }
}
