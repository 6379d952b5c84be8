//! How long it takes until something is tried again.

use std::time::Duration;

use crate::random;

/// Times between tries, each longer than the one before it.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    next: Duration,
}

impl Default for Wait {
    fn default() -> Self {
        Self { next: Self::FIRST }
    }
}

impl Wait {
    const FIRST: Duration = Duration::from_millis(500);
    const LONGEST: Duration = Duration::from_secs(30);
    /// No server has this one wait for longer.
    const LONGEST_ASKED: Duration = Duration::from_secs(600);

    /// The time until the next try: at least what the server asks for. It differs, so that many that wait for one server do not all
    /// come at once.
    pub fn after(&mut self, asked: Option<Duration>) -> Duration {
        let own = self
            .next
            .mul_f64(0.75 + f64::from(random::number()) / f64::from(u32::MAX) / 2.0);
        self.next = (self.next * 2).min(Self::LONGEST);
        own.max(asked.unwrap_or_default().min(Self::LONGEST_ASKED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_become_longer_up_to_an_end() {
        let mut wait = Wait::default();
        let waits: Vec<Duration> = (0..12).map(|_| wait.after(None)).collect();
        assert!(waits[0] >= Duration::from_millis(375) && waits[0] <= Duration::from_millis(625));
        assert!(waits[3] > waits[0]);
        let last = Duration::from_secs(22)..Duration::from_secs(38);
        assert!(
            waits[8..].iter().all(|wait| last.contains(wait)),
            "{waits:?}"
        );
        assert_eq!(
            wait.after(Some(Duration::from_secs(100))),
            Duration::from_secs(100)
        );
        assert_eq!(wait.after(Some(Duration::MAX)), Wait::LONGEST_ASKED);
    }
}
