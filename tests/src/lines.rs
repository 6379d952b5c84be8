//! Programs whose executions of source lines are known: by gcov, or by the program itself.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use crate::command::Run;
use crate::compile::source;
use crate::place::Scratch;

/// Counts by `FILE:LINE`.
pub type Lines = BTreeMap<String, u64>;

/// A program in its own folder, compiled from copies of its sources, and a profile of its counted
/// functions.
pub struct Counted {
    /// The folder.
    pub scratch: Scratch,
    /// The profile.
    pub file: PathBuf,
    /// The program's output.
    pub output: String,
}

impl Counted {
    /// Compiles `tests/programs/own_lines.c` with these flags, and counts the edges of its function
    /// `work`.
    ///
    /// # Panics
    /// If that fails.
    pub fn new(name: &str, flags: &[&str]) -> Self {
        let scratch = Scratch::new(name);
        for file in ["own_lines.c", "own_lines.h"] {
            // The copies are older than the program.
            fs::copy(source(file), scratch.file(file)).expect("an own folder");
        }
        let program = scratch.file("own_lines");
        let gcc = Run::new("gcc").args(["-g", "-pthread"]).args(flags);
        let gcc = gcc.arg("-o").arg(&program);
        gcc.arg(scratch.file("own_lines.c")).run().expect(0);
        let file = scratch.file("p.json");
        let run = Run::ipath(["run", "--no-tui", "--edges", "work", "-o"]).arg(&file);
        let run = run.arg("--").arg(&program).arg("21").run().expect(0);
        Self {
            scratch,
            file,
            output: run.stdout,
        }
    }

    /// The executions that the program has counted itself.
    pub fn own(&self) -> Lines {
        let lines = self.output.lines();
        let pairs = lines.filter_map(|line| line.split_once(' '));
        let pairs = pairs.filter(|(place, _)| place.starts_with("own_lines."));
        pairs
            .map(|(p, n)| (p.to_owned(), n.parse().expect("a count")))
            .collect()
    }

    /// The executions of lines of `own_lines.c` in `work` that gcov counts.
    ///
    /// # Panics
    /// If gcov fails.
    pub fn by_gcov(&self) -> Lines {
        let program = self.scratch.file("instrumented");
        let folder = self.scratch.path().display();
        let script = format!(
            "cd '{folder}' && gcc -O0 --coverage -o '{}' own_lines.c && '{}' 21 > /dev/null && \
            gcov -t instrumented-own_lines.gcda",
            program.display(),
            program.display()
        );
        let run = Run::new("bash").args(["-c", &script]).run().expect(0);
        let text = fs::read_to_string(self.scratch.file("own_lines.c")).expect("a source");
        let line_of = |text: &str, start: usize| text[..start].lines().count() as u64;
        let start = text.find("NOINLINE long work").expect("the function");
        let end = start + text[start..].find("\n}\n").expect("its end");
        // gcov counts the calls at the line with the name, the debug information at the next one.
        let lines = line_of(&text, start) + 2..=line_of(&text, end);
        let mut counts = Lines::new();
        let mut is_source = false;
        for line in run.stdout.lines() {
            // COUNT:LINE:TEXT. Line 0 names the source.
            let mut parts = line.splitn(3, ':').map(str::trim);
            let (Some(count), Some(number)) = (parts.next(), parts.next()) else {
                continue;
            };
            let number: u64 = number.parse().expect("a line");
            if number == 0 {
                let name = parts.next().and_then(|text| text.strip_prefix("Source:"));
                is_source = name.map_or(is_source, |name| name.ends_with("own_lines.c"));
            } else if is_source && lines.contains(&number) && count != "-" {
                let count = count.trim_end_matches('*').parse().unwrap_or(0);
                counts.insert(format!("own_lines.c:{number}"), count);
            }
        }
        counts
    }

    /// Exports the profile to `out`, and returns its path.
    ///
    /// # Panics
    /// If the export fails.
    pub fn export(&self, format: &str) -> PathBuf {
        let out = self.scratch.file("out");
        let run = Run::ipath(["export", "--to", format]).arg(&self.file);
        run.arg("-o").arg(&out).run().expect(0);
        out
    }
}
