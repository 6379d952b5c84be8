//! The signal dispositions and standard files that this process inherited and then changed.
//! Programs that it starts get them back.
//!
//! Rust's runtime ignores SIGPIPE before `main`, and opens /dev/null for closed standard files
//! (library/std/src/sys/pal/unix/mod.rs `init`). This module resets an ignored SIGCHLD: while it is
//! ignored, wait(2) does not report how children end.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

const STANDARD: usize = 3;

static IGNORES_PIPES: AtomicBool = AtomicBool::new(false);
static IGNORES_CHILDREN: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; STANDARD] = [const { AtomicBool::new(false) }; STANDARD];

/// The C library runs this before Rust's runtime starts.
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

/// Restores the inherited dispositions and closed files. For use between fork and exec, where only
/// system calls are safe.
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
            // SAFETY: the descriptor is Rust's /dev/null, which is not used.
            unsafe { libc::close(fd) };
        }
    }
}
