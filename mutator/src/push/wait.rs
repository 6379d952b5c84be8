//! Delays between attempts.

use std::time::Duration;

use ipath_target::random;

/// Delays between attempts, each longer than the previous one.
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
    /// The longest delay that a server can request.
    const LONGEST_ASKED: Duration = Duration::from_secs(600);

    /// The time reserved for the last attempt.
    const LAST: Duration = Duration::from_secs(2);

    /// The delay until the next attempt. It is randomized, so that many clients do not retry at
    /// once. If it would exceed the time `left`, it is shortened to allow one more attempt. It is
    /// at least the delay `asked` by the server, up to 10 minutes, even if that exceeds `left`.
    pub fn after(&mut self, asked: Option<Duration>, left: Option<Duration>) -> Duration {
        let own = self
            .next
            .mul_f64(0.75 + f64::from(random::number()) / f64::from(u32::MAX) / 2.0);
        self.next = (self.next * 2).min(Self::LONGEST);
        let last = left.and_then(|left| left.checked_sub(Self::LAST));
        let last = last.filter(|&last| last >= Self::FIRST);
        let own = last.map_or(own, |last| own.min(last));
        own.max(asked.unwrap_or_default().min(Self::LONGEST_ASKED))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_become_longer_up_to_an_end() {
        let mut wait = Wait::default();
        let waits: Vec<Duration> = (0..12).map(|_| wait.after(None, None)).collect();
        assert!(waits[0] >= Duration::from_millis(375) && waits[0] <= Duration::from_millis(625));
        assert!(waits[3] > waits[0]);
        let last = Duration::from_secs(22)..Duration::from_secs(38);
        assert!(
            waits[8..].iter().all(|wait| last.contains(wait)),
            "{waits:?}"
        );
        assert_eq!(
            wait.after(Some(Duration::from_secs(100)), None),
            Duration::from_secs(100)
        );
        assert_eq!(wait.after(Some(Duration::MAX), None), Wait::LONGEST_ASKED);
    }

    #[test]
    fn the_last_try_is_close_to_the_end() {
        let mut wait = Wait::default();
        let mut left = Duration::from_secs(20);
        // Attempts take no time here.
        loop {
            let next = wait.after(None, Some(left));
            match left.checked_sub(next) {
                Some(then) => left = then,
                None => break,
            }
        }
        assert!(left <= Wait::LAST + Wait::FIRST, "{left:?}");
        // The server's request takes precedence.
        let asked = Duration::from_secs(60);
        assert_eq!(
            wait.after(Some(asked), Some(Duration::from_secs(20))),
            asked
        );
    }
}
