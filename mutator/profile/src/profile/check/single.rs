//! Checks of single calls.

use super::{Inconsistent, index};
use crate::profile::{Function, Profile};

impl Function {
    /// Checks the indexes of single calls.
    pub(super) fn check_single(&self, profile: &Profile, at: usize) -> Result<(), Inconsistent> {
        for (kind, calls) in [("slowest", &self.slowest), ("trace", &self.trace)] {
            for (i, call) in calls.iter().enumerate() {
                let at = |what: &str| format!("functions[{at}].{kind}[{i}].{what}");
                index(|| at("path"), "paths", call.path, profile.paths.len())?;
                if let Some(process) = call.process {
                    let processes = profile.processes.len();
                    index(|| at("process"), "processes", process, processes)?;
                }
                for callee in &call.callees {
                    let functions = profile.functions.len();
                    let at = || at("callees.function");
                    index(at, "functions", callee.function, functions)?;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::profile::{Callee, SingleCall};
    use crate::sample;

    fn call() -> SingleCall {
        SingleCall {
            path: 0,
            process: None,
            thread: 7,
            start_ns: 3,
            end_ns: 9,
            wall: 6,
            nested: 4,
            callees: vec![Callee {
                function: 0,
                wall: 2,
                partial: false,
            }],
            cpu: None,
            args: Vec::new(),
            ret: None,
        }
    }

    #[test]
    fn indexes_of_single_calls_are_checked() {
        let mut profile = sample::sample();
        profile.functions[0].slowest.push(call());
        profile.functions[0].trace.push(call());
        profile.check().expect("consistent");
        profile.functions[0].trace[0].path = profile.paths.len();
        let error = profile.check_structure().expect_err("beyond the end");
        assert!(
            error
                .to_string()
                .starts_with("functions[0].trace[0].path is")
        );
        profile.functions[0].trace[0].path = 0;
        profile.functions[0].slowest[0].callees[0].function = 99;
        profile.check_structure().expect_err("beyond the end");
        profile.functions[0].slowest[0].callees.clear();
        profile.functions[0].slowest[0].process = Some(0);
        profile.check_structure().expect_err("beyond the end");
    }
}
