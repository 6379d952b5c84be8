//! Values of counters that are counted for part of the time.

use super::*;

fn counter(ahead: u64) -> Counter {
    Counter {
        page: ptr::null(),
        ahead,
        enabled: 0,
        running: 0,
        lock: 0,
        is_refused: 0,
    }
}

/// A reading while the event is counted.
const COUNTED: Reading = Reading {
    count: 1000,
    lock: 2,
    is_counted: true,
    enabled: 70,
    running: 50,
    since: Some(30),
};

fn unused() -> Option<u64> {
    panic!("it need not be known")
}

#[test]
fn all_of_a_call_is_counted_as_long_as_the_event_is() {
    let counter = counter(0);
    let from = counter.said(&COUNTED, unused).expect("told");
    let expected = Said {
        number: 1000,
        running: 80,
        missing: 20,
    };
    assert_eq!(from, expected);
    // The thread has been switched out, and the page was written again.
    let back = Reading {
        count: 1234,
        lock: 4,
        enabled: 170,
        running: 150,
        ..COUNTED
    };
    let to = counter.said(&back, unused).expect("told");
    assert_eq!(to.since(&from), Some(234));
    assert_eq!(from.since(&from), Some(0));
}

#[test]
fn without_a_clock_only_what_was_counted_all_the_time_is_told() {
    let counter = counter(0);
    let none = || None;
    let reading = Reading {
        since: None,
        ..COUNTED
    };
    let from = counter.said(&reading, none).expect("told");
    let later = |enabled, running| {
        let later = Reading {
            count: 1100,
            enabled,
            running,
            ..reading
        };
        counter.said(&later, none).expect("told").since(&from)
    };
    assert_eq!(later(70, 50), Some(100));
    assert_eq!(later(270, 250), Some(100));
    assert_eq!(later(270, 150), None);
    let out = Reading {
        is_counted: false,
        ..reading
    };
    assert_eq!(counter.said(&out, none), None);
}

/// 100 ns counted of 400 ns in which the thread ran.
#[test]
fn what_was_counted_is_scaled_to_the_time_of_the_thread() {
    let counter = counter(0);
    let from = counter.said(&COUNTED, unused).expect("told");
    let back = Reading {
        count: 1050,
        lock: 8,
        enabled: 450,
        running: 130,
        ..COUNTED
    };
    let back = counter.said(&back, unused).expect("told");
    assert_eq!((back.running, back.missing), (160, 320));
    // 50 in 80 ns, and 300 ns more.
    assert_eq!(back.since(&from), Some(50 + 50 * 300 / 80));
}

/// The page of an event that is not counted is not written when the thread is switched in. Its time
/// is then that of the other page.
#[test]
fn an_event_that_is_not_counted_has_the_threads_time() {
    let ahead = 0u64.wrapping_sub(40);
    let counter = counter(ahead);
    let from = counter.said(&COUNTED, unused).expect("told");
    let out = Reading {
        count: 1060,
        lock: 4,
        is_counted: false,
        enabled: 120,
        running: 100,
        // The thread may have been switched out in that time.
        since: Some(1 << 40),
    };
    let at = |time: u64| counter.said(&out, || Some(time)).expect("told");
    // It ran for 20 ns after the reading. After that, it was not counted for 80 of 100 ns on the
    // thread's own page.
    let said = at(200 + 40);
    assert_eq!((said.running, said.missing), (100, 100));
    assert_eq!(said.since(&from), Some(60 + 60 * 80 / 20));
    // No time was counted between two such readings.
    assert_eq!(at(300).since(&at(260)), None);
    assert_eq!(at(300).since(&at(300)), Some(0));
    // The clocks of the two pages differ slightly.
    assert_eq!(at(100).missing, 20);
    // The event is counted again.
    let back = Reading {
        count: 1100,
        lock: 6,
        is_counted: true,
        enabled: 400,
        running: 110,
        since: Some(0),
    };
    let back = counter.said(&back, unused).expect("told");
    assert_eq!(back.since(&at(260)), Some(40 + 40 * 170 / 10));
}

/// If the event is not available, that is noted and not tried again.
#[test]
fn a_counter_that_is_not_there_says_nothing() {
    crate::os::parameters::allow_system_calls();
    // SAFETY: it consists of integers and null pointers.
    let (mut counters, mut page): (Counters, Page) = unsafe { core::mem::zeroed() };
    assert_eq!(counters.now(2, &page), Err(Silent::Unasked));
    // All words are 0, which is no event.
    counters.open(2, &mut page);
    assert_eq!(counters.now(2, &page), Err(Silent::Unknown));
    counters.close();
    assert_eq!(counters.now(2, &page), Err(Silent::Unasked));
    page.close();
}
