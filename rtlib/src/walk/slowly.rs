//! Walks at any cost: rules and bounds are searched for, and tables are evaluated. They run on the
//! thread's private stack, with signals blocked.

use abi::cause::Cause;
use abi::segment::ROOT_COMPLETE;
use unwind::{At, Loaded, Saved, Step, step};

use super::bounds;
use super::buffers::MAX_FRAMES;
use super::frame::{Frame, Stack};
use super::outcome::{Obstacle, Walk};
use super::walker::Walker;
use crate::code::rules::RULES;
use crate::code::{epoch, return_address};
use crate::os::foreign::Window;
use crate::os::shared;

/// Maximum number of attempts of one walk: each rule of the deepest stack may have to be found.
const ATTEMPTS: u64 = 2 * MAX_FRAMES;

impl Walker {
    /// Walks from the call of `function` whose return address is at `slot`. `None` if the bounds of
    /// the stack cannot be determined.
    ///
    /// # Safety
    /// The walker belongs to the calling thread, and `slot` is on its stack. The registers are
    /// those at the function's entry; unless `all` is true, only the frame pointer is valid.
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
            // SAFETY: guaranteed by the caller; the full walk comes only after the stack's bounds
            // are known.
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

    /// True if `slot` is on the stack that contains `sp`, at `sp` or above. That stack becomes the
    /// thread's current one. False if its bounds cannot be determined.
    pub fn is_on_stack_of(&mut self, sp: u64, slot: u64) -> bool {
        let is_known = self.stack.holds(sp) || self.find_stack(sp).is_some();
        is_known && slot >= sp && self.stack.holds(slot)
    }

    /// The stack of a frame, independent of `--depth`. `None` if it is not known: registers besides
    /// the stack and frame pointers are needed and `all` is false, or the bounds of the stack are
    /// not known.
    ///
    /// # Safety
    /// The walker belongs to the calling thread. The frame is one of that thread, and is suspended.
    pub unsafe fn stack_of(&mut self, frame: &Frame, all: bool) -> Option<Stack> {
        epoch::renew();
        let sp = frame.registers.sp();
        let mut way = Way::default();
        for _ in 0..ATTEMPTS {
            if way.use_full && !all {
                return None;
            }
            let result = if way.use_full {
                // SAFETY: guaranteed by the caller.
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

    /// The stack of a frame, found by cached rules.
    fn stack_by_rules(&self, frame: &Frame) -> Result<Stack, Obstacle> {
        let (pc, sp) = (frame.pc, frame.registers.sp());
        let high = self.stack.high;
        if !self.stack.holds(sp) {
            return Err(Obstacle::Stack);
        }
        let window = Window::new();
        // SAFETY: a word of a stack that was seen mapped, and that no other thread writes. If the
        // mapping has shrunk since, `word` returns `None`.
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

/// The method of a walk that is retried whenever an obstacle has been removed.
#[derive(Default)]
struct Way {
    /// True if only the full walk is left.
    use_full: bool,
    /// The last return address whose rule was searched for.
    looked_for: u64,
}

impl Way {
    /// Removes the obstacle that stopped a walk from `slot`. `None` if that is impossible.
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
