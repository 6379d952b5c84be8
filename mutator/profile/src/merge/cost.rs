//! What measuring has taken in several processes.

use crate::profile::{Overhead, Profile};

/// Of the processes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    total_ns: u64,
    libraries_ns: u64,
    /// Calls that this is of.
    calls: f64,
    /// CPU time that this is a part of, in ns, that of processes without a call too.
    cpu_ns: f64,
    /// The time measured, likewise.
    elapsed_ns: f64,
    /// True if there are processes whose CPU time is not known.
    is_without_cpu: bool,
    is_uncorrected: bool,
    is_unreliable: bool,
    /// True if what it has taken is not known of all that have had calls.
    is_partial: bool,
}

impl Costs {
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
        // A sum may be of processes of which not all are in it.
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

    /// Together; none where it is known of no process.
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

    /// True if what stands in the sum is that of some processes alone.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial && self.calls > 0.0
    }
}
