//! When this process may be stopped (Ctrl-Z): not while it has threads of others stopped, and not at all where it traces what is not of
//! its own job and would stand with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// How many threads have others stopped, or are about to.
static AT_WORK: Mutex<usize> = Mutex::new(0);
static IS_DONE: Condvar = Condvar::new();
static NEVER: AtomicBool = AtomicBool::new(false);

fn at_work() -> MutexGuard<'static, usize> {
    AT_WORK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Work by which others may be stopped, as long as this lives.
pub struct Work(());

impl Work {
    /// Begins it, once this process is not about to be stopped.
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

/// Has this process not be stopped from now on: others go on only by it.
pub fn never() {
    NEVER.store(true, Ordering::Relaxed);
}

/// Does something by which this process may be stopped, while nothing is under way; false where it is not to be.
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
        // What is nested does not wait for what waits for it.
        drop(Work::begin());
        said.send("works").expect("heard");
        drop(outer);
        assert!(resting.join().expect("no panic"));
        assert_eq!(heard.try_iter().collect::<Vec<_>>(), ["works", "rests"]);
    }
}
