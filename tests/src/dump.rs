//! Dumps for failed tests: the state of the processes involved, in a report folder.

use crate::place::work_dir;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The ids of a process and of all its descendants, parents first. Contains `pid` even if there is
/// no such process.
pub fn family(pid: u32) -> Vec<u32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(child) = entry.file_name().to_string_lossy().parse::<u32>() else {
            continue;
        };
        let Ok(stat) = fs::read_to_string(format!("/proc/{child}/stat")) else {
            continue;
        };
        // the command's name in parentheses may itself contain spaces and parentheses
        let rest = stat.rsplit(") ").next().unwrap_or_default();
        if let Some(Ok(parent)) = rest.split(' ').nth(1).map(str::parse::<u32>) {
            parents.push((child, parent));
        }
    }
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(
            parents
                .iter()
                .filter(|(_, p)| *p == parent)
                .map(|(child, _)| *child),
        );
        next += 1;
    }
    found
}

/// Writes maps, status, wait channel and gdb's backtraces of each process to a folder whose name
/// starts with `name`. Returns the folder. Leaves out what cannot be read.
pub fn dump(name: &str, pids: &[u32]) -> PathBuf {
    let dir = work_dir("reports").join(format!("{name}-{}", pids.first().unwrap_or(&0)));
    let _ = fs::create_dir_all(&dir);
    for pid in pids {
        for file in ["maps", "status", "wchan", "cmdline", "syscall", "stack"] {
            if let Ok(text) = fs::read(format!("/proc/{pid}/{file}")) {
                let _ = fs::write(dir.join(format!("{pid}.{file}")), text);
            }
        }
        let _ = fs::write(dir.join(format!("{pid}.gdb")), backtraces(*pid));
    }
    dir
}

/// gdb's output: the backtraces of all threads of a process, or gdb's errors.
fn backtraces(pid: u32) -> Vec<u8> {
    let log = tempfile(pid);
    let Ok(file) = fs::File::create(&log) else {
        return Vec::new();
    };
    let Ok(errors) = file.try_clone() else {
        return Vec::new();
    };
    let started = Command::new("gdb")
        .args(["-p", &pid.to_string(), "-nx", "-batch"])
        .args(["-ex", "thread apply all bt 100"])
        .stdin(Stdio::null())
        .stdout(file)
        .stderr(errors)
        .spawn();
    if let Ok(mut gdb) = started {
        let end = Instant::now() + Duration::from_secs(20);
        while Instant::now() < end && matches!(gdb.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = gdb.kill();
        let _ = gdb.wait();
    }
    let text = fs::read(&log).unwrap_or_default();
    let _ = fs::remove_file(&log);
    text
}

fn tempfile(pid: u32) -> PathBuf {
    work_dir("reports").join(format!("gdb-{pid}-{}", std::process::id()))
}
