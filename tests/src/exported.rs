//! An exported profile, and the results of the tools that read it.

use crate::command::{Finished, Run};
use crate::compile::program_with;
use crate::place::Scratch;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// A profile in its own folder.
pub struct Exported {
    /// The folder with the profile and its exports.
    pub scratch: Scratch,
    /// The path of the profile.
    pub file: PathBuf,
    /// Its contents.
    pub profile: Value,
}

impl Exported {
    /// A profile of a program with nested probed functions. One path is incomplete, and some calls
    /// leave another one by a tail call.
    pub fn new(name: &str) -> Self {
        let scratch = Scratch::new(name);
        let file = scratch.file("p.json");
        measure("6", &file);
        let text = fs::read_to_string(&file).expect("a profile");
        let mut profile: Value = serde_json::from_str(&text).expect("JSON");
        profile["paths"][0]["complete"] = false.into();
        profile["paths"][1]["tail"] = 1.into();
        fs::write(&file, profile.to_string()).expect("an own folder");
        Self {
            scratch,
            file,
            profile,
        }
    }

    /// Exports it to `output`. Returns the ended command, whether or not it succeeded.
    pub fn export(&self, format: &str, output: &Path, options: &[&str]) -> Finished {
        let run = Run::ipath(["export"]).arg(&self.file);
        let run = run.args(["--to", format, "-o"]).arg(output).args(options);
        run.run()
    }

    /// Exports it to `out.FORMAT` in its folder, and returns that path.
    ///
    /// # Panics
    /// If the export fails.
    pub fn file(&self, format: &str, options: &[&str]) -> PathBuf {
        let output = self.scratch.file(&format!("out.{format}"));
        self.export(format, &output, options).expect(0);
        output
    }

    /// The sum over all functions of a metric: the number of calls for `count`, else the exclusive
    /// times in nanoseconds, which count nested calls once.
    pub fn total(&self, metric: &str) -> u64 {
        let functions = self.profile["functions"].as_array().expect("functions");
        let own = functions.iter().map(|f| match metric {
            "count" => &f["totals"]["count"],
            _ => &f["totals"][metric]["exclusive"],
        });
        own.map(|n| n.as_u64().expect("a number")).sum()
    }

    /// [`Self::total`] of `count`, `wall` and `cpu`, by the metric's name.
    pub fn totals(&self) -> BTreeMap<String, u64> {
        ["count", "wall", "cpu"]
            .into_iter()
            .map(|metric| (metric.to_owned(), self.total(metric)))
            .collect()
    }
}

/// Writes a profile of a program with `2^levels` paths into a function, and half as many into each
/// of its callers.
pub fn measure(levels: &str, file: &Path) {
    let program = program_with("many_paths.c", &["-g"]);
    let run = Run::ipath(["run", "--no-tui", "-m", "count,wall,cpu"]);
    let run = run.args(["-f", "leaf", "-f", "walk", "-o"]).arg(file);
    let run = run.arg("--").arg(program);
    run.args([levels, "2", "0"]).run().expect(0);
}

/// Numbers that a script has printed as `NAME NUMBER` lines.
pub fn numbers(finished: &Finished) -> BTreeMap<String, u64> {
    let lines = finished.stdout.lines();
    let pairs = lines.filter_map(|line| line.split_once(' '));
    pairs
        .filter_map(|(name, n)| Some((name.to_owned(), n.parse().ok()?)))
        .collect()
}
