//! Signals that would end or stop this process. They are held while a session is in a target, and
//! handled one by one.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, raise};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::time::TimeSpec;

use crate::inherited;
use crate::process::Process;
use crate::suspension::rest;
use ipath_base::starved;

/// The signals that are never held. Faults are delivered where they happen. The others continue a
/// process or do nothing by default.
const NOT_HELD: [Signal; 9] = [
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGFPE,
    Signal::SIGILL,
    Signal::SIGTRAP,
    Signal::SIGSYS,
    Signal::SIGABRT,
    Signal::SIGCONT,
    Signal::SIGURG,
];

/// The si_code of signals that the kernel sends, such as those of terminal keys (sigaction(2)).
const SI_KERNEL: i32 = 0x80;

const FLAGS: SfdFlags = SfdFlags::SFD_NONBLOCK.union(SfdFlags::SFD_CLOEXEC);

/// The request that a signal makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// End this process.
    End,
    /// Stop until continued (Ctrl-Z).
    Suspend,
    /// A child has changed its state, or a watched process has ended.
    Child,
    /// The terminal has changed its size.
    Resize,
}

/// Starts a thread with all signals blocked. Signals go to the thread that holds them.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    blocked(|| std::thread::spawn(work))
}

/// Like [`spawn`], for work that is optional.
///
/// # Errors
/// The thread cannot be created.
pub fn try_spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    blocked(|| std::thread::Builder::new().spawn(work))
}

/// Runs `make` with all signals blocked, which a new thread inherits.
fn blocked<T>(make: impl FnOnce() -> T) -> T {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let thread = make();
    if let Ok(before) = before {
        // This mask was valid a moment ago.
        let _ = before.thread_set_mask();
    }
    thread
}

/// Holds the signals until [`Signals::release`], in the thread that created it and in threads that
/// this one starts.
#[derive(Debug)]
pub struct Signals {
    /// The signal mask before the signals were held.
    before: SigSet,
    /// Receives the held signals.
    descriptor: SignalFd,
    /// True once an end is requested, until [`Signals::end_is_under_way`]. The next three are true
    /// until [`Signals::next`] returns the request.
    end: Cell<bool>,
    suspend: Cell<bool>,
    child: Cell<bool>,
    resize: Cell<bool>,
    /// True while terminal input belongs to another program.
    beside_keys: Cell<bool>,
    /// Descriptors that become readable when the watched processes end.
    ending: RefCell<Vec<OwnedFd>>,
}

impl Signals {
    /// Holds the signals from now on, except those that this process ignores from its start.
    /// nohup(1), for example, ignores SIGHUP, which holding would undo.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn hold() -> io::Result<Self> {
        let held: SigSet = Signal::iterator().filter(is_held).collect();
        let descriptor = SignalFd::with_flags(&held, FLAGS)?;
        let before = held.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        starved::note_held(true);
        Ok(Self {
            before,
            descriptor,
            end: Cell::new(false),
            suspend: Cell::new(false),
            child: Cell::new(false),
            resize: Cell::new(false),
            beside_keys: Cell::new(false),
            ending: RefCell::default(),
        })
    }

    /// Watches processes. The end of each wakes the next wait once and counts as a child's.
    pub fn watch(&self, processes: &[&Process]) {
        let ending = processes.iter().filter_map(|process| process.ending());
        self.ending.replace(ending.collect());
    }

    /// The previous signal mask, for programs to be started.
    pub fn before(&self) -> SigSet {
        self.before
    }

    /// True once a signal has requested that this process end.
    pub fn ended(&self) -> bool {
        self.take();
        self.end.get()
    }

    /// A separate descriptor for the held signals that request an end. A signal read from it does
    /// not arrive here.
    ///
    /// # Errors
    /// The process is out of descriptors.
    pub fn enders(&self) -> io::Result<SignalFd> {
        let ends = |signal: &Signal| is_held(signal) && asked_by(*signal) == Some(Asked::End);
        let enders: SigSet = Signal::iterator().filter(ends).collect();
        Ok(SignalFd::with_flags(&enders, FLAGS)?)
    }

    /// Clears the request to end: the end is in progress, and another signal means a new request.
    pub fn end_is_under_way(&self) {
        self.end.set(false);
    }

    /// The next pending request. An end remains pending, the others are returned once. After
    /// `None`, the next [`Signals::wait`] misses no later signal.
    pub fn next(&self) -> Option<Asked> {
        self.take();
        [
            (self.end.get(), Asked::End),
            (self.suspend.get(), Asked::Suspend),
            (self.child.get(), Asked::Child),
            (self.resize.get(), Asked::Resize),
        ]
        .into_iter()
        .find(|&(has_come, _)| has_come)
        .map(|(_, asked)| {
            match asked {
                Asked::End => {}
                Asked::Suspend => self.suspend.set(false),
                Asked::Child => self.child.set(false),
                Asked::Resize => self.resize.set(false),
            }
            asked
        })
    }

    /// Waits until a signal arrives, a descriptor is ready or `time` has elapsed. Returns the ready
    /// events of each descriptor.
    ///
    /// # Errors
    /// Errors of ppoll(2).
    pub fn wait<const N: usize>(
        &self,
        others: [(BorrowedFd<'_>, PollFlags); N],
        time: Option<Duration>,
    ) -> io::Result<[PollFlags; N]> {
        let mut ending = self.ending.borrow_mut();
        let mut ready = vec![PollFd::new(self.descriptor.as_fd(), PollFlags::POLLIN)];
        ready.extend(others.map(|(fd, flags)| PollFd::new(fd, flags)));
        let ends = ending.iter();
        ready.extend(ends.map(|fd| PollFd::new(fd.as_fd(), PollFlags::POLLIN)));
        match ppoll(&mut ready, time.map(TimeSpec::from), None) {
            Ok(_) => {}
            // The process was stopped and continued.
            Err(Errno::EINTR) => return Ok([PollFlags::empty(); N]),
            Err(errno) => return Err(errno.into()),
        }
        self.take();
        let flags = |i: usize| {
            ready
                .get(i + 1)
                .and_then(PollFd::revents)
                .unwrap_or(PollFlags::empty())
        };
        let found = std::array::from_fn(flags);
        let live: Vec<bool> = (N..N + ending.len()).map(|i| flags(i).is_empty()).collect();
        drop(ready);
        let mut lives = live.iter();
        ending.retain(|_| lives.next() == Some(&true));
        if live.contains(&false) {
            self.child.set(true);
        }
        Ok(found)
    }

    /// Stops this process as an unheld Ctrl-Z would. Returns true once it is continued, or false if
    /// it must not be stopped (`suspension.rs`).
    pub fn suspend(&self) -> bool {
        rest(|| {
            self.unheld(Signal::SIGTSTP, || {
                // A signal to oneself cannot fail.
                let _ = raise(Signal::SIGTSTP);
            });
        })
    }

    /// Runs `what` while another program of this job reads the terminal's keys. Ctrl-C is meant for
    /// that program, though this process receives it too.
    pub fn beside_keys<R>(&self, what: impl FnOnce() -> R) -> R {
        self.beside_keys.set(true);
        let result = what();
        self.take();
        self.beside_keys.set(false);
        result
    }

    /// Runs `what` with SIGTTOU delivered, so that a process in the background stops (termios(3)).
    pub fn in_turn<R>(&self, what: impl FnOnce() -> R) -> R {
        self.unheld(Signal::SIGTTOU, what)
    }

    /// Restores the usual effect of the signals. Pending signals have been handled, except for a
    /// stop, which is raised again.
    pub fn release(self) {
        self.release_but(&[]);
    }

    /// Like [`release`](Self::release), but keeps the signals in `kept` blocked permanently. They
    /// are for a child that continues to run.
    pub fn release_but(mut self, kept: &[Signal]) {
        self.take();
        starved::note_held(false);
        self.before.extend(kept.iter().copied());
        // Setting a mask cannot fail.
        let _ = self.before.thread_set_mask();
        if self.suspend.get() {
            let _ = raise(Signal::SIGTSTP);
        }
    }

    /// Runs `what` with `signal` unblocked in the calling thread.
    fn unheld<R>(&self, signal: Signal, what: impl FnOnce() -> R) -> R {
        let one: SigSet = [signal].into_iter().collect();
        let _ = one.thread_unblock();
        let result = what();
        let _ = one.thread_block();
        result
    }

    /// Reads the held signals that have arrived, and notes their requests.
    fn take(&self) {
        while let Ok(Some(info)) = self.descriptor.read_signal() {
            // A number without a name is a real-time signal.
            let signal = Signal::try_from(info.ssi_signo as i32);
            let is_key = matches!(signal, Ok(Signal::SIGINT | Signal::SIGQUIT))
                && info.ssi_code == SI_KERNEL;
            match signal.map_or(Some(Asked::End), asked_by) {
                Some(Asked::End) if is_key && self.beside_keys.get() => {}
                Some(Asked::End) => self.end.set(true),
                Some(Asked::Suspend) => self.suspend.set(true),
                Some(Asked::Child) => self.child.set(true),
                Some(Asked::Resize) => self.resize.set(true),
                None => {}
            }
        }
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        self.take();
        let _ = self.before.thread_set_mask();
    }
}

/// The request that a signal makes. `None` if an error of the failing call already reports it.
fn asked_by(signal: Signal) -> Option<Asked> {
    match signal {
        Signal::SIGCHLD => Some(Asked::Child),
        Signal::SIGWINCH => Some(Asked::Resize),
        Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => Some(Asked::Suspend),
        Signal::SIGPIPE | Signal::SIGXFSZ => None,
        _ => Some(Asked::End),
    }
}

/// True if the signal is to be held.
fn is_held(signal: &Signal) -> bool {
    !NOT_HELD.contains(signal) && !is_ignored(*signal)
}

fn is_ignored(signal: Signal) -> bool {
    // Rust's library ignores it in every program, so this is no choice of the program's starter.
    if signal == Signal::SIGPIPE {
        return false;
    }
    inherited::is_ignored(signal as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_this_thread(signal: Signal) {
        // SAFETY: sends a signal that this thread holds to this thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), signal as i32) };
    }

    #[test]
    fn a_signal_ends_the_wait_and_neither_it_nor_the_mask_is_left_behind() {
        let before = SigSet::thread_get_mask().unwrap();
        let signals = Signals::hold().unwrap();
        assert!(!signals.ended());
        to_this_thread(Signal::SIGTERM);
        let [] = signals.wait([], Some(Duration::from_secs(60))).unwrap();
        assert!(signals.ended());
        // A signal left pending would end the test process.
        to_this_thread(Signal::SIGINT);
        drop(signals);
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }

    #[test]
    fn each_signal_asks_for_what_it_means() {
        let signals = Signals::hold().unwrap();
        to_this_thread(Signal::SIGWINCH);
        to_this_thread(Signal::SIGTSTP);
        to_this_thread(Signal::SIGCHLD);
        // Waiting for something else does not lose any of them.
        let [] = signals.wait([], Some(Duration::ZERO)).unwrap();
        let asked: Vec<_> = std::iter::from_fn(|| signals.next()).collect();
        assert_eq!(asked, [Asked::Suspend, Asked::Child, Asked::Resize]);
        to_this_thread(Signal::SIGPIPE);
        to_this_thread(Signal::SIGXFSZ);
        assert!(!signals.ended());
        to_this_thread(Signal::SIGUSR1);
        assert_eq!(signals.next(), Some(Asked::End));
        assert_eq!(signals.next(), Some(Asked::End));
    }

    #[test]
    fn a_descriptor_that_is_ready_ends_the_wait() {
        let signals = Signals::hold().unwrap();
        let (read, write) = nix::unistd::pipe().unwrap();
        let wanted = (read.as_fd(), PollFlags::POLLIN);
        let [flags] = signals.wait([wanted], Some(Duration::ZERO)).unwrap();
        assert!(flags.is_empty());
        nix::unistd::write(&write, b"x").unwrap();
        let [flags] = signals.wait([wanted], None).unwrap();
        assert!(flags.contains(PollFlags::POLLIN));
    }
}
