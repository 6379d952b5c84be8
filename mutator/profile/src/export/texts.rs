//! The text of source lines, from the files that a profile names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use ipath_base::error::io_text;
use ipath_base::files::lines_of;

/// The longest text of a source line, in characters.
const LONGEST: usize = 200;

/// The texts of the lines that are needed. Each file is read once.
#[derive(Default)]
pub(super) struct Texts<'a>(BTreeMap<&'a str, Result<SourceFile, String>>);

struct SourceFile {
    modified: SystemTime,
    /// The needed lines by their numbers.
    lines: BTreeMap<u32, String>,
}

impl<'a> Texts<'a> {
    /// Reads these lines of the files on this machine.
    pub(super) fn read(needed: &BTreeMap<&'a str, BTreeSet<u32>>) -> Self {
        let read = needed
            .iter()
            .map(|(&file, lines)| (file, SourceFile::read(Path::new(file), lines)));
        Self(read.collect())
    }

    /// The lines of a file that was not modified after `time`, by their numbers.
    ///
    /// # Errors
    /// The reason for which the text is missing. `None` if the file was modified later.
    pub(super) fn until(
        &self,
        file: &str,
        time: SystemTime,
    ) -> Result<&BTreeMap<u32, String>, Option<&str>> {
        match self.0.get(file) {
            Some(Ok(file)) if file.modified > time => Err(None),
            Some(Ok(file)) => Ok(&file.lines),
            Some(Err(why)) => Err(Some(why)),
            None => Err(Some("it was not read")),
        }
    }
}

impl SourceFile {
    fn read(path: &Path, needed: &BTreeSet<u32>) -> Result<Self, String> {
        if !path.is_absolute() {
            return Err("its folder is not known".to_owned());
        }
        let metadata = fs::metadata(path).and_then(|metadata| metadata.modified());
        let modified = metadata.map_err(|error| io_text(&error))?;
        let all = lines_of(path).ok_or("not a readable file of at most 4 MiB")?;
        let text = |&line: &u32| {
            let index = usize::try_from(line).ok()?.checked_sub(1)?;
            Some((line, cut(all.get(index)?)))
        };
        Ok(Self {
            modified,
            lines: needed.iter().filter_map(text).collect(),
        })
    }
}

/// The start of a long line.
fn cut(line: &str) -> String {
    match line.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn texts_are_those_of_old_files() {
        let own = concat!(env!("CARGO_MANIFEST_DIR"), "/src/export/texts.rs");
        let lines = BTreeSet::from([0, 1, 100_000]);
        let needed = [own, "/nonexistent", "texts.rs", "/dev/zero"];
        let needed = needed.map(|file| (file, lines.clone()));
        let texts = Texts::read(&needed.into_iter().collect());
        let modified = fs::metadata(own).unwrap().modified().unwrap();
        let found = texts.until(own, modified).unwrap();
        assert_eq!(found.keys().collect::<Vec<_>>(), [&1]);
        assert!(found[&1].contains("The text of source lines"));
        let before = modified - Duration::from_nanos(1);
        for (file, time, why) in [
            (own, before, None),
            ("/nonexistent", modified, Some("no such file or directory")),
            ("texts.rs", modified, Some("its folder is not known")),
            (
                "/dev/zero",
                modified,
                Some("not a readable file of at most 4 MiB"),
            ),
            ("/other", modified, Some("it was not read")),
        ] {
            assert_eq!(texts.until(file, time), Err(why), "{file}");
        }
        assert_eq!(cut(&"é".repeat(300)).chars().count(), LONGEST + 1);
    }
}
