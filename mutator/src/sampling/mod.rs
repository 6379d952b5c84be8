//! Where the time of a process goes, as samples show it: perf events of each of its threads, the registers and the
//! stack copied by the kernel, the stack walked here. Nothing is changed in the process. (csprof: Froyd, Mellor-Crummey,
//! Fowler 2005, with the stacks walked outside the process.)
//!
//! On a processor a thread is sampled by the clock of its own CPU time. Off it, every n-th moment at which it is switched
//! out is sampled, with n such that there are not too many; all switches are recorded, so that how long each wait takes is
//! known. A wait that was sampled stands for n.

mod code;
mod event;
mod record;
mod registers;
mod ring;
mod services;
mod shares;
mod stacks;
mod thread;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs;
use std::io;
use std::time::{Duration, Instant};

use patcher::Avma;

pub use shares::{Function, Share, Shares};
pub use stacks::{SampledStack, SampledStacks};

use code::{Code, Path};
use event::{Events, Manner, Sight};
use record::Record;
use registers::Registers;
use thread::{Met, PathId, ThreadTime};

use crate::process::modules::Module;
use crate::process::{Process, Tid};
use crate::random;

/// CPU time between two samples of a thread, ns: no divisor of what programs do regularly.
const PERIOD: u64 = 1_999_993;
/// Bytes of the stack in a sample.
const STACK: u32 = 16 << 10;
/// Switches of a thread that are sampled in a second, about.
const WAITS: u64 = 300;
/// Bytes of all rings, and of one.
const RINGS: usize = 128 << 20;
const MOST_OF_RING: usize = 2 << 20;
const LEAST_OF_RING: usize = 128 << 10;
/// Time between two looks for new threads.
const UNTIL_NEW_THREADS: Duration = Duration::from_millis(100);

/// Looks at a process for a while.
pub struct Sampler {
    process: Process,
    code: Code,
    manner: Manner,
    threads: BTreeMap<i32, Watched>,
    /// Threads that cannot be sampled, and why the first of them cannot.
    unseen: HashSet<i32>,
    cause: Option<io::Error>,
    paths: Paths,
    begun: u64,
    looked: Instant,
    lost: u64,
    /// How often threads were switched out in a second, before they were looked at.
    rates: HashMap<i32, u64>,
    /// What those have left that have ended.
    ended: ThreadTime,
}

/// A thread that is sampled.
struct Watched {
    events: Events,
    time: ThreadTime,
    /// How often it has been switched out, at the last look.
    switches: u64,
    /// How many switches there had been at the last sample of one.
    counted: u64,
}

/// Paths by number.
#[derive(Default)]
struct Paths {
    all: Vec<Path>,
    ids: HashMap<Path, PathId>,
}

impl Paths {
    fn id(&mut self, path: Path) -> PathId {
        let next = self.all.len() as PathId;
        *self.ids.entry(path).or_insert_with_key(|path| {
            self.all.push(path.clone());
            next
        })
    }
}

/// Why a process cannot be sampled.
#[derive(Debug)]
pub struct NotSampled(pub io::Error);

impl Sampler {
    /// Begins.
    ///
    /// # Errors
    /// None of its threads can be looked at so.
    pub fn begin(process: &Process) -> Result<Self, NotSampled> {
        let tids = process.list_tids().map_err(NotSampled)?;
        let share = RINGS / tids.len().max(1);
        let ring = (share + 1).next_power_of_two() / 2;
        let mut sampler = Self {
            process: process.clone(),
            code: Code::of(process),
            manner: Manner {
                sight: Sight::Whole,
                period: PERIOD,
                stack: STACK,
                ring: ring.clamp(LEAST_OF_RING, MOST_OF_RING),
            },
            threads: BTreeMap::new(),
            unseen: HashSet::new(),
            cause: None,
            paths: Paths::default(),
            begun: now(),
            looked: Instant::now(),
            lost: 0,
            rates: HashMap::new(),
            ended: ThreadTime::met(Met::Running, 0),
        };
        raise_limit_of_files();
        sampler.count_switches(&tids);
        sampler.meet_threads();
        if sampler.threads.is_empty() && sampler.is_forbidden() {
            sampler.manner.sight = Sight::UserMode;
            sampler.unseen.clear();
            sampler.meet_threads();
        }
        match sampler.threads.is_empty() {
            false => Ok(sampler),
            true => Err(NotSampled(
                sampler
                    .cause
                    .unwrap_or_else(|| io::ErrorKind::NotFound.into()),
            )),
        }
    }

    /// Finds out how often each thread is switched out, so that not too many moments of one are sampled at once.
    fn count_switches(&mut self, tids: &[Tid]) {
        const A_WHILE: Duration = Duration::from_millis(20);
        let of = |tid: &Tid| Some((tid.0, switches_of(&self.process, *tid)?));
        let before: HashMap<i32, u64> = tids.iter().filter_map(of).collect();
        std::thread::sleep(A_WHILE);
        let after = tids.iter().filter_map(of);
        let rate =
            |now: u64, then: u64| now.saturating_sub(then) * 1000 / A_WHILE.as_millis() as u64;
        let rates = after.filter_map(|(tid, now)| Some((tid, rate(now, *before.get(&tid)?))));
        self.rates = rates.collect();
    }

    fn is_forbidden(&self) -> bool {
        let code = self.cause.as_ref().and_then(io::Error::raw_os_error);
        matches!(code, Some(libc::EACCES | libc::EPERM))
    }

    /// True where waiting is not seen, nor what is done in the kernel.
    pub fn is_of_user_mode(&self) -> bool {
        self.manner.sight == Sight::UserMode
    }

    /// Takes in what has been sampled since. To be called some twenty times a second.
    pub fn look(&mut self) {
        for tid in self.tids() {
            self.drain(tid);
        }
        if self.looked.elapsed() >= UNTIL_NEW_THREADS {
            self.pace();
            self.meet_threads();
        }
    }

    fn tids(&self) -> Vec<i32> {
        self.threads.keys().copied().collect()
    }

    fn drain(&mut self, tid: i32) {
        let Some(watched) = self.threads.get_mut(&tid) else {
            return;
        };
        let (time, clock_id) = (&mut watched.time, watched.events.clock_id);
        let counted = &mut watched.counted;
        let (code, paths, lost) = (&mut self.code, &mut self.paths, &mut self.lost);
        let is_sound = watched.events.ring.drain(|record| match record {
            Record::Sample(sample) => {
                let path = match &sample.registers {
                    Some(registers) => code.walk(registers, sample.stack),
                    None => Path::default(),
                };
                let path = paths.id(path);
                match sample.event == clock_id {
                    true => time.on_processor(path, sample.number),
                    false => {
                        let since = sample.number.saturating_sub(*counted).max(1);
                        *counted = sample.number;
                        time.about_to_leave(path, since);
                    }
                }
            }
            Record::Switch { time: at, way } => time.switched(at, way),
            Record::Lost(records) => {
                *lost += records;
                time.lost();
            }
            Record::Other => {}
        });
        if !is_sound {
            watched.time.lost();
        }
    }

    /// Has as many waits of each thread sampled as are wanted. Not exactly every n-th: two that take turns would not be
    /// told apart.
    fn pace(&mut self) {
        let seconds = self.looked.elapsed().as_secs_f64();
        for (&tid, watched) in &mut self.threads {
            let switches = switches_of(&self.process, Tid(tid)).unwrap_or(watched.switches);
            let rate = switches.saturating_sub(watched.switches) as f64 / seconds.max(0.001);
            watched.switches = switches;
            watched.events.sample_waits(near(rate as u64 / WAITS));
        }
    }

    /// Begins with threads that are new, and ends with those that are gone.
    fn meet_threads(&mut self) {
        self.looked = Instant::now();
        let Ok(tids) = self.process.list_tids() else {
            return;
        };
        let living: HashSet<i32> = tids.iter().map(|tid| tid.0).collect();
        for tid in self.tids().into_iter().filter(|tid| !living.contains(tid)) {
            self.drain(tid);
            if let Some(mut watched) = self.threads.remove(&tid)
                && watched.time.end(now())
            {
                self.ended.absorb(&watched.time);
            }
        }
        self.unseen.retain(|tid| living.contains(tid));
        for tid in tids {
            if !self.threads.contains_key(&tid.0) && !self.unseen.contains(&tid.0) {
                self.meet(tid);
            }
        }
    }

    fn meet(&mut self, tid: Tid) {
        let switches = switches_of(&self.process, tid).unwrap_or(0);
        let rate = self.rates.remove(&tid.0).unwrap_or(0);
        match Events::open(tid, self.manner, near(rate / WAITS)) {
            Ok(events) => {
                let met = self.how_met(tid);
                let time = ThreadTime::met(met, now());
                let watched = Watched {
                    events,
                    time,
                    switches,
                    counted: 0,
                };
                self.threads.insert(tid.0, watched);
            }
            // It has ended.
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => {
                self.unseen.insert(tid.0);
                self.cause.get_or_insert(error);
            }
        }
    }

    /// Whether a thread waits, and where, as far as the kernel says so: stack pointer and instruction pointer.
    fn how_met(&mut self, tid: Tid) -> Met {
        let file = format!("/proc/{}/task/{tid}/syscall", self.process.pid);
        let waits_at = || {
            let text = fs::read_to_string(&file).ok()?;
            let mut words = text.split_whitespace().rev();
            let mut word = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
            Some((word()?, word()?))
        };
        let Some((ip, sp)) = waits_at() else {
            return Met::Running;
        };
        let stack = self.stack_at(Avma(sp));
        // It may have gone on meanwhile.
        let is_still = waits_at() == Some((ip, sp));
        let path = match stack.filter(|_| is_still) {
            Some(stack) => {
                let path = self.code.walk(&Registers::bare(ip, sp), &stack);
                Some(self.paths.id(path))
            }
            None => None,
        };
        Met::Waiting(path)
    }

    fn stack_at(&self, sp: Avma) -> Option<Vec<u8>> {
        let memory = self.process.open_memory().ok()?;
        // Less where the stack ends before.
        let sizes = [STACK as usize, 4096, 1024, 256];
        sizes
            .into_iter()
            .find_map(|size| memory.read_vec(sp, size).ok())
    }

    /// The time of all threads that ran until now, and how many did not run.
    fn time_until(&mut self, now: u64) -> (ThreadTime, usize) {
        for tid in self.tids() {
            self.drain(tid);
        }
        let mut all = self.ended.clone();
        let mut idle = 0;
        for watched in self.threads.values() {
            let mut time = watched.time.clone();
            match time.end(now) {
                true => all.absorb(&time),
                false => idle += 1,
            }
        }
        (all, idle)
    }

    /// Where the time went until now, with the callers of so many functions.
    pub fn shares(&mut self, with_callers: usize) -> Shares {
        let now = now();
        let (all, idle) = self.time_until(now);
        let observed = Duration::from_nanos(now.saturating_sub(self.begun));
        let mut shares = shares::of(&self.code, &self.paths.all, &all, observed, with_callers);
        (shares.lost, shares.idle) = (self.lost, idle);
        shares.unseen = self.unseen.len();
        shares
    }

    /// The modules by whose index functions name theirs.
    pub fn modules(&self) -> Vec<Module> {
        self.code.modules()
    }
}

/// A number between half of `n` and half as much again, 1 at least.
fn near(n: u64) -> u64 {
    (n / 2 + u64::from(random::number()) % (n + 1)).max(1)
}

/// CLOCK_MONOTONIC, ns.
fn now() -> u64 {
    let now = nix::time::clock_gettime(nix::time::ClockId::CLOCK_MONOTONIC);
    now.map_or(0, |t| {
        t.tv_sec() as u64 * 1_000_000_000 + t.tv_nsec() as u64
    })
}

/// How often a thread has been switched out.
fn switches_of(process: &Process, tid: Tid) -> Option<u64> {
    let of = |key| process.thread_status(tid, key)?.parse::<u64>().ok();
    Some(of("voluntary_ctxt_switches")? + of("nonvoluntary_ctxt_switches")?)
}

/// A thread takes two descriptors.
fn raise_limit_of_files() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads and writes the limit alone. Where it stays as it is, fewer threads can be looked at.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
