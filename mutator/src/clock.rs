//! The time-stamp counter and its frequency.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abi::image::SCALE_SHIFT;
use abi::segment::Header;

/// The time-stamp counter.
pub fn tsc() -> u64 {
    // SAFETY: reads a counter.
    unsafe { core::arch::x86_64::_rdtsc() }
}

/// Time since 1970 in ns.
pub fn unix_ns() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_nanos() as u64)
}

/// Frequency of the time-stamp counter in Hz, measured against the monotonic clock: the kernel
/// offers it nowhere that works in every virtual machine. Once: a command may begin many sessions.
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

/// Counter and monotonic clock at the same time: of several readings the one that took least, so
/// that an interruption between the two does not count.
fn reading() -> (u64, u64) {
    let attempts = (0..16).map(|_| {
        let before = tsc();
        let ns = monotonic_ns();
        let after = tsc();
        (
            after.wrapping_sub(before),
            before.wrapping_add(after.wrapping_sub(before) / 2),
            ns,
        )
    });
    attempts.min().map_or((0, 0), |(_, tsc, ns)| (tsc, ns))
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: writes the struct given.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How long a session had lasted at a reading of the counter, ns.
pub fn ns_since_start(header: &Header, tsc: u64) -> u64 {
    let ticks = tsc.saturating_sub(header.started_tsc.load(Relaxed));
    let hz = header.clock_hz.load(Relaxed).max(1);
    u64::try_from(u128::from(ticks) * 1_000_000_000 / u128::from(hz)).unwrap_or(u64::MAX)
}

/// `(mult, shift)` with `ns = ticks * mult >> shift`.
pub fn scale_to_ns(hz: u64) -> (u64, u64) {
    let mult = (1_000_000_000u128 << SCALE_SHIFT) / u128::from(hz.max(1));
    (u64::try_from(mult).unwrap_or(u64::MAX), SCALE_SHIFT.into())
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
}
