//! Histograms of the values of a function, with a bar for each power of two.

use super::human;
use super::table::Table;
use crate::profile::{Distribution, Metric, TimerStats, Total, off_cpu, printable};
use std::io::{self, Write};

/// The length of the longest bar in terminal columns.
const WIDTH: u64 = 40;
/// The most empty buckets that are shown between two others. Longer runs are left out.
const GAP: usize = 3;

/// Writes the histogram of each metric that `total` has.
pub(super) fn write(metrics: &[&Metric], total: &Total, out: &mut impl Write) -> io::Result<()> {
    for metric in metrics {
        let stats = total.counts.timers.get(&metric.name);
        if let Some((stats, values)) = stats.zip(total.values.get(&metric.name)) {
            one(metric, stats, values, out)?;
        }
    }
    Ok(())
}

fn one(
    metric: &Metric,
    stats: &TimerStats,
    values: &Distribution,
    out: &mut impl Write,
) -> io::Result<()> {
    let name = printable(off_cpu::heading(&metric.name));
    let unit = metric.unit.as_str();
    let n = values.count();
    if n == 0 {
        return writeln!(out, "  {name}: no value yet");
    }
    let quantity = |value: i128| human::quantity(value, unit);
    write!(
        out,
        "  {name} of {}: min {}, mean {}, max {}",
        human::count(n, "call"),
        quantity(stats.min.into()),
        human::average(values.mean(), unit),
        quantity(stats.max.into()),
    )?;
    match values.deviation() {
        Some(deviation) => {
            let deviation = human::average(Some(deviation), unit);
            writeln!(out, ", deviation about {deviation}")?;
        }
        None => writeln!(out)?,
    }
    if !values.is_known() {
        return writeln!(
            out,
            "  no memory was left for the histogram of some paths\n"
        );
    }
    let quantiles = [(500, "p50"), (900, "p90"), (990, "p99"), (999, "p99.9")].map(|(of, name)| {
        let value = values.quantile(of).unwrap_or(0);
        format!("{name} {}", quantity(value))
    });
    writeln!(out, "  {}", quantiles.join(", "))?;

    let mut table = Table::new(&["from", "below", "calls", "share"]);
    let largest = values.buckets().iter().map(|b| b.1).max().unwrap_or(1);
    let mut next = None;
    for &(bucket, held) in values.buckets() {
        let mut at = next.unwrap_or(bucket);
        if at.up_to(bucket) > GAP {
            table.text("...".to_owned());
            at = bucket;
        }
        while at <= bucket {
            let held = if at == bucket { held } else { 0 };
            // A nonempty bucket has at least one character.
            let bar = (u128::from(held) * u128::from(WIDTH)).div_ceil(largest.into());
            let bar = "#".repeat(usize::try_from(bar).unwrap_or(0));
            let (from, below) = (quantity(at.least()), quantity(at.most() + 1));
            let share = human::share(held.into(), n.into());
            table.row(vec![from, below, held.to_string(), share], bar);
            at = at.next();
        }
        next = Some(at);
    }
    table.write(out)?;
    writeln!(out)
}
