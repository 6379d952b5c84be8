//! Call totals computed from a program's own record of each call
//! (`tests/programs/recursion_times.c`), which a profile must match.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The names of the program's functions, by their numbers in its record.
pub const FUNCTIONS: [&str; 3] = ["alpha", "beta", "delta"];
/// The names of the callers that are not recorded themselves: number -1 is the first, -2 the
/// second.
const OUTSIDE: [&str; 2] = ["morning", "evening"];

/// A call; times are in ticks of the time-stamp counter.
struct Call {
    /// The index in the trace of the call that makes this one, or the name of a caller of
    /// [`OUTSIDE`].
    caller: Result<usize, &'static str>,
    /// The index in [`FUNCTIONS`].
    function: usize,
    /// The time between the first and last statement of the function: a lower bound for ipath's
    /// value.
    within: u64,
    /// The time around the call in the caller: an upper bound for ipath's value.
    around: u64,
}

/// The bounds of a time, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// The lower bound, by times within the functions.
    pub least: i64,
    /// The upper bound, by times around the calls.
    pub most: i64,
}

/// The totals of one function's calls on one path, in ticks.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// The number of calls.
    pub count: u64,
    /// The sum of their times.
    pub sum: Bounds,
    /// The time of the calls that are not nested in a call of the same function.
    pub outermost: Bounds,
    /// Their time outside the measured calls that they make.
    pub exclusive: Bounds,
    /// The time within the function, for each call.
    pub within: Vec<u64>,
    /// The time around the call, for each call.
    pub around: Vec<u64>,
}

/// Totals by path; a path is the names from the function outwards.
pub type ByPath = BTreeMap<Vec<String>, Totals>;

/// All calls of a run of the program.
pub struct Trace(Vec<Call>);

impl Trace {
    /// Reads the program's file.
    ///
    /// # Panics
    /// If it is not a file of this kind.
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path).expect("the program's file");
        let call = |line: &str| {
            let fields: Vec<i64> = line.split(' ').filter_map(|f| f.parse().ok()).collect();
            let [caller, function, called, entered, left, returned] = fields[..] else {
                panic!("not a call: {line}");
            };
            assert!(
                called <= entered && entered <= left && left <= returned,
                "{line}"
            );
            Call {
                caller: usize::try_from(caller).map_err(|_| OUTSIDE[(-1 - caller) as usize]),
                function: function as usize,
                within: (left - entered) as u64,
                around: (returned - called) as u64,
            }
        };
        Self(text.lines().map(call).collect())
    }

    /// The totals by path if only these functions are measured.
    pub fn totals(&self, measured: &[&str]) -> ByPath {
        let is_measured = |call: &Call| measured.contains(&FUNCTIONS[call.function]);
        let mut nested = vec![Bounds::default(); self.0.len()];
        for (number, call) in self.0.iter().enumerate().filter(|(_, c)| is_measured(c)) {
            let mut callers = self.callers(number);
            if let Some(nearest) = callers.find(|&caller| is_measured(&self.0[caller])) {
                nested[nearest].least += call.within as i64;
                nested[nearest].most += call.around as i64;
            }
        }
        let mut totals = ByPath::new();
        for (number, call) in self.0.iter().enumerate().filter(|(_, c)| is_measured(c)) {
            let of_path = totals.entry(self.names(number)).or_default();
            let (least, most) = (call.within as i64, call.around as i64);
            of_path.count += 1;
            of_path.sum.add(least, most);
            let is_enclosed = self
                .callers(number)
                .any(|caller| self.0[caller].function == call.function);
            if !is_enclosed {
                of_path.outermost.add(least, most);
            }
            let Bounds { least: l, most: m } = nested[number];
            of_path.exclusive.add(least - m, most - l);
            of_path.within.push(call.within);
            of_path.around.push(call.around);
        }
        totals
    }

    /// The calls that enclose this one, innermost first.
    fn callers(&self, number: usize) -> impl Iterator<Item = usize> {
        let caller = |&number: &usize| self.0[number].caller.ok();
        std::iter::successors(Some(number), caller).skip(1)
    }

    /// The path of a call: the names of its function and of the callers, innermost first.
    fn names(&self, number: usize) -> Vec<String> {
        let calls = std::iter::once(number).chain(self.callers(number));
        let mut names = Vec::new();
        for call in calls.map(|number| &self.0[number]) {
            names.push(FUNCTIONS[call.function].to_owned());
            names.extend(call.caller.err().map(str::to_owned));
        }
        names
    }
}

impl Bounds {
    /// Adds the bounds of another call.
    pub fn add(&mut self, least: i64, most: i64) {
        self.least += least;
        self.most += most;
    }
}

impl Totals {
    /// Adds the totals of another path.
    pub fn add(&mut self, other: &Self) {
        self.count += other.count;
        for (own, more) in [
            (&mut self.sum, other.sum),
            (&mut self.outermost, other.outermost),
            (&mut self.exclusive, other.exclusive),
        ] {
            own.add(more.least, more.most);
        }
        self.within.extend(&other.within);
        self.around.extend(&other.around);
    }
}
