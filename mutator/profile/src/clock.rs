//! The time-stamp counter and its frequency.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abi::image::SCALE_SHIFT;
use abi::segment::Header;

use crate::arch::ticks;

/// How an exit reads the time-stamp counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExitClock {
    /// When the processor has completed the work of the function
    #[default]
    Ordered,
    /// At once, at a lower cost per call; the times of short functions may be wrong
    Loose,
}

/// The value of the time-stamp counter now, in ticks.
pub fn tsc() -> u64 {
    ticks()
}

/// The time now, in nanoseconds since the Unix epoch. 0 if the clock is set to a time before it.
pub fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}

/// The frequency of the time-stamp counter in Hz, measured against the monotonic clock. The kernel
/// does not report it in a way that works in every virtual machine. Only the first call measures
/// it, which takes 25 ms: a command may begin many sessions.
pub fn frequency() -> u64 {
    static FOUND: OnceLock<u64> = OnceLock::new();
    *FOUND.get_or_init(measured)
}

fn measured() -> u64 {
    const SPAN: Duration = Duration::from_millis(25);
    let (tsc0, ns0) = reading();
    std::thread::sleep(SPAN);
    let (tsc1, ns1) = reading();
    let ns = u128::from((ns1 - ns0).max(1));
    (u128::from(tsc1.wrapping_sub(tsc0)) * 1_000_000_000 / ns) as u64
}

/// The time-stamp counter (in ticks) and a clock (in nanoseconds) at the same time. Of several
/// readings, the fastest is used: it was not interrupted between the two.
fn reading_of(clock: libc::clockid_t) -> (u64, u64) {
    let attempts = (0..16).map(|_| {
        let before = tsc();
        let ns = ns_of(clock);
        let after = tsc();
        (
            after.wrapping_sub(before),
            before.wrapping_add(after.wrapping_sub(before) / 2),
            ns,
        )
    });
    attempts.min().map_or((0, 0), |(_, tsc, ns)| (tsc, ns))
}

/// [`reading_of`] CLOCK_MONOTONIC_RAW.
fn reading() -> (u64, u64) {
    reading_of(libc::CLOCK_MONOTONIC_RAW)
}

/// The time-stamp counter (in ticks) and CLOCK_MONOTONIC (in nanoseconds) now.
pub(crate) fn now() -> (u64, u64) {
    reading_of(libc::CLOCK_MONOTONIC)
}

/// Stores the time now as the start of a session.
pub fn start(header: &Header) {
    let (tsc, ns) = now();
    header.started_tsc.store(tsc, Relaxed);
    header.started_monotonic_ns.store(ns, Relaxed);
}

fn ns_of(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the struct given.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The time from the start of the session to the value `tsc` of the time-stamp counter, in
/// nanoseconds. 0 if `tsc` is earlier.
pub fn ns_since_start(header: &Header, tsc: u64) -> u64 {
    let ticks = tsc.saturating_sub(header.started_tsc.load(Relaxed));
    let hz = header.clock_hz.load(Relaxed).max(1);
    u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(hz)).unwrap_or(u64::MAX)
}

/// The earliest time at which the counter can have had the value `tsc`, in nanoseconds since the
/// Unix epoch. It is the minimum of two estimates: one from the real-time clock at the start of the
/// session, one from the clock now. In between, that clock may have been set, or have run slower or
/// faster than the counter (adjtimex(2)).
pub fn earliest_unix_ns(header: &Header, tsc: u64) -> u64 {
    earliest_unix_ns_by(header, tsc, (self::tsc(), unix_ns()))
}

/// [`earliest_unix_ns`], given the counter and the nanoseconds since the Unix epoch now.
fn earliest_unix_ns_by(header: &Header, tsc: u64, (now_tsc, now): (u64, u64)) -> u64 {
    let since_start = ns_since_start(header, tsc);
    let until_now = ns_since_start(header, now_tsc).saturating_sub(since_start);
    let started = header.started_unix_ns.load(Relaxed);
    let by_start = started.saturating_add(since_start);
    by_start.min(now.saturating_sub(until_now))
}

/// `(mult, shift)` with `ns = ticks * mult >> shift`, for ticks of a frequency of `hz`.
pub fn scale_to_ns(hz: u64) -> (u64, u64) {
    let mult = (1_000_000_000u128 << SCALE_SHIFT) / u128::from(hz.max(1));
    (u64::try_from(mult).unwrap_or(u64::MAX), SCALE_SHIFT.into())
}

/// Ticks in nanoseconds, by a scale of [`scale_to_ns`].
pub fn ns_of_ticks(ticks: u64, (mult, shift): (u64, u64)) -> u64 {
    let ns = (u128::from(ticks) * u128::from(mult)) >> shift.min(127);
    u64::try_from(ns).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scaling_agrees_with_division() {
        let hz = 2_595_124_000;
        let (mult, shift) = scale_to_ns(hz);
        for ticks in [0u64, 1, 1000, hz, hz * 3600 * 24] {
            let scaled = (u128::from(ticks) * u128::from(mult)) >> shift;
            let exact = u128::from(ticks) * 1_000_000_000 / u128::from(hz);
            assert!(
                scaled.abs_diff(exact) <= 1 + exact / 1_000_000_000,
                "{ticks}"
            );
        }
    }

    /// The session began at 5 s of the counter and 1000 s of the real-time clock. The value is from
    /// 3 s later, and now is 10 s after that.
    #[test]
    fn the_earliest_time_is_told_also_where_the_clock_has_been_set() {
        const S: u64 = 1_000_000_000;
        // SAFETY: all fields are numbers.
        let header: Header = unsafe { std::mem::zeroed() };
        header.clock_hz.store(2 * S, Relaxed);
        header.started_tsc.store(5 * 2 * S, Relaxed);
        header.started_unix_ns.store(1000 * S, Relaxed);
        let seen = |now: u64| earliest_unix_ns_by(&header, 8 * 2 * S, (18 * 2 * S, now));
        assert_eq!(seen(1013 * S), 1003 * S);
        // The clock has been set back, or has run slower. Then it has been set forward.
        assert_eq!(seen(1000 * S), 990 * S);
        assert_eq!(seen(1020 * S), 1003 * S);
        assert_eq!(seen(0), 0);
    }
}
