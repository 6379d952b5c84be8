//! The effects of a stop on a thread's system calls and signals.

use crate::arch::system_call::IO_PGETEVENTS;

/// Signals that a thread's own actions raise. If they are blocked, the kernel ends the process or
/// resets their handler (kernel/signal.c `force_sig_info_to_task`).
pub(super) const FAULTS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// True if a call that returned EINTR may be repeated without the program's noticing.
///
/// signal(7) lists the calls that a stop interrupts. These have no effect when they return EINTR.
/// Others do: close(2) has closed its descriptor, which may since be another file's, and connect(2)
/// continues to connect.
pub(super) fn can_be_made_again(number: i64) -> bool {
    const CALLS: [i64; 23] = [
        libc::SYS_epoll_wait,
        libc::SYS_epoll_pwait,
        libc::SYS_epoll_pwait2,
        libc::SYS_semop,
        libc::SYS_semtimedop,
        libc::SYS_rt_sigtimedwait,
        libc::SYS_io_getevents,
        IO_PGETEVENTS,
        libc::SYS_io_uring_enter,
        libc::SYS_msgsnd,
        libc::SYS_msgrcv,
        // Sockets with a timeout (SO_RCVTIMEO, SO_SNDTIMEO), and inotify.
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_accept,
        libc::SYS_accept4,
        libc::SYS_recvfrom,
        libc::SYS_recvmsg,
        libc::SYS_recvmmsg,
        libc::SYS_sendto,
        libc::SYS_sendmsg,
        libc::SYS_sendmmsg,
    ];
    CALLS.contains(&number)
}

#[cfg(test)]
mod tests {
    use super::can_be_made_again;

    #[test]
    fn what_has_been_done_is_not_done_again() {
        for number in [
            libc::SYS_close,
            libc::SYS_connect,
            libc::SYS_dup2,
            libc::SYS_close_range,
        ] {
            assert!(!can_be_made_again(number), "{number}");
        }
        for number in [
            libc::SYS_epoll_wait,
            libc::SYS_semop,
            libc::SYS_rt_sigtimedwait,
        ] {
            assert!(can_be_made_again(number), "{number}");
        }
        assert!(!can_be_made_again(-1));
    }
}
