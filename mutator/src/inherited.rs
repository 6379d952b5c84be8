//! What this process was started with and Rust's runtime changes before `main`: it ignores SIGPIPE, and opens
//! /dev/null in the place of standard files that are closed (library/std/src/sys/pal/unix/mod.rs `init`). A program
//! that is started is to have both as they were.

use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;

const STANDARD: usize = 3;

static IGNORES_PIPES: AtomicBool = AtomicBool::new(false);
static CLOSED: [AtomicBool; STANDARD] = [const { AtomicBool::new(false) }; STANDARD];

/// Run by the C library before that runtime begins.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE: extern "C" fn() = note;

extern "C" fn note() {
    // SAFETY: plain integers and pointers, for which zero is a value.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the structure lives through the call, which changes nothing.
    let asked = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    let is_ignored = asked == 0 && action.sa_sigaction == libc::SIG_IGN;
    IGNORES_PIPES.store(is_ignored, Ordering::Relaxed);
    for (fd, closed) in (0..).zip(&CLOSED) {
        // SAFETY: takes no pointer.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        closed.store(
            flags == -1 && Errno::last() == Errno::EBADF,
            Ordering::Relaxed,
        );
    }
}

/// Gives both to what this process becomes: for use between fork and exec, where only system calls may be made.
pub fn give_back() {
    if IGNORES_PIPES.load(Ordering::Relaxed) {
        // SAFETY: takes no pointer.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
    }
    for (fd, closed) in (0..).zip(&CLOSED) {
        if closed.load(Ordering::Relaxed) {
            // SAFETY: /dev/null, which nobody uses.
            unsafe { libc::close(fd) };
        }
    }
}
