//! Which calls return, in code that neither symbols nor unwind entries tell. After one that does not, another
//! function may begin.

use std::collections::HashSet;

use super::continued::AfterCall;
use super::graph::Flow;
use super::sweep;
use crate::addr::Svma;
use crate::image::Image;
use crate::isa::{Control, Insn};

/// What is known of functions from their calls.
#[derive(Default)]
pub struct Returning {
    /// After some call of each is code that nothing else leads to.
    seen: HashSet<Svma>,
    /// A return has been found in each.
    sound: HashSet<Svma>,
    /// A call of each is the end of a function.
    ending: HashSet<Svma>,
}

impl Returning {
    /// Adds a function that leads to a return, and what it calls.
    pub fn add_sound(&mut self, start: Svma, callees: &[(Svma, AfterCall)]) {
        self.sound.insert(start);
        let seen = callees.iter().filter(|callee| callee.1 == AfterCall::Own);
        self.seen.extend(seen.map(|callee| callee.0));
        self.add(callees);
    }

    /// Adds what any function calls.
    pub fn add(&mut self, callees: &[(Svma, AfterCall)]) {
        let ending = callees
            .iter()
            .filter(|callee| callee.1 == AfterCall::Nothing);
        self.ending.extend(ending.map(|callee| callee.0));
    }

    /// Is the code after `call`, an instruction of `flow`, the caller's for sure?
    pub fn is_sure(&self, image: &Image<'_>, flow: &Flow, call: &Insn) -> bool {
        let Some(callee) = callee(call) else {
            // Whoever calls by a pointer does not know what will not return.
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

/// What is called: a function, or whatever the word at a fixed place names. `None` where a pointer tells.
pub fn callee(call: &Insn) -> Option<Svma> {
    match call.control() {
        Control::Call => Some(Svma(call.target())),
        _ => call.named_word().map(Svma),
    }
}

/// Is there a return in the function at `callee`, of which the bounds are known?
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

/// Is a function of another module known by its name to return, as nearly all do? Better not believe it of one
/// too many.
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

/// Does what stands at `at` look like a function's beginning?
fn begins_function(flow: &Flow, at: u64) -> bool {
    let first = flow.insns.partition_point(|insn| insn.at() < at);
    let mut insns = flow.insns[first..].iter();
    let insn = insns.find(|insn| !insn.is_no_op());
    insn.is_none_or(Insn::begins_function)
}
