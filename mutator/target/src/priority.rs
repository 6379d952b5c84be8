//! Priority while a process is changed: its own threads compete with us for the processors until the last of
//! them is stopped, and again when the first of them goes on. So they do between two stops, when a thread is
//! waited for that has to leave some code first.

/// Real-time scheduling of the calling thread, where the system allows it; as before when dropped.
#[derive(Debug)]
pub struct Priority {
    before: Option<(i32, libc::sched_param)>,
}

impl Priority {
    /// Raises it. Refused without CAP_SYS_NICE: then stops take as long as the others let them.
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
