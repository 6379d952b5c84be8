//! Reading `ipath-profile/1` as a user's script would.

use serde::Deserialize;
use serde_json::{Number, Value};
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The parts of a profile that the tests check.
#[derive(Debug, Deserialize)]
#[allow(
    missing_docs,
    reason = "the fields are those of docs on the profile format"
)]
pub struct Profile {
    pub schema: String,
    pub ipath: String,
    pub target: Target,
    pub session: Session,
    pub metrics: Vec<Metric>,
    pub modules: Vec<Module>,
    pub functions: Vec<Function>,
    pub refused: Vec<Value>,
    pub frames: Vec<Frame>,
    pub paths: Vec<CallPath>,
    pub losses: Losses,
    #[serde(default)]
    pub processes: Vec<Process>,
    #[serde(default)]
    pub exactness: Option<Exactness>,
}

/// The numbers of calls by the verdict of the code on their paths.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Exactness {
    pub proven: u64,
    pub possible: u64,
    pub explained: u64,
    pub contradicted: u64,
}

/// One process of several.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Process {
    pub pid: u32,
    pub exe: String,
    pub parent: Option<u32>,
}

/// The process that was measured.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Target {
    pub pid: u32,
    pub exe: String,
    pub args: Vec<String>,
}

/// When and how it was measured.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Session {
    pub elapsed_ns: u64,
    pub clock_hz: u64,
    #[serde(default)]
    pub clock: Option<String>,
    pub stops: Vec<Stop>,
    #[serde(default)]
    pub notes: Vec<String>,
    #[serde(default)]
    pub collapsed: bool,
    #[serde(default)]
    pub overhead: Option<Overhead>,
}

/// The cost of measuring.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Overhead {
    pub call_ns: f64,
    pub total_ns: u64,
    pub share: f64,
    #[serde(default)]
    pub libraries_ns: u64,
    pub corrected: bool,
}

/// One stop of the target.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Stop {
    pub why: String,
    pub ns: u64,
}

/// A metric and its unit.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Metric {
    pub name: String,
    pub unit: String,
    #[serde(default)]
    pub since_ns: Option<u64>,
}

/// A file with code.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Module {
    pub path: String,
    pub build_id: Option<String>,
    #[serde(default)]
    pub base: Option<u64>,
}

/// A probed function.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Function {
    pub name: String,
    pub linkage: String,
    pub module: usize,
    pub address: u64,
    pub size: u64,
    #[serde(default)]
    pub file: Option<String>,
    #[serde(default)]
    pub line: Option<u32>,
    pub entry: Value,
    pub exits: Vec<Value>,
    #[serde(default)]
    pub since_ns: Option<u64>,
    #[serde(default)]
    pub measured: Option<Vec<String>>,
    pub throttled: Option<Throttled>,
    #[serde(default)]
    pub point: bool,
    #[serde(default)]
    pub tail: u64,
    pub totals: Value,
}

/// The state of a throttled function.
#[derive(Clone, Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Throttled {
    pub calls_not_timed: Option<u64>,
    pub since_ns: u64,
    pub how: String,
}

/// A call site.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Frame {
    pub module: Option<usize>,
    pub address: u64,
    pub function: Option<String>,
    #[serde(default)]
    pub offset: Option<u64>,
    #[serde(default)]
    pub file: Option<String>,
    pub line: Option<u32>,
}

/// A call path of one function.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct CallPath {
    pub function: usize,
    pub stack: Vec<usize>,
    pub complete: bool,
    #[serde(default)]
    pub contradicted: Option<usize>,
    pub metrics: Value,
    #[serde(default)]
    pub unwound: Option<u64>,
    #[serde(default)]
    pub open: Option<u64>,
    #[serde(default)]
    pub tail: u64,
    #[serde(default)]
    pub process: Option<usize>,
}

impl CallPath {
    /// Checks that no metric of a path covers more calls than `wall` does. Also checks that the
    /// parts of the time add up to at most the whole.
    fn check_parts(&self) {
        let number = |metric: &str, field: &str| self.metrics[metric][field].as_u64();
        let values = |metric: &str| {
            let hist = self.metrics[metric]["hist"].as_array();
            let counts = hist.into_iter().flatten().filter_map(|b| b[1].as_u64());
            counts.sum::<u64>()
        };
        let Some(wall) = number("wall", "sum") else {
            return;
        };
        let parts = ["cpu", "blocked"].map(|metric| number(metric, "sum").unwrap_or(0));
        // Each part is rounded down to a nanosecond.
        assert!(parts[0] + parts[1] <= wall + 1, "{self:?}");
        for metric in [
            "cpu",
            "blocked",
            "run-delay",
            "page-faults",
            "context-switches",
        ] {
            assert!(values(metric) <= values("wall"), "{metric}: {self:?}");
        }
    }
}

/// Calls that could not be measured.
#[derive(Debug, Deserialize)]
#[allow(missing_docs, reason = "see Profile")]
pub struct Losses {
    pub missed: u64,
    pub overflow: u64,
    #[serde(default)]
    pub overflow_by: Vec<String>,
    pub unwound: Option<u64>,
    pub open: Option<u64>,
    pub incomplete: u64,
    #[serde(default)]
    pub causes: BTreeMap<String, u64>,
    #[serde(default)]
    pub unseen: BTreeMap<String, u64>,
}

impl Profile {
    /// Reads a profile and checks its invariants: its sums agree, and the code contradicts no path.
    ///
    /// # Panics
    /// If it cannot be read, or if an invariant does not hold.
    pub fn read(path: &Path) -> Self {
        let profile = Self::read_contradicted(path);
        let of = |path: &&CallPath| path.contradicted.is_some();
        let first = profile.paths.iter().find(of);
        assert!(first.is_none(), "{}", profile.contradiction(first));
        profile
    }

    /// Like [`Self::read`], for a profile with paths that the code may contradict.
    ///
    /// # Panics If it cannot be read, if it violates [the schema](crate::schema), or if its sums do
    /// not agree.
    pub fn read_contradicted(path: &Path) -> Self {
        let text =
            fs::read_to_string(path).unwrap_or_else(|e| panic!("read {}: {e}", path.display()));
        let profile: Self = serde_json::from_str(&text)
            .unwrap_or_else(|e| panic!("{} is no ipath-profile/1: {e}", path.display()));
        let value = serde_json::from_str(&text).expect("JSON, as above");
        crate::schema::check(&value)
            .unwrap_or_else(|e| panic!("{} violates the schema{e}", path.display()));
        profile.check_sums();
        profile
    }

    /// Checks schema, indices, and that a function's paths add up to its totals exactly.
    ///
    /// # Panics
    /// With the first disagreement.
    pub fn check_sums(&self) {
        assert_eq!(self.schema, "ipath-profile/1");
        for path in &self.paths {
            assert!(path.function < self.functions.len(), "{path:?}");
            assert!(
                path.stack.iter().all(|&f| f < self.frames.len()),
                "{path:?}"
            );
        }
        for (index, function) in self.functions.iter().enumerate() {
            assert!(function.module < self.modules.len(), "{function:?}");
            let own = || self.paths.iter().filter(move |path| path.function == index);
            let calls: u64 = own().map(|path| count(&path.metrics)).sum();
            assert_eq!(calls, count(&function.totals), "calls of {}", function.name);
            for metric in self.metrics.iter().filter(|m| m.name != "count") {
                for field in ["sum", "outermost", "exclusive"] {
                    let of = |v: &Value| whole(&v[&metric.name][field]);
                    let sum: i128 = own().map(|path| of(&path.metrics)).sum();
                    let name = (&function.name, &metric.name, field);
                    assert_eq!(sum, of(&function.totals), "{name:?}");
                }
            }
        }
        // A function with its own set of metrics measures other calls with each of them.
        let is_of_all = |path: &&CallPath| self.functions[path.function].measured.is_none();
        for path in self.paths.iter().filter(is_of_all) {
            path.check_parts();
        }
        let losses = &self.losses;
        assert_eq!(
            losses.causes.values().sum::<u64>(),
            losses.incomplete,
            "{losses:?}"
        );
        self.check_exactness();
    }

    /// Checks that every call with its own path has a verdict, and that the cause of calls on
    /// contradicted paths is that contradiction.
    fn check_exactness(&self) {
        let Some(exactness) = &self.exactness else {
            return;
        };
        let of = |is_it: &dyn Fn(&CallPath) -> bool| -> u64 {
            let paths = self.paths.iter().filter(|path| is_it(path));
            paths.map(|path| count(&path.metrics)).sum()
        };
        let Exactness {
            proven,
            possible,
            explained,
            contradicted,
        } = exactness;
        let all = of(&|_| true) - self.losses.overflow;
        assert_eq!(
            proven + possible + explained + contradicted,
            all,
            "{exactness:?}"
        );
        let found = of(&|path| path.contradicted.is_some() && !path.complete);
        let caused = self.losses.causes.get("contradicted").copied();
        assert_eq!((found, caused.unwrap_or(0)), (*contradicted, *contradicted));
    }

    /// The pair of frames that the code contradicts on a path, with the whole path.
    fn contradiction(&self, path: Option<&CallPath>) -> String {
        let Some((path, at)) = path.and_then(|path| Some((path, path.contradicted?))) else {
            return String::new();
        };
        let frame = |&index: &usize| {
            let frame = &self.frames[index];
            let function = frame.function.as_deref().unwrap_or("?");
            format!(
                "{function}+{:#x} ({:#x})",
                frame.offset.unwrap_or(0),
                frame.address
            )
        };
        let stack: Vec<String> = path.stack.iter().map(frame).collect();
        format!(
            "the code contradicts frame {at} of {} <- {}",
            self.functions[path.function].name,
            stack.join(" <- ")
        )
    }

    /// The first function with this linkage or demangled name; `None` if the profile has none.
    pub fn function(&self, name: &str) -> Option<&Function> {
        self.functions
            .iter()
            .find(|f| f.linkage == name || f.name == name)
    }

    /// The number of calls of [`Self::function`], or 0 if it is not in the profile.
    pub fn calls(&self, name: &str) -> u64 {
        self.function(name).map_or(0, |f| count(&f.totals))
    }

    /// The numbers of calls of the functions with this linkage name: those that returned, by the
    /// histograms of `wall` (0 if it is not measured), and those that were left by a jump or an
    /// exception.
    pub fn ends(&self, linkage: &str) -> (u64, u64) {
        let paths = self.paths.iter();
        let own = paths.filter(|path| self.functions[path.function].linkage == linkage);
        own.fold((0, 0), |(returned, unwound), path| {
            let times = path.metrics["wall"]["hist"].as_array();
            let times = times.into_iter().flatten();
            let more: u64 = times.map(|bucket| bucket[1].as_u64().unwrap_or(0)).sum();
            (returned + more, unwound + path.unwound.unwrap_or(0))
        })
    }

    /// Checks that every path is complete; `why` is the reason to expect it.
    ///
    /// # Panics
    /// With the number of incomplete paths.
    pub fn assert_complete(&self, why: &str) {
        let incomplete = self.paths.iter().filter(|path| !path.complete).count();
        assert_eq!(incomplete, 0, "{why}");
    }

    /// Checks that no call was missed, lacks its own path or has an incomplete one, that there are
    /// no unseen events, and that no function was refused.
    ///
    /// # Panics
    /// With the losses or the refused functions.
    pub fn assert_lossless(&self) {
        let Losses {
            missed,
            overflow,
            incomplete,
            ..
        } = self.losses;
        assert_eq!(
            (missed, overflow, incomplete),
            (0, 0, 0),
            "{:?}",
            self.losses
        );
        assert!(self.losses.unseen.is_empty(), "{:?}", self.losses);
        assert!(self.refused.is_empty(), "refused: {:?}", self.refused);
    }

    /// The longest stop of the target in nanoseconds, 0 if there was none; and a line with the
    /// reason and the duration of each stop.
    pub fn stops(&self) -> (u64, String) {
        let stops = &self.session.stops;
        let longest = stops.iter().map(|stop| stop.ns).max().unwrap_or(0);
        let all: Vec<_> = stops
            .iter()
            .map(|s| format!("{} {} us", s.why, s.ns / 1000))
            .collect();
        (longest, all.join(", "))
    }
}

/// A sum as a whole number, or 0 if it is null.
fn whole(sum: &Value) -> i128 {
    // Beyond 64 bits serde_json gives the nearest floating-point number.
    let number = || sum.as_number().and_then(Number::as_i128);
    match sum {
        Value::Null => 0,
        _ => number().unwrap_or_else(|| panic!("{sum} is no whole number of 64 bits")),
    }
}

/// The number of calls in a `totals` or `metrics` object.
///
/// # Panics
/// If the object has none.
pub fn count(metrics: &Value) -> u64 {
    metrics["count"]
        .as_u64()
        .unwrap_or_else(|| panic!("no count in {metrics}"))
}
