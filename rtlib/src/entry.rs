//! What happens when a probed function is entered.

use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch, _rdtsc};
use core::ptr;
use core::sync::atomic::Ordering;

use abi::image::{FUNCTION_EXITS, FUNCTION_MOVES, FUNCTION_REAPER, FunctionSlot};
use abi::segment::{ROOT_COMPLETE, RecordHead};

use crate::memo::Run;
use crate::paths::Path;
use crate::state::{RULES, ipath_functions, ipath_parameters, is_alive};
use crate::thread::{self, StackRange, Thread};
use crate::walk::{self, Obstacle, Walk};
use crate::{
    bounds, exit, learn, memory, moving, reap, record, registry, return_address, segment, stacks,
    sys,
};

/// Most frames a walk can hold after growing, a power of two; deeper calls count as overflow.
const MOST_FRAMES: u64 = 1 << 20;

/// Steps towards one walk: every rule of the deepest stack may have to be learnt.
pub(crate) const ATTEMPTS: u64 = 2 * MOST_FRAMES;

/// What the stub does next where its own code could not record a call, besides the slow path with a
/// thread: try again, or nothing.
pub(crate) const AGAIN: *mut Thread = ptr::null_mut();
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
        if has_tried || is_reaper || !thread::is_same_thread(thread) || !(*thread).stack.holds(slot)
        {
            return thread;
        }
        (*thread).entry_rbp = rbp;
        learn_walk(thread, function, slot)
    }
}

/// The second half of [`ipath_learn_walk`], apart from the first to use less of the stack.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn learn_walk(thread: *mut Thread, function: u64, slot: u64) -> *mut Thread {
    // SAFETY: the caller's promise; the thread is marked busy.
    unsafe {
        if !(*thread).memo.is_resting() {
            match (*thread).memo.find(function as u32, slot) {
                Err(miss) => (*thread).miss = miss,
                // The thread's place among all is one that the stub does not look at, or it is something
                // else that the stub's code could not do; then it comes here again.
                Ok(run) => {
                    let (stack, record) = (run.stack, run.record);
                    (*thread).found.set(stack, record);
                    return thread.wrapping_byte_add(FOUND);
                }
            }
        }
        if !walk(thread, function as u32, slot) {
            return thread;
        }
        (*thread).walk.fold(thread, function as u32);
        match find(thread, function as u32, &(*thread).walk) {
            Some(known) => remember(thread, known),
            None => thread,
        }
    }
}

/// Makes the walk of a call, to be found in the thread where the words read have determined it.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn walk(thread: *mut Thread, function: u32, slot: u64) -> bool {
    // SAFETY: the caller's promise.
    unsafe {
        match walk::fast(thread, function, slot, (*thread).entry_rbp) {
            Ok(walk) if walk.is_determined => {
                (*thread).walk = walk;
                true
            }
            _ => false,
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
    let moves = flags(function) & FUNCTION_MOVES != 0;
    // SAFETY: the stub's promise, of a call of `copystack`.
    if moves && !unsafe { moving::is_known(slot) } {
        return Err(DONE);
    }
    let thread = thread::current();
    if thread.is_null() {
        // One that moves stacks may move those of other threads' calls.
        return Err(match is_reaper && !moves {
            true => DONE,
            false => meet(is_reaper),
        });
    }
    // SAFETY: the thread is the caller's own, and `busy` keeps signal handlers on it out.
    unsafe {
        let is_empty = || (*(*thread).top).slot == u64::MAX && !stacks::have_coroutines();
        let is_busy = is_busy(thread, slot);
        if is_busy && !is_reaper {
            count_missed(thread);
        }
        if is_busy || is_reaper && !moves && is_empty() {
            return Err(DONE);
        }
        set_busy(thread, slot);
    }
    Ok(thread)
}

/// What the command has set of a function.
#[inline(always)]
pub(crate) fn flags(function: u64) -> u32 {
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

/// Makes the calling thread known, at a call of the program's or a reaper's.
#[cold]
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
fn meet(is_reaper: bool) -> *mut Thread {
    if !registry::register() {
        let missed = u64::from(!is_reaper);
        segment::header()
            .missed
            .fetch_add(missed, Ordering::Relaxed);
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
        if is_busy(thread, slot) {
            return;
        }
        set_busy(thread, slot);
        (*thread).entry_rbp = rbp;
        // Only from here on does the stack stay the thread's current one, whatever handler comes.
        if (*thread).stack.holds(slot)
            && let Ok(run) = (*thread).memo.find(function as u32, slot)
            && !(walk(thread, function as u32, slot) && {
                (*thread).walk.fold(thread, function as u32);
                is_same_walk(thread, function as u32, run)
            })
        {
            core::arch::asm!("ud2", options(noreturn, nomem, nostack));
        }
        set_busy(thread, 0);
    }
}

/// Whether the walk just made came to the same as a remembered one.
#[inline(always)]
unsafe fn is_same_walk(thread: *mut Thread, function: u32, run: &Run) -> bool {
    // SAFETY: the caller's promise.
    let (walk, known) = unsafe { (&(*thread).walk, find(thread, function, &(*thread).walk)) };
    let is_trusted = ipath_parameters.distrust.load(Ordering::Relaxed) == 0;
    // A stack whose root was not reached is known by the end of its mapping, which others move that touch it.
    let is_same_stack = walk.root != ROOT_COMPLETE || walk.stack == run.stack;
    is_trusted && is_same_stack && known.is_some_and(|known| ptr::eq(known, run.record))
}

/// Remembers the walk just made, whose path has the record `known`, for calls like this one, and has the
/// stub record this call: what to do next. It takes all else from the thread, so that its caller has left
/// the stack before.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
unsafe fn remember(thread: *mut Thread, known: &'static RecordHead) -> *mut Thread {
    // SAFETY: the thread is the caller's; the walk has just left its reads there.
    unsafe {
        let walk = &(*thread).walk;
        let is_resting = (*thread).memo.is_resting();
        if is_resting {
            (*thread).memo.rest((*thread).quick_calls);
        } else {
            let reads = core::slice::from_raw_parts((*thread).reads, walk.reads as usize);
            let (miss, calls) = (&(*thread).miss, (*thread).quick_calls);
            // Where there is no room for it, the next one like it comes here again.
            (*thread)
                .memo
                .remember(miss, reads, walk.stack, known, calls);
        }
        if (*thread).memo.is_resting() != is_resting {
            (*thread).set_quick();
        }
        (*thread).found.set(walk.stack, known);
        thread.wrapping_byte_add(FOUND)
    }
}

/// Records a call of `function` whatever it takes. Runs on the private stack, with signals
/// blocked and the thread's callee-saved registers stored.
///
/// # Safety
/// Called by the entry stub with what [`ipath_learn_walk`] returned; the stub ends the thread's being busy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ipath_slow_entry(thread: *mut Thread, function: u64, slot: u64) {
    // SAFETY: the stub's promise; the thread is marked busy.
    unsafe {
        if record_slowly(thread, function as u32, slot).is_none() {
            count_missed(thread);
        }
    }
}

unsafe fn record_slowly(thread: *mut Thread, function: u32, slot: u64) -> Option<()> {
    let state = &ipath_functions[function as usize % abi::MAX_FUNCTIONS];
    // SAFETY: the caller's promise.
    unsafe {
        if !thread::is_same_thread(thread) {
            stacks::renew(thread);
        }
        let flags = state.flags.load(Ordering::Relaxed);
        if flags & FUNCTION_MOVES != 0 {
            moving::begin(thread, slot, state.generation.load(Ordering::Relaxed));
            return Some(());
        }
        if flags & FUNCTION_REAPER != 0 {
            // What it cannot tell is found at a later call.
            let _ = reap::reap(thread, flags, slot);
            return Some(());
        }
        let has_exits = flags & FUNCTION_EXITS != 0;
        if has_exits {
            grow_activations(thread)?;
        }
        let mut walk = walk_slowly(thread, function, slot)?;
        walk.fold(thread, function);
        let known = match find(thread, function, &walk) {
            Some(known) => known,
            None => learn::path(thread, function, &walk)?,
        };
        if !has_exits {
            record::enter(known);
            return Some(());
        }
        if walk.root == ROOT_COMPLETE {
            note_stack(thread, &walk);
            stacks::arrive(thread, walk.stack);
        }
        stacks::lock_own(thread);
        exit::close_left_behind(thread, walk.stack, slot);
        let has_room = stacks::has_room(thread);
        if has_room {
            push(thread, function, state, slot, walk.stack, known);
        }
        stacks::unlock(thread);
        has_room.then_some(())
    }
}

/// Sees to it that there is room for one more activation, before anything is learnt of its call.
unsafe fn grow_activations(thread: *mut Thread) -> Option<()> {
    // SAFETY: the thread is the caller's.
    unsafe {
        stacks::lock_own(thread);
        let has_room = stacks::has_room(thread);
        stacks::unlock(thread);
        has_room.then_some(())
    }
}

/// Notes that there are coroutines where a thread has come to another stack than its first one.
unsafe fn note_stack(thread: *mut Thread, walk: &Walk) {
    /// What the loader calls has another root than `main`, a few words away.
    const NEAR: u64 = 1024;
    // SAFETY: the thread is the caller's, and the walk has left its frames or sites with it.
    unsafe {
        let home = (*thread).home;
        if home == 0 {
            let last = walk.len as usize - 1;
            let root = match walk.has_sites {
                true => RULES.address((*thread).sites.add(last).read()),
                false => (*thread).frames.add(last).read(),
            };
            if !return_address::begins_coroutine(root) {
                (*thread).home = walk.stack;
            }
        } else if home.abs_diff(walk.stack) > NEAR {
            stacks::note_coroutines();
        }
    }
}

unsafe fn walk_slowly(thread: *mut Thread, function: u32, slot: u64) -> Option<Walk> {
    // SAFETY: the caller's promise.
    unsafe {
        let rbp = (*thread).saved.rbp;
        let mut way = Way::default();
        for _ in 0..ATTEMPTS {
            let result = if way.use_full {
                walk::full(thread, function, slot)
            } else {
                walk::fast(thread, function, slot, rbp)
            };
            match result {
                Ok(walk) if bounds::is_at(&walk) && bounds::renew(thread, slot) => {}
                Ok(walk) => return Some(walk),
                Err(obstacle) if way.clear(thread, slot, obstacle).is_some() => {}
                Err(Obstacle::Depth) => {
                    return Some(Walk::overflow(function, (*thread).stack.high));
                }
                Err(_) => return None,
            }
        }
        None
    }
}

/// The way of a walk that is tried again and again, with what was in it cleared.
#[derive(Default)]
pub(crate) struct Way {
    /// Whether only the full walk is left.
    pub use_full: bool,
    /// The return address whose rule was last learnt.
    learnt: u64,
}

impl Way {
    /// Clears what was in the way of a walk from `slot` on; `None` where that cannot be.
    ///
    /// # Safety
    /// The thread is the caller's, and runs on its private stack.
    pub(crate) unsafe fn clear(
        &mut self,
        thread: *mut Thread,
        slot: u64,
        obstacle: Obstacle,
    ) -> Option<()> {
        // SAFETY: the caller's promise.
        unsafe {
            match obstacle {
                Obstacle::Stack => bounds::find(thread, slot)?,
                // The cache has no room left for the rule.
                Obstacle::Rule(pc) if pc == self.learnt => self.use_full = true,
                Obstacle::Rule(pc) => {
                    return_address::learn(pc);
                    self.learnt = pc;
                }
                Obstacle::Full => self.use_full = true,
                Obstacle::Depth => grow_frames(thread)?,
            }
        }
        Some(())
    }
}

pub(crate) unsafe fn grow_frames(thread: *mut Thread) -> Option<()> {
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

/// The path just walked.
#[inline(always)]
pub(crate) unsafe fn path<'a>(thread: *mut Thread, function: u32, walk: &'a Walk) -> Path<'a> {
    // SAFETY: the thread is the caller's.
    let (frames, sites) = unsafe { ((*thread).frames, (*thread).sites) };
    Path {
        function,
        walk,
        frames,
        sites: sites.cast(),
    }
}

/// The record of the path just walked, if this thread has one.
#[inline(never)]
#[unsafe(link_section = ".text.fast")]
pub(crate) unsafe fn find(
    thread: *mut Thread,
    function: u32,
    walk: &Walk,
) -> Option<&'static RecordHead> {
    // SAFETY: the walk has left its frames and sites with the thread.
    let number = unsafe {
        let path = path(thread, function, walk);
        (*thread)
            .paths
            .find(&path, |number| fetch(segment::record(number)))
    };
    number.map(segment::record)
}

/// Has a record fetched: its head, and the line behind it, which is needed when the call ends.
#[inline(always)]
fn fetch(record: &RecordHead) {
    let head: *const RecordHead = record;
    // SAFETY: a prefetch cannot fault. It is SSE's, but uses none of its registers.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(head.cast());
        _mm_prefetch::<_MM_HINT_T0>(head.wrapping_add(1).cast());
    }
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
