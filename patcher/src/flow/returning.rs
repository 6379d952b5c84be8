//! Calls that return, in code without symbols and unwind entries. After a call that does not
//! return, another function may begin.

use std::collections::HashSet;

use super::continued::AfterCall;
use super::graph::Flow;
use super::sweep;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Control, Insn};

/// Facts about functions, collected from their calls.
#[derive(Default)]
pub struct Returning {
    /// Functions with a call followed by code that is reached in no other way.
    seen: HashSet<Svma>,
    /// Functions in which a return has been found.
    sound: HashSet<Svma>,
    /// Functions with a call that is the end of its caller.
    ending: HashSet<Svma>,
}

impl Returning {
    /// Adds a function that leads to a return, with its callees.
    pub fn add_sound(&mut self, start: Svma, callees: &[(Svma, AfterCall)]) {
        self.sound.insert(start);
        let seen = callees.iter().filter(|callee| callee.1 == AfterCall::Own);
        self.seen.extend(seen.map(|callee| callee.0));
        self.add(callees);
    }

    /// Adds the callees of any function.
    pub fn add(&mut self, callees: &[(Svma, AfterCall)]) {
        let ending = callees
            .iter()
            .filter(|callee| callee.1 == AfterCall::Nothing);
        self.ending.extend(ending.map(|callee| callee.0));
    }

    /// True if the code after `call`, an instruction of `flow`, certainly belongs to the caller.
    pub fn is_sure(&self, image: &Image<'_>, flow: &Flow, call: &Insn) -> bool {
        let Some(callee) = callee(call) else {
            // A caller that uses a pointer does not know that the callee will not return.
            return !begins_function(flow, call.end());
        };
        if self.ending.contains(&callee) {
            return false;
        }
        let is_likely = || {
            self.sound.contains(&callee)
                || image.plt_name(callee).is_some_and(may_return)
                || has_return(image, callee)
        };
        self.seen.contains(&callee) || is_likely() && !begins_function(flow, call.end())
    }
}

/// The callee: a function, or the word at a fixed address that points to it. `None` for other
/// pointers.
pub fn callee(call: &Insn) -> Option<Svma> {
    match call.control() {
        Control::Call => Some(Svma(call.target())),
        _ => call.named_word().map(Svma),
    }
}

/// True if the function at `callee` has known bounds and contains a return.
fn has_return(image: &Image<'_>, callee: Svma) -> bool {
    let function = image.functions().containing(callee);
    let range = function
        .filter(|f| f.start == callee)
        .map(|f| f.start.range(f.size));
    let swept = range.and_then(|range| sweep::linear(image, &[range]));
    let mut insns = swept
        .filter(|swept| swept.complete)
        .into_iter()
        .flat_map(|s| s.insns);
    insns.any(|insn| insn.is_return())
}

/// True if the name of a function in another module suggests that it returns, as nearly all do.
/// When in doubt, the answer is no.
fn may_return(name: &str) -> bool {
    const NEVER: [&str; 20] = [
        "abort",
        "assert",
        "bad",
        "chk",
        "croak",
        "die",
        "err",
        "exec",
        "exit",
        "fail",
        "fatal",
        "jmp",
        "panic",
        "resume",
        "start_main",
        "stop",
        "terminate",
        "throw",
        "unreachable",
        "virtual",
    ];
    let name = name.to_ascii_lowercase();
    !NEVER.iter().any(|part| name.contains(part))
}

/// True if the code at `at` looks like the beginning of a function, or if only no-ops of the flow
/// are left.
fn begins_function(flow: &Flow, at: u64) -> bool {
    let first = flow.insns.partition_point(|insn| insn.at() < at);
    let mut insns = flow.insns[first..].iter();
    let insn = insns.find(|insn| !insn.is_no_op());
    insn.is_none_or(Insn::begins_function)
}
