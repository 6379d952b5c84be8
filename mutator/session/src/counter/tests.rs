//! Names of events and their meanings, also on machines without counters.

use super::*;
use std::fs;
use std::path::PathBuf;

/// The kernel's description of an Intel processor, and of one other device.
struct Described(PathBuf);

impl Described {
    fn new(test: &str) -> Self {
        let name = format!("ipath-counters-{test}-{}", std::process::id());
        let root = std::env::temp_dir().join(name);
        for (file, text) in [
            ("cpu/type", "4\n"),
            ("cpu/format/event", "config:0-7\n"),
            ("cpu/format/umask", "config:8-15\n"),
            ("cpu/format/wide", "config:0-7,32-35\n"),
            ("cpu/format/edge", "config:18\n"),
            ("cpu/format/offcore_rsp", "config1:0-63\n"),
            ("cpu/format/far", "config:60-70\n"),
            ("cpu/events/topdown-retiring", "event=0xc2,umask=0x02\n"),
            ("cpu/events/again", "again\n"),
            ("uncore_imc/type", "17\n"),
            ("uncore_imc/format/event", "config:0-7\n"),
        ] {
            let file = root.join(file);
            fs::create_dir_all(file.parent().expect("a folder")).expect("made");
            fs::write(file, text).expect("written");
        }
        Self(root)
    }

    fn event(&self, name: &str) -> Result<Event, NoEvent> {
        Event::described(name, &Devices(&self.0))
    }

    fn config(&self, name: &str) -> (u32, [u64; 3]) {
        let event = self.event(name).unwrap_or_else(|e| panic!("{name}: {e}"));
        (event.kind, event.config)
    }
}

impl Drop for Described {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The numbers are those of perf_event_open(2).
#[test]
fn names_of_perf_are_known() {
    let described = Described::new("names");
    for (name, kind, config) in [
        ("cycles", 0, 0),
        ("instructions", 0, 1),
        ("cache-references", 0, 2),
        ("cache-misses", 0, 3),
        ("branches", 0, 4),
        ("branch-instructions", 0, 4),
        ("branch-misses", 0, 5),
        ("bus-cycles", 0, 6),
        ("stalled-cycles-frontend", 0, 7),
        ("stalled-cycles-backend", 0, 8),
        ("ref-cycles", 0, 9),
        ("instructions:u", 0, 1),
        ("L1-dcache-loads", 3, 0),
        ("L1-dcache-load-misses", 3, 0x10000),
        ("L1-dcache-stores", 3, 0x100),
        ("L1-icache-load-misses", 3, 0x10001),
        ("LLC-load-misses", 3, 0x10002),
        ("LLC-prefetches", 3, 0x202),
        ("dTLB-store-misses", 3, 0x10103),
        ("iTLB-loads", 3, 4),
        ("branch-load-misses", 3, 0x10005),
        ("node-prefetch-misses", 3, 0x10206),
        ("r0", 4, 0),
        ("r01C2", 4, 0x1c2),
        ("rffffffffffffffff", 4, u64::MAX),
    ] {
        assert_eq!(described.config(name), (kind, [config, 0, 0]), "{name}");
    }
    for name in names::GENERAL {
        assert!(described.event(name).is_ok(), "{name}");
    }
}

#[test]
fn events_are_what_the_kernel_describes() {
    let described = Described::new("described");
    for (name, kind, config) in [
        ("topdown-retiring", 4, [0x2c2, 0, 0]),
        ("cpu/topdown-retiring/", 4, [0x2c2, 0, 0]),
        ("cpu/event=0x3c,umask=0x1/", 4, [0x13c, 0, 0]),
        ("cpu/event=60, umask=1/", 4, [0x13c, 0, 0]),
        ("cpu/topdown-retiring,edge/", 4, [0x402c2, 0, 0]),
        ("cpu/wide=0xfab/", 4, [0xf_0000_00ab, 0, 0]),
        ("cpu/offcore_rsp=0xffffffffffffffff/", 4, [0, u64::MAX, 0]),
        ("cpu/config=0x1,config2=2/", 4, [1, 0, 2]),
        ("uncore_imc/event=4/", 17, [4, 0, 0]),
    ] {
        assert_eq!(described.config(name), (kind, config), "{name}");
    }
    for (name, term, wrong) in [
        ("cpu/event=0x100/", "event=0x100", "too large"),
        ("cpu/wide=0x1000/", "wide=0x1000", "too large"),
        ("cpu/edge=2/", "edge=2", "too large"),
        ("cpu/event=/", "event=", "no number"),
        ("cpu/event=+1/", "event=+1", "no number"),
        ("cpu/event=0x10000000000000000/", "event=0x1", "no number"),
        ("cpu/far=1/", "far=1", "neither an event nor a term"),
        (
            "cpu/topdown-retiring=1/",
            "topdown-retiring=1",
            "neither an event nor a term",
        ),
        ("cpu/nothing/", "nothing", "neither an event nor a term"),
        ("cpu/again/", "again", "neither an event nor a term"),
        ("cpu//", "", "not a term"),
        ("cpu/..=1/", "..=1", "not a term"),
        ("gpu/event=1/", "gpu", "not a device with counters"),
        ("../cpu/event=1/", "../cpu/event=1/", ""),
        ("./event=1/", ".", "not a device with counters"),
    ] {
        match described.event(name) {
            Err(NoEvent::Unknown) => assert_eq!(name, term),
            Err(error) => {
                let text = error.to_string();
                assert!(text.starts_with(&format!("`{term}")), "{name}: {text}");
                assert!(text.contains(wrong), "{name}: {text}");
            }
            Ok(event) => panic!("{name}: {event:?}"),
        }
    }
}

#[test]
fn other_names_are_no_events() {
    let described = Described::new("others");
    for name in [
        "",
        "r",
        "rx",
        "r+1",
        "r10000000000000000",
        "ret",
        "Cycles",
        "load-misses",
        "LLC-",
        "LLC-load",
        "cpu/event=1",
        "cpu",
        "events",
        "../type",
    ] {
        assert_eq!(described.event(name), Err(NoEvent::Unknown), "{name}");
    }
    for name in [
        "cpu-clock",
        "minor-faults",
        "sched:sched_switch",
        "syscalls:x:y",
    ] {
        assert_eq!(described.event(name), Err(NoEvent::OfKernel), "{name}");
    }
    for modifier in ["k", "pp", "uk", ""] {
        let name = format!("instructions:{modifier}");
        let expected = NoEvent::Modifier(modifier.to_owned());
        assert_eq!(described.event(&name), Err(expected), "{name}");
    }
}
