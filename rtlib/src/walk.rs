//! The stack walk from a probed function's entry: at [rsp] stands the return address, so the CFA
//! is rsp + 8 and the function's own unwind rules are never needed.
//!
//! The fast walk knows sp and rbp only and takes its rules from the cache; the full walk tracks
//! every callee-saved register and evaluates the unwind tables afresh.

use core::sync::atomic::Ordering;

use abi::rule::{self, Rule};
use abi::segment::{ROOT_COMPLETE, ROOT_CUT, ROOT_INCOMPLETE, ROOT_OVERFLOW};

use crate::cfi::{self, Cfa, RBP, RBX, RSP, RegisterRule, Registers};
use crate::foreign::Window;
use crate::frame_pointer::{self, Evidence};
use crate::memo::Read;
use crate::return_address::{is_after_call, is_context_start, is_entry_code};
use crate::state::{MODULES, RULES, ipath_parameters};
use crate::thread::Thread;
use crate::{fold, segment};

/// What a walk came to. Its return addresses are told by the thread's `sites`, the numbers of their
/// rules, where those are known; else they are in its `frames`.
#[derive(Clone, Copy)]
pub struct Walk {
    /// Frames found.
    pub len: u64,
    /// Hash over the function, the return addresses and the end.
    pub hash: u64,
    /// How it ended, one of the segment's `ROOT_*` nodes.
    pub root: u32,
    /// Which stack: the CFA of the root frame, or where that was not reached the stack's end.
    pub stack: u64,
    /// Words read, in the thread's `reads`.
    pub reads: u64,
    /// Whether those words alone have led to all this, and not the bounds of the stack's mapping.
    pub is_determined: bool,
    /// Whether `sites` tells its frames.
    pub has_sites: bool,
}

impl Walk {
    /// Nothing walked yet, on a stack in memory that ends at `high`.
    pub fn begin(function: u32, high: u64) -> Self {
        Self {
            len: 0,
            hash: mix(HASH, u64::from(function)),
            root: 0,
            stack: high,
            reads: 0,
            is_determined: false,
            has_sites: false,
        }
    }

    /// Counts a frame in.
    pub fn add(&mut self, frame: u64) {
        self.len += 1;
        self.hash = mix(self.hash, frame);
    }

    /// Ends at one of the segment's `ROOT_*` nodes.
    pub fn end(&mut self, root: u32) {
        self.root = root;
        self.hash = mix(self.hash, u64::from(root));
    }

    /// What a walk comes to that there is no room for.
    pub fn overflow(function: u32, high: u64) -> Self {
        Self {
            root: ROOT_OVERFLOW,
            ..Self::begin(function, high)
        }
    }

    /// Folds recursion, where the user wants that.
    ///
    /// # Safety
    /// It is the thread's last, and not folded yet.
    #[inline(always)]
    pub unsafe fn fold(&mut self, thread: *mut Thread, function: u32) {
        if ipath_parameters.folds.load(Ordering::Relaxed) != 0 {
            // SAFETY: the caller's promise; the table is for as many frames as fit. One after the other
            // instead of one inside the other, to use less of the stack.
            unsafe {
                if self.has_sites {
                    fill_frames(thread, self);
                }
                self.len = fold::fold((*thread).frames, self.len, (*thread).folding);
                self.tell_folded(thread, function);
            }
        }
    }

    /// Makes hash and sites those of the frames.
    #[cold]
    #[inline(never)]
    #[unsafe(link_section = ".text.fast")]
    unsafe fn tell_folded(&mut self, thread: *mut Thread, function: u32) {
        // SAFETY: there is room for as many sites as frames.
        unsafe {
            let (frames, sites) = ((*thread).frames, (*thread).sites);
            self.hash = mix(HASH, u64::from(function));
            for at in 0..self.len as usize {
                let frame = frames.add(at).read();
                self.hash = mix(self.hash, frame);
                if self.has_sites {
                    sites.add(at).write_volatile(RULES.get(frame).1);
                }
            }
            self.hash = mix(self.hash, u64::from(self.root));
            end_sites(sites.add(self.len as usize));
        }
    }
}

/// Why the fast walk could not go on.
#[derive(Clone, Copy)]
pub enum Obstacle {
    /// The stack's bounds are not known.
    Stack,
    /// The rule of this return address is not in the cache.
    Rule(u64),
    /// A frame needs the full walk.
    Full,
    /// More frames than there is room for.
    Depth,
}

const HASH: u64 = 0x9e37_79b9_7f4a_7c15;

#[inline(always)]
fn mix(hash: u64, value: u64) -> u64 {
    (hash.rotate_left(23) ^ value).wrapping_mul(HASH)
}

/// Puts the return addresses of a walk that has left sites into the thread's `frames`.
///
/// # Safety
/// `thread` is the calling thread's, and the walk its last.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub unsafe fn fill_frames(thread: *mut Thread, walk: &Walk) {
    for at in 0..walk.len as usize {
        // SAFETY: there is room for as many frames as sites.
        unsafe {
            let site = (*thread).sites.add(at).read();
            (*thread).frames.add(at).write(RULES.address(site));
        }
    }
}

/// Walks with cached rules. `slot` is the address of the probed function's return address, `rbp`
/// the register at its entry.
///
/// # Safety
/// `thread` is the calling thread's; `slot` is its stack pointer.
#[inline(always)]
pub unsafe fn fast(
    thread: *mut Thread,
    function: u32,
    slot: u64,
    rbp: u64,
) -> Result<Walk, Obstacle> {
    // SAFETY: the thread is ours. Stack words are read between the stack pointer and the end of
    // the mapping it lies in, all of which is readable memory.
    unsafe {
        let (low, high) = ((*thread).stack.low, (*thread).stack.high);
        if slot < low || slot >= high {
            return Err(Obstacle::Stack);
        }
        let room = (*thread).frames_capacity.min(depth_limit()) as usize;
        let mut site_at = (*thread).sites;
        let sites_end = site_at.add(room);
        let mut sp = slot + 8;
        let mut pc = (slot as *const u64).read();
        let mut walk = Walk::begin(function, high);
        let mut reads = Reads {
            next: (*thread).reads,
            bp_at: &raw const (*thread).entry_rbp as u64,
            bp: rbp,
        };
        reads.note(slot, pc);
        walk.is_determined = true;
        walk.has_sites = true;
        loop {
            if site_at == sites_end {
                if (site_at.offset_from((*thread).sites) as u64) < depth_limit() {
                    return Err(Obstacle::Depth);
                }
                walk.root = ROOT_CUT;
                break;
            }
            let (mut word, site) = RULES.get(pc);
            site_at.write(site);
            site_at = site_at.add(1);
            walk.hash = mix(walk.hash, pc);
            let base = match rule::kind(word) {
                rule::FROM_RSP => sp,
                rule::FROM_RBP => reads.bp(),
                rule::REALIGNED => {
                    let Some(cfa) = reads.realigned(word, sp, high) else {
                        walk.root = ROOT_INCOMPLETE;
                        walk.is_determined = false;
                        break;
                    };
                    word = 0;
                    cfa
                }
                rule::ROOT => {
                    walk.root = ROOT_COMPLETE;
                    walk.stack = sp;
                    break;
                }
                rule::STOP => {
                    walk.root = ROOT_INCOMPLETE;
                    break;
                }
                rule::FULL => return Err(Obstacle::Full),
                _ => return Err(Obstacle::Rule(pc)),
            };
            let cfa = base.wrapping_add(rule::cfa_offset(word) as u64);
            let rbp_bytes = rule::rbp_bytes(word);
            let saved_rbp = cfa.wrapping_add(rbp_bytes as u64);
            // A frame holds at least its return address, and the stack holds the frame.
            if cfa < sp + 8 || cfa > high || cfa % 8 != 0 || saved_rbp < sp {
                walk.root = ROOT_INCOMPLETE;
                walk.is_determined = false;
                break;
            }
            let at = reads.likely(cfa - 8);
            pc = (at as *const u64).read();
            reads.note(at, pc);
            if rbp_bytes != 0 {
                reads.bp_at = saved_rbp;
                reads.bp = (saved_rbp as *const u64).read();
            }
            sp = cfa;
        }
        end_sites(site_at);
        walk.len = site_at.offset_from((*thread).sites) as u64;
        walk.reads = reads.next.offset_from((*thread).reads) as u64;
        walk.hash = mix(walk.hash, u64::from(walk.root));
        Ok(walk)
    }
}

/// Fills up the last word of the sites before `end`: they are compared four at a time.
#[inline(always)]
unsafe fn end_sites(end: *mut u16) {
    // SAFETY: there is room for four more sites than frames.
    unsafe { end.cast::<u64>().write_unaligned(0) };
}

/// The words that a walk has read, as far as something has depended on them.
struct Reads {
    /// Where the next goes.
    next: *mut Read,
    /// Where the frame pointer was read; 0 where it is among them.
    bp_at: u64,
    /// The frame pointer.
    bp: u64,
}

impl Reads {
    /// `at`, from where the last walk has read at this turn if that is the same. A processor that
    /// takes the branch before it knows reads on from there, while it still works `at` out, which
    /// takes one frame after another.
    #[inline(always)]
    unsafe fn likely(&self, at: u64) -> u64 {
        let last: u64;
        // SAFETY: the next one to be noted has room; what stands there, an address or not, is only
        // compared.
        unsafe {
            core::arch::asm!(
                "mov {last}, [{next}]",
                "cmp {last}, {at}",
                "je 2f",
                "mov {last}, {at}",
                "2:",
                at = in(reg) at,
                next = in(reg) self.next,
                last = out(reg) last,
                options(pure, readonly, nostack),
            );
        }
        last
    }

    /// # Safety
    /// There is room for one more.
    #[inline(always)]
    unsafe fn note(&mut self, at: u64, value: u64) {
        // SAFETY: the caller's promise.
        unsafe {
            self.next.write(Read { at, value });
            self.next = self.next.add(1);
        }
    }

    /// The canonical frame address by a rule of [`Rule::Realigned`], on a stack from `sp` to `high`, and the
    /// caller's frame pointer; `None` where they do not lie there.
    ///
    /// # Safety
    /// There is room for two more.
    #[inline(always)]
    unsafe fn realigned(&mut self, word: u64, sp: u64, high: u64) -> Option<u64> {
        // SAFETY: the caller's promise; words are read inside the stack's bounds only.
        unsafe {
            let bp = self.bp();
            let at = bp.wrapping_add(rule::cfa_offset(word) as u64);
            let saved = bp.wrapping_add(rule::rbp_bytes(word) as u64);
            let is_inside = |at: u64| at >= sp && at < high && at.is_multiple_of(8);
            if !is_inside(at) || !is_inside(saved) {
                return None;
            }
            let cfa = (at as *const u64).read();
            self.note(at, cfa);
            self.bp_at = saved;
            self.bp = (saved as *const u64).read();
            Some(cfa)
        }
    }

    /// The frame pointer, which the walk depends on from here on.
    ///
    /// # Safety
    /// There is room for one more.
    #[inline(always)]
    unsafe fn bp(&mut self) -> u64 {
        if self.bp_at != 0 {
            // SAFETY: the caller's promise.
            unsafe { self.note(self.bp_at, self.bp) };
            self.bp_at = 0;
        }
        self.bp
    }
}

/// Walks with every callee-saved register, evaluating the tables for each frame.
///
/// # Safety
/// As for [`fast`]; the thread's saved registers are those at the function's entry, and `slot` lies
/// on the thread's current stack.
pub unsafe fn full(thread: *mut Thread, function: u32, slot: u64) -> Result<Walk, Obstacle> {
    // SAFETY: the caller's promise.
    unsafe {
        let mut registers: Registers = [0; cfi::COLUMNS];
        registers[RBX] = (*thread).saved.rbx;
        registers[RBP] = (*thread).saved.rbp;
        for (index, &value) in (*thread).saved.r12_15.iter().enumerate() {
            registers[12 + index] = value;
        }
        registers[RSP] = slot + 8;
        full_from(thread, function, registers, (slot as *const u64).read())
    }
}

/// The same from a frame that goes on at `pc` with these registers.
///
/// # Safety
/// The frame is on the thread's current stack.
pub unsafe fn full_from(
    thread: *mut Thread,
    function: u32,
    mut registers: Registers,
    mut pc: u64,
) -> Result<Walk, Obstacle> {
    // SAFETY: the thread is ours; stack words are read inside the stack's bounds only.
    unsafe {
        let high = (*thread).stack.high;
        let capacity = (*thread).frames_capacity;
        let frames = (*thread).frames;
        let mut is_return = true;
        let mut walk = Walk::begin(function, high);
        let window = Window::new();
        loop {
            if walk.len == depth_limit() {
                walk.root = ROOT_CUT;
                break;
            }
            if walk.len == capacity {
                return Err(Obstacle::Depth);
            }
            // Readers take one off a return address to land in the call; what a signal
            // interrupted is no return address, so one is added.
            let frame = if is_return { pc } else { pc.wrapping_add(1) };
            frames.add(walk.len as usize).write(frame);
            walk.len += 1;
            walk.hash = mix(walk.hash, frame);
            let sp = registers[RSP];
            let load = |at: u64| {
                let is_inside = at >= sp && at <= high - 8;
                is_inside.then(|| window.word(at, high)).flatten()
            };
            match step(&mut registers, pc, is_return, &load) {
                Step::Caller {
                    pc: caller,
                    signal_frame,
                } if registers[RSP] > sp => {
                    pc = caller;
                    is_return = !signal_frame;
                }
                Step::Root => {
                    walk.root = ROOT_COMPLETE;
                    walk.stack = sp;
                    break;
                }
                _ => {
                    walk.root = ROOT_INCOMPLETE;
                    break;
                }
            }
        }
        walk.hash = mix(walk.hash, u64::from(walk.root));
        Ok(walk)
    }
}

#[inline(always)]
fn depth_limit() -> u64 {
    // 0 keeps all: one less wraps to the largest number.
    let depth = ipath_parameters.depth.load(Ordering::Relaxed);
    if depth == 0 { u64::MAX } else { depth }
}

enum Step {
    Caller { pc: u64, signal_frame: bool },
    Root,
    Stop,
}

/// Takes the registers from the frame of `pc` to its caller's.
fn step(
    registers: &mut Registers,
    pc: u64,
    is_return: bool,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Step {
    try_step(registers, pc, is_return, load).unwrap_or(Step::Stop)
}

fn try_step(
    registers: &mut Registers,
    pc: u64,
    is_return: bool,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<Step> {
    let look_up = if is_return { pc.wrapping_sub(1) } else { pc };
    let range = MODULES.find(look_up)?;
    if is_return && is_context_start(&range, pc) {
        return Some(Step::Root);
    }
    let fde = range.tables.and_then(|t| t.find(look_up));
    let Some(fde) = fde else {
        if is_entry_code(pc) {
            return Some(Step::Root);
        }
        let rule = segment::rule_of(pc).filter(|_| is_return);
        let rule = rule.or_else(|| frame_pointer(registers, pc, is_return, load))?;
        return by_rule(registers, rule, load);
    };
    if is_return && !fde.signal_frame && !is_after_call(&range, pc) {
        return None;
    }
    let row = cfi::row_at(&fde, look_up)?;
    let cfa = match row.cfa {
        Cfa::Register(register, offset) => registers[register].wrapping_add(offset as u64),
        Cfa::Expression(expression) => cfi::evaluate(expression, registers, None, load)?,
    };
    if matches!(row.registers[cfi::RA], RegisterRule::Undefined) {
        return Some(Step::Root);
    }
    let before = *registers;
    registers[RSP] = cfa;
    for (column, rule) in row.registers.iter().enumerate() {
        let value = match *rule {
            RegisterRule::Undefined | RegisterRule::Same => continue,
            RegisterRule::Offset(offset) => load(cfa.wrapping_add(offset as u64))?,
            RegisterRule::ValueOffset(offset) => cfa.wrapping_add(offset as u64),
            RegisterRule::Register(other) => before[other],
            RegisterRule::Expression(expression) => {
                load(cfi::evaluate(expression, &before, Some(cfa), load)?)?
            }
            RegisterRule::ValueExpression(expression) => {
                cfi::evaluate(expression, &before, Some(cfa), load)?
            }
        };
        registers[column] = value;
    }
    Some(Step::Caller {
        pc: registers[cfi::RA],
        signal_frame: fde.signal_frame,
    })
}

/// The rule of code without tables or recipes, where rbp proves to be its frame pointer. What is shown
/// once of the code before a return address holds for it: its rule is remembered.
fn frame_pointer(
    registers: &Registers,
    pc: u64,
    is_return: bool,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<Rule> {
    let rule = match frame_pointer::judge(registers[RSP], registers[RBP], load) {
        Evidence::FramePointer => Rule::FromRbp {
            cfa_offset: 16,
            rbp_words: -2,
        },
        Evidence::Other => Rule::Stop,
        Evidence::Doubtful => return None,
    };
    if is_return {
        RULES.insert(pc, rule);
    }
    Some(rule)
}

/// Takes the registers to the caller's without unwind tables.
fn by_rule(
    registers: &mut Registers,
    rule: Rule,
    load: &dyn Fn(u64) -> Option<u64>,
) -> Option<Step> {
    let (from, cfa_offset, rbp_words) = match rule {
        Rule::FromRsp {
            cfa_offset,
            rbp_words,
        } => (RSP, cfa_offset, rbp_words),
        Rule::FromRbp {
            cfa_offset,
            rbp_words,
        } => (RBP, cfa_offset, rbp_words),
        Rule::Root => return Some(Step::Root),
        // No recipe is one of these.
        Rule::Realigned { .. } | Rule::Full | Rule::Stop => return None,
    };
    let cfa = registers[from].wrapping_add(i64::from(cfa_offset) as u64);
    let caller = load(cfa.wrapping_sub(8))?;
    if rbp_words != 0 {
        registers[RBP] = load(cfa.wrapping_add((i64::from(rbp_words) * 8) as u64))?;
    }
    registers[RSP] = cfa;
    Some(Step::Caller {
        pc: caller,
        signal_frame: false,
    })
}
