//! Profiles as metrics that a monitoring system scrapes, in OpenMetrics 1.0 (RFC
//! draft-ietf-opsawg-openmetrics-00) and in the Prometheus text format 0.0.4, for clients that do
//! not request OpenMetrics. The formats differ in the declaration of counters and in the end
//! marker.

use std::collections::BTreeMap;
use std::fmt::Write;

use patcher::select::Pattern;

use crate::profile::{Metric, Profile, unseen_counts};
use crate::report::Filter;

/// The text formats of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// OpenMetrics.
    OpenMetrics,
    /// The text format of Prometheus.
    Prometheus,
}

impl Format {
    /// The format that a client prefers, according to its `Accept` header (RFC 9110, 12.5.1).
    /// OpenMetrics only if the header names it.
    pub fn accepted(accept: &str) -> Self {
        let named = weight(accept, "1.0.0", &["application/openmetrics-text"]);
        let other = weight(accept, "0.0.4", &["text/plain", "text/*", "*/*"]);
        match named {
            Some(weight) if weight > 0.0 && weight >= other.unwrap_or(0.0) => Self::OpenMetrics,
            _ => Self::Prometheus,
        }
    }

    /// The media type of the format.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// The weight, from 0 to 1, of the first of `kinds` that the header names in this version or
/// without one. 0 means not acceptable. `None` if it names none.
fn weight(accept: &str, version: &str, kinds: &[&str]) -> Option<f64> {
    let is_other = |p: &str| {
        p.strip_prefix("version=")
            .is_some_and(|v| v.trim_matches('"') != version)
    };
    let of = |kind: &&str| {
        let mut ranges = accept
            .split(',')
            .map(|range| range.split(';').map(str::trim));
        let parameters = ranges.find_map(|mut range| {
            let is_it = range.next()?.eq_ignore_ascii_case(kind) && !range.clone().any(is_other);
            is_it.then_some(range)
        })?;
        let mut weights =
            parameters.filter_map(|p| p.strip_prefix("q=").or_else(|| p.strip_prefix("Q=")));
        Some(
            weights
                .next()
                .map_or(1.0, |weight| weight.parse().unwrap_or(0.0)),
        )
    };
    kinds.iter().find_map(of)
}

/// Upper bounds of the buckets, as powers of two of a metric's unit: from 32 ns to 275 s. They are
/// constant, because adding up buckets requires equal bounds.
const BUCKETS: std::ops::RangeInclusive<u8> = 5..=38;

/// The values of one metric for one set of labels.
#[derive(Default)]
struct Sums {
    /// The number of values in [2^k, 2^(k+1)), by k.
    buckets: BTreeMap<u8, u64>,
    /// The number of all values.
    values: u64,
    /// In the metric's unit.
    sum: i128,
}

/// The calls and metrics for one set of labels.
#[derive(Default)]
struct Series {
    calls: u64,
    /// By the metric's name.
    metrics: BTreeMap<String, Sums>,
}

/// The metrics of several processes as text: a series for each function, and one for each pattern
/// in `under` that its paths pass through. A path counts only for the first pattern that it passes
/// through, else for the series without a pattern.
pub fn text(profiles: &[Profile], under: &[Pattern], format: Format) -> String {
    let mut all: BTreeMap<String, Series> = BTreeMap::new();
    let mut metrics: BTreeMap<String, String> = BTreeMap::new();
    for profile in profiles {
        metrics.extend(histograms(profile).map(|m| (m.name.clone(), m.unit.clone())));
        add(&mut all, profile, under);
    }
    let mut out = String::new();
    let counter = |out: &mut String, name: &str, help: &str| {
        let declared = match format {
            Format::OpenMetrics => name.to_owned(),
            Format::Prometheus => format!("{name}_total"),
        };
        let _ = writeln!(out, "# HELP {declared} {help}\n# TYPE {declared} counter");
    };
    // Writing to a string does not fail.
    counter(&mut out, "ipath_calls", "Calls of the function.");
    for (labels, series) in &all {
        let _ = writeln!(out, "ipath_calls_total{{{labels}}} {}", series.calls);
    }
    for (metric, unit) in &metrics {
        let (name, one) = family(metric, unit);
        let _ = writeln!(
            out,
            "# HELP {name} Cost of the function's calls, by {metric}.\n# TYPE {name} histogram"
        );
        if let (Format::OpenMetrics, "ns") = (format, unit.as_str()) {
            let _ = writeln!(out, "# UNIT {name} seconds");
        }
        for (labels, series) in &all {
            if let Some(sums) = series.metrics.get(metric) {
                histogram(&mut out, (&name, labels), sums, one);
            }
        }
    }
    counter(
        &mut out,
        "ipath_losses",
        "Calls that were not recorded, or were recorded without their complete path.",
    );
    for profile in profiles {
        let process = process(profile);
        let losses = &profile.losses;
        for (kind, number) in [
            ("missed", losses.missed),
            ("overflow", losses.overflow),
            ("incomplete", losses.incomplete),
        ] {
            let _ = writeln!(
                out,
                "ipath_losses_total{{{process},kind=\"{kind}\"}} {number}"
            );
        }
    }
    counter(
        &mut out,
        "ipath_unseen",
        "Known gaps of the session, by kind.",
    );
    for profile in profiles {
        let process = process(profile);
        for (kind, number) in unseen_counts(&profile.losses.unseen) {
            let _ = writeln!(
                out,
                "ipath_unseen_total{{{process},kind=\"{}\"}} {number}",
                escaped(kind)
            );
        }
    }
    if format == Format::OpenMetrics {
        out.push_str("# EOF\n");
    }
    out
}

/// The metrics with a histogram. Excludes values such as arguments, which may be negative.
fn histograms(profile: &Profile) -> impl Iterator<Item = &Metric> {
    let is_value = |name: &str| {
        let of =
            |p: &crate::profile::PathEntry| Some(p.metrics.timers.get(name)?.outermost.is_none());
        profile.paths.iter().find_map(of).unwrap_or(true)
    };
    profile.timers().filter(move |m| !is_value(&m.name))
}

/// The name of the metric's family, and the number of the metric's units in one unit of the family.
fn family(metric: &str, unit: &str) -> (String, f64) {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c } else { '_' };
    let name: String = metric.chars().map(letter).collect();
    match unit {
        "ns" => (format!("ipath_{name}_seconds"), 1e9),
        _ => (format!("ipath_{name}"), 1.0),
    }
}

/// Adds the paths of a profile to the series in `all`, by their labels as text.
fn add(all: &mut BTreeMap<String, Series>, profile: &Profile, under: &[Pattern]) {
    let mut below: Vec<Option<&str>> = vec![None; profile.paths.len()];
    for pattern in under.iter().rev() {
        let filter = Filter::of_paths_through(pattern);
        // Paths may pass through it later.
        for &path in filter.of(profile).iter().flat_map(|shown| shown.paths()) {
            below[path] = Some(pattern.text());
        }
    }
    let process = process(profile);
    let labels = |function: usize, under: Option<&str>| {
        let function = &profile.functions[function];
        let module = profile.module_name(Some(function.module));
        let mut text = format!(
            "{process},function=\"{}\",module=\"{}\"",
            escaped(&function.name),
            escaped(&module)
        );
        if let Some(under) = under {
            let _ = write!(text, ",under=\"{}\"", escaped(under));
        }
        text
    };
    // Functions without calls have a series, too.
    for function in 0..profile.functions.len() {
        all.entry(labels(function, None)).or_default();
    }
    let wanted: Vec<&str> = histograms(profile).map(|m| m.name.as_str()).collect();
    for (path, below) in profile.paths.iter().zip(below) {
        let series = all.entry(labels(path.function, below)).or_default();
        series.calls = series.calls.saturating_add(path.metrics.count);
        for (name, stats) in path.metrics.timers.iter() {
            if !wanted.contains(&name) {
                continue;
            }
            let sums = series.metrics.entry(name.to_owned()).or_default();
            sums.sum = sums.sum.saturating_add(stats.sum);
            sums.values = sums.values.saturating_add(stats.values());
            for &(k, n) in &stats.hist {
                let bucket = sums.buckets.entry(k).or_default();
                *bucket = bucket.saturating_add(n);
            }
        }
    }
}

/// The label of a process: its rank, or its id if it has no rank.
fn process(profile: &Profile) -> String {
    match profile.target.labels.get("rank") {
        Some(rank) => format!("rank=\"{}\"", escaped(rank)),
        None => format!("pid=\"{}\"", profile.target.pid),
    }
}

fn histogram(out: &mut String, (name, labels): (&str, &str), sums: &Sums, one: f64) {
    let mut below = 0_u64;
    let mut next = 0;
    for k in BUCKETS {
        let upto = sums.buckets.range(next..k);
        below = upto.fold(below, |sum, (_, &n)| sum.saturating_add(n));
        next = k;
        // Values are integers, and the upper bound is inclusive.
        let end = ((1_u64 << k) - 1) as f64 / one;
        let _ = writeln!(out, "{name}_bucket{{{labels},le=\"{end:e}\"}} {below}");
    }
    let (values, sum) = (sums.values, sums.sum as f64 / one);
    let _ = writeln!(
        out,
        "{name}_bucket{{{labels},le=\"+Inf\"}} {values}\n{name}_count{{{labels}}} {values}\n{name}_sum{{{labels}}} {sum:e}"
    );
}

/// Escapes the value of a label.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\\\").replace('"', "\\\"");
    text.replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Unseen;
    use crate::sample::sample;

    #[test]
    fn a_client_gets_what_it_prefers() {
        use Format::{OpenMetrics, Prometheus};
        for (accept, format) in [
            ("", Prometheus),
            ("*/*", Prometheus),
            ("application/*", Prometheus),
            // Prometheus 2.
            (
                "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                OpenMetrics,
            ),
            (
                "text/plain;q=0.5, Application/OpenMetrics-Text; version=1.0.0; q=0.75",
                OpenMetrics,
            ),
            (
                "application/openmetrics-text;q=0.1,text/plain;q=0.9",
                Prometheus,
            ),
            ("application/openmetrics-text;q=0.1,*/*", Prometheus),
            ("application/openmetrics-text;q=0,image/png", Prometheus),
            ("application/openmetrics-text;q=x", Prometheus),
            ("application/openmetrics-text;version=2.0.0", Prometheus),
            (
                "application/openmetrics-text;version=2.0.0,application/openmetrics-text;version=\"1.0.0\";q=0.6,text/plain;version=0.0.4;q=0.5",
                OpenMetrics,
            ),
            ("application/openmetrics-text-2", Prometheus),
        ] {
            assert_eq!(Format::accepted(accept), format, "{accept}");
        }
    }

    #[test]
    fn both_formats_have_the_same_series() {
        let profile = sample();
        let under = [Pattern::parse("main").unwrap()];
        let texts = [Format::OpenMetrics, Format::Prometheus]
            .map(|format| text(std::slice::from_ref(&profile), &under, format));
        let series = |text: &str| -> Vec<String> {
            let lines = text.lines().filter(|l| !l.starts_with('#'));
            lines.map(str::to_owned).collect()
        };
        assert_eq!(series(&texts[0]), series(&texts[1]));
        assert!(texts[0].ends_with("# EOF\n"));
        assert!(
            texts[0].contains("# TYPE ipath_calls counter"),
            "{}",
            texts[0]
        );
        assert!(texts[1].contains("# TYPE ipath_calls_total counter"));
        let calls = series(&texts[0]);
        let calls = calls.iter().filter(|l| l.starts_with("ipath_calls_total"));
        let number = |l: &String| l.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        assert_eq!(calls.map(number).sum::<u64>(), profile.calls());
        assert!(texts[0].contains("under=\"main\""), "{}", texts[0]);
    }

    #[test]
    fn what_was_not_seen_has_a_series_for_each_kind() {
        let mut profile = sample();
        let unseen = &mut profile.losses.unseen;
        unseen.clear();
        Unseen::LetGo.count(unseen, 3);
        unseen.insert("of-another-build".to_owned(), 2);
        let text = text(&[profile], &[], Format::OpenMetrics);
        let series = text
            .lines()
            .filter(|l| l.starts_with("ipath_unseen_total{"));
        let with = |end: &str| series.clone().filter(|l| l.ends_with(end)).count();
        assert_eq!(with(",kind=\"let-go\"} 3"), 1, "{text}");
        assert_eq!(with(",kind=\"of-another-build\"} 2"), 1, "{text}");
        // A counter that appears with its first increase would hide that increase.
        assert_eq!(with("} 0"), 9, "{text}");
    }

    #[test]
    fn buckets_add_up_to_the_count() {
        let mut out = String::new();
        let sums = Sums {
            buckets: BTreeMap::from([(0, 1), (5, 2), (63, 4)]),
            values: 7,
            sum: 1 << 40,
        };
        histogram(&mut out, ("f", "a=\"b\""), &sums, 1.0);
        assert!(
            out.starts_with("f_bucket{a=\"b\",le=\"3.1e1\"} 1\n"),
            "{out}"
        );
        assert!(out.contains("le=\"6.3e1\"} 3\n"), "{out}");
        assert!(
            out.contains("le=\"+Inf\"} 7\nf_count{a=\"b\"} 7\n"),
            "{out}"
        );
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}
