//! Suspension of this process (Ctrl-Z). It must not stop while it holds threads of other processes
//! stopped. It must never stop while it traces processes outside its own job, since they would hang
//! with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// The number of threads that hold others stopped, or are about to.
static AT_WORK: Mutex<usize> = Mutex::new(0);
static IS_DONE: Condvar = Condvar::new();
/// True once stopping this process is forbidden.
static NEVER: AtomicBool = AtomicBool::new(false);

fn at_work() -> MutexGuard<'static, usize> {
    AT_WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work that may hold other processes stopped while this value lives.
pub struct Work(());

impl Work {
    /// Begins the work. Waits if this process is about to be stopped.
    pub fn begin() -> Self {
        *at_work() += 1;
        Self(())
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        *at_work() -= 1;
        IS_DONE.notify_all();
    }
}

/// Forbids stopping this process from now on, because other processes depend on it to run.
pub fn never() {
    NEVER.store(true, Ordering::Relaxed);
}

/// Waits until no work is in progress, and runs `what`, which may stop this process. Returns false
/// without running it if stopping is forbidden.
pub fn rest(what: impl FnOnce()) -> bool {
    if NEVER.load(Ordering::Relaxed) {
        return false;
    }
    let working = IS_DONE.wait_while(at_work(), |count| *count > 0);
    let working = working.unwrap_or_else(PoisonError::into_inner);
    what();
    drop(working);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    #[test]
    fn it_rests_when_all_work_is_done_and_none_begins_meanwhile() {
        let (said, heard) = channel();
        let outer = Work::begin();
        let resting = std::thread::spawn({
            let said = said.clone();
            move || rest(|| said.send("rests").expect("heard"))
        });
        std::thread::sleep(Duration::from_millis(20));
        // Nested work does not wait for a pending stop.
        drop(Work::begin());
        said.send("works").expect("heard");
        drop(outer);
        assert!(resting.join().expect("no panic"));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["works", "rests"]);
    }
}
