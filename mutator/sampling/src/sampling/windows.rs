//! Windows of sampling threads by perf events. A thread is sampled all the time if that costs the
//! process little, else in turn.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::time::Duration;

use patcher::Avma;

use super::activity::{Pace, now};
use super::budget::{Budget, likely, taken};
use super::event::{Events, Manner, NoEvents, Sight};
use super::limits::Limits;
use super::paths::Paths;
use super::record::Record;
use super::thread::Met;
use super::watched::{Watched, Window};
use crate::arch::Registers;
use ipath_target::process::{Process, Tid, read_text};
use ipath_target::random;

/// CPU time between two samples of a thread, in nanoseconds. It divides no usual period of a
/// program.
const PERIOD: u64 = 1_999_993;
/// As [`PERIOD`], in a short window.
const SHORT_PERIOD: u64 = 249_989;
/// The approximate number of sampled switches per second of a thread.
const WAITS: f64 = 300.0;
/// The approximate number of sampled switches in a short window.
const SHORT_WAITS: f64 = 40.0;
/// A window lasts for about this many switches onto a processor.
const TURNS: f64 = 60.0;
/// The shortest window, in nanoseconds.
const SHORTEST: u64 = 5_000_000;
/// The longest window, in nanoseconds.
const LONGEST: u64 = 500_000_000;
/// The longest window, in nanoseconds, when there are so many threads that each rarely gets a turn.
const LONGEST_OF_MANY: u64 = 50_000_000;
/// ipath waits for the end of windows shorter than this, in nanoseconds.
const SHORT: u64 = 25_000_000;
/// The longest delay of a short window after a look, in nanoseconds. The delays differ.
const UNTIL_SHORT: u64 = 5_000_000;
/// Bytes of the stack in a sample.
const STACK: u32 = 16 << 10;
/// Bytes of the stack in a sample in a small ring.
const SMALL_STACK: u32 = 4 << 10;
/// Rings of fewer bytes are small.
const SMALL_RING: usize = 256 << 10;
/// The maximum size of a ring, in bytes.
const MOST_OF_RING: usize = 2 << 20;
/// The minimum size of a ring, in bytes.
const LEAST_OF_RING: usize = 64 << 10;
/// At least one in this many samples of a thread is taken, even after its largest ring was full.
const MOST_THINNED: u64 = 64;
/// The most windows that are open at once.
const MOST_AT_ONCE: usize = 256;

/// The windows of a process's threads.
pub(super) struct Windows {
    process: Process,
    pub(super) sight: Sight,
    limits: Limits,
    pub(super) budget: Budget,
    /// The ids of threads without a window that are not busy, in the order of their turns.
    queue: VecDeque<i32>,
    /// The ids of busy threads without a window, in the order of their turns.
    busy: VecDeque<i32>,
    /// The number of open windows.
    open: usize,
    /// True once any window was opened.
    pub(super) has_opened: bool,
    /// The total size of the rings of open windows, in bytes.
    memory: usize,
    /// The number of records lost to full rings.
    pub(super) lost: u64,
    /// The times at which ipath had stopped the process: CLOCK_MONOTONIC, in nanoseconds. Waits in
    /// them do not count.
    pub(super) stops: Vec<Range<u64>>,
    /// True while samples of such a time are read.
    pub(super) is_discarding: bool,
    /// The time at which a sample or a switch was last read: CLOCK_MONOTONIC, in nanoseconds.
    pub(super) recorded: u64,
    /// The reason why the first such thread cannot be sampled. `None` if all can.
    pub(super) cause: Option<NoEvents>,
}

/// The result of opening a window.
enum Opened {
    Yes,
    /// There is no room now.
    Later,
    /// The thread has ended or cannot be sampled. It is not tried again.
    Never,
}

impl Windows {
    pub(super) fn of(process: &Process, sight: Sight, pace: Pace) -> Self {
        Self {
            process: process.clone(),
            sight,
            limits: Limits::here(),
            budget: Budget::new(now(), pace),
            queue: VecDeque::new(),
            busy: VecDeque::new(),
            open: 0,
            has_opened: false,
            memory: 0,
            lost: 0,
            stops: Vec::new(),
            is_discarding: false,
            recorded: now(),
            cause: None,
        }
    }

    /// Adds a thread to the end of the queue.
    pub(super) fn meet(&mut self, tid: i32) {
        self.queue.push_back(tid);
    }

    /// Adds the last records of a thread that has ended to `paths`, and closes its window. Its id
    /// stays in the queue until its turn.
    pub(super) fn part(&mut self, thread: &mut Watched, paths: &mut Paths) {
        self.drain(thread, paths);
        self.close(thread);
    }

    /// Reads new records, and opens windows for the threads whose turn it is.
    pub(super) fn look(&mut self, threads: &mut BTreeMap<i32, Watched>, paths: &mut Paths) {
        self.budget.earn(now());
        self.drain_all(threads, paths);
        self.open_due(threads, paths);
    }

    /// Reads new records, and closes windows that are over.
    pub(super) fn drain_all(&mut self, threads: &mut BTreeMap<i32, Watched>, paths: &mut Paths) {
        for (&tid, thread) in threads.iter_mut() {
            self.drain(thread, paths);
            self.end_if_over(tid, thread);
        }
    }

    fn drain(&mut self, thread: &mut Watched, paths: &mut Paths) {
        let Some(window) = &mut thread.window else {
            return;
        };
        let (Some(events), time) = (&mut window.events, &mut thread.time) else {
            return;
        };
        let (clock_id, counted) = (events.clock_id, &mut window.counted);
        let (mut switches, mut samples, mut lost) = (0, 0, 0);
        let (stops, is_discarding) = (&self.stops, self.is_discarding);
        let is_sound = events.ring.drain(|record| match record {
            Record::Sample(sample) => {
                samples += 1;
                if is_discarding {
                    if sample.event != clock_id {
                        *counted = sample.number;
                    }
                    return;
                }
                let path = paths.walk(sample.registers.as_ref(), sample.stack);
                if sample.event == clock_id {
                    time.on_processor(path, sample.number)
                } else {
                    let since = sample.number.saturating_sub(*counted).max(1);
                    *counted = sample.number;
                    time.about_to_leave(path, since);
                }
            }
            Record::Switch { time: at, way } => {
                switches += 1;
                let is_stopped = stops.iter().any(|stop| stop.contains(&at));
                time.switched(at, way.unless_stopped(is_stopped));
            }
            Record::Lost(records) => {
                lost += records;
                time.lost();
            }
            Record::Other => {}
        });
        if !is_sound {
            time.lost();
        }
        if lost > 0 {
            self.lost += lost;
            window.has_lost = true;
            (thread.ring, thread.thin) = after_loss(thread.thin, events.ring.bytes());
        }
        if switches + samples > 0 {
            self.recorded = now();
        }
        thread.has_run |= switches + samples > 0;
        let cost = taken(switches, samples);
        let paid = cost.min(window.prepaid);
        window.prepaid -= paid;
        self.budget.take(cost - paid);
    }

    /// The number of threads that wait for their turn.
    fn waiting(&self) -> usize {
        self.queue.len() + self.busy.len()
    }

    /// The number of threads out of `all` that can be sampled at once.
    fn slots(&self, all: usize) -> usize {
        let ring = self.usual_ring(all) + abi::PAGE as usize;
        self.limits.threads.min(self.limits.memory / ring).max(1)
    }

    /// Sorts the waiting threads into busy ones and others, in the order of their turns.
    pub(super) fn sort(&mut self, threads: &BTreeMap<i32, Watched>) {
        let is_busy = |tid: &i32| threads.get(tid).is_some_and(Watched::is_busy);
        let (busy, others) = self.queue.drain(..).partition(is_busy);
        let (still, less): (VecDeque<i32>, VecDeque<i32>) = self.busy.drain(..).partition(is_busy);
        (self.busy, self.queue) = (still, others);
        let busy: VecDeque<i32> = busy;
        self.busy.extend(busy);
        self.queue.extend(less);
    }

    /// Removes and returns the thread whose turn it is. `None` if no thread waits. A quarter of the
    /// slots is reserved for threads that do little.
    fn next(&mut self, slots: usize) -> Option<i32> {
        let is_kept = 4 * self.open >= 3 * slots && !self.queue.is_empty();
        if is_kept {
            self.queue.pop_front()
        } else {
            self.busy.pop_front().or_else(|| self.queue.pop_front())
        }
    }

    /// The length of a window of a thread with this pace, in nanoseconds. It is shorter if many
    /// threads wait for their turn.
    fn length(&self, pace: Pace) -> u64 {
        let all = self.open + self.waiting();
        let share = LONGEST.saturating_mul(self.slots(all) as u64) / all.max(1) as u64;
        length(pace).min(share.max(LONGEST_OF_MANY))
    }

    /// Closes a thread's window if its time is over or it costs more than planned. It continues if
    /// no other thread waits.
    fn end_if_over(&mut self, tid: i32, thread: &mut Watched) {
        let Some(window) = &mut thread.window else {
            return;
        };
        let now = now();
        let costs_more = window.prepaid <= 0.0 && !self.budget.has_credit();
        // After its ring was full, a thread gets a larger ring or fewer samples.
        let is_to_end = costs_more || window.has_lost;
        if now < window.ends && !is_to_end {
            return;
        }
        let length = self.length(thread.pace);
        if !is_to_end && length > SHORT && self.waiting() == 0 && self.budget.has_credit() {
            let cost = likely(thread.pace, length, PERIOD);
            self.budget.take(cost - window.prepaid);
            self.budget.look_until(now + length);
            (window.ends, window.prepaid) = (now + length, cost);
            return;
        }
        self.close(thread);
        if thread.is_busy() {
            self.busy.push_back(tid)
        } else {
            self.queue.push_back(tid)
        }
    }

    fn close(&mut self, thread: &mut Watched) {
        let Some(window) = thread.close(now()) else {
            return;
        };
        self.budget.take(-window.prepaid.max(0.0));
        self.open -= 1;
        if let Some(events) = window.events {
            self.memory -= events.ring.bytes();
        }
    }

    /// Opens the windows of threads whose turn it is, within the slots and the budget. Waits for
    /// the end of short windows.
    fn open_due(&mut self, threads: &mut BTreeMap<i32, Watched>, paths: &mut Paths) {
        let all = threads.len();
        let mut short: Vec<i32> = Vec::new();
        let mut put_off: Vec<i32> = Vec::new();
        let mut until = None;
        let slots = self.slots(all);
        for _ in 0..self.waiting().min(MOST_AT_ONCE) {
            if !self.budget.has_credit() || self.open >= slots {
                break;
            }
            let Some(tid) = self.next(slots) else {
                break;
            };
            let Some(thread) = threads.get_mut(&tid) else {
                continue;
            };
            // A sleeping thread can wait.
            if thread.is_asleep() && 2 * self.open >= slots {
                put_off.push(tid);
                continue;
            }
            let is_short = length(thread.pace) < SHORT;
            if is_short && short.is_empty() {
                let pause = u64::from(random::number()) % UNTIL_SHORT;
                std::thread::sleep(Duration::from_nanos(pause));
            }
            match self.open(tid, thread, all, paths) {
                Opened::Yes if is_short => {
                    short.push(tid);
                    let ends = thread.window.as_ref().map_or(0, |w| w.ends);
                    until = until.max(Some(ends));
                }
                Opened::Yes | Opened::Never => {}
                Opened::Later => {
                    self.queue.push_front(tid);
                    break;
                }
            }
        }
        self.queue.extend(put_off);
        if let Some(until) = until {
            std::thread::sleep(Duration::from_nanos(until.saturating_sub(now())));
            for tid in short {
                if let Some(thread) = threads.get_mut(&tid) {
                    self.drain(thread, paths);
                    self.end_if_over(tid, thread);
                }
            }
        }
    }

    /// Opens the window of a thread, one of `all`.
    fn open(&mut self, tid: i32, thread: &mut Watched, all: usize, paths: &mut Paths) -> Opened {
        let Some(ring) = self.room_for(thread, all) else {
            return Opened::Later;
        };
        let length = self.length(thread.pace);
        let (period, waits) = rates(thread, length);
        let manner = Manner {
            sight: self.sight,
            period,
            waits,
            stack: if ring < SMALL_RING {
                SMALL_STACK
            } else {
                STACK
            },
            ring,
        };
        let tid = Tid(tid);
        let events = match Events::open(tid, manner) {
            Ok(events) => events,
            Err(error) => return self.not_opened(error),
        };
        self.open += 1;
        self.has_opened = true;
        self.memory += events.ring.bytes();
        let met = match self.sight {
            Sight::Whole => how_met(&self.process, tid, paths),
            Sight::UserMode => Met::Running,
        };
        let begun = now();
        thread.time.begin(met, begun);
        let prepaid = likely(thread.pace, length, period / thread.thin);
        self.budget.take(prepaid);
        self.budget.look_until(begun + length);
        thread.window = Some(Window {
            events: Some(events),
            begun,
            ends: begun + length,
            prepaid,
            counted: 0,
            has_lost: false,
        });
        Opened::Yes
    }

    /// The usual size of a ring with `all` threads, in bytes.
    fn usual_ring(&self, all: usize) -> usize {
        let share = self.limits.memory / all.clamp(1, self.limits.threads);
        ((share + 1).next_power_of_two() / 2).clamp(LEAST_OF_RING, MOST_OF_RING)
    }

    /// The size of the ring of a thread, one of `all`, in bytes. `None` if there is no room.
    fn room_for(&self, thread: &Watched, all: usize) -> Option<usize> {
        let page = abi::PAGE as usize;
        let mut ring = self.usual_ring(all).max(thread.ring).min(MOST_OF_RING);
        let left = self.limits.memory.saturating_sub(self.memory);
        while ring + page > left && ring > LEAST_OF_RING {
            ring /= 2;
        }
        // The first window is always tried, because only the kernel knows the limit.
        (ring + page <= left || self.open == 0).then_some(ring)
    }

    fn not_opened(&mut self, error: NoEvents) -> Opened {
        let code = match &error {
            NoEvents::Event(error) | NoEvents::Ring(error) => error.raw_os_error(),
        };
        match (&error, code) {
            (_, Some(libc::ESRCH)) => return Opened::Never,
            // Other programs of this user have locked more memory than expected.
            (NoEvents::Ring(_), Some(libc::EPERM)) if self.open > 0 => {
                self.limits.memory = self.memory;
                return Opened::Later;
            }
            (_, Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)) if self.open > 0 => {
                self.limits.threads = self.open;
                return Opened::Later;
            }
            _ => {}
        }
        self.cause.get_or_insert(error);
        Opened::Never
    }

    /// Sets the rate at which a thread's waits are sampled, by its current pace.
    pub(super) fn pace(&self, thread: &Watched) {
        let events = thread.window.as_ref().and_then(|w| w.events.as_ref());
        if let Some(events) = events {
            let waits = (thread.pace.turns / WAITS) as u64;
            events.sample_waits(near(waits * thread.thin));
        }
    }
}

/// The CPU time between two samples of a thread, ns, and the number of its waits for each sampled
/// one, in a window of this length.
fn rates(thread: &Watched, length: u64) -> (u64, u64) {
    let (period, waits) = if length < SHORT {
        let turns = thread.pace.turns * length as f64 / 1e9;
        (SHORT_PERIOD, turns / SHORT_WAITS)
    } else {
        (PERIOD, thread.pace.turns / WAITS)
    };
    (period * thread.thin, near(waits as u64 * thread.thin))
}

/// The size of a thread's next ring and its thinning, after records found no room in one of so many
/// bytes.
fn after_loss(thin: u64, bytes: usize) -> (usize, u64) {
    let ring = (2 * bytes).next_power_of_two() / 2;
    if ring > MOST_OF_RING {
        (ring, (2 * thin).min(MOST_THINNED))
    } else {
        (ring, thin)
    }
}

/// The length of a window of a thread with this pace, in nanoseconds.
fn length(pace: Pace) -> u64 {
    ((TURNS / pace.turns.max(0.1) * 1e9) as u64).clamp(SHORTEST, LONGEST)
}

/// A random number between `n / 2` and `3 n / 2`, at least 1. Sampling exactly every n-th switch
/// would confuse two that alternate.
fn near(n: u64) -> u64 {
    (n / 2 + u64::from(random::number()) % (n + 1)).max(1)
}

/// The state of a thread. [`Met::Waiting`] has the path of its stack if that can be read and the
/// thread still waits there. [`Met::Running`] also if the kernel does not say.
pub(super) fn how_met(process: &Process, tid: Tid, paths: &mut Paths) -> Met {
    let file = format!("/proc/{}/task/{tid}/syscall", process.pid);
    let waits_at = || {
        let text = read_text(&file).ok()?;
        let mut words = text.split_whitespace().rev();
        let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
        Some((word()?, word()?))
    };
    let Some((ip, sp)) = waits_at() else {
        return Met::Running;
    };
    let stack = stack_at(process, Avma(sp));
    // The thread may have continued meanwhile.
    let is_still = waits_at() == Some((ip, sp));
    let stack = stack.filter(|_| is_still);
    Met::Waiting(stack.map(|stack| paths.walk(Some(&Registers::bare(ip, sp)), &stack)))
}

/// The bytes of a thread's stack from an address upwards, at most [`STACK`]. `None` if none can be
/// read.
pub(super) fn stack_at(process: &Process, sp: Avma) -> Option<Vec<u8>> {
    let memory = process.open_memory().ok()?;
    // Fewer bytes are read if the stack ends before.
    let sizes = [STACK as usize, 4096, 1024, 256];
    sizes
        .into_iter()
        .find_map(|size| memory.read_vec(sp, size).ok())
}

#[cfg(test)]
mod tests;
