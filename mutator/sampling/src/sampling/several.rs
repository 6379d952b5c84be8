//! Several processes that are sampled together, such as a server with its workers.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use super::shares::{Function, Share, Shares};
use super::{AT_FIRST, NotSampled, Sampler};
use ipath_target::process::Process;

/// Begins to sample each of these processes. The results are in the order of the processes.
pub fn begin_all(processes: &[Process]) -> Vec<Result<Sampler, NotSampled>> {
    let prepared: Vec<_> = processes.iter().map(Sampler::prepare).collect();
    std::thread::sleep(AT_FIRST);
    let begin = |prepared: Result<Sampler, NotSampled>| prepared.and_then(Sampler::start);
    prepared.into_iter().map(begin).collect()
}

/// The shares of several processes as those of one.
#[derive(Clone, Debug, Default)]
pub struct Together {
    /// The sum: see [`together`].
    pub shares: Shares,
    /// For each function of `shares`, the index of the process in which it is heaviest, and the
    /// index of the function in the shares of that process.
    pub owners: Vec<(usize, usize)>,
}

/// A function of several processes. Its times are in seconds, except for `most` and `weight`.
struct Sum {
    /// As in [`Together::owners`].
    owner: (usize, usize),
    /// The part of `weight` in the process of the owner, in nanoseconds.
    most: f64,
    /// The time that is attributed to the function, in nanoseconds.
    weight: f64,
    own: Estimate,
    total: Estimate,
    waiting: Estimate,
    for_work: f64,
    waits_per_second: f64,
    generated: f64,
}

/// A sum of independent estimates.
#[derive(Clone, Copy, Default)]
struct Estimate {
    value: f64,
    squared_error: f64,
}

impl Estimate {
    fn add(&mut self, share: Share, of: f64) {
        self.value += share.value * of;
        self.squared_error += (share.error * of).powi(2);
    }

    fn share_of(self, whole: f64) -> Share {
        if whole > 0.0 {
            Share {
                value: self.value / whole,
                error: (self.squared_error.sqrt() / whole).min(1.0),
            }
        } else {
            Share::default()
        }
    }
}

/// Adds up the shares of several processes, with the `most` heaviest functions. Times and counts
/// are sums. The duration of sampling and the time without samples are the longest of any process,
/// and the shares of samples are means. Functions are the same if file, address and name are. The
/// address of generated code does not matter.
pub fn together(all: &[Shares], most: usize) -> Together {
    let mut found: HashMap<(&str, u64, &str), Sum> = HashMap::new();
    for (process, shares) in all.iter().enumerate() {
        let (cpu, waited) = (shares.cpu.as_secs_f64(), shares.waited.as_secs_f64());
        for (index, function) in shares.functions.iter().enumerate() {
            let weight = function.weight * shares.time;
            let owner = (process, index);
            let sum = match found.entry(key(function)) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(Sum {
                    owner,
                    most: weight,
                    weight: 0.0,
                    own: Estimate::default(),
                    total: Estimate::default(),
                    waiting: Estimate::default(),
                    for_work: 0.0,
                    waits_per_second: 0.0,
                    generated: 0.0,
                }),
            };
            if weight > sum.most {
                (sum.owner, sum.most) = (owner, weight);
            }
            sum.weight += weight;
            sum.own.add(function.own, cpu);
            sum.total.add(function.total, cpu);
            sum.waiting.add(function.waiting, waited);
            sum.for_work += function.for_work * shares.for_work.as_secs_f64();
            sum.waits_per_second += function.waits_per_second;
            sum.generated += function.generated * cpu;
        }
    }
    let mut shares = whole(all);
    let (cpu, waited) = (shares.cpu.as_secs_f64(), shares.waited.as_secs_f64());
    let mut sums: Vec<Sum> = found.into_values().collect();
    let order = |sum: &Sum| (sum.weight, sum.own.value, sum.total.value);
    sums.sort_by(|a, b| {
        let heaviest = order(b).partial_cmp(&order(a));
        let heaviest = heaviest.unwrap_or(std::cmp::Ordering::Equal);
        heaviest.then(a.owner.cmp(&b.owner))
    });
    sums.truncate(most);
    let function = |sum: &Sum| {
        let (process, index) = sum.owner;
        Function {
            own: sum.own.share_of(cpu),
            total: sum.total.share_of(cpu),
            waiting: sum.waiting.share_of(waited),
            for_work: sum.for_work / shares.for_work.as_secs_f64().max(1e-9),
            waits_per_second: sum.waits_per_second,
            weight: sum.weight / shares.time.max(1.0),
            generated: sum.generated / cpu.max(1e-9),
            ..all[process].functions[index].clone()
        }
    };
    let functions = sums.iter().map(function).collect();
    shares.functions = functions;
    Together {
        shares,
        owners: sums.iter().map(|sum| sum.owner).collect(),
    }
}

fn key(function: &Function) -> (&str, u64, &str) {
    // Generated code is at another address in each process.
    let address = match function.module {
        Some(_) => function.address.0,
        None => 0,
    };
    (&function.path, address, &function.name)
}

/// The sum of [`together`] without functions.
fn whole(all: &[Shares]) -> Shares {
    let samples = |shares: &Shares| (shares.on + shares.off) as f64;
    let count = all.iter().map(samples).sum::<f64>().max(1.0);
    let mean = |of: fn(&Shares) -> f64| {
        let parts = all.iter().map(|shares| of(shares) * samples(shares));
        parts.sum::<f64>() / count
    };
    let seeing = all.iter().map(|shares| shares.seeing).max();
    let longest = |of: fn(&Shares) -> Duration| all.iter().map(of).max().unwrap_or_default();
    Shares {
        seeing: seeing.unwrap_or_default(),
        observed: longest(|shares| shares.observed),
        on: all.iter().map(|shares| shares.on).sum(),
        off: all.iter().map(|shares| shares.off).sum(),
        cpu: all.iter().map(|shares| shares.cpu).sum(),
        waited: all.iter().map(|shares| shares.waited).sum(),
        for_work: all.iter().map(|shares| shares.for_work).sum(),
        time: all.iter().map(|shares| shares.time).sum(),
        whole: mean(|shares| shares.whole),
        folded: mean(|shares| shares.folded),
        lost: all.iter().map(|shares| shares.lost).sum(),
        stale: longest(|shares| shares.stale),
        idle: all.iter().map(|shares| shares.idle).sum(),
        unseen: all.iter().map(|shares| shares.unseen).sum(),
        functions: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use patcher::{Avma, Svma};

    fn function(name: &str, start: u64, own: f64, waiting: f64, weight: f64) -> Function {
        let share = |value| Share { value, error: 0.1 };
        Function {
            id: 0,
            name: name.to_owned(),
            linkage: name.to_owned(),
            module: Some(0),
            path: "/usr/bin/app".to_owned(),
            file: "app".to_owned(),
            is_own: false,
            is_known: true,
            start: Avma(start),
            address: Svma(start & 0xfff),
            own: share(own),
            total: share(own),
            waiting: share(waiting),
            for_work: 0.0,
            waits_per_second: 5.0,
            weight,
            is_built_in: false,
            generated: 0.0,
        }
    }

    fn shares(cpu: u64, waited: u64, functions: Vec<Function>) -> Shares {
        Shares {
            on: cpu,
            off: waited,
            cpu: Duration::from_secs(cpu),
            waited: Duration::from_secs(waited),
            time: (cpu + waited) as f64 * 1e9,
            functions,
            ..Shares::default()
        }
    }

    #[test]
    fn shares_of_several_processes_are_of_the_time_of_all() {
        // Each process has the file at another address.
        let busy = function("work", 0x5010, 1.0, 0.0, 1.0);
        let idle = function("work", 0x7010, 1.0, 0.0, 0.2);
        let other = function("wait", 0x7020, 0.0, 1.0, 0.8);
        let all = [shares(3, 0, vec![busy]), shares(1, 4, vec![other, idle])];
        let Together { shares, owners } = together(&all, usize::MAX);
        let found: Vec<(&str, f64, f64)> = shares
            .functions
            .iter()
            .map(|f| (&*f.name, f.own.value, f.waiting.value))
            .collect();
        assert_eq!(found, [("work", 1.0, 0.0), ("wait", 0.0, 1.0)]);
        assert_eq!(owners, [(0, 0), (1, 0)]);
        assert_eq!((shares.on, shares.off, shares.cpu.as_secs()), (4, 4, 4));
        let work = &shares.functions[0];
        assert_eq!(work.waits_per_second, 10.0);
        // Errors of independent estimates: sqrt(0.3^2 + 0.1^2) of 4 s.
        assert!((work.own.error - 0.1_f64.hypot(0.3) / 4.0).abs() < 1e-9);
        assert_eq!(together(&all, 1).shares.functions.len(), 1);
    }
}
