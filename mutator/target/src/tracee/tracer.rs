//! The tracer thread, which traces all followed processes until they are released.
//!
//! The kernel's tracers are threads, and a thread has only one tracer. So every change to a
//! followed process runs on this thread, between events of the processes.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;

use super::sys::{self, Change};
use super::{followed, serve};
use crate::process::{FOLLOWER, Tid};

/// Interrupts only the tracer thread's wait.
const WAKE: i32 = libc::SIGURG;

/// Handles the events of followed processes. It must resume threads that stopped for an event.
pub trait Follow: Send + 'static {
    /// Handles an event of a traced thread.
    fn happened(&mut self, tid: Tid, change: Change);

    /// Handles the end of a child of this process, with its status (wait(2)).
    fn ended(&mut self, tid: Tid, status: i32);

    /// Called while no thread is traced.
    fn idle(&mut self);
}

/// A job for the tracer thread, which owns an `F`.
type Job<F> = Box<dyn FnOnce(&mut F) + Send>;

struct Queue<F> {
    /// `None` once the thread accepts no more jobs.
    jobs: Mutex<Option<VecDeque<Job<F>>>>,
    /// The id of the tracer thread. 0 before it has started.
    tid: AtomicI32,
    /// True once the thread is to end.
    is_over: AtomicBool,
}

/// A queue for any type of follower.
trait Queued: Send + Sync {
    /// Adds a job. Returns it if the queue is closed.
    fn push(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>>;
    fn tid(&self) -> i32;
}

impl<F: Follow> Queued for Queue<F> {
    fn push(&self, job: Box<dyn FnOnce() + Send>) -> Result<(), Box<dyn FnOnce() + Send>> {
        match lock(&self.jobs).as_mut() {
            Some(jobs) => {
                jobs.push_back(Box::new(|_| job()));
                Ok(())
            }
            None => Err(job),
        }
    }

    fn tid(&self) -> i32 {
        self.tid.load(Ordering::Acquire)
    }
}

/// The queue of the current tracer thread, if there is one.
static CURRENT: Mutex<Option<Arc<dyn Queued>>> = Mutex::new(None);

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Handle of a tracer thread. Dropping it ends the thread, which releases everything still traced.
pub struct Tracer<F: Follow> {
    queue: Arc<Queue<F>>,
    thread: Option<JoinHandle<()>>,
}

impl<F: Follow> Tracer<F> {
    /// Starts the thread. Only one may exist at a time. Changes the dispositions of SIGURG and
    /// SIGCHLD.
    ///
    /// # Errors
    /// The dispositions cannot be changed, or the thread cannot be created.
    pub fn begin(mut follow: F) -> io::Result<Self> {
        wake_by_signal()?;
        let queue = Arc::new(Queue {
            jobs: Mutex::new(Some(VecDeque::new())),
            tid: AtomicI32::new(0),
            is_over: AtomicBool::new(false),
        });
        let own = Arc::clone(&queue);
        let (go, may_go) = sync_channel(1);
        let work = move || {
            followed::begin();
            own.tid
                .store(nix::unistd::gettid().as_raw(), Ordering::Release);
            // Wait until the thread is registered.
            let _ = may_go.recv();
            let worked = catch_unwind(AssertUnwindSafe(|| own.work(&mut follow)));
            // Closing the queue ends all waits for jobs.
            lock(&CURRENT).take();
            lock(&own.jobs).take();
            if let Err(panic) = worked {
                resume_unwind(panic);
            }
        };
        let thread = std::thread::Builder::new()
            .name(FOLLOWER.into())
            .spawn(work)?;
        *lock(&CURRENT) = Some(Arc::clone(&queue) as Arc<dyn Queued>);
        let _ = go.send(());
        Ok(Self {
            queue,
            thread: Some(thread),
        })
    }

    /// Runs `what` on the tracer thread and waits for its result. `None` if the thread has ended.
    ///
    /// # Panics
    /// Panics if `what` panics.
    pub fn ask<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut F) -> R + Send + 'static,
    ) -> Option<R> {
        let (done, answer) = sync_channel(1);
        let job = move |follow: &mut F| {
            let result = catch_unwind(AssertUnwindSafe(|| what(follow)));
            // The receiver is waiting.
            let _ = done.send(result);
        };
        lock(&self.queue.jobs).as_mut()?.push_back(Box::new(job));
        wait_for(|| self.queue.tid(), || answer.recv_timeout(AGAIN))?
            .map_or_else(|p| resume_unwind(p), Some)
    }
}

impl<F: Follow> Drop for Tracer<F> {
    fn drop(&mut self) {
        self.queue.is_over.store(true, Ordering::Release);
        while self.thread.as_ref().is_some_and(|t| !t.is_finished()) {
            wake(self.queue.tid());
            std::thread::sleep(AGAIN);
        }
        if let Some(thread) = self.thread.take() {
            // The caller whose job panicked has received the panic.
            let _ = thread.join();
        }
    }
}

impl<F: Follow> Queue<F> {
    fn work(&self, follow: &mut F) {
        while !self.is_over.load(Ordering::Acquire) {
            let job = lock(&self.jobs).as_mut().and_then(VecDeque::pop_front);
            if let Some(job) = job {
                serve::serving(|| job(follow));
                continue;
            }
            match next() {
                Ok(Some(tid)) => match sys::change(tid) {
                    Ok(Change::Ended) => follow.ended(tid, sys::collect(tid)),
                    Ok(change) => follow.happened(tid, change),
                    // The thread is gone, and another thread has collected it.
                    Err(_) => std::thread::sleep(REST),
                },
                Ok(None) => {}
                // No thread is traced yet or any more.
                Err(_) => {
                    follow.idle();
                    std::thread::sleep(REST);
                }
            }
        }
    }
}

/// The time between retries if there is nothing to wait for.
const REST: Duration = Duration::from_millis(1);
/// The time until the next wake-up. A wake-up before the wait begins has no effect.
const AGAIN: Duration = Duration::from_millis(1);

/// Waits for a tracee of this thread that has an event. `None` if the wait was interrupted. Fails
/// with ECHILD if there is no tracee. The event is not collected: see [`sys::change`].
fn next() -> Result<Option<Tid>, Errno> {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT | libc::__WALL | libc::__WNOTHREAD;
    // SAFETY: `info` is live and of the type that waitid fills.
    if unsafe { libc::waitid(libc::P_ALL, 0, &raw mut info, flags) } < 0 {
        return match Errno::last() {
            Errno::EINTR => Ok(None),
            errno => Err(errno),
        };
    }
    // SAFETY: waitid fills this field.
    let pid = unsafe { info.si_pid() };
    Ok((pid != 0).then_some(Tid(pid)))
}

/// Installs a handler for [`WAKE`], so that it interrupts system calls. By default it is ignored.
/// Resets SIGCHLD to its default, without a signal when a tracee stops.
fn wake_by_signal() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler does nothing, and the structure is live.
    let set = unsafe { libc::sigaction(WAKE, &raw const action, std::ptr::null_mut()) };
    Errno::result(set)?;
    // Stops of tracees must not wake the other threads.
    let mut quiet: libc::sigaction = action;
    quiet.sa_sigaction = libc::SIG_DFL;
    quiet.sa_flags = libc::SA_NOCLDSTOP;
    // SAFETY: the structure is live.
    let set = unsafe { libc::sigaction(libc::SIGCHLD, &raw const quiet, std::ptr::null_mut()) };
    Errno::result(set).map(drop).map_err(io::Error::from)
}

/// Sends [`WAKE`] to the tracer thread `tid`. Does nothing for 0.
fn wake(tid: i32) {
    // The thread has not started.
    if tid == 0 {
        return;
    }
    let own = nix::unistd::getpid().as_raw();
    // SAFETY: takes no pointer. Fails only if the thread has ended.
    unsafe { libc::syscall(libc::SYS_tgkill, own, tid, WAKE) };
}

/// Waits for an answer from the tracer thread, waking it repeatedly. `None` if the thread has
/// ended.
fn wait_for<R>(
    tid: impl Fn() -> i32,
    mut look: impl FnMut() -> Result<R, RecvTimeoutError>,
) -> Option<R> {
    loop {
        wake(tid());
        match look() {
            Ok(answer) => return Some(answer),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return None,
        }
    }
}

/// The result of a job, or its panic.
type Left<R> = Result<R, Box<dyn Any + Send>>;

/// A job with the sender of its result. The fields are dropped in this order.
struct Sent<W, R> {
    what: W,
    done: SyncSender<Left<R>>,
}

/// Runs `what` on the tracer thread and waits for its result. Returns `what` as the error if there
/// is no such thread. Panics if `what` panics or the thread ends before it has run.
pub(super) fn run<W: FnOnce() -> R + Send, R: Send>(what: W) -> Result<R, W> {
    let Some(queue) = lock(&CURRENT).clone() else {
        return Err(what);
    };
    if queue.tid() == nix::unistd::gettid().as_raw() {
        return Ok(what());
    }
    let (done, answer) = sync_channel(1);
    let sent = Sent { what, done };
    let job = move || {
        let Sent { what, done } = sent;
        let result = catch_unwind(AssertUnwindSafe(what));
        // The receiver is waiting.
        let _ = done.send(result);
    };
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(job);
    // SAFETY: everything that the job borrows outlives this call. The call returns only once `done`
    // has been used or dropped, and `what` is dropped before `done`.
    let job: Box<dyn FnOnce() + Send> = unsafe { std::mem::transmute(job) };
    if let Err(job) = queue.push(job) {
        job();
    }
    match wait_for(|| queue.tid(), || answer.recv_timeout(AGAIN)) {
        Some(Ok(result)) => Ok(result),
        Some(Err(panic)) => resume_unwind(panic),
        None => panic!("the tracing thread has ended"),
    }
}
