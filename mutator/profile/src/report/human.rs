//! Numbers for people: three significant digits and a unit.

use patcher::function::{demangle, is_coroutine_body, is_coroutine_part};

/// The units of times, with their length in nanoseconds.
const TIMES: &[(f64, &str)] = &[(1e0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")];

/// A duration of `ns` nanoseconds: `900 ns`, `1.20 ms`, `75.0 s`.
pub fn time(ns: i128) -> String {
    scaled(ns as f64, TIMES)
}

/// `value` in `unit`: as a time for `ns`, as a plain number for bytes and numbers without a unit,
/// else with a decimal prefix.
pub fn quantity(value: i128, unit: &str) -> String {
    match unit {
        "ns" => time(value),
        "" | "bytes" => whole(value),
        _ => number(value as f64),
    }
}

/// A value that is not an integer, such as a mean, in `unit`. `-` for `None`.
pub fn average(value: Option<f64>, unit: &str) -> String {
    match (value, unit) {
        (None, _) => "-".to_owned(),
        (Some(value), "ns") => scaled(value, TIMES),
        (Some(value), "" | "bytes") if value.abs() >= 999.5 => whole(value.round() as i128),
        (Some(value), _) => number(value),
    }
}

/// The rate of `n` events in `ns` nanoseconds, per second. `-` if `ns` is 0.
pub fn rate(n: u64, ns: u64) -> String {
    if ns == 0 {
        "-".to_owned()
    } else {
        number(n as f64 * 1e9 / ns as f64)
    }
}

/// `part` of `whole` in percent. `-` if `whole` is 0.
pub fn share(part: i128, whole: i128) -> String {
    if whole == 0 {
        "-".to_owned()
    } else {
        percent(part as f64 / whole as f64)
    }
}

/// `part` / `whole` like [`run_share`]; `-` if `whole` is 0.
pub fn of_run(part: i128, whole: i128) -> String {
    if whole > 0 {
        run_share(part as f64 / whole as f64)
    } else {
        share(part, whole)
    }
}

/// A share of the time of a run, in percent. Shares above 100 % mean that several threads ran at a
/// time. They are shown as the average number of threads: `3.60x`.
pub fn run_share(share: f64) -> String {
    // Shares that round to 100.0 % count as one thread.
    if share >= 1.0005 {
        times(share)
    } else {
        percent(share)
    }
}

/// A multiple with three significant digits: `3.60x`, `363x`.
pub fn times(value: f64) -> String {
    format!("{}x", three(value))
}

/// A share, from 0 to 1, in percent with one decimal.
pub fn percent(share: f64) -> String {
    format!("{:.1} %", 100.0 * share)
}

/// A share, from 0 to 1, in percent: `83 %`, `0.4 %`.
pub fn rounded(share: f64) -> String {
    match 100.0 * share {
        p if p < 9.95 => format!("{p:.1} %"),
        p => format!("{p:.0} %"),
    }
}

/// A ratio with two decimals.
pub fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

/// `1 call`, `2 calls`: `n` and the noun `what`, with an `s` unless `n` is 1.
pub fn count(n: u64, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// `1 process`, `2 processes`.
pub fn processes(n: u64) -> String {
    format!("{n} process{}", if n == 1 { "" } else { "es" })
}

/// `≥12.3 ms`: marks a quantity as a lower bound if `tail` of its calls left by a tail call,
/// because the part of the callee is missing. Arguments have no unit and are complete.
pub fn at_least(text: String, unit: &str, tail: u64) -> String {
    if tail > 0 && is_markable(unit) && text.starts_with(|c: char| c.is_ascii_digit()) {
        format!("≥{text}")
    } else {
        text
    }
}

/// True if a tail call leaves quantities of this unit incomplete. False for the units of arguments.
pub fn is_markable(unit: &str) -> bool {
    !matches!(unit, "" | "bytes")
}

/// `4 incomplete (0.4 %)`: `part` of `whole` calls are on incomplete paths. `None` if `part` is 0.
pub fn incomplete(part: u64, whole: u64) -> Option<String> {
    let share = || share(part.into(), whole.into());
    (part > 0).then(|| format!("{part} incomplete ({})", share()))
}

/// A number, with a decimal prefix if it is long: `12`, `1.50`, `1200`, `45.2 k`, `3.10 M`.
pub fn number(value: f64) -> String {
    if value.abs() < 10_000.0 {
        return digits(value);
    }
    scaled(
        value,
        &[(1e3, "k"), (1e6, "M"), (1e9, "G"), (1e12, "T"), (1e15, "P")],
    )
}

/// All digits of a number of up to 12 digits, with commas between the thousands. A longer number as
/// by [`number`].
fn whole(value: i128) -> String {
    const MAX_WHOLE: u128 = 1_000_000_000_000;
    if value.unsigned_abs() >= MAX_WHOLE {
        return number(value as f64);
    }
    let digits = value.unsigned_abs().to_string();
    let mut text = if value < 0 { "-" } else { "" }.to_owned();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `value` in the largest of the ascending units that leaves at least 1, with three digits.
fn scaled(value: f64, steps: &[(f64, &str)]) -> String {
    // A value that rounds up to the next unit is shown in that unit: 999.9 us is 1.00 ms, not 1000
    // us.
    let step = steps
        .iter()
        .rev()
        .find(|(factor, _)| value.abs() >= factor * 0.9995);
    let (factor, unit) = step.or(steps.first()).copied().unwrap_or((1.0, ""));
    let text = if factor == 1.0 {
        digits(value)
    } else {
        three(value / factor)
    };
    format!("{text} {unit}")
}

/// An integer with all digits (12 calls, 80 ns), other numbers with three significant digits.
fn digits(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        three(value)
    }
}

/// Three significant digits, or more if the integer part has more.
fn three(value: f64) -> String {
    match value.abs() {
        size if size < 9.995 => format!("{value:.2}"),
        size if size < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// The text for the other names of a function's code, which are demangled. `None` if `names` is
/// empty.
pub fn also(names: &[String]) -> Option<String> {
    const SHOWN: usize = 6;
    let (shown, more) = names.split_at(names.len().min(SHOWN));
    let more = match more.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let shown = shown.join(", ");
    (!names.is_empty())
        .then(|| format!("also called as {shown}{more}: calls by any of its names count"))
}

/// The copies of a function whose calls are not counted: separately called parts and copies by
/// linkage name, and inlined copies. `None` if there are none.
pub fn elsewhere<'n>(clones: impl Iterator<Item = &'n str>, inlined: u64) -> Option<String> {
    let copies = match inlined {
        0 => None,
        1 => Some("1 inlined copy".to_owned()),
        n => Some(format!("{n} inlined copies")),
    };
    let (parts, clones): (Vec<&str>, Vec<&str>) = clones.partition(|name| is_coroutine_part(name));
    let body = parts.into_iter().find(|name| is_coroutine_body(name));
    let body = body.map(|body| {
        let body = demangle(body);
        format!("a coroutine: its creations are counted; it runs in {body}")
    });
    let clones = clones.into_iter().map(demangle);
    let all: Vec<String> = copies.into_iter().chain(clones).collect();
    let others = if all.is_empty() {
        None
    } else {
        Some(format!(
            "not every call is counted: some go to {}",
            all.join(", ")
        ))
    };
    let said: Vec<String> = body.into_iter().chain(others).collect();
    (!said.is_empty()).then(|| said.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_take_the_unit_that_leaves_three_digits() {
        for (ns, text) in [
            (0, "0 ns"),
            (80, "80 ns"),
            (999, "999 ns"),
            (1_000, "1.00 us"),
            (1_234, "1.23 us"),
            (12_340, "12.3 us"),
            (999_900, "1.00 ms"),
            (1_200_000, "1.20 ms"),
            (5_000_000_000, "5.00 s"),
            (75_040_000_000, "75.0 s"),
            (7_200_400_000_000, "7200 s"),
            (-1_500, "-1.50 us"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn other_numbers_take_decimal_prefixes() {
        for (value, text) in [
            (0.0, "0"),
            (12.0, "12"),
            (1.5, "1.50"),
            (9_999.0, "9999"),
            (45_234.0, "45.2 k"),
            (3_100_000.0, "3.10 M"),
            (-12_000_000_000.0, "-12.0 G"),
        ] {
            assert_eq!(number(value), text);
        }
        assert_eq!(quantity(1_500_000, "cycles"), "1.50 M");
        assert_eq!(average(Some(2.5), "cycles"), "2.50");
        assert_eq!(average(Some(2.5), "ns"), "2.50 ns");
        assert_eq!(average(None, "ns"), "-");
        assert_eq!(rate(30, 2_000_000_000), "15");
        assert_eq!(rate(30, 0), "-");
        assert_eq!(share(1, 3), "33.3 %");
        assert_eq!(share(1, 0), "-");
    }

    #[test]
    fn values_are_shown_whole() {
        for (value, text) in [
            (0, "0"),
            (999, "999"),
            (1_000, "1,000"),
            (-65_536, "-65,536"),
            (999_999_999_999, "999,999,999,999"),
            (-1_000_000_000_000, "-1.00 T"),
            (i128::from(i64::MAX), "9223 P"),
        ] {
            assert_eq!(quantity(value, ""), text);
            assert_eq!(quantity(value, "bytes"), text);
        }
        for (value, text) in [
            (2.5, "2.50"),
            (999.4, "999"),
            (999.6, "1,000"),
            (-12_345.6, "-12,346"),
        ] {
            assert_eq!(average(Some(value), ""), text);
        }
    }
}
