//! Remarks on processes that are not measured: once for each program and cause.

use std::collections::BTreeMap;

use ipath_target::process::Pid;

/// New remarks, and the causes that have been remarked on.
#[derive(Default)]
pub(super) struct Remarks {
    new: Vec<String>,
    /// Causes by program, with the number of processes after the first one.
    said: BTreeMap<(Option<String>, String), u64>,
}

impl Remarks {
    /// Adds a remark on a process, if it is the first one of this program with this cause.
    pub(super) fn say(&mut self, pid: Pid, program: Option<String>, cause: &str, text: &str) {
        // An error may name the process.
        let cause = cause.replace(&format!("{pid}: "), "");
        match self.said.get_mut(&(program.clone(), cause.clone())) {
            Some(more) => *more += 1,
            None => {
                self.said.insert((program, cause), 0);
                self.new.push(format!("follow {pid}: {text}"));
            }
        }
    }

    /// The remarks since the last call.
    pub(super) fn take(&mut self) -> Vec<String> {
        std::mem::take(&mut self.new)
    }

    /// A line for each cause that concerned more processes since the last call.
    pub(super) fn repeated(&mut self) -> Vec<String> {
        let repeated = self.said.iter_mut().filter(|(_, more)| **more > 0);
        let line = |((program, cause), more): (&(Option<String>, String), &mut u64)| {
            let processes = match std::mem::take(more) {
                1 => "1 more process".to_owned(),
                n => format!("{n} more processes"),
            };
            let of = program.as_ref().map(|program| format!(" of {program}"));
            let of = of.unwrap_or_default();
            format!("follow: and {processes}{of}: {cause}")
        };
        repeated.map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_is_said_once_for_each_program_whatever_the_pid() {
        let mut remarks = Remarks::default();
        let mut say = |pid, program: &str, cause: &str| {
            let text = format!("{program} is not measured: {cause}");
            remarks.say(Pid(pid), Some(program.to_owned()), cause, &text);
        };
        for pid in 10..15 {
            say(pid, "/bin/ls", "no");
            say(pid, "/bin/cat", "no");
        }
        say(15, "/bin/cat", "never");
        for pid in 16..18 {
            say(pid, "/bin/ps", &format!("open {pid}: denied"));
        }
        assert_eq!(
            remarks.take(),
            [
                "follow 10: /bin/ls is not measured: no",
                "follow 10: /bin/cat is not measured: no",
                "follow 15: /bin/cat is not measured: never",
                "follow 16: /bin/ps is not measured: open 16: denied",
            ]
        );
        assert_eq!(
            remarks.repeated(),
            [
                "follow: and 4 more processes of /bin/cat: no",
                "follow: and 4 more processes of /bin/ls: no",
                "follow: and 1 more process of /bin/ps: open denied",
            ]
        );
        assert_eq!(remarks.repeated(), [""; 0]);
    }
}
