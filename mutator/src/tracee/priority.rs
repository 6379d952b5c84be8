//! Priority while a process is held: its own threads compete with us for the processors until the
//! last of them is stopped, and each moment we wait they wait too.

/// Raised priority of the calling thread, where the system allows it; as before when dropped.
#[derive(Debug)]
pub(super) struct Priority {
    before: Option<i32>,
}

impl Priority {
    /// Raises it.
    pub(super) fn raise() -> Self {
        const HIGHEST: i32 = -20;
        // SAFETY: reads and sets the nice value of the calling thread.
        let before = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        // SAFETY: as above. Refused without CAP_SYS_NICE.
        let raised = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, HIGHEST) } == 0;
        Self {
            before: raised.then_some(before),
        }
    }
}

impl Drop for Priority {
    fn drop(&mut self) {
        if let Some(before) = self.before {
            // SAFETY: sets the nice value of the calling thread; lowering it is always allowed.
            unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, before) };
        }
    }
}
