//! The samples of each stack, for the search for functions that explain them.

use std::collections::BTreeMap;
use std::time::Duration;

use patcher::Avma;

use super::Sampler;
use super::code::{self, Code, FunctionId, Path};
use super::thread::Seen;

/// The time at one stack. Functions are identified by their first addresses in the process.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledStack {
    /// The functions of the stack that are in a file, the innermost first.
    pub functions: Vec<Avma>,
    /// The index in `functions` of the innermost function that the time may be attributed to. If
    /// the thread is in a service, that is the service function that was called. It is the length
    /// of `functions` if no function from there outwards is in a file.
    pub charged: usize,
    /// The estimated time on a processor, in nanoseconds.
    pub cpu: f64,
    /// The estimated time of waits for something other than work, in nanoseconds.
    pub waited: f64,
    /// The estimated time of waits for work, in nanoseconds.
    pub for_work: f64,
}

/// The sampled time in a generated function, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Generated {
    /// The time on a processor.
    pub cpu: f64,
    /// The time of waits for something other than work.
    pub waited: f64,
}

/// The time of a process by stack.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledStacks {
    /// One for each sampled path, in the order of their functions. Paths that differ only in
    /// functions without a file give several with the same functions.
    pub stacks: Vec<SampledStack>,
    /// The total time since each thread was first seen, of the threads that ran and were sampled.
    pub lived: Duration,
    /// The part of `lived` in which they waited for work, estimated.
    pub idle: Duration,
    /// The part of `lived` in which they waited for a processor.
    pub delayed: Duration,
}

impl Sampler {
    /// The stacks sampled until now.
    pub fn stacks(&mut self) -> SampledStacks {
        self.drain();
        let (all, _, _) = self.tally();
        let waited = |seen: &Seen| seen.waited + seen.for_work;
        let sampled: f64 = all.paths.values().map(waited).sum();
        // Scales the sampled waits to all waits.
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
        // The order of a hash map is random.
        found.stacks.sort_by(|a, b| a.functions.cmp(&b.functions));
        found
    }

    /// The functions without a file in which time was sampled, by name. They are code that the
    /// process has generated. The time of functions in a file is that of the generated function
    /// that called them.
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

    /// The first address of the function at an address in the process. Without a known function,
    /// the start of the mapping, or the address itself if nothing is mapped or the file cannot be
    /// read.
    pub fn function_at(&mut self, at: Avma) -> Avma {
        let code = &mut self.paths.code;
        let id = code.function_at(at);
        code.function(id).start
    }

    /// The demangled name of the function at an address in the process, and the name of its module
    /// for users.
    pub fn name_at(&mut self, at: Avma) -> (String, String) {
        let code = &mut self.paths.code;
        let id = code.function_at(at);
        let function = code.function(id);
        let file = code.shown(function);
        (function.name.clone(), file.to_owned())
    }
}

/// The samples of one path. The times of waits are multiplied by `scale`.
fn sampled_stack(code: &Code, path: &Path, seen: &Seen, scale: f64) -> SampledStack {
    let charged = code.charged(path);
    // Code without a file is named by its callers at most.
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
