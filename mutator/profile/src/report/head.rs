//! The head of a report: the subject, time and cost of the measurement.

use super::human;
use crate::profile::{self, Metric, Overhead, Profile, Session, off_cpu, printable};
use std::io::{self, Write};

/// Writes the head, with the notes and a warning if the profile is inconsistent.
pub(super) fn write(profile: &Profile, out: &mut impl Write) -> io::Result<()> {
    let Profile {
        target,
        session,
        metrics,
        ..
    } = profile;
    if !profile.processes.is_empty() {
        let processes = human::processes(profile.processes.len() as u64);
        match profile.processes.len() {
            1 => writeln!(out, "{processes} as one")?,
            _ => writeln!(
                out,
                "{processes} as one; `of run` is the share of the time of all of them"
            )?,
        }
    }
    let (program, args) = profile::program(&target.exe, &target.args);
    let args = args.iter().map(|a| format!(" {}", printable(a)));
    writeln!(out, "{}{}", printable(&program), args.collect::<String>())?;
    let is_one = profile.processes.is_empty() || profile.is_of_tree();
    let pid = is_one.then(|| format!("pid {} ", target.pid));
    write!(
        out,
        "{}on {}, measured for {}",
        pid.unwrap_or_default(),
        printable(&target.host),
        elapsed(profile)
    )?;
    if let Some(cpu) = session.cpu_ns {
        write!(out, ", {} of CPU time", human::time(cpu.into()))?;
    }
    for (key, value) in &target.labels {
        write!(out, ", {} {}", printable(key), printable(value))?;
    }
    if let Some(state) = &target.state {
        write!(out, ", {}", printable(state))?;
    }
    let metrics: Vec<_> = metrics.iter().map(metric).collect();
    writeln!(out, "\nmetrics: {}", metrics.join(", "))?;
    stops(session, out)?;
    if let Some(overhead) = &session.overhead {
        cost(session, overhead, out)?;
        if overhead.corrected && !profile.inside.is_empty() && profile.timers().next().is_some() {
            writeln!(out, "  they include the cost of counting inside functions")?;
        }
    }
    if let Some(heavy) = profile.heavy() {
        writeln!(
            out,
            "warning: measuring is expensive: {}",
            printable(&heavy)
        )?;
    }
    for note in profile.said() {
        writeln!(out, "note: {}", printable(&note))?;
    }
    if let Err(wrong) = profile.check() {
        let wrong = wrong.to_string();
        let wrong = printable(&wrong);
        writeln!(out, "warning: this profile contradicts itself: {wrong}")?;
    }
    Ok(())
}

/// The time measured, and the times of processes that were measured for a shorter time, as text.
pub(crate) fn elapsed(profile: &Profile) -> String {
    /// A process counts as shorter if the difference is at least 1 / `PART` of the whole. Sessions
    /// begin one after the other.
    const PART: u64 = 20;
    let whole = profile.session.elapsed_ns;
    let less = whole.saturating_sub(whole / PART);
    let shorter = || profile.processes.iter().filter(|p| p.elapsed_ns < less);
    let time = |ns: u64| human::time(ns.into());
    let of_shorter = || shorter().map(|process| process.elapsed_ns);
    let (least, most) = (of_shorter().min(), of_shorter().max());
    let (Some(one), Some(least), Some(most)) = (shorter().next(), least, most) else {
        return time(whole);
    };
    let which = match shorter().count() {
        1 => format!("pid {}", one.pid),
        n => format!(
            "{n} of the {}",
            human::processes(profile.processes.len() as u64)
        ),
    };
    let times = if time(least) == time(most) {
        time(least)
    } else {
        format!("{} to {}", time(least), time(most))
    };
    format!("{} ({which} for {times})", time(whole))
}

fn metric(metric: &Metric) -> String {
    let mut text = printable(off_cpu::heading(&metric.name)).into_owned();
    if text != metric.name {
        text.push_str(&format!(" ({})", printable(&metric.name)));
    }
    if metric.unit == "bytes" {
        text.push_str(" (bytes)");
    }
    if let Some(since) = metric.since_ns {
        text.push_str(&format!(" (from {} on)", human::time(since.into())));
    }
    text
}

fn stops(session: &Session, out: &mut impl Write) -> io::Result<()> {
    let Some(longest) = session.stops.iter().max_by_key(|stop| stop.ns) else {
        return Ok(());
    };
    let times = match session.stops.len() {
        1 => "once".to_owned(),
        n => format!("{n} times, the longest"),
    };
    let (time, why) = (human::time(longest.ns.into()), printable(&longest.why));
    writeln!(out, "stopped {times} for {time} ({why})")
}

/// The total cost of measuring, in nanoseconds, below which the runtime's calibration dominates if
/// the cost of a call is above [`USUAL`] (docs/internals/runtime-sources.md, "Cost of measuring").
const FEW: u64 = 100_000_000;
/// The highest usual cost of measuring a call, in nanoseconds.
const USUAL: f64 = 1000.0;

fn cost(session: &Session, overhead: &Overhead, out: &mut impl Write) -> io::Result<()> {
    let is_corrected = if overhead.corrected {
        "corrected"
    } else {
        "not corrected"
    };
    writeln!(
        out,
        "measuring: {} a call, {} in all, {}; times are {is_corrected}",
        human::average(Some(overhead.call_ns), "ns"),
        human::time(overhead.total_ns.into()),
        session.overhead_share().unwrap_or_default(),
    )?;
    if overhead.unreliable {
        writeln!(
            out,
            "  unreliable: threads lost their processor unseen; corrected times may be too short"
        )?;
    }
    if overhead.libraries_ns > 0 {
        let time = human::time(overhead.libraries_ns.into());
        writeln!(
            out,
            "  in addition, reading libraries that were loaded later took {time}"
        )?;
    }
    if overhead.total_ns < FEW && overhead.call_ns > USUAL {
        writeln!(
            out,
            "  with few calls, most of this is the runtime's calibration at its start"
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Process;

    #[test]
    fn processes_that_were_measured_for_less_are_told() {
        let mut profile = crate::sample::sample();
        profile.processes.clear();
        profile.session.elapsed_ns = 3_000_000_000;
        assert_eq!(elapsed(&profile), "3.00 s");
        let process = |(pid, ms): (u32, u64)| Process {
            pid,
            elapsed_ns: ms * 1_000_000,
            ..Process::default()
        };
        let mut told = |times: &[(u32, u64)]| {
            profile.processes = times.iter().copied().map(process).collect();
            elapsed(&profile)
        };
        assert_eq!(told(&[(7, 3000), (8, 2990)]), "3.00 s");
        assert_eq!(told(&[(7, 3000), (8, 1200)]), "3.00 s (pid 8 for 1.20 s)");
        assert_eq!(
            told(&[(7, 3000), (8, 1200), (9, 2000)]),
            "3.00 s (2 of the 3 processes for 1.20 s to 2.00 s)"
        );
    }
}
