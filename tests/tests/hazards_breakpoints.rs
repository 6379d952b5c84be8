//! Breakpoints of other tools in callers: while they are installed, and after their removal.

use ipath_tests::compile::program;
use ipath_tests::profile::{Profile, count};
use ipath_tests::session::Session;
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::time::Duration;

/// The numbers of calls of `leaf` by the caller's name: all calls, and those on incomplete paths.
fn by_caller(profile: &Profile) -> BTreeMap<&str, (u64, u64)> {
    let mut found = BTreeMap::new();
    for path in &profile.paths {
        let caller = path.stack.first().map(|&frame| &profile.frames[frame]);
        let name = caller.and_then(|frame| frame.function.as_deref());
        let (all, incomplete) = found.entry(name.unwrap_or("")).or_insert((0, 0));
        *all += count(&path.metrics);
        *incomplete += if path.complete {
            0
        } else {
            count(&path.metrics)
        };
    }
    found
}

/// A breakpoint on the call does not discard a caller's return address for the whole session.
#[test]
fn calls_under_breakpoints_are_looked_at_again() {
    const DIRECT: [&str; 2] = ["by_displacement", "framed"];
    const INDIRECT: [&str; 3] = ["by_register", "by_memory", "framed_by_register"];
    let mut target = Target::start(program("call_under_breakpoint.c"), [""; 0]);
    target = target.await_output("ready");
    let session = Session::attach(target.pid(), &["leaf"]);
    let limit = Duration::from_secs(60);
    target.until(limit, "some calls", |_| {
        session.snapshot().calls("leaf") > 500
    });
    target.signal(Signal::SIGUSR1);
    let mut target = target.await_output("gone");
    let before = session.snapshot();
    // The program may have begun one call in the meantime, but it makes no other call under a
    // breakpoint.
    let wanted = before.calls("leaf") + 1000;
    target.until(limit, "more calls", |_| {
        session.snapshot().calls("leaf") > wanted
    });
    let after = session.snapshot();
    let (before, after) = (by_caller(&before), by_caller(&after));
    for name in DIRECT.iter().chain(&INDIRECT) {
        let (was, is) = (before[name], after[name]);
        assert!(is.0 >= was.0 + 100, "{name}: {was:?}, {is:?}");
        assert_eq!(
            is.1, was.1,
            "{name}: incomplete since the breakpoint has gone"
        );
    }
    // The target of the branch shows that it is a call.
    for name in DIRECT {
        assert_eq!(after[name].1, 0, "{name}");
    }
    let profile = session.detach();
    profile.check_sums();
    target.signal(Signal::SIGTERM);
    let line = target.finish("ok calls ");
    assert!(!line.is_empty());
}
