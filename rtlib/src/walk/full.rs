//! Walks with all callee-saved registers, which evaluate the unwind tables for each frame.

use abi::arch::stack::RED_ZONE;
use abi::cause::Cause;
use abi::segment::{ROOT_COMPLETE, ROOT_CUT};
use unwind::arch::register::SP;
use unwind::arch::signal_frame;
use unwind::{At, Caller, Loaded, Places, Regs, Rule, Step, step};

use super::frame::{Frame, Stack, stopped_at};
use super::outcome::{Obstacle, Walk, depth_limit};
use super::walker::Walker;
use crate::code::callers;
use crate::code::cfi::{self, Cfa};
use crate::code::copies::{self, Original};
use crate::code::epoch;
use crate::code::frame_pointer::{self, Evidence};
use crate::code::modules::MODULES;
use crate::code::published;
use crate::code::return_address::{
    convention_of, forget_if_old, is_after_call, is_after_system_call, is_context_start,
    is_entry_code, is_restorer, is_thread_end, may_be_under_breakpoint, why_none,
};
use crate::code::rows::{self, Age};
use crate::code::rules::RULES;
use crate::os::foreign::Window;
use crate::os::hash;

/// Maximum number of alternate stacks that a walk leaves. A handler on one is rarely interrupted by
/// a handler on another.
const MOST_CROSSINGS: u32 = 8;

impl Walker {
    /// Walks from a frame of `function`'s caller, or of any caller. Returns the walk and the root's
    /// return address, which is 0 if the walk did not reach the root.
    ///
    /// # Errors
    /// [`Obstacle::Depth`] if the path has more frames than the buffers have room for.
    ///
    /// # Safety
    /// The walker belongs to the calling thread, and the frame is on its current stack.
    pub(super) unsafe fn walk_fully(
        &mut self,
        function: u32,
        frame: Frame,
    ) -> Result<(Walk, u64), Obstacle> {
        let mut walk = Walk::begin(function, self.stack.high);
        let mut place = Position {
            pc: frame.pc,
            registers: frame.registers,
            is_return: true,
            high: self.stack.high,
            crossings: 0,
        };
        let window = Window::new();
        let mut is_cut = false;
        let mut root = 0;
        loop {
            // Frames beyond the cut are not kept, but they identify the stack.
            is_cut |= walk.len == depth_limit();
            if !is_cut {
                if walk.len == self.buffers.capacity {
                    return Err(Obstacle::Depth);
                }
                // SAFETY: there is room for one more.
                unsafe { self.put(&mut walk, place.frame()) };
            }
            let pc = place.pc;
            let sp = place.registers.sp();
            let (low, high) = (place.low(), place.high);
            let load = |at: u64| {
                let is_inside = at >= low && at <= high - 8;
                // SAFETY: a word of the stack, which no other thread writes.
                is_inside
                    .then(|| unsafe { window.word(at, high) })
                    .flatten()
            };
            match next(&mut place.registers, place.pc, place.is_return, high, &load) {
                Next::Caller { pc, signal_frame } => {
                    let copied = signal_frame.then(|| copies::original(pc)).flatten();
                    let at = place.registers.sp();
                    let raised = copied.as_ref().map_or(0, Original::lowered);
                    place.registers.set_sp(at.wrapping_add(raised));
                    let pc = copied.as_ref().map_or(pc, |original| original.pc);
                    match self.go_on(&mut place, sp, pc, signal_frame) {
                        Ok(()) => {
                            // Only registers that callees save are used by walks.
                            let saved = copied.and_then(|original| original.saved());
                            if let Some((column, by)) = saved
                                && let at = at.wrapping_add_signed(by)
                                && at <= place.high - 8
                                // SAFETY: a word of the stack, which no other thread writes.
                                && let Some(value) = unsafe { window.word(at, place.high) }
                            {
                                place.registers[column] = value;
                            }
                            continue;
                        }
                        Err(cause) => walk.root = cause.node(),
                    }
                }
                Next::Root => {
                    walk.root = ROOT_COMPLETE;
                    root = pc;
                }
                Next::Stop(cause) => walk.root = cause.node(),
            }
            if place.crossings == 0 {
                let stack = self.stack_ending(walk.root, pc, sp);
                (walk.stack, walk.is_told) = (stack.id, stack.is_told);
            }
            if is_cut {
                walk.root = ROOT_CUT;
            } else if pc == 0 {
                walk.len -= 1;
            }
            break;
        }
        walk.hash = hash::mix(walk.hash, u64::from(walk.root));
        Ok((walk, root))
    }

    /// The stack of a walk that ended with the node `root`, at a frame with the program counter
    /// `pc` and the stack pointer `sp`.
    pub(super) fn stack_ending(&self, root: u32, pc: u64, sp: u64) -> Stack {
        if root == ROOT_COMPLETE {
            return Stack {
                id: sp,
                is_told: true,
                root: pc,
            };
        }
        // Walks of one stack may stop at different frames. If the stack is the thread's own, only
        // this thread has any of them.
        if self.is_own != 0 && pc != 0 {
            Stack::in_memory(self.stack.high)
        } else {
            Stack {
                id: stopped_at(sp),
                is_told: true,
                root: 0,
            }
        }
    }

    /// Adds a frame to the walk.
    ///
    /// # Safety
    /// The walk has fewer frames than the buffers have room for.
    unsafe fn put(&mut self, walk: &mut Walk, frame: u64) {
        // SAFETY: guaranteed by the caller.
        unsafe { self.buffers.frames.add(walk.len as usize).write(frame) };
        walk.len += 1;
        walk.hash = hash::mix(walk.hash, frame);
    }

    /// Continues at `pc` in the caller, from a frame whose stack pointer was `sp`. `place` already
    /// has the caller's registers. Returns a cause if the caller is on no stack that can be walked.
    fn go_on(
        &mut self,
        place: &mut Position,
        sp: u64,
        pc: u64,
        signal_frame: bool,
    ) -> Result<(), Cause> {
        let to = place.registers.sp();
        // In an interrupted frame, the return address may be in a register (glibc's vfork).
        let is_above = to > sp || to == sp && !place.is_return && pc != place.pc;
        place.pc = pc;
        place.is_return = !signal_frame;
        if is_above && to <= place.high {
            return Ok(());
        }
        if !signal_frame {
            return Err(Cause::OffStack);
        }
        // From a handler on an alternate stack, the walk continues on the stack of the interrupted
        // code.
        place.crossings += 1;
        let may_cross = place.crossings <= MOST_CROSSINGS;
        let other = may_cross.then(|| self.stack_at(to)).flatten();
        place.high = other.ok_or(Cause::OtherStack)?.high;
        Ok(())
    }
}

/// The position of a walk.
struct Position {
    /// The address at which the frame continues.
    pc: u64,
    /// The registers with which the frame continues.
    registers: Regs,
    /// True if `pc` is a return address. Otherwise a signal has interrupted the program at `pc`.
    is_return: bool,
    /// The address at which the memory of the current stack ends.
    high: u64,
    /// The number of alternate stacks left so far.
    crossings: u32,
}

impl Position {
    /// The address to record. Readers subtract one from a return address to get into the call
    /// instruction. The address of interrupted code is no return address, so one is added.
    fn frame(&self) -> u64 {
        if self.is_return {
            self.pc
        } else {
            self.pc.wrapping_add(1)
        }
    }

    /// The lowest stack address that rules may read.
    fn low(&self) -> u64 {
        let sp = self.registers.sp();
        if self.is_return {
            sp
        } else {
            sp.saturating_sub(RED_ZONE)
        }
    }
}

/// The result of a step of the full walk.
enum Next {
    /// The caller continues at `pc`. With `signal_frame`, a signal has interrupted it at `pc`.
    Caller { pc: u64, signal_frame: bool },
    /// The frame has no caller.
    Root,
    /// The walk cannot continue.
    Stop(Cause),
}

impl Next {
    /// The caller that continues at `pc`. Without a `pc`, the caller is on no stack.
    fn at(pc: Option<u64>, signal_frame: bool) -> Self {
        match pc {
            Some(pc) => Self::Caller { pc, signal_frame },
            None => Self::Stop(Cause::OffStack),
        }
    }
}

/// Steps from the frame of `pc` to the registers of its caller. `is_return` is true if `pc` is a
/// return address. The stack ends at `high`, and `load` reads a word of it.
fn next(
    registers: &mut Regs,
    pc: u64,
    is_return: bool,
    high: u64,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Next {
    by_tables(registers, pc, is_return, high, load).unwrap_or_else(|| {
        Next::Stop(if is_return {
            why_none(pc)
        } else if MODULES.known(pc).is_none() {
            Cause::UnknownCode
        } else {
            Cause::Interrupted
        })
    })
}

/// Steps as [`next`] does, by cached rows, unwind tables, known code patterns, published rules or
/// the frame pointer. `None` if there is no rule.
fn by_tables(
    registers: &mut Regs,
    pc: u64,
    is_return: bool,
    high: u64,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<Next> {
    if is_return && pc == 0 {
        return Some(Next::Stop(Cause::NullReturn));
    }
    let age = Age::now();
    if let Some(row) = rows::find(pc, is_return, age) {
        return Some(Next::at(row.step(registers, load), false));
    }
    let look_up = if is_return { pc.wrapping_sub(1) } else { pc };
    let range = MODULES.find_code(look_up)?;
    if is_return && is_context_start(&range, pc) {
        return Some(Next::Root);
    }
    let fde = range.tables.and_then(|t| t.find(look_up));
    let Some(fde) = fde else {
        if is_entry_code(pc) || is_return && is_thread_end(&range, pc) {
            return Some(Next::Root);
        }
        if is_return && is_restorer(&range, pc) {
            return Some(Next::at(signal_frame::step(registers, load), true));
        }
        // Interrupted code has such a rule only right after a system call. Right after a call, `pc`
        // may as well be the entry of the next function.
        let has_rule = is_return || is_after_system_call(&range, pc);
        let rule = has_rule.then(|| published::rule_of(&range, pc)).flatten();
        let rule = rule.or_else(|| is_return.then(|| RULES.frame(pc)).flatten());
        let rule = match (rule, convention_of(&range, pc)) {
            // A convention for return addresses does not hold for interrupted code.
            (None, Some(_)) if !is_return => return None,
            (rule, convention) => rule.or(convention),
        };
        let rule = rule.or_else(|| frame_pointer(registers, pc, is_return, load))?;
        return by_rule(registers, rule, high, load);
    };
    if is_return && !fde.signal_frame && !is_after_call(&range, pc) {
        return None;
    }
    let mut row = cfi::row_at(&fde, look_up)?;
    if is_return && matches!(row.cfa, Cfa::Register(SP, _)) {
        // The places of saved registers are relative to the true CFA.
        match published::rule_of(&range, pc) {
            Some(Rule::FromSp { cfa_offset, .. }) => {
                row.cfa = Cfa::Register(SP, cfa_offset.into());
            }
            Some(Rule::Stop(cause)) => return Some(Next::Stop(cause)),
            _ => {}
        }
    }
    if !fde.signal_frame
        && let Some(simple) = Places::of(&row)
    {
        rows::keep(pc, is_return, age, &simple);
    }
    Some(match row.step(registers, load) {
        Some(Caller::At(pc)) => Next::at(Some(pc), fde.signal_frame),
        Some(Caller::Root) => Next::Root,
        None => Next::Stop(Cause::OffStack),
    })
}

/// The rule of code without tables or known patterns, from evidence about its frame pointer: a
/// [`Rule::Stop`] if the code uses none, `None` if the evidence is doubtful. The rule of a return
/// address holds for all calls that return to it. So it is cached, and a better one is requested
/// from the command.
fn frame_pointer(
    registers: &Regs,
    pc: u64,
    is_return: bool,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<Rule> {
    let epoch = epoch::number();
    let (sp, fp) = (registers.sp(), registers.fp());
    let evidence = frame_pointer::judge(sp, fp, load);
    if is_return {
        // The instructions may resolve a doubtful case.
        callers::ask(pc, sp, fp, load);
    }
    let rule = match evidence {
        Evidence::FramePointer => Rule::FRAME_POINTER,
        Evidence::Realigned { cfa_at } => Rule::Realigned {
            cfa_at,
            fp_words: 0,
        },
        Evidence::Other if is_return => Rule::Stop(why_none(pc)),
        Evidence::Other => Rule::Stop(Cause::Interrupted),
        Evidence::Doubtful => return None,
    };
    let may_change = rule == Rule::Stop(Cause::NoCall) && may_be_under_breakpoint(pc);
    if is_return && !may_change {
        RULES.insert(pc, rule);
        forget_if_old(pc, epoch);
    }
    Some(rule)
}

/// Steps to the registers of the caller by `rule`. `None` if the rule is not known, or if only a
/// row of the unwind tables has all registers that it needs ([`Rule::Full`]).
fn by_rule(
    registers: &mut Regs,
    rule: Rule,
    high: u64,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<Next> {
    let at = At {
        pc: 0,
        sp: registers.sp(),
    };
    let mut words = Loaded {
        load,
        fp: registers.fp(),
    };
    match step(rule.encode(), at, high, &mut words) {
        Step::Caller(caller) => {
            registers.set_fp(words.fp);
            registers.set_sp(caller.sp);
            Some(Next::Caller {
                pc: caller.pc,
                signal_frame: false,
            })
        }
        Step::Root => Some(Next::Root),
        Step::Stop(cause) => Some(Next::Stop(cause)),
        Step::Astray => Some(Next::Stop(Cause::OffStack)),
        Step::Full | Step::Unknown => None,
    }
}
