//! Walks that are made whatever it takes: rules are found, bounds are found, tables are evaluated. They run on
//! the thread's private stack, with signals blocked.

use abi::cause::Cause;
use abi::segment::ROOT_COMPLETE;
use unwind::{At, Loaded, Saved, Step, step};

use super::bounds;
use super::buffers::MOST;
use super::frame::{Frame, Stack};
use super::outcome::{Obstacle, Walk};
use super::walker::Walker;
use crate::code::rules::RULES;
use crate::code::{epoch, return_address};
use crate::os::foreign::Window;
use crate::os::shared;

/// Steps towards one walk: every rule of the deepest stack may have to be found.
const ATTEMPTS: u64 = 2 * MOST;

impl Walker {
    /// Walks from the call of `function` whose return address is at `slot`. `None` where the stack's bounds are
    /// not to be found out.
    ///
    /// # Safety
    /// The walker is the calling thread's, `slot` on its stack, and the registers those at the function's entry, of
    /// which the frame pointer alone is known where not `all` are.
    pub unsafe fn walk_slowly(
        &mut self,
        function: u32,
        slot: u64,
        saved: &Saved,
        all: bool,
    ) -> Option<Walk> {
        epoch::renew();
        if self.lacks_room != 0 {
            self.lacks_room = 0;
            let _ = self.buffers.grow();
        }
        let mut way = Way::default();
        for _ in 0..ATTEMPTS {
            if way.use_full && !all {
                return Some(Walk::stopped(function, self.stack.high, Cause::NoRule));
            }
            // SAFETY: the caller's promise; the full walk comes only after the stack's bounds are known.
            let result = unsafe {
                if way.use_full {
                    let walk = self.walk_fully(function, Frame::of_caller(slot, saved));
                    walk.map(|(walk, _)| walk)
                } else {
                    self.walk_by_rules(function, slot, saved.fp)
                }
            };
            match result {
                Ok(walk) if bounds::is_at(&walk) && self.look_again(slot) => {}
                Ok(walk) => return Some(walk),
                Err(obstacle) if way.clear(self, slot, obstacle).is_some() => {}
                Err(Obstacle::Depth) => return Some(Walk::overflow(function, self.stack.high)),
                Err(_) => return None,
            }
        }
        None
    }

    /// Whether `slot` is on the stack that `sp` is on, which becomes the thread's current one.
    pub fn is_on_stack_of(&mut self, sp: u64, slot: u64) -> bool {
        let is_known = self.stack.holds(sp) || self.find_stack(sp).is_some();
        is_known && slot >= sp && self.stack.holds(slot)
    }

    /// The stack of a frame, independent of `--depth`. `None` if it is not known: registers besides
    /// the stack and frame pointers are needed and `all` is false, or the bounds of the stack are not known.
    ///
    /// # Safety
    /// The walker is the calling thread's, and the frame is one of it that goes on.
    pub unsafe fn stack_of(&mut self, frame: &Frame, all: bool) -> Option<Stack> {
        epoch::renew();
        let sp = frame.registers.sp();
        let mut way = Way::default();
        for _ in 0..ATTEMPTS {
            if way.use_full && !all {
                return None;
            }
            let result = if way.use_full {
                // SAFETY: the caller's promise.
                let walk = unsafe { self.walk_fully(0, *frame) };
                walk.map(|(walk, root)| Stack {
                    id: walk.stack,
                    is_told: walk.is_told,
                    root,
                })
            } else {
                self.stack_by_rules(frame)
            };
            match result {
                Ok(stack) => return Some(stack),
                Err(obstacle) => way.clear(self, sp, obstacle)?,
            }
        }
        None
    }

    /// The same by the rules that are cached.
    fn stack_by_rules(&self, frame: &Frame) -> Result<Stack, Obstacle> {
        let (pc, sp) = (frame.pc, frame.registers.sp());
        let high = self.stack.high;
        if !self.stack.holds(sp) {
            return Err(Obstacle::Stack);
        }
        let window = Window::new();
        // It may end earlier by now.
        // SAFETY: a word of a stack that was seen mapped; nobody else writes there.
        let load = |at| unsafe { window.word(at, high) };
        let mut words = Loaded {
            load,
            fp: frame.registers.fp(),
        };
        let mut at = At { pc, sp };
        loop {
            let (word, _) = RULES.get(at.pc);
            at = match step(word, at, high, &mut words) {
                Step::Caller(caller) => caller,
                Step::Root => return Ok(self.stack_ending(ROOT_COMPLETE, at.pc, at.sp)),
                Step::Stop(cause) => return Ok(self.stack_ending(cause.node(), at.pc, at.sp)),
                Step::Astray => {
                    return Ok(self.stack_ending(Cause::OffStack.node(), at.pc, at.sp));
                }
                Step::Full => return Err(Obstacle::Full),
                Step::Unknown => {
                    return Err(Obstacle::Rule(at.pc, words.fp.wrapping_sub(at.sp)));
                }
            };
        }
    }
}

/// The way of a walk that is tried again and again, with what was in it cleared.
#[derive(Default)]
struct Way {
    /// Whether only the full walk is left.
    use_full: bool,
    /// The return address whose rule was last looked for.
    looked_for: u64,
}

impl Way {
    /// Clears what was in the way of a walk from `slot` on; `None` where that cannot be.
    fn clear(&mut self, walker: &mut Walker, slot: u64, obstacle: Obstacle) -> Option<()> {
        match obstacle {
            Obstacle::Stack => walker.find_stack(slot)?,
            // The cache has no room left for the rule.
            Obstacle::Rule(pc, _) if pc == self.looked_for => self.use_full = true,
            Obstacle::Rule(pc, distance) => {
                return_address::find_rule(pc, distance);
                self.looked_for = pc;
            }
            Obstacle::Full => self.use_full = true,
            Obstacle::Depth => walker.buffers.grow().map_err(shared::note_overflow).ok()?,
        }
        Some(())
    }
}
