//! What has been sampled, stack by stack: for who looks for the functions that explain it.

use std::collections::BTreeMap;
use std::time::Duration;

use patcher::Avma;

use super::Sampler;
use super::code::{self, Code, FunctionId, Path};
use super::thread::Seen;

/// Where time went at one stack. Functions are named by their first addresses in the process.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledStack {
    /// Those that are in a file, the innermost first.
    pub functions: Vec<Avma>,
    /// Index of the function that the time can be put down to: the innermost, or where that serves the one through which
    /// the service was called.
    pub charged: usize,
    /// Time on a processor, estimated, ns.
    pub cpu: f64,
    /// Time that threads waited there for something other than work, estimated, ns.
    pub waited: f64,
    /// Time that threads waited there for work, estimated, ns.
    pub for_work: f64,
}

/// The sampled time in a generated function, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Generated {
    /// Time on a processor.
    pub cpu: f64,
    /// Time that threads waited there for something other than work.
    pub waited: f64,
}

/// Where the time of a process went.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledStacks {
    /// Each stack once.
    pub stacks: Vec<SampledStack>,
    /// The time that passed for those threads that ran at all, added up.
    pub lived: Duration,
    /// The part of `lived` in which they waited for work, estimated.
    pub idle: Duration,
    /// The part of `lived` in which they waited for a processor.
    pub delayed: Duration,
}

impl Sampler {
    /// Where the time went until now.
    pub fn stacks(&mut self) -> SampledStacks {
        self.drain();
        let (all, _, _) = self.tally();
        let waited = |seen: &Seen| seen.waited + seen.for_work;
        let sampled: f64 = all.paths.values().map(waited).sum();
        // Of the waits that were sampled each stands for as many as there were.
        let scale = if sampled > 0.0 {
            all.waited / sampled
        } else {
            0.0
        };
        let mut found = SampledStacks {
            lived: Duration::from_nanos(all.lived as u64),
            delayed: Duration::from_nanos(all.delayed as u64),
            ..SampledStacks::default()
        };
        let mut idle = 0.0;
        for (&id, seen) in &all.paths {
            let path = &self.paths.all()[id as usize];
            let stack = sampled_stack(&self.paths.code, path, seen, scale);
            idle += stack.for_work;
            found.stacks.push(stack);
        }
        found.idle = Duration::from_nanos(idle as u64);
        // Not in the order of a map.
        found.stacks.sort_by(|a, b| a.functions.cmp(&b.functions));
        found
    }

    /// The functions without a file in which time was sampled, by name. They are code that the process has
    /// generated. The time of functions in a file is that of the generated function that called them.
    pub fn generated(&mut self) -> BTreeMap<String, Generated> {
        self.drain();
        let (all, _, _) = self.tally();
        let code = &self.paths.code;
        let mut found: BTreeMap<String, Generated> = BTreeMap::new();
        for (&id, seen) in &all.paths {
            let path = &self.paths.all()[id as usize];
            let functions = path.functions.iter().map(|&id| code.function(id));
            let is_generated =
                |function: &&code::Seen| function.module.is_none() && !function.is_own;
            if let Some(function) = functions.into_iter().find(is_generated) {
                let of_it = found.entry(function.name.clone()).or_default();
                of_it.cpu += seen.cpu;
                of_it.waited += seen.waited;
            }
        }
        found
    }

    /// First address of the function that an address of the process is in; the address where there is none.
    pub fn function_at(&mut self, at: Avma) -> Avma {
        let code = &mut self.paths.code;
        let id = code.function_at(at);
        code.function(id).start
    }

    /// What the function at an address of the process and its module are called.
    pub fn name_at(&mut self, at: Avma) -> (String, String) {
        let code = &mut self.paths.code;
        let id = code.function_at(at);
        let function = code.function(id);
        let file = code.shown(function);
        (function.name.clone(), file.to_owned())
    }
}

/// One stack.
fn sampled_stack(code: &Code, path: &Path, seen: &Seen, scale: f64) -> SampledStack {
    let charged = code.charged(path);
    // What is in no file has callers at best.
    let in_file = |&&id: &&FunctionId| code.function(id).module.is_some();
    let (inside, outside) = path.functions.split_at(charged.at);
    let starts = |ids: &[FunctionId]| -> Vec<Avma> {
        let ids = ids.iter().filter(in_file);
        ids.map(|&id| code.function(id).start).collect()
    };
    let (mut functions, outside) = (starts(inside), starts(outside));
    let at = functions.len();
    functions.extend(outside);
    SampledStack {
        functions,
        charged: at,
        cpu: seen.cpu,
        waited: seen.waited * scale,
        for_work: seen.for_work * scale,
    }
}
