//! The lock that serializes commands.

use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::error::SegmentError;
use ipath_target::fault_injection::step;
use ipath_target::progress::Step;
use ipath_target::tracee::pause;

/// A segment's lock. While it is held, no other command changes the session. The kernel (flock(2))
/// releases it however the command ends.
#[derive(Debug)]
pub struct Lock(Arc<File>);

impl Lock {
    /// Takes the lock, and waits for up to `patience` if another command holds it. A change takes
    /// that command milliseconds. Fails with [`SegmentError::Busy`] after that.
    pub(super) fn take(file: &Arc<File>, patience: Duration) -> Result<Self, SegmentError> {
        step("before lock");
        let deadline = Instant::now() + patience;
        let _step = Step::begin("waiting for another command that changes the session");
        loop {
            // SAFETY: the descriptor is open.
            if unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0 {
                step("lock");
                return Ok(Self(Arc::clone(file)));
            }
            if Instant::now() > deadline {
                return Err(SegmentError::Busy);
            }
            pause(Duration::from_millis(2));
        }
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // SAFETY: the descriptor is open.
        unsafe { libc::flock(self.0.as_raw_fd(), libc::LOCK_UN) };
    }
}

/// How long to wait for another command.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
