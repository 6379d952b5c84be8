//! What a stop means to a thread's system calls and signals.

use crate::arch::system_call::IO_PGETEVENTS;

/// Signals that the kernel sends a thread for what the thread does: blocked, they would end the process or
/// have their handler forgotten (kernel/signal.c `force_sig_info_to_task`).
pub(super) const FAULTS: [i32; 6] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGILL,
    libc::SIGFPE,
    libc::SIGTRAP,
    libc::SIGSYS,
];

/// True if a call that returned EINTR may be made again without the program's noticing: signal(7) names
/// those that a stop interrupts. Of each, nothing has been done when it returns EINTR. Others have
/// done something: close(2) has closed its descriptor, which may be another file's by now, and
/// connect(2) goes on connecting.
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
