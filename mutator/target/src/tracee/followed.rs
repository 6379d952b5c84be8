//! The processes that the calling thread follows. Their threads stay traced between stops, as does
//! everything they start.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use patcher::Avma;

use crate::process::{Pid, Tid, read_text, status_line};

thread_local! {
    /// The followed threads and their processes. `None` if this thread does not follow.
    static FOLLOWED: RefCell<Option<HashMap<Tid, Pid>>> = const { RefCell::new(None) };
    /// The address of the breakpoint in each followed process that has one.
    static BREAKPOINTS: RefCell<BTreeMap<Pid, Avma>> = const { RefCell::new(BTreeMap::new()) };
    /// Processes that stop at each system call, with the address of the awaited one.
    static CALLS: RefCell<BTreeMap<Pid, Avma>> = const { RefCell::new(BTreeMap::new()) };
}

/// Sets or clears the address of a process's breakpoint.
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

/// The address of the system call that is awaited in a thread's process. `None` if there is none.
pub(super) fn awaited_call(tid: Tid) -> Option<Avma> {
    CALLS.with_borrow(|calls| {
        if calls.is_empty() {
            None
        } else {
            calls.get(&process_of(tid)?).copied()
        }
    })
}

/// True if a thread with this program counter has hit the breakpoint of its process.
pub(super) fn is_at_breakpoint(tid: Tid, pc: Avma) -> bool {
    let at = BREAKPOINTS.with_borrow(|breakpoints| breakpoints.get(&process_of(tid)?).copied());
    at.is_some_and(|at| pc == at.plus(1))
}

/// Makes this thread a follower: everything that its tracees start is traced from now on.
pub(super) fn begin() {
    FOLLOWED.with_borrow_mut(|followed| *followed = Some(HashMap::new()));
}

/// True if this thread follows.
pub(super) fn is_begun() -> bool {
    FOLLOWED.with_borrow(Option::is_some)
}

/// The options of ptrace(2) for followed threads. 0 if this thread does not follow.
pub(super) fn options() -> usize {
    let all = libc::PTRACE_O_TRACEFORK
        | libc::PTRACE_O_TRACEVFORK
        | libc::PTRACE_O_TRACECLONE
        | libc::PTRACE_O_TRACEEXEC;
    FOLLOWED.with_borrow(|followed| followed.as_ref().map_or(0, |_| all as usize))
}

/// True if a thread stays traced when it is resumed.
pub(super) fn is_one(tid: Tid) -> bool {
    FOLLOWED.with_borrow(|followed| followed.as_ref().is_some_and(|f| f.contains_key(&tid)))
}

/// The process of a thread that stays traced when it is resumed. `None` for other threads.
pub fn process_of(tid: Tid) -> Option<Pid> {
    FOLLOWED.with_borrow(|followed| followed.as_ref()?.get(&tid).copied())
}

/// True if the calling thread traces `tid`.
pub(super) fn is_traced_here(tid: Tid) -> bool {
    let own = nix::unistd::gettid().as_raw();
    id_of(tid, "TracerPid") == Some(own)
}

/// The threads that stay traced.
pub(super) fn tids() -> Vec<Tid> {
    FOLLOWED.with_borrow(|followed| followed.iter().flatten().map(|(&tid, _)| tid).collect())
}

/// The process of any thread. `None` if the thread has ended.
pub(super) fn group_of(tid: Tid) -> Option<Pid> {
    id_of(tid, "Tgid").map(Pid)
}

/// The id in the line `key` of the status of any thread. `None` if the thread has ended.
fn id_of(tid: Tid, key: &str) -> Option<i32> {
    let status = read_text(format!("/proc/{tid}/status")).ok()?;
    status_line(&status, key)?.parse().ok()
}

/// Records a thread as traced between stops, if this thread follows. Returns its process. `None`,
/// and nothing recorded, if the thread has ended.
pub fn enter(tid: Tid) -> Option<Pid> {
    let pid = group_of(tid)?;
    with(|followed| followed.insert(tid, pid));
    Some(pid)
}

/// Removes a thread that has ended, and the breakpoint of its process. The kernel reports the end
/// of a process's first thread last.
pub fn end(tid: Tid) {
    leave(tid);
    set_breakpoint(Pid(tid.0), None);
    set_call(Pid(tid.0), None);
}

/// Removes a thread that has ended, in a process that may go on.
pub(super) fn leave(tid: Tid) {
    with(|followed| followed.remove(&tid));
}

/// Records an exec of a process, which leaves only its first thread.
pub fn replace(pid: Pid) {
    with(|followed| {
        followed.retain(|tid, of| *of != pid || tid.0 == pid.0);
        followed.insert(Tid(pid.0), pid)
    });
}

/// Releases the threads of a process: their next resume detaches them.
pub fn let_go(pid: Pid) {
    with(|followed| {
        followed.retain(|_, of| *of != pid);
        None::<Pid>
    });
}

/// Runs `change` on the followed threads. Does nothing if this thread does not follow.
fn with<R>(change: impl FnOnce(&mut HashMap<Tid, Pid>) -> R) {
    FOLLOWED.with_borrow_mut(|followed| {
        if let Some(followed) = followed {
            change(followed);
        }
    });
}
