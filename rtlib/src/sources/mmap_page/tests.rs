//! Pages as the kernel writes them, simulated, because the machine may have no counters.

use core::cell::Cell;
use std::vec::Vec;

use perf_event_open_sys::bindings::perf_event_mmap_page as Kernel;

use super::*;

/// The fields that the kernel writes.
#[derive(Clone, Copy)]
struct Written {
    lock: u32,
    index: u32,
    offset: i64,
    times: (u64, u64),
    capabilities: u64,
    width: u16,
    /// Shift, factor and offset.
    clock: (u16, u32, u64),
    cycles: (u64, u64),
}

/// An event counted by hardware counter 3 with 48 bits. The time-stamp counter has 4 ticks per ns.
const COUNTED: Written = Written {
    lock: 2,
    index: 4,
    offset: 1000,
    times: (70, 50),
    capabilities: CAP_USER_RDPMC | CAP_USER_TIME,
    width: 48,
    clock: (10, 256, 0u64.wrapping_sub(500)),
    cycles: (0, 0),
};

fn write(page: &MmapPage, written: &Written) {
    page.lock.store(written.lock, Relaxed);
    page.index.store(written.index, Relaxed);
    page.offset.store(written.offset as u64, Relaxed);
    page.time_enabled.store(written.times.0, Relaxed);
    page.time_running.store(written.times.1, Relaxed);
    page.capabilities.store(written.capabilities, Relaxed);
    page.pmc_width.store(written.width, Relaxed);
    page.time_shift.store(written.clock.0, Relaxed);
    page.time_mult.store(written.clock.1, Relaxed);
    page.time_offset.store(written.clock.2, Relaxed);
    page.time_cycles.store(written.cycles.0, Relaxed);
    page.time_mask.store(written.cycles.1, Relaxed);
    // The offset of another clock, which must not be used.
    page.time_zero.store(0x1234_5678_9abc, Relaxed);
}

fn page(written: &Written) -> MmapPage {
    // SAFETY: it consists of integers.
    let page: MmapPage = unsafe { core::mem::zeroed() };
    write(&page, written);
    page
}

/// The clock 620 ns after its start.
fn tsc() -> u64 {
    2480
}

fn never(number: u32) -> u64 {
    panic!("counter {number} is not the thread's")
}

#[test]
fn its_fields_are_where_the_kernel_has_them() {
    macro_rules! same {
        ($($field:ident)*) => {
            $(assert_eq!(offset_of!(MmapPage, $field), offset_of!(Kernel, $field));)*
        };
    }
    same!(version compat_version lock index offset time_enabled time_running);
    same!(pmc_width time_shift time_mult time_offset time_zero size time_cycles time_mask);
    let capabilities = offset_of!(Kernel, __bindgen_anon_1);
    assert_eq!(offset_of!(MmapPage, capabilities), capabilities);
    let mut kernel = Kernel::default();
    let words = |kernel: &Kernel| {
        // SAFETY: all fields of the union are this wide.
        unsafe { kernel.__bindgen_anon_1.capabilities }
    };
    // SAFETY: as above.
    unsafe {
        kernel
            .__bindgen_anon_1
            .__bindgen_anon_1
            .set_cap_user_rdpmc(1);
        assert_eq!(words(&kernel), CAP_USER_RDPMC);
        kernel
            .__bindgen_anon_1
            .__bindgen_anon_1
            .set_cap_user_time(1);
        assert_eq!(words(&kernel), CAP_USER_RDPMC | CAP_USER_TIME);
        kernel
            .__bindgen_anon_1
            .__bindgen_anon_1
            .set_cap_user_time_short(1);
    }
    let all = CAP_USER_RDPMC | CAP_USER_TIME | CAP_USER_TIME_SHORT;
    assert_eq!(words(&kernel), all);
}

#[test]
fn a_counter_is_added_to_the_offset() {
    let page = page(&COUNTED);
    let counter = |number| {
        assert_eq!(number, 3);
        77
    };
    let expected = Reading {
        count: 1077,
        lock: 2,
        is_counted: true,
        enabled: 70,
        running: 50,
        since: Some(120),
    };
    assert_eq!(page.read(counter, tsc), Some(expected));
}

/// The kernel starts counters below 0, to be notified of their overflow.
#[test]
fn a_counter_has_the_sign_of_its_width() {
    for (width, held, count) in [
        (48, 0xffff_ffff_fff0, 1000 - 16),
        (48, 0x7fff_ffff_fff0, 1000 + 0x7fff_ffff_fff0),
        // Bits above the width are ignored.
        (48, 0xab00_0000_0000_0001, 1001),
        (40, 0xff_ffff_fff0, 1000 - 16),
        (32, 0x8000_0000, 1000 - 0x8000_0000i64),
        (64, u64::MAX, 999),
    ] {
        let page = page(&Written { width, ..COUNTED });
        let reading = page.read(|_| held, tsc).expect("readable");
        assert_eq!(reading.count as i64, count, "{held:#x} of {width} bits");
    }
    for width in [0, 65, u16::MAX] {
        let page = page(&Written { width, ..COUNTED });
        assert_eq!(page.read(|_| 1, tsc), None, "{width} bits");
    }
}

#[test]
fn an_event_that_is_not_counted_is_its_offset_alone() {
    let page = page(&Written {
        index: 0,
        ..COUNTED
    });
    let reading = page.read(never, tsc).expect("readable");
    assert_eq!((reading.count, reading.is_counted), (1000, false));
    assert_eq!((reading.enabled, reading.running), (70, 50));
}

#[test]
fn a_counter_that_is_not_the_threads_is_not_read() {
    let page = page(&Written {
        capabilities: CAP_USER_TIME,
        ..COUNTED
    });
    assert_eq!(page.read(never, tsc), None);
    assert_eq!(page.time(tsc), Some(190));
}

#[test]
fn without_a_clock_no_time_is_told() {
    let page = page(&Written {
        capabilities: CAP_USER_RDPMC,
        ..COUNTED
    });
    let none = || panic!("nothing to be read for");
    let reading = page.read(|_| 5, none).expect("readable");
    assert_eq!((reading.count, reading.since), (1005, None));
    assert_eq!(page.time(none), None);
}

/// If the thread is switched out during a reading, everything is read again.
#[test]
fn what_changes_meanwhile_is_read_again() {
    let moved = Written {
        lock: 6,
        index: 2,
        offset: 3000,
        times: (900, 400),
        clock: (10, 256, 0u64.wrapping_sub(600)),
        ..COUNTED
    };
    let page = page(&COUNTED);
    let read = Cell::new(Vec::new());
    let counter = |number| {
        let mut all = read.take();
        all.push(number);
        if all.len() == 1 {
            write(&page, &moved);
        }
        read.set(all);
        u64::from(number)
    };
    let reading = page.read(counter, tsc).expect("readable");
    assert_eq!(read.take(), [3, 1]);
    let expected = Reading {
        count: 3001,
        lock: 6,
        is_counted: true,
        enabled: 900,
        running: 400,
        since: Some(20),
    };
    assert_eq!(reading, expected);
}

#[test]
fn a_page_that_always_changes_says_nothing() {
    let page = page(&COUNTED);
    let tries = Cell::new(0);
    let counter = |_| {
        tries.set(tries.get() + 1);
        page.lock.fetch_add(2, Relaxed);
        0
    };
    assert_eq!(page.read(counter, tsc), None);
    assert!((2..100).contains(&tries.get()), "{} tries", tries.get());
    // The kernel is writing the page.
    let page = self::page(&Written { lock: 3, ..COUNTED });
    assert_eq!(page.read(|_| 0, tsc), None);
    assert_eq!(page.time(tsc), None);
}

/// Compares with a computation in more bits, with factors that kernels use.
#[test]
fn time_goes_on_by_the_time_stamp_counter() {
    for (shift, mult) in [(31u16, 826_000_000u32), (32, 1_654_000_000), (10, 341)] {
        for now in [0u64, 1, 4096, 1 << 40, 1 << 55] {
            let ns = ((u128::from(now) * u128::from(mult)) >> shift) as u64;
            for later in [0u64, 17, 1 << 30] {
                let page = page(&Written {
                    clock: (shift, mult, later.wrapping_sub(ns)),
                    ..COUNTED
                });
                let since = page.read(|_| 0, || now).and_then(|reading| reading.since);
                let since = since.expect("told");
                assert!(since.abs_diff(later) <= 1, "{now}: {since}, not {later}");
            }
        }
    }
    let behind = page(&Written {
        clock: (10, 256, 0u64.wrapping_sub(630)),
        ..COUNTED
    });
    let since = behind.read(|_| 0, tsc).and_then(|reading| reading.since);
    assert_eq!(since, Some(0), "never negative");
}

#[test]
fn a_short_time_stamp_counter_goes_on_where_it_was() {
    const MASK: u64 = 0xffff;
    let cycles = 0x1_0000_ff00;
    let page = page(&Written {
        capabilities: COUNTED.capabilities | CAP_USER_TIME_SHORT,
        clock: (0, 1, 0u64.wrapping_sub(cycles)),
        cycles: (cycles, MASK),
        ..COUNTED
    });
    let since = |now| page.read(|_| 0, || now).and_then(|reading| reading.since);
    assert_eq!(since(0xff00), Some(0));
    assert_eq!(since(0xff80), Some(0x80));
    assert_eq!(since(0x0010), Some(0x110), "it has begun anew");
}
