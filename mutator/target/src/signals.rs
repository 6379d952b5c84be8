//! Signals that would end or stop this process, held back while a session is in a target and taken
//! one by one.

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

/// Those that tell of a fault are delivered where it happens; those that go on or do nothing by
/// themselves need no holding.
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

/// Where a signal comes from that no process has sent: that of a key, from the terminal (sigaction(2), si_code).
const SI_KERNEL: i32 = 0x80;

const FLAGS: SfdFlags = SfdFlags::SFD_NONBLOCK.union(SfdFlags::SFD_CLOEXEC);

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// This process is to end.
    End,
    /// It is to stop until it is continued (Ctrl-Z).
    Suspend,
    /// A child has changed its state, or the process has ended that is watched.
    Child,
    /// The terminal has changed its size.
    Resize,
}

/// Begins a thread that no signal comes to: they are for the one that holds them, whenever that does.
pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    blocked(|| std::thread::spawn(work))
}

/// The same where it can be done without.
///
/// # Errors
/// No thread can be made.
pub fn try_spawn<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    blocked(|| std::thread::Builder::new().spawn(work))
}

/// Makes a thread, which inherits the mask.
fn blocked<T>(make: impl FnOnce() -> T) -> T {
    let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_BLOCK);
    let thread = make();
    if let Ok(before) = before {
        // It was the mask a moment ago.
        let _ = before.thread_set_mask();
    }
    thread
}

/// Holds the signals from its making until [`Signals::release`], in the thread that made it and in
/// those which that one starts.
#[derive(Debug)]
pub struct Signals {
    before: SigSet,
    descriptor: SignalFd,
    end: Cell<bool>,
    suspend: Cell<bool>,
    child: Cell<bool>,
    resize: Cell<bool>,
    /// True while what is typed is another program's.
    beside_keys: Cell<bool>,
    /// What is ready for reading once the process has ended that is watched.
    ending: RefCell<Vec<OwnedFd>>,
}

impl Signals {
    /// Holds them from now on, but those that whoever started this process has it ignore: nohup(1)
    /// does so with SIGHUP, and a held signal is not ignored.
    ///
    /// # Errors
    /// The process has no descriptor left.
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

    /// Has the end of each of these processes wake the next wait, and ask for the same as a child's: once.
    pub fn watch(&self, processes: &[&Process]) {
        let ending = processes.iter().filter_map(|process| process.ending());
        self.ending.replace(ending.collect());
    }

    /// The signal mask from before, for programs that are started.
    pub fn before(&self) -> SigSet {
        self.before
    }

    /// True once a signal has come that asks this process to end.
    pub fn ended(&self) -> bool {
        self.take();
        self.end.get()
    }

    /// A descriptor of its own for the held signals that ask this process to end. Signals that are
    /// read from it do not come here.
    ///
    /// # Errors
    /// The process has no descriptor left.
    pub fn enders(&self) -> io::Result<SignalFd> {
        let ends = |signal: &Signal| is_held(signal) && asked_by(*signal) == Some(Asked::End);
        let enders: SigSet = Signal::iterator().filter(ends).collect();
        Ok(SignalFd::with_flags(&enders, FLAGS)?)
    }

    /// Forgets that this process is to end: what was asked for is under way, and who asks again means more.
    pub fn end_is_under_way(&self) {
        self.end.set(false);
    }

    /// What the signals that have come ask for, one after another, an end again and again. Where it
    /// is nothing, the next [`Signals::wait`] misses none that comes after.
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

    /// Waits until a signal has come, one of the descriptors is ready or `time` is over; what each
    /// descriptor is ready for.
    ///
    /// # Errors
    /// What ppoll(2) gives.
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
            // The process was stopped and has been continued.
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

    /// Stops this process as Ctrl-Z does where nobody holds it back; returns once it is continued. False where it is not to be
    /// (`suspension.rs`).
    pub fn suspend(&self) -> bool {
        rest(|| {
            self.unheld(Signal::SIGTSTP, || {
                // A signal to oneself cannot fail.
                let _ = raise(Signal::SIGTSTP);
            });
        })
    }

    /// Does something while the terminal's keys are another program's of this job: Ctrl-C there is not meant for this
    /// process, which gets it all the same.
    pub fn beside_keys<R>(&self, what: impl FnOnce() -> R) -> R {
        self.beside_keys.set(true);
        let result = what();
        self.take();
        self.beside_keys.set(false);
        result
    }

    /// Does something that stops this process where it is not its turn at the terminal: see SIGTTOU
    /// in termios(3).
    pub fn in_turn<R>(&self, what: impl FnOnce() -> R) -> R {
        self.unheld(Signal::SIGTTOU, what)
    }

    /// Lets the signals have their usual effect again. What has come was obeyed, but for a stop.
    pub fn release(self) {
        self.release_but(&[]);
    }

    /// The same, but for these, which stay held for good: they are for a child that goes on.
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

    fn unheld<R>(&self, signal: Signal, what: impl FnOnce() -> R) -> R {
        let one: SigSet = [signal].into_iter().collect();
        let _ = one.thread_unblock();
        let result = what();
        let _ = one.thread_block();
        result
    }

    fn take(&self) {
        while let Ok(Some(info)) = self.descriptor.read_signal() {
            // A number without a name is that of a real-time signal.
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

/// What a signal asks for; nothing if the call that it stands for returns an error.
fn asked_by(signal: Signal) -> Option<Asked> {
    match signal {
        Signal::SIGCHLD => Some(Asked::Child),
        Signal::SIGWINCH => Some(Asked::Resize),
        Signal::SIGTSTP | Signal::SIGTTIN | Signal::SIGTTOU => Some(Asked::Suspend),
        Signal::SIGPIPE | Signal::SIGXFSZ => None,
        _ => Some(Asked::End),
    }
}

fn is_held(signal: &Signal) -> bool {
    !NOT_HELD.contains(signal) && !is_ignored(*signal)
}

fn is_ignored(signal: Signal) -> bool {
    // Rust's library has it ignored in every program, which says nothing of who started this one.
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
        // Were one of them left pending, it would end the test's process.
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
        // Waiting for something else loses none of them.
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
