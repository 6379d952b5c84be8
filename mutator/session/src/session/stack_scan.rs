//! Saved program counters on stacks: a handler that runs on top of interrupted code has left the
//! place in a signal frame, where execution goes on when the handler returns.

use std::collections::HashMap;
use std::ops::Range;

use abi::arch::signal_frame::{RESTORER, SHORT_RESTORER};
use patcher::Avma;

use crate::arch::signal_frame::{FRAME, SignalFrame, word};
use ipath_target::process::{Extent, Mapping, Memory};

/// Stacks of one thread that are looked at: its own, and alternate ones for signals.
const MOST_STACKS: usize = 16;
/// Bytes of a stack that are looked at: more only where it lies amid other data.
const MOST_BYTES: u64 = 64 << 20;

/// The stacks of a process, and what code there is for them to hold addresses of.
pub(super) struct Stacks {
    maps: Vec<Mapping>,
    code: Vec<Range<Avma>>,
    /// Mappings the runtime has made.
    own: Vec<Extent>,
    /// True if those have been read since the threads were stopped.
    is_renewed: bool,
    /// Return addresses looked at before, and whether a signal frame begins with them.
    restorers: HashMap<Avma, bool>,
}

impl Stacks {
    /// As they are in `maps`; `own` are the mappings the runtime has made, each that is there by
    /// then among them: other data would be looked through for stacks.
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

    /// True if these were read before the stack that holds `sp` was there, or had grown to it.
    pub(super) fn are_stale(&self, sp: Avma) -> bool {
        self.stack(sp).is_none()
    }

    /// True if `sp` may be on a stack of the runtime's that is not known as such.
    pub(super) fn may_lack(&self, sp: Avma) -> bool {
        !self.is_renewed && self.own_stack(sp).is_none()
    }

    /// Takes the mappings of the runtime's as they are while all threads are stopped.
    pub(super) fn renew_own(&mut self, own: Vec<Extent>) {
        self.own = own;
        self.is_renewed = true;
    }

    fn own_stack(&self, sp: Avma) -> Option<Range<Avma>> {
        let found = self.own.iter().find(|m| m.contains(sp));
        found.map(|m| m.range())
    }

    /// The stack pointer the application has left at `sp`, which may be on a stack of the
    /// runtime's.
    pub(super) fn of_application(&self, memory: &Memory, sp: Avma) -> Avma {
        let saved = self.own_stack(sp).and_then(|stack| {
            let at = stack.start.plus(abi::image::THREAD_SAVED_SP as u64);
            memory.read_word(at).ok()
        });
        saved.map_or(sp, Avma)
    }

    fn stack(&self, sp: Avma) -> Option<&Mapping> {
        let after = self.maps.partition_point(|m| m.range.start <= sp);
        self.maps[..after].last().filter(|m| m.contains(sp))
    }

    /// The mapping of a stack that is neither the thread's own, which has its control block at its upper end
    /// or is the first thread's, nor the runtime's. `block` is none of the first thread, whose control block the
    /// loader has put elsewhere.
    pub(super) fn elsewhere(&self, sp: Avma, block: Option<Avma>) -> Option<&Mapping> {
        let is_below = |m: &Mapping, block: Avma| m.contains(block) && sp < block;
        let is_own = |m: &&Mapping| match block {
            Some(block) => is_below(m, block),
            None => m.name == "[stack]",
        };
        let stack = self.stack(sp).filter(|m| !is_own(m));
        stack.filter(|_| self.own_stack(sp).is_none())
    }

    fn is_code(&self, at: Avma) -> bool {
        let after = self.code.partition_point(|r| r.start <= at);
        after > 0 && at < self.code[after - 1].end
    }

    /// Program counters in the signal frames of a thread whose stack pointer is `sp`: those on
    /// that stack, and on the stacks their handlers were called from.
    pub(super) fn interrupted(&mut self, memory: &Memory, sp: Avma) -> Vec<Avma> {
        let mut found = Vec::new();
        let mut looked_at: Vec<Range<Avma>> = Vec::new();
        let mut wanted = vec![self.of_application(memory, sp)];
        // Where the runtime cannot block signals, handlers run on top of it on its own stack.
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
            // Another stack of the thread's may lie in the same mapping.
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

    /// The signal frames within a range, of handlers that run at its start.
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
        // They are in order.
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

/// True if a call of rt_sigreturn is there.
pub(super) fn is_restorer(memory: &Memory, at: Avma) -> bool {
    let mut code = [0; RESTORER.len()];
    // Ends at the mapping's end at the worst, and then is none.
    memory.read(at, &mut code).is_ok() && (code == RESTORER || code.starts_with(&SHORT_RESTORER))
}
