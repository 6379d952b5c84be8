//! What this process was started with and has otherwise. Rust's runtime ignores SIGPIPE before `main`, and opens
//! /dev/null in the place of standard files that are closed (library/std/src/sys/pal/unix/mod.rs `init`). SIGCHLD is not ignored here, as nobody
//! is told then how children end (wait(2)). A program that is started is to have all of it as it was.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

const STANDARD: usize = 3;

static IGNORES_PIPES: AtomicBool = AtomicBool::new(false);
static IGNORES_CHILDREN: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; STANDARD] = [const { AtomicBool::new(false) }; STANDARD];

/// Run by the C library before that runtime begins.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    IGNORES_PIPES.store(is_ignored(libc::SIGPIPE), Ordering::Relaxed);
    if is_ignored(libc::SIGCHLD) {
        IGNORES_CHILDREN.store(true, Ordering::Relaxed);
        // SAFETY: takes no pointer.
        unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    }
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: takes no pointer.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        closed.store(
            flags == -1 && Errno::last() == Errno::EBADF,
            Ordering::Relaxed,
        );
    }
}

/// True if this process ignores a signal.
pub fn is_ignored(signal: libc::c_int) -> bool {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives through the call, which changes nothing.
    let asked = unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
    asked == 0 && action.sa_sigaction == libc::SIG_IGN
}

/// Gives it to what this process becomes: for use between fork and exec, where only system calls may be made.
pub fn give_back() {
    for (signal, is_ignored) in [
        (libc::SIGPIPE, &IGNORES_PIPES),
        (libc::SIGCHLD, &IGNORES_CHILDREN),
    ] {
        if is_ignored.load(Ordering::Relaxed) {
            // SAFETY: takes no pointer.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
    }
    for (fd, closed) in (0..).zip(&CLOSED) {
        if closed.load(Ordering::Relaxed) {
            // SAFETY: /dev/null, which nobody uses.
            unsafe { libc::close(fd) };
        }
    }
}
