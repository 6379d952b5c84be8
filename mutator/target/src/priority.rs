//! Scheduling priority while a process is changed.
//!
//! The threads of the process compete with ipath for the processors until the last one is stopped,
//! and again once the first one is resumed. They also compete between two stops, while ipath waits
//! for a thread to leave some code.

/// Real-time scheduling of the calling thread, if the system allows it. Dropping this restores the
/// previous scheduling.
#[derive(Debug)]
pub struct Priority {
    /// The previous policy and its parameters. `None` if nothing was changed.
    before: Option<(i32, libc::sched_param)>,
}

impl Priority {
    /// Raises the priority, unless it is real-time already. Without CAP_SYS_NICE this has no
    /// effect, and stops take as long as the scheduler makes them.
    pub fn raise() -> Self {
        let mut parameters = libc::sched_param { sched_priority: 0 };
        // SAFETY: reads the scheduling of the calling thread into the struct given.
        let policy = unsafe {
            libc::sched_getparam(0, &raw mut parameters);
            libc::sched_getscheduler(0)
        };
        if policy < 0
            || matches!(
                policy & !libc::SCHED_RESET_ON_FORK,
                libc::SCHED_FIFO | libc::SCHED_RR
            )
        {
            return Self { before: None };
        }
        let highest = libc::sched_param { sched_priority: 1 };
        let real_time = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
        // SAFETY: sets the scheduling of the calling thread.
        let raised = unsafe { libc::sched_setscheduler(0, real_time, &raw const highest) } == 0;
        Self {
            before: raised.then_some((policy, parameters)),
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some((policy, parameters)) = &self.before {
            // SAFETY: sets the scheduling of the calling thread; lowering it is always allowed.
            unsafe { libc::sched_setscheduler(0, *policy, parameters) };
        }
    }
}
