//! The cost of measuring in several processes.

use crate::profile::{Overhead, Profile};

/// The cost of measuring, summed over the processes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    /// See [`Overhead::total_ns`].
    total_ns: u64,
    /// See [`Overhead::libraries_ns`].
    libraries_ns: u64,
    /// The number of calls that caused `total_ns`.
    calls: f64,
    /// CPU time of all processes, in nanoseconds, including processes without a call.
    cpu_ns: f64,
    /// The time measured in all processes, in nanoseconds, including processes without a call.
    elapsed_ns: f64,
    /// True if the CPU time of some process is not known.
    is_without_cpu: bool,
    /// True if the cost is not subtracted from the times of some profile.
    is_uncorrected: bool,
    /// True if the cost of some profile is an upper bound.
    is_unreliable: bool,
    /// True if the cost of some process with calls is not known.
    is_partial: bool,
}

impl Costs {
    /// Adds the cost of measuring of a profile.
    pub(super) fn add(&mut self, profile: &Profile) {
        let session = &profile.session;
        self.is_without_cpu |= session.cpu_ns.is_none();
        let elapsed = profile.elapsed_ns(0) as f64;
        let Some(overhead) = &session.overhead else {
            match profile.calls() {
                0 => self.add_base(session.cpu_ns.map(|ns| ns as f64), elapsed),
                _ => self.is_partial = true,
            }
            return;
        };
        let total = overhead.total_ns as f64;
        let ratio = |of: f64, otherwise: f64| if of > 0.0 { total / of } else { otherwise };
        self.total_ns = self.total_ns.saturating_add(overhead.total_ns);
        self.libraries_ns = self.libraries_ns.saturating_add(overhead.libraries_ns);
        self.calls += ratio(overhead.call_ns, profile.calls() as f64);
        // A sum may have the costs of some of its processes only.
        match session.cpu_ns {
            Some(ns) => self.add_base(Some(ratio(overhead.share, ns as f64)), elapsed),
            None => self.add_base(None, ratio(overhead.share, elapsed)),
        }
        self.is_uncorrected |= !overhead.corrected;
        self.is_unreliable |= overhead.unreliable;
    }

    fn add_base(&mut self, cpu_ns: Option<f64>, elapsed_ns: f64) {
        self.cpu_ns += cpu_ns.unwrap_or_default();
        self.elapsed_ns += elapsed_ns;
    }

    /// The total cost. `None` if it is not known for any process.
    pub(super) fn sum(&self) -> Option<Overhead> {
        let of = if self.is_without_cpu {
            self.elapsed_ns
        } else {
            self.cpu_ns
        };
        (self.calls > 0.0).then(|| Overhead {
            call_ns: self.total_ns as f64 / self.calls,
            total_ns: self.total_ns,
            share: self.total_ns as f64 / of.max(1.0),
            libraries_ns: self.libraries_ns,
            corrected: !self.is_uncorrected,
            unreliable: self.is_unreliable,
        })
    }

    /// True if the total includes only some of the processes.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial && self.calls > 0.0
    }
}
