//! The positions of a process's threads, according to gdb.

use crate::command::Run;

/// The place of each thread, as `NAME` or `NAME + OFFSET`; empty if no symbol covers it.
///
/// # Panics
/// If gdb cannot attach.
pub fn stands(pid: u32) -> Vec<String> {
    let gdb = Run::new("gdb")
        .args(["-batch", "-q", "-nx", "-p", &pid.to_string()])
        .args(["-ex", "thread apply all -q info symbol $pc"])
        .run();
    let place = |line: &str| match line.split_once(" in section ") {
        Some((place, _)) => Some(place.to_owned()),
        None => line.starts_with("No symbol matches").then(String::new),
    };
    let found: Vec<_> = gdb.stdout.lines().filter_map(place).collect();
    assert!(!found.is_empty(), "{}", gdb.report());
    found
}
