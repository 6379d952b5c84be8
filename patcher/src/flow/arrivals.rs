//! The places that control may reach from a call before it makes another call.
//!
//! Two adjacent frames on a stack make a claim: the call of the outer frame led to the function of
//! the inner frame. The instructions decide if the claim can be true. The decision does not depend
//! on the unwinding method.

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;

use super::branch::branches;
use super::sweep::{linear, one};
use crate::addr::Svma;
use crate::image::{CfaAt, Image};
use crate::isa::{CFA_AT_ENTRY, Control, Insn, LONGEST_INSN, SHORTEST_CALL, Shape, jump_source};

/// The maximum number of stretches of code that are followed from one call.
const MOST_STRETCHES: usize = 256;
/// The maximum amount of code that is followed from one call, in bytes.
const MOST_BYTES: u64 = 1 << 18;
/// The maximum number of instructions between a call and the return after it.
const MOST_TO_RETURN: usize = 64;
/// The maximum number of instructions in a linkage stub, or in other code outside of functions.
const MOST_OF_STUB: usize = 16;

/// The call instruction that ends at a return address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallBefore {
    /// A call of this address.
    Direct(Svma),
    /// A call through the word at this address.
    Through(Svma),
    /// A call through a register or another place in memory.
    Indirect,
    /// The bytes match several different calls.
    Unclear,
    /// No call ends at this address.
    None,
}

/// The kind of the call instruction that ends at `at`.
pub fn call_before(image: &Image<'_>, at: Svma) -> CallBefore {
    let mut found = CallBefore::None;
    for len in SHORTEST_CALL..=LONGEST_INSN {
        let Some(start) = at.0.checked_sub(len).map(Svma) else {
            break;
        };
        let call = match one(image, start).filter(|insn| insn.end() == at.0) {
            Some(insn) => call_of(image, &insn),
            None => CallBefore::None,
        };
        found = match (found, call) {
            (found, CallBefore::None) => found,
            (CallBefore::None, call) => call,
            // An extra prefix leaves it the same call.
            (found, call) if found == call => found,
            _ => CallBefore::Unclear,
        };
    }
    found
}

fn call_of(image: &Image<'_>, insn: &Insn) -> CallBefore {
    match insn.control() {
        Control::Call => {
            let target = Svma(insn.target());
            let segment = image.segment_at(target);
            if segment.is_some_and(|segment| segment.execute) {
                CallBefore::Direct(target)
            } else {
                CallBefore::None
            }
        }
        Control::IndirectCall => match insn.named_word() {
            Some(slot) => CallBefore::Through(Svma(slot)),
            None => CallBefore::Indirect,
        },
        _ => CallBefore::None,
    }
}

/// The code that control may reach from an address without another call.
///
/// It contains the function there with its parts, the targets of its jumps, and the code that it
/// falls through to, transitively. It is explored on demand.
pub struct Arrivals<'i, 'd> {
    image: &'i Image<'d>,
    /// The explored code.
    code: Vec<Range<Svma>>,
    /// The total size of the explored code, in bytes.
    len: u64,
    /// The words in memory that the explored code jumps through.
    slots: BTreeSet<Svma>,
    /// True if the explored code may also leave to an unknown target.
    is_open: bool,
    /// Addresses to explore next, the nearest first.
    work: VecDeque<Svma>,
}

impl<'i, 'd> Arrivals<'i, 'd> {
    /// An exploration that starts at `from`.
    pub fn from(image: &'i Image<'d>, from: Svma) -> Self {
        Self {
            image,
            code: Vec::new(),
            len: 0,
            slots: BTreeSet::new(),
            is_open: false,
            work: VecDeque::from([from]),
        }
    }

    /// True if control may reach `to` through known targets. If false, it may still reach `to`
    /// through [`Arrivals::slots()`], or if [`Arrivals::is_open()`].
    pub fn reach(&mut self, to: Svma) -> bool {
        if self.contain(to) {
            return true;
        }
        while let Some(at) = self.work.pop_front() {
            if self.contain(at) {
                continue;
            }
            let first = self.code.len();
            self.go_on(at);
            if self.code[first..].iter().any(|range| range.contains(&to)) {
                return true;
            }
        }
        false
    }

    /// The words in memory that the code jumps through, for example entries of the global offset
    /// table.
    pub fn slots(&mut self) -> &BTreeSet<Svma> {
        while let Some(at) = self.work.pop_front() {
            if !self.contain(at) {
                self.go_on(at);
            }
        }
        &self.slots
    }

    /// True if control may also leave to an unknown target, or if there is too much code to
    /// explore.
    pub fn is_open(&mut self) -> bool {
        self.slots();
        self.is_open
    }

    fn contain(&self, at: Svma) -> bool {
        self.code.iter().any(|range| range.contains(&at))
    }

    fn go_on(&mut self, at: Svma) {
        if self.code.len() >= MOST_STRETCHES || self.len >= MOST_BYTES {
            self.is_open = true;
            self.work.clear();
            return;
        }
        let function = function_ranges(self.image, at);
        let is_function = !function.is_empty();
        let ranges = if is_function {
            function
        } else {
            stub(self.image, at)
        };
        if ranges.is_empty() {
            self.is_open = true;
            return;
        }
        self.len += ranges.iter().map(|r| r.end.0 - r.start.0).sum::<u64>();
        self.code.extend(ranges.iter().cloned());
        let targets = self.of_code(&ranges, is_function);
        self.work.extend(targets);
    }

    /// Adds `ranges` of code and returns the targets of their jumps. `are_whole` if they are a
    /// whole function.
    fn of_code(&mut self, ranges: &[Range<Svma>], are_whole: bool) -> Vec<Svma> {
        let image = self.image;
        let Some(swept) = linear(image, ranges) else {
            self.is_open = true;
            return Vec::new();
        };
        // Data in the code: instructions after it may have been missed.
        self.is_open |= !swept.complete;
        let branches = branches(&swept.insns);
        let mut targets: Vec<Svma> = branches.iter().map(|branch| Svma(branch.to)).collect();
        for (index, insn) in swept.insns.iter().enumerate() {
            let at = Svma(insn.at());
            match insn.control() {
                Control::IndirectJump if insn.is_indirect_jump() => {
                    if let Some(slot) = insn.named_word() {
                        self.slots.insert(Svma(slot));
                    } else if !are_whole {
                        // A table may lead to other parts of an unknown function.
                        self.is_open = true;
                    } else if !stays(image, at) {
                        let source = jump_source(&swept.insns, &branches, index);
                        self.is_open |= source.shape != Shape::Offsets;
                    }
                }
                // A return through an address that the code has written itself.
                Control::Return => {
                    let before = index.checked_sub(1).map(|before| &swept.insns[before]);
                    self.is_open |= stays(image, at) || before.is_some_and(Insn::sets_top_of_stack);
                }
                _ => {}
            }
            let is_last = ranges.iter().any(|range| range.end.0 == insn.end());
            // Control may run over no-ops into another function.
            let last = || swept.insns[..=index].iter().rev().find(|i| !i.is_no_op());
            let runs_on = |insn: &Insn| !insn.is_call() && !insn.ends_block() && !insn.is_padding();
            if is_last && last().is_some_and(runs_on) {
                targets.push(Svma(insn.end()));
            }
        }
        targets
    }
}

/// True if the unwind tables state that the function's frame still exists at `at`. A jump at `at`
/// is then not a tail call.
fn stays(image: &Image<'_>, at: Svma) -> bool {
    match image.cfa_from_stack_pointer(at) {
        CfaAt::StackPointerPlus(offset) => offset != CFA_AT_ENTRY,
        CfaAt::Other => true,
        CfaAt::Unknown => false,
    }
}

/// The function that contains `at`, with its parts; empty if none is known.
fn function_ranges(image: &Image<'_>, at: Svma) -> Vec<Range<Svma>> {
    let function = image.functions().function_at(at);
    let ranges = function.map(|f| f.ranges().cloned().collect());
    ranges.unwrap_or_default()
}

/// The instructions from `at` to the end of the block, as in a linkage stub. Empty if there is no
/// code or too much.
fn stub(image: &Image<'_>, at: Svma) -> Vec<Range<Svma>> {
    let mut end = at;
    for _ in 0..MOST_OF_STUB {
        let Some(insn) = one(image, end) else {
            return Vec::new();
        };
        end = Svma(insn.end());
        if insn.ends_block() {
            return vec![at..end];
        }
    }
    Vec::new()
}

/// True if the code after the call that returns to `at` continues in another frame.
///
/// It loads the stack pointer from the register that holds the other frame's (GCC's
/// `__builtin_eh_return`). By the time of that call, the unwinder has overwritten its saved
/// registers with those of the catching frame. So the frame above it on the stack is not its
/// caller.
pub fn replaces_frame(image: &Image<'_>, at: Svma) -> bool {
    let mut at = at;
    for _ in 0..MOST_TO_RETURN {
        let Some(insn) = one(image, at) else {
            return false;
        };
        if insn.enters_frame_of_handler() {
            return true;
        }
        if insn.is_call() || insn.is_return() {
            return false;
        }
        at = Svma(insn.end());
    }
    false
}

/// True if V8's deoptimizer has written the return address `at`. It is the first instruction of a
/// built-in function and follows no call (V8, `src/deoptimizer/deoptimizer.cc`,
/// `DoComputeUnoptimizedFrame` and `DoComputeBuiltinContinuation`).
pub fn resumes_builtin(image: &Image<'_>, at: Svma) -> bool {
    let function = image.functions().containing(at);
    let is_start = function.is_some_and(|function| {
        let name = function.linkage.unwrap_or_default();
        function.start == at && name.starts_with("Builtins_")
    });
    is_start && call_before(image, at) == CallBefore::None
}

/// True if Go's runtime makes goroutines enter the function around `at` without a call.
///
/// A signal handler pushes the interrupted address as the return address, and that may be any
/// instruction (Go, `src/runtime/signal_unix.go`, `doSigPreempt`).
pub fn is_injected_by_go(image: &Image<'_>, at: Svma) -> bool {
    let function = image.functions().containing(at);
    let name = function.and_then(|function| function.linkage);
    let is_named =
        |name: &str| name.strip_suffix(".abi0").unwrap_or(name) == "runtime.asyncPreempt";
    name.is_some_and(is_named) && image.pclntab().is_some()
}

/// The `main` that a program's entry code passes to the C library: its first argument at its first
/// call (glibc `sysdeps/x86_64/start.S`). `None` if the entry code differs.
pub fn program_main(image: &Image<'_>) -> Option<Svma> {
    let mut at = image.entry();
    let mut main = None;
    for _ in 0..MOST_OF_STUB {
        let insn = one(image, at)?;
        if insn.is_call() {
            return main;
        }
        if let Some(argument) = insn.sets_first_argument() {
            main = argument.map(Svma);
        }
        at = Svma(insn.end());
    }
    None
}
