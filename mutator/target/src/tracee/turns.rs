//! Threads that run alone, while all others of their process stay stopped.
//!
//! Each stop of a process renews the order of its threads in the scheduler's queue. If thousands of
//! threads wait for a processor, those at the end do not get one between two stops.

use std::thread::sleep;
use std::time::{Duration, Instant};

use nix::errno::Errno;
use patcher::Avma;

use super::sys::{self, Change};
use super::{AT_ONCE, Stopped, TraceeError};
use crate::process::{Activity, Tid};
use crate::progress::Step;
use crate::random;

/// The length of the first turn of a thread, enough for most. Each further one is twice as long.
const TURN: Duration = Duration::from_micros(200);
/// No turn of a thread is longer than this.
const LONGEST_TURN: Duration = Duration::from_millis(20);
/// The limit for all turns of a stop, for each thread of the process.
const FOR_EACH_THREAD: Duration = Duration::from_micros(250);
/// The limit for all turns of a stop.
const ALTOGETHER: Duration = Duration::from_secs(1);

impl Stopped {
    /// Lets each of these threads run alone until its program counter is out of the code that
    /// `is_inside` describes, even if a signal has stopped the process. Then resumes all threads.
    /// Returns the length of the stop.
    ///
    /// One thread runs at a time, because two threads may compete for one processor. A thread that
    /// is still inside gets longer turns, unless it sleeps at a lock: it may hold the lock itself.
    /// Threads that sleep at a lock come last.
    pub fn give_turns(
        mut self,
        tids: &[Tid],
        is_inside: impl Fn(Avma) -> bool,
    ) -> Result<Duration, TraceeError> {
        let step = Step::begin("running its threads in turn");
        let all = u32::try_from(self.threads.len()).unwrap_or(u32::MAX);
        let until = Instant::now() + ALTOGETHER.min(FOR_EACH_THREAD.saturating_mul(all));
        let mut order = tids.to_vec();
        // A random start is fair: the time may be over before all threads have had a turn.
        order.rotate_left(random::number() as usize % tids.len().max(1));
        order.sort_by_key(|tid| self.threads.get(tid).is_some_and(|t| t.waits_for_lock()));
        'threads: for tid in order {
            let mut turn = TURN;
            while turn <= LONGEST_TURN {
                if !self.give_turn(tid, turn, &step)? {
                    // The next stop waits for this thread while the others run.
                    break 'threads;
                }
                let thread = self.threads.get(&tid);
                if thread.is_none_or(|t| !is_inside(t.pc()) || t.waits_for_lock()) {
                    break;
                }
                turn *= 2;
            }
            if Instant::now() > until {
                break;
            }
        }
        self.resume()
    }

    /// Lets a thread run for `turn`. False if it does not stop after that. True also if it has
    /// ended.
    fn give_turn(&mut self, tid: Tid, turn: Duration, step: &Step) -> Result<bool, TraceeError> {
        let Some(thread) = self.threads.remove(&tid) else {
            return Ok(true);
        };
        if !self.run(tid, turn, || thread.go_on())? {
            return Ok(true);
        }
        // A thread that was stopped with its process before the interrupt has yet to take the stop
        // of the interrupt.
        let change = sys::change(tid).map_err(|e| TraceeError::Wait(tid, e))?;
        if matches!(change, Change::Stopped(_)) {
            self.run(tid, turn, || match sys::cont(tid, 0) {
                Ok(()) => Ok(true),
                Err(Errno::ESRCH) => Ok(false),
                Err(errno) => Err(TraceeError::Resume(tid, errno)),
            })?;
        }
        match sys::interrupt(tid) {
            Ok(()) => {}
            Err(Errno::ESRCH) => return Ok(true),
            Err(errno) => return Err(TraceeError::Interrupt(self.pid, tid, errno)),
        }
        Ok(self.gather(vec![tid], AT_ONCE, step)?.is_empty())
    }

    /// Resumes a thread by `go_on`, waits until it has got a processor, in competition with other
    /// processes, and then for `turn`. False if the thread has ended.
    fn run(
        &self,
        tid: Tid,
        turn: Duration,
        go_on: impl FnOnce() -> Result<bool, TraceeError>,
    ) -> Result<bool, TraceeError> {
        const WAIT: Duration = Duration::from_millis(20);
        const PAUSE: Duration = Duration::from_micros(50);
        let turns = || Activity::of(self.pid, tid).map(|activity| activity.turns);
        let before = turns();
        if !go_on()? {
            return Ok(false);
        }
        let until = Instant::now() + WAIT;
        sleep(PAUSE);
        while turns() == before && Instant::now() < until {
            sleep(PAUSE);
        }
        sleep(turn);
        Ok(true)
    }
}
