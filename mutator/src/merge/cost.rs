//! What measuring has taken in several processes.

use crate::profile::{Overhead, Profile};

/// Of the processes so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Costs {
    total_ns: u64,
    libraries_ns: u64,
    /// Calls that this is of.
    calls: f64,
    /// Time that this is a part of, in ns, that of processes without a call too.
    run_ns: f64,
    is_uncorrected: bool,
    /// True if what it has taken is not known of all that have had calls.
    is_partial: bool,
}

impl Costs {
    pub(super) fn add(&mut self, profile: &Profile) {
        let session = &profile.session;
        let run_ns = session.cpu_ns.unwrap_or(session.elapsed_ns) as f64;
        let Some(overhead) = &session.overhead else {
            match profile.calls() {
                0 => self.run_ns += run_ns,
                _ => self.is_partial = true,
            }
            return;
        };
        let total = overhead.total_ns as f64;
        let ratio = |of: f64, otherwise: f64| if of > 0.0 { total / of } else { otherwise };
        self.total_ns = self.total_ns.saturating_add(overhead.total_ns);
        self.libraries_ns = self.libraries_ns.saturating_add(overhead.libraries_ns);
        self.calls += ratio(overhead.call_ns, profile.calls() as f64);
        self.run_ns += ratio(overhead.share, run_ns);
        self.is_uncorrected |= !overhead.corrected;
    }

    /// Together; none where it is known of no process.
    pub(super) fn sum(&self) -> Option<Overhead> {
        (self.calls > 0.0).then(|| Overhead {
            call_ns: self.total_ns as f64 / self.calls,
            total_ns: self.total_ns,
            share: self.total_ns as f64 / self.run_ns.max(1.0),
            libraries_ns: self.libraries_ns,
            corrected: !self.is_uncorrected,
        })
    }

    /// True if what stands in the sum is that of some processes alone.
    pub(super) fn is_partial(&self) -> bool {
        self.is_partial && self.calls > 0.0
    }
}
