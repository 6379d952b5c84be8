//! The thread that traces what is followed, from then on until it is let go. The kernel's tracers are threads, and a thread has one:
//! so whatever is to be done to a process that is followed is done here, between what happens to it.

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

/// Interrupts the wait of that thread, and nothing else.
const WAKE: i32 = libc::SIGURG;

/// What becomes of what happens to processes that are followed. Where it was stopped for it, it is let go on here.
pub trait Follow: Send + 'static {
    /// A thread that is traced has done something.
    fn happened(&mut self, tid: Tid, change: Change);

    /// A process has ended that this one has started, with this status (wait(2)).
    fn ended(&mut self, tid: Tid, status: i32);

    /// Nothing is traced, not yet or not any more.
    fn idle(&mut self);
}

/// What is to be done by the thread that traces, which has a `F`.
type Job<F> = Box<dyn FnOnce(&mut F) + Send>;

struct Queue<F> {
    /// None once nothing is done there any more.
    jobs: Mutex<Option<VecDeque<Job<F>>>>,
    tid: AtomicI32,
    is_over: AtomicBool,
}

/// A queue, whatever follows there.
trait Queued: Send + Sync {
    /// Gives it back where it is over.
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

/// That of the thread that traces, as long as there is one.
static CURRENT: Mutex<Option<Arc<dyn Queued>>> = Mutex::new(None);

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A thread that traces what it follows. At its end what is still traced goes on untraced.
pub struct Tracer<F: Follow> {
    queue: Arc<Queue<F>>,
    thread: Option<JoinHandle<()>>,
}

impl<F: Follow> Tracer<F> {
    /// Begins; there is one at a time.
    ///
    /// # Errors
    /// No thread can be made.
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
            // Whoever begins it has it known first.
            let _ = may_go.recv();
            let worked = catch_unwind(AssertUnwindSafe(|| own.work(&mut follow)));
            // Nobody is served any more; who waits is told by this.
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

    /// Has something done there, and waits for it.
    ///
    /// # Panics
    /// As it does.
    pub fn ask<R: Send + 'static>(
        &self,
        what: impl FnOnce(&mut F) -> R + Send + 'static,
    ) -> Option<R> {
        let (done, answer) = sync_channel(1);
        let job = move |follow: &mut F| {
            let result = catch_unwind(AssertUnwindSafe(|| what(follow)));
            // It is waited for.
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
            // Whoever asked it for what it has panicked at knows of that.
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
                    // It is gone: another one has been told of that.
                    Err(_) => std::thread::sleep(REST),
                },
                Ok(None) => {}
                // Nothing is followed (yet, or any more).
                Err(_) => {
                    follow.idle();
                    std::thread::sleep(REST);
                }
            }
        }
    }
}

/// How long is slept where nothing can be waited for.
const REST: Duration = Duration::from_millis(1);
/// A wake-up may come before the wait; then another one follows.
const AGAIN: Duration = Duration::from_millis(1);

/// A thread that this one traces and that has done something; none where the wait was interrupted. It is looked at and not
/// collected, see [`sys::change`].
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

/// Has [`WAKE`] interrupt what its thread waits for: it is ignored otherwise.
fn wake_by_signal() -> io::Result<()> {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(libc::c_int) as usize;
    // SAFETY: the handler does nothing, and the structure lives.
    let set = unsafe { libc::sigaction(WAKE, &raw const action, std::ptr::null_mut()) };
    Errno::result(set)?;
    // The others need not be woken by each stop of what is followed.
    let mut quiet: libc::sigaction = action;
    quiet.sa_sigaction = libc::SIG_DFL;
    quiet.sa_flags = libc::SA_NOCLDSTOP;
    // SAFETY: the structure lives.
    let set = unsafe { libc::sigaction(libc::SIGCHLD, &raw const quiet, std::ptr::null_mut()) };
    Errno::result(set).map(drop).map_err(io::Error::from)
}

fn wake(tid: i32) {
    // It has not begun.
    if tid == 0 {
        return;
    }
    let own = nix::unistd::getpid().as_raw();
    // SAFETY: takes no pointer. It fails where the thread has ended.
    unsafe { libc::syscall(libc::SYS_tgkill, own, tid, WAKE) };
}

/// Waits for an answer of the thread that traces, waking it; none where it is over.
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

/// What a job leaves: its result, or what it has panicked with.
type Left<R> = Result<R, Box<dyn Any + Send>>;

/// What is to be done elsewhere. Its fields are dropped in this order.
struct Sent<W, R> {
    what: W,
    done: SyncSender<Left<R>>,
}

/// Does something by the thread that traces, if there is one; else gives it back.
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
        // It is waited for.
        let _ = done.send(result);
    };
    let job: Box<dyn FnOnce() + Send + '_> = Box::new(job);
    // SAFETY: what the job borrows lives for as long as this call, which returns only once `done` has been used or dropped: by
    // then `what`, which is before it, is no more.
    let job: Box<dyn FnOnce() + Send> = unsafe { std::mem::transmute(job) };
    if let Err(job) = queue.push(job) {
        job();
    }
    match wait_for(|| queue.tid(), || answer.recv_timeout(AGAIN)) {
        Some(Ok(result)) => Ok(result),
        Some(Err(panic)) => resume_unwind(panic),
        None => panic!("the thread that traces has ended"),
    }
}
