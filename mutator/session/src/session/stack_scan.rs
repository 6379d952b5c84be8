//! Saved program counters on stacks. A signal handler runs on top of interrupted code, whose
//! program counter is in a signal frame. Execution continues there when the handler returns.

use std::collections::HashMap;
use std::ops::Range;

use abi::arch::signal_frame::{RESTORER, SHORT_RESTORER};
use patcher::Avma;

use crate::arch::signal_frame::{FRAME, SignalFrame, word};
use ipath_target::process::{Extent, Mapping, Memory};

/// The most stacks to scan per thread: its own and alternate signal stacks.
const MOST_STACKS: usize = 16;
/// The most bytes of a stack to scan. Only a stack within other data is larger.
const MOST_BYTES: u64 = 64 << 20;

/// The stacks of a process, and its code, to recognize code addresses.
pub(super) struct Stacks {
    maps: Vec<Mapping>,
    /// The executable mappings, ascending.
    code: Vec<Range<Avma>>,
    /// Mappings that the runtime has made.
    own: Vec<Extent>,
    /// True if `own` has been read since the threads were stopped.
    is_renewed: bool,
    /// Return addresses that have been checked, and whether they are of signal frames.
    restorers: HashMap<Avma, bool>,
}

impl Stacks {
    /// The stacks in `maps`. `own` must contain every mapping that the runtime had made by then.
    /// Otherwise, other data would be scanned for stacks.
    pub(super) fn of(maps: Vec<Mapping>, own: Vec<Extent>) -> Self {
        let executable = maps.iter().filter(|m| m.execute);
        let code = executable.map(|m| m.range.clone()).collect();
        Self {
            maps,
            code,
            own,
            is_renewed: false,
            restorers: HashMap::new(),
        }
    }

    /// True if these maps are older than the stack that contains `sp`, or than its growth to `sp`.
    pub(super) fn are_stale(&self, sp: Avma) -> bool {
        self.stack(sp).is_none()
    }

    /// True if `sp` may be on a stack of the runtime that is not in `own`.
    pub(super) fn may_lack(&self, sp: Avma) -> bool {
        !self.is_renewed && self.own_stack(sp).is_none()
    }

    /// Replaces the runtime's mappings with those read while all threads are stopped.
    pub(super) fn renew_own(&mut self, own: Vec<Extent>) {
        self.own = own;
        self.is_renewed = true;
    }

    /// The mapping of the runtime that contains `sp`. `None` if no mapping of the runtime does.
    fn own_stack(&self, sp: Avma) -> Option<Range<Avma>> {
        let found = self.own.iter().find(|m| m.contains(sp));
        found.map(|m| m.range())
    }

    /// The application's stack pointer if the thread has `sp`, which may be on a stack of the
    /// runtime.
    pub(super) fn of_application(&self, memory: &Memory, sp: Avma) -> Avma {
        let saved = self.own_stack(sp).and_then(|stack| {
            let at = stack.start.plus(abi::image::THREAD_SAVED_SP as u64);
            memory.read_word(at).ok()
        });
        saved.map_or(sp, Avma)
    }

    /// The mapping that contains `sp`. `None` if no known mapping does.
    fn stack(&self, sp: Avma) -> Option<&Mapping> {
        let after = self.maps.partition_point(|m| m.range.start <= sp);
        self.maps[..after].last().filter(|m| m.contains(sp))
    }

    /// The mapping of the stack at `sp`. `None` if it is the thread's own stack or one of the
    /// runtime, or unknown. A thread's own stack has its control block `block` at the upper end.
    /// `block` is `None` for the first thread, whose control block the loader has placed elsewhere.
    pub(super) fn elsewhere(&self, sp: Avma, block: Option<Avma>) -> Option<&Mapping> {
        let is_below = |m: &Mapping, block: Avma| m.contains(block) && sp < block;
        let is_own = |m: &&Mapping| match block {
            Some(block) => is_below(m, block),
            None => m.name == "[stack]",
        };
        let stack = self.stack(sp).filter(|m| !is_own(m));
        stack.filter(|_| self.own_stack(sp).is_none())
    }

    /// True if `at` is in an executable mapping.
    fn is_code(&self, at: Avma) -> bool {
        let after = self.code.partition_point(|r| r.start <= at);
        after > 0 && at < self.code[after - 1].end
    }

    /// Program counters in the signal frames of a thread with stack pointer `sp`: those on that
    /// stack, and on the stacks that its handlers interrupted.
    pub(super) fn interrupted(&mut self, memory: &Memory, sp: Avma) -> Vec<Avma> {
        let mut found = Vec::new();
        let mut looked_at: Vec<Range<Avma>> = Vec::new();
        let mut wanted = vec![self.of_application(memory, sp)];
        // If the runtime cannot block signals, handlers run on top of it on its own stack.
        if let Some(own) = self.own_stack(sp) {
            for frame in self.frames(memory, sp..own.end) {
                found.extend(frame.goes_on_at());
                wanted.push(self.of_application(memory, frame.sp));
            }
        }
        while let Some(sp) = wanted.pop() {
            let Some(end) = self.stack(sp).map(|m| m.range.end) else {
                continue;
            };
            // The thread may have another stack in the same mapping.
            if looked_at.contains(&(sp..end)) || looked_at.len() == MOST_STACKS {
                continue;
            }
            looked_at.push(sp..end);
            for frame in self.frames(memory, sp..end) {
                found.extend(frame.goes_on_at());
                wanted.push(frame.sp);
            }
        }
        found
    }

    /// The signal frames within a range whose start is the stack pointer.
    fn frames(&mut self, memory: &Memory, within: Range<Avma>) -> Vec<SignalFrame> {
        let (sp, from) = (within.start, Avma(within.start.0 & !7));
        let len = (within.end.0 - from.0).min(MOST_BYTES) as usize;
        let Ok(bytes) = memory.read_vec(from, len) else {
            return Vec::new();
        };
        let frames = (0..bytes.len())
            .step_by(size_of::<u64>())
            .filter(|&at| word(&bytes, at).is_some_and(|restorer| self.is_code(Avma(restorer))));
        let frames = frames.filter_map(|at| SignalFrame::parse(&bytes, from, at));
        let frames: Vec<SignalFrame> = frames.collect();
        let mut is_of_signal = |frame: &SignalFrame| {
            let restorer = frame.restorer;
            let known = self.restorers.entry(frame.restorer);
            *known.or_insert_with(|| is_restorer(memory, restorer))
        };
        let frames: Vec<_> = frames.into_iter().filter(|f| is_of_signal(f)).collect();
        // The frames are in address order.
        let is_overwritten = |index: usize, frame: &SignalFrame| {
            let is_near = |other: &&SignalFrame| other.at.0.abs_diff(frame.at.0) < FRAME;
            let before = frames[..index].iter().rev().take_while(is_near);
            let after = frames[index + 1..].iter().take_while(is_near);
            let mut others = before.chain(after);
            others.any(|other| frame.is_overwritten_by(other, |_| true))
        };
        let left = frames
            .iter()
            .enumerate()
            .filter(|(index, f)| f.may_be_left_to(sp) && !is_overwritten(*index, f));
        left.map(|(_, frame)| *frame).collect()
    }
}

/// True if there is a call of rt_sigreturn at `at`.
pub(super) fn is_restorer(memory: &Memory, at: Avma) -> bool {
    let mut code = [0; RESTORER.len()];
    // A read beyond the mapping's end fails: there is no restorer then.
    memory.read(at, &mut code).is_ok() && (code == RESTORER || code.starts_with(&SHORT_RESTORER))
}
