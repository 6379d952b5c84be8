//! What the calling thread follows: processes whose threads stay traced between stops, with all that they start.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use patcher::Avma;

use crate::process::{Pid, Tid, read_text, status_line};

thread_local! {
    /// The threads of what this thread follows, and their processes; none where it follows nothing.
    static FOLLOWED: RefCell<Option<HashMap<Tid, Pid>>> = const { RefCell::new(None) };
    /// Where there are breakpoints in what is followed.
    static BREAKPOINTS: RefCell<BTreeMap<Pid, Avma>> = const { RefCell::new(BTreeMap::new()) };
    /// Processes that stop at each system call, with the address of the awaited one.
    static CALLS: RefCell<BTreeMap<Pid, Avma>> = const { RefCell::new(BTreeMap::new()) };
}

/// Says where a process has a breakpoint from now on, if anywhere.
pub fn set_breakpoint(pid: Pid, at: Option<Avma>) {
    BREAKPOINTS.with_borrow_mut(|breakpoints| match at {
        Some(at) => drop(breakpoints.insert(pid, at)),
        None => drop(breakpoints.remove(&pid)),
    });
}

/// Sets the system call that the tracer awaits in a process, if any. Until it is cleared, each
/// resume runs the process to its next system call.
pub fn set_call(pid: Pid, at: Option<Avma>) {
    CALLS.with_borrow_mut(|calls| match at {
        Some(at) => drop(calls.insert(pid, at)),
        None => drop(calls.remove(&pid)),
    });
}

/// The address of the system call that is awaited in a thread's process, if any.
pub(super) fn awaited_call(tid: Tid) -> Option<Avma> {
    CALLS.with_borrow(|calls| {
        if calls.is_empty() {
            None
        } else {
            calls.get(&process_of(tid)?).copied()
        }
    })
}

/// True if a thread that stands at `pc` has come to a breakpoint of its process.
pub(super) fn is_at_breakpoint(tid: Tid, pc: Avma) -> bool {
    let at = BREAKPOINTS.with_borrow(|breakpoints| breakpoints.get(&process_of(tid)?).copied());
    at.is_some_and(|at| pc == at.plus(1))
}

/// Has what this thread traces from now on begin with all that it starts traced by it as well.
pub(super) fn begin() {
    FOLLOWED.with_borrow_mut(|followed| *followed = Some(HashMap::new()));
}

/// True if this thread follows.
pub(super) fn is_begun() -> bool {
    FOLLOWED.with_borrow(Option::is_some)
}

/// The options of ptrace(2) by which that is so.
pub(super) fn options() -> usize {
    let all = libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC;
    FOLLOWED.with_borrow(|followed| followed.as_ref().map_or(0, |_| all as usize))
}

/// True if a thread stays traced when it goes on.
pub(super) fn is_one(tid: Tid) -> bool {
    FOLLOWED.with_borrow(|followed| followed.as_ref().is_some_and(|f| f.contains_key(&tid)))
}

/// The process of a thread that stays traced.
pub fn process_of(tid: Tid) -> Option<Pid> {
    FOLLOWED.with_borrow(|followed| followed.as_ref()?.get(&tid).copied())
}

/// True if this thread traces a thread.
pub(super) fn is_traced_here(tid: Tid) -> bool {
    let own = nix::unistd::gettid().as_raw();
    id_of(tid, "TracerPid") == Some(own)
}

/// The threads that stay traced.
pub(super) fn tids() -> Vec<Tid> {
    FOLLOWED.with_borrow(|followed| followed.iter().flatten().map(|(&tid, _)| tid).collect())
}

/// The process of any thread.
pub(super) fn group_of(tid: Tid) -> Option<Pid> {
    id_of(tid, "Tgid").map(Pid)
}

/// An id in the status of any thread.
fn id_of(tid: Tid, key: &str) -> Option<i32> {
    let status = read_text(format!("/proc/{tid}/status")).ok()?;
    status_line(&status, key)?.parse().ok()
}

/// A thread stays traced from now on; its process.
pub fn enter(tid: Tid) -> Option<Pid> {
    let pid = group_of(tid)?;
    with(|followed| followed.insert(tid, pid));
    Some(pid)
}

/// A thread has ended.
pub fn leave(tid: Tid) {
    with(|followed| followed.remove(&tid));
}

/// A process has become another program: of its threads the first alone is left.
pub fn replace(pid: Pid) {
    with(|followed| {
        followed.retain(|tid, of| *of != pid || tid.0 == pid.0);
        followed.insert(Tid(pid.0), pid)
    });
}

/// The threads of a process no longer stay traced, once they go on.
pub fn let_go(pid: Pid) {
    with(|followed| {
        followed.retain(|_, of| *of != pid);
        None::<Pid>
    });
}

fn with<R>(change: impl FnOnce(&mut HashMap<Tid, Pid>) -> R) {
    FOLLOWED.with_borrow_mut(|followed| {
        if let Some(followed) = followed {
            change(followed);
        }
    });
}
