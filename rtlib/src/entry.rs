//! What happens when a probed function is entered.

use core::arch::x86_64::_rdtsc;
use core::mem::size_of;
use core::ptr;
use core::sync::atomic::Ordering;

use abi::image::{FUNCTION_EXITS, FUNCTION_REAPER, FunctionSlot};
use abi::segment::RecordHead;

use crate::activation::{self, Activation};
use crate::memo::Run;
use crate::state::{ipath_functions, is_alive};
use crate::thread::{self, ACTIVATIONS, PathSlot, StackRange, Thread};
use crate::walk::{self, Obstacle, Walk};
use crate::{exit, learn, maps, memory, record, segment, sys, tree};

/// Most frames a walk can hold after growing, a power of two; deeper calls count as overflow.
const MOST_FRAMES: u64 = 1 << 20;

/// Steps towards one walk: every rule of the deepest stack may have to be learnt.
const ATTEMPTS: u64 = 2 * MOST_FRAMES;

/// What the stub does next where its own code could not record a call, besides the slow path with a
/// thread: try again, or nothing.
const AGAIN: *mut Thread = ptr::null_mut();
/// See [`AGAIN`].
pub const DONE: *mut Thread = ptr::without_provenance_mut(1);
/// Added to a thread: record the call as [`Thread::found`] tells.
pub const FOUND: usize = 2;

/// Remembers the walk of a call of `function`, so that the stub can record it: what to do next.
///
/// # Safety
/// Called by the entry stub: `slot` is the address of the return address, on the stack of the
/// calling thread, `rbp` the register at the function's entry. `has_tried` where this has been called
/// for this call before.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.fast")]
pub unsafe extern "C" fn ipath_learn_walk(
    function: u64,
    slot: u64,
    rbp: u64,
    has_tried: bool,
) -> *mut Thread {
    // SAFETY: the stub's promise.
    unsafe {
        let thread = match begin(function, slot) {
            Ok(thread) => thread,
            Err(next) => return next,
        };
        let is_reaper = flags(function) & FUNCTION_REAPER != 0;
        if is_reaper || !thread::is_same_thread(thread) || !(*thread).stack.holds(slot) {
            return thread;
        }
        (*thread).entry_rbp = rbp;
        // Where one is remembered, it is something else that the stub's code could not do.
        let Err(miss) = (*thread).memo.find(function as u32, slot) else {
            return thread;
        };
        if has_tried {
            return thread;
        }
        (*thread).miss = miss;
        match walk::fast(thread, function as u32, slot, rbp) {
            Ok(walk) if walk.is_determined => {
                (*thread).walk = walk;
                remember(thread, function as u32)
            }
            _ => thread,
        }
    }
}

/// The calling thread, marked busy with this call; what to do next where there is none.
#[inline(always)]
unsafe fn begin(function: u64, slot: u64) -> Result<*mut Thread, *mut Thread> {
    let state = &ipath_functions[function as usize % abi::MAX_FUNCTIONS];
    if !is_alive() || state.generation.load(Ordering::Relaxed) == 0 {
        return Err(DONE);
    }
    let is_reaper = flags(function) & FUNCTION_REAPER != 0;
    let thread = thread::current();
    if thread.is_null() && is_reaper {
        return Err(DONE);
    }
    if thread.is_null() {
        return Err(meet());
    }
    // SAFETY: the thread is the caller's own, and `busy` keeps signal handlers on it out.
    unsafe {
        if is_reaper && (is_busy(thread, slot) || (*(*thread).top).slot == u64::MAX) {
            return Err(DONE);
        }
        if is_busy(thread, slot) {
            count_missed(thread);
            return Err(DONE);
        }
        set_busy(thread, slot);
    }
    Ok(thread)
}

#[inline(always)]
fn flags(function: u64) -> u32 {
    let state = &ipath_functions[function as usize % abi::MAX_FUNCTIONS];
    state.flags.load(Ordering::Relaxed)
}

/// Counts a call of the thread's that is not recorded.
#[inline(always)]
unsafe fn count_missed(thread: *mut Thread) {
    // SAFETY: the thread is the caller's.
    let missed = unsafe { &segment::thread((*thread).index).missed };
    missed.store(missed.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Makes the calling thread known.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
fn meet() -> *mut Thread {
    if thread::register().is_null() {
        segment::header().missed.fetch_add(1, Ordering::Relaxed);
        return DONE;
    }
    AGAIN
}

/// Makes the walk again that is remembered for a call, and where it differs ends the program with
/// SIGILL. Then the stub goes on as ever.
///
/// # Safety
/// As for [`ipath_learn_walk`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_verify_walk(function: u64, slot: u64, rbp: u64) {
    let thread = thread::current();
    if !is_alive() || thread.is_null() {
        return;
    }
    // SAFETY: the stub's promise; `busy` keeps signal handlers on the thread out.
    unsafe {
        if is_busy(thread, slot) || !(*thread).stack.holds(slot) {
            return;
        }
        set_busy(thread, slot);
        (*thread).entry_rbp = rbp;
        if let Ok(run) = (*thread).memo.find(function as u32, slot)
            && !is_same_walk(thread, function as u32, run, rbp, slot)
        {
            core::arch::asm!("ud2", options(noreturn, nomem, nostack));
        }
        set_busy(thread, 0);
    }
}

/// Whether a fresh walk comes to the same as a remembered one.
unsafe fn is_same_walk(thread: *mut Thread, function: u32, run: &Run, rbp: u64, slot: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        walk::fast(thread, function, slot, rbp).is_ok_and(|mut walk| {
            walk.fold(thread, function);
            let known = find(thread, function, &walk);
            walk.stack == run.stack && known.is_some_and(|known| ptr::eq(known, run.record))
        })
    }
}

/// Remembers the walk just made for calls like this one, if its path has a record, for which the stub is
/// to record this call: what to do next. It takes all from the thread, so that its caller has left the stack before.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn remember(thread: *mut Thread, function: u32) -> *mut Thread {
    // SAFETY: the thread is the caller's; the walk has just left its reads there.
    unsafe {
        let walk = &mut (*thread).walk;
        walk.fold(thread, function);
        let Some(known) = find(thread, function, walk) else {
            return thread;
        };
        let reads = core::slice::from_raw_parts((*thread).reads, walk.reads as usize);
        // Where there is no room for it, the next one like it comes here again.
        (*thread)
            .memo
            .remember(&(*thread).miss, reads, walk.stack, known);
        (*thread).found = Run::of_nothing(walk.stack, known);
        thread.wrapping_byte_add(FOUND)
    }
}

/// Records a call of `function` whatever it takes. Runs on the private stack, with signals
/// blocked and the thread's callee-saved registers stored.
///
/// # Safety
/// Called by the entry stub with what [`ipath_learn_walk`] returned.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_entry(thread: *mut Thread, function: u64, slot: u64) {
    // SAFETY: the stub's promise; the thread is marked busy.
    unsafe {
        if record_slowly(thread, function as u32, slot).is_none() {
            count_missed(thread);
        }
        set_busy(thread, 0);
    }
}

unsafe fn record_slowly(thread: *mut Thread, function: u32, slot: u64) -> Option<()> {
    let state = &ipath_functions[function as usize % abi::MAX_FUNCTIONS];
    // SAFETY: the caller's promise.
    unsafe {
        if !thread::is_same_thread(thread) {
            // The thread that had this FS base has ended, in the middle of these calls.
            exit::close_all(thread);
            (*thread).tid = sys::gettid();
            segment::thread((*thread).index)
                .tid
                .store((*thread).tid, Ordering::Relaxed);
        }
        let mut walk = walk_slowly(thread, function, slot)?;
        if state.flags.load(Ordering::Relaxed) & FUNCTION_REAPER != 0 {
            exit::close_left_behind(thread, walk.stack, slot);
            exit::close_overwritten(thread, walk.stack);
            return Some(());
        }
        let has_exits = state.flags.load(Ordering::Relaxed) & FUNCTION_EXITS != 0;
        if has_exits {
            exit::close_left_behind(thread, walk.stack, slot);
            grow_activations(thread)?;
        }
        walk.fold(thread, function);
        let known = match find(thread, function, &walk) {
            Some(known) => known,
            None => learn::path(thread, function, &walk)?,
        };
        if !has_exits {
            record::enter(known);
            return Some(());
        }
        push(thread, function, state, slot, walk.stack, known);
        Some(())
    }
}

/// Sees to it that there is room for one more activation.
unsafe fn grow_activations(thread: *mut Thread) -> Option<()> {
    // SAFETY: the thread is the caller's; the memory is new.
    unsafe {
        if (*(*thread).top).next.is_null() {
            let memory = memory::map(ACTIVATIONS * size_of::<Activation>() as u64)?;
            activation::link(
                memory as *mut Activation,
                ACTIVATIONS as usize,
                (*thread).top,
            );
        }
        Some(())
    }
}

unsafe fn walk_slowly(thread: *mut Thread, function: u32, slot: u64) -> Option<Walk> {
    // SAFETY: the caller's promise.
    unsafe {
        let rbp = (*thread).saved.rbp;
        let mut use_full = false;
        let mut last = 0;
        for _ in 0..ATTEMPTS {
            let result = if use_full {
                walk::full(thread, function, slot)
            } else {
                walk::fast(thread, function, slot, rbp)
            };
            match result {
                Ok(walk) => return Some(walk),
                Err(Obstacle::Stack) => find_stack(thread, slot)?,
                // Where the cache has no room left for the rule, only the full walk is left.
                Err(Obstacle::Rule(pc)) if pc == last => use_full = true,
                Err(Obstacle::Rule(pc)) => {
                    walk::learn(pc);
                    last = pc;
                }
                Err(Obstacle::Full) => use_full = true,
                Err(Obstacle::Depth) if grow_frames(thread).is_some() => {}
                Err(Obstacle::Depth) => {
                    return Some(Walk::overflow(function, (*thread).stack.high));
                }
            }
        }
        None
    }
}

/// Makes the stack that holds `slot` the thread's current one.
unsafe fn find_stack(thread: *mut Thread, slot: u64) -> Option<()> {
    // SAFETY: the caller's promise.
    let thread = unsafe { &mut *thread };
    if let Some(known) = thread.stacks.iter().find(|r| r.holds(slot)) {
        thread.stack = *known;
        return Some(());
    }
    let mut found = None;
    maps::for_each(|mapping, _| {
        let range = StackRange {
            low: mapping.start,
            high: mapping.end,
        };
        if range.holds(slot) && mapping.read {
            found = Some(range);
        }
        found.is_none()
    })?;
    let range = found?;
    thread.stack = range;
    let at = thread.next_stack as usize % thread.stacks.len();
    thread.stacks[at] = range;
    thread.next_stack += 1;
    Some(())
}

unsafe fn grow_frames(thread: *mut Thread) -> Option<()> {
    // SAFETY: the caller's promise; the old frames lie in the thread's own block or in memory that
    // only the thread uses.
    unsafe {
        let capacity = ((*thread).frames_capacity * 4).min(MOST_FRAMES);
        if capacity == (*thread).frames_capacity {
            return None;
        }
        let old = (*thread).frames as u64;
        let new = memory::map(thread::walk_bytes(capacity))?;
        (*thread).use_for_walks(new, capacity);
        memory::unmap(old);
        Some(())
    }
}

/// The record of the path just walked, if this thread has one.
#[inline(always)]
unsafe fn find(thread: *mut Thread, function: u32, walk: &Walk) -> Option<&'static RecordHead> {
    // SAFETY: the table is the thread's own, its mask one less than its length.
    unsafe {
        let (table, mask) = ((*thread).paths, (*thread).paths_mask);
        let mut at = walk.hash & mask;
        loop {
            let slot = table.add(at as usize);
            if (*slot).path == 0 {
                return None;
            }
            if (*slot).hash == walk.hash
                && (*slot).function == function
                && PathSlot::shape(walk.len, walk.root) == Some((*slot).shape)
                && is_same_path(thread, &*slot, walk)
            {
                return Some(segment::record((*slot).record));
            }
            at = (at + 1) & mask;
        }
    }
}

/// Whether the frames just walked, as many as the slot's path has, are those.
#[inline(always)]
unsafe fn is_same_path(thread: *mut Thread, slot: &PathSlot, walk: &Walk) -> bool {
    // SAFETY: the thread is the caller's; a copy is as long as the path.
    unsafe {
        let frames = (*thread).frames;
        if !slot.frames.is_null() {
            return are_equal(frames, slot.frames, walk.len);
        }
        let frames = core::slice::from_raw_parts(frames, walk.len as usize);
        tree::is_path(slot.path, slot.function, frames, walk.root)
    }
}

/// Word by word: a call of `bcmp` would come of comparing slices, with vector registers.
#[inline(always)]
unsafe fn are_equal(a: *const u64, b: *const u64, len: u64) -> bool {
    // SAFETY: both have `len` words.
    unsafe {
        let mut at = 0;
        while at < len as usize {
            if a.add(at).read_volatile() != b.add(at).read() {
                return false;
            }
            at += 1;
        }
    }
    true
}

/// Begins an activation; reads the clock last.
#[inline(always)]
unsafe fn push(
    thread: *mut Thread,
    function: u32,
    state: &FunctionSlot,
    slot: u64,
    stack: u64,
    known: &'static RecordHead,
) {
    // SAFETY: the thread is the caller's and has a free activation; function ids are below
    // MAX_FUNCTIONS, as many as `depths` has.
    unsafe {
        record::enter(known);
        let depth = (*thread).depths.add(function as usize % abi::MAX_FUNCTIONS);
        let new = (*(*thread).top).next;
        (*new).slot = slot;
        (*new).stack = stack;
        (*new).nested = 0;
        (*new).record = known;
        (*new).function = function;
        (*new).generation = state.generation.load(Ordering::Relaxed);
        (*new).outermost = u32::from(*depth == 0);
        *depth += 1;
        (*thread).top = new;
        (*new).start = _rdtsc();
    }
}

/// Marks the thread as recording the call whose return address is at `slot`; 0 ends it.
#[inline(always)]
pub(crate) unsafe fn set_busy(thread: *mut Thread, slot: u64) {
    // SAFETY: the thread is the caller's. Volatile: a signal handler reads it.
    unsafe { (&raw mut (*thread).busy).write_volatile(slot) };
}

/// Whether the thread is in the middle of recording another call: then this one comes from a
/// signal handler on top of it.
#[inline(always)]
pub(crate) unsafe fn is_busy(thread: *mut Thread, slot: u64) -> bool {
    // SAFETY: the thread is the caller's.
    unsafe {
        let busy = (&raw const (*thread).busy).read_volatile();
        busy != 0 && !is_left(thread, busy, slot)
    }
}

/// Less than what the kernel puts on a stack for a signal: the red zone, 512 bytes of x87 and xmm
/// registers, and a ucontext.
const SIGNAL_FRAME: u64 = 1024;

/// Whether a mark was left by a jump out of a signal handler that had interrupted the recording of a
/// call: a handler on top of that has its own calls deeper in the same stack, or on the alternate one.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn is_left(thread: *mut Thread, busy: u64, slot: u64) -> bool {
    let holds_both = |stack: &StackRange| stack.holds(busy) && stack.holds(slot);
    // SAFETY: the thread is the caller's. What it was last seen on may be the alternate stack still.
    let is_same = unsafe {
        let stacks = &(*thread).stacks;
        holds_both(&(*thread).stack) || stacks.iter().any(holds_both)
    };
    let is_deeper = busy >= slot + SIGNAL_FRAME;
    // SAFETY: as above; a handler on top of this that does the same stores the same.
    let (low, size) = unsafe {
        sys::alternate_stack(&raw mut (*thread).alternate);
        ((*thread).alternate.low, (*thread).alternate.size)
    };
    let is_alternate = |at: u64| at.wrapping_sub(low) < size;
    match (is_alternate(busy), is_alternate(slot)) {
        (true, true) => !is_deeper,
        (true, false) => true,
        (false, true) => false,
        (false, false) => !is_deeper && (is_same || busy.abs_diff(slot) < SIGNAL_FRAME),
    }
}
