//! Measures functions of a process from your own program, and prints their costliest paths.
//!
//! ```text
//! cargo build --release -p ipath-examples
//! cargo build --release -p ipath-session --example measure
//! target/release/wordcount &
//! target/release/examples/measure $! wordcount::normalise
//! ```
//!
//! `measure PID FUNCTION...` measures for 3 seconds. The PID may also be the file of a profile.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::Duration;

use ipath_profile::{PathEntry, Profile};
use ipath_session::{Options, attach};

/// The maximum number of paths printed.
const SHOWN: usize = 10;

fn main() -> ExitCode {
    match measure() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let subject = arguments.next().ok_or("usage: measure PID FUNCTION...")?;
    let profile = match subject.parse() {
        Ok(pid) => {
            let measured = attach(pid, &Options::of_functions(arguments))?;
            sleep(Duration::from_secs(3));
            measured.detach()?
        }
        Err(_) => Profile::load(Path::new(&subject))?,
    };
    profile.check()?;
    let mut paths: Vec<&PathEntry> = profile.paths.iter().collect();
    paths.sort_by_key(|path| std::cmp::Reverse(wall(path)));
    for path in paths.into_iter().take(SHOWN) {
        let name = |&frame: &usize| profile.frame_name(&profile.frames[frame]);
        let callers: Vec<String> = path.stack.iter().map(name).collect();
        println!(
            "{:>12} ns {:>9} calls  {} < {}",
            wall(path),
            path.metrics.count,
            profile.functions[path.function].name,
            callers.join(" < ")
        );
    }
    Ok(())
}

/// The sum of the path's times in nanoseconds, or 0 if they are not measured.
fn wall(path: &PathEntry) -> i128 {
    path.metrics.timers.get("wall").map_or(0, |wall| wall.sum)
}
