//! Parsers for the values of arguments.

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::push::label_name;

/// Splits patterns at commas. A comma inside brackets, in a regular expression or after `operator`
/// belongs to a pattern. Text with unbalanced brackets is one pattern.
pub(super) fn patterns(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut depth = 0_usize;
    let mut in_regex = false;
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let part = parts.last_mut().expect("never empty");
        let is_operator = part.ends_with("operator") || part.ends_with("operator<");
        match c {
            '\\' if in_regex => {
                part.push(c);
                part.extend(chars.next());
                continue;
            }
            '/' if in_regex => in_regex = false,
            '/' if part.is_empty() || part.ends_with('!') => in_regex = true,
            _ if in_regex || is_operator => {}
            '<' | '(' | '[' | '{' => depth += 1,
            '>' if part.ends_with('-') => {}
            '>' | ')' | ']' | '}' => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return vec![text.to_owned()],
            },
            ',' if depth == 0 => {
                parts.push(String::new());
                continue;
            }
            _ => {}
        }
        part.push(c);
    }
    if depth == 0 && !in_regex {
        parts
    } else {
        vec![text.to_owned()]
    }
}

/// Parses `3`, or `0-3` for an inclusive range. An error for a reversed range or a rank of
/// `MAX_RANKS` or more.
pub(super) fn ranks(text: &str) -> Result<RangeInclusive<u32>, String> {
    /// Ranks are below this number, which is more than any machine has. Error messages list each
    /// missing rank, and the limit keeps them short.
    const MAX_RANKS: u32 = 1 << 16;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.parse(), last.parse()) {
        (Ok(first), Ok(last)) if first <= last && last < MAX_RANKS => Ok(first..=last),
        _ => Err(format!(
            "ranks are numbers below {MAX_RANKS}, as in 0,3 or 0-3"
        )),
    }
}

/// Parses `127.0.0.1:9464`, `localhost:9464` or `[::1]:9464`. A name is resolved,
/// preferably to an IPv4 address. An error without a port, or if the name has no address.
pub(super) fn address(text: &str) -> Result<SocketAddr, String> {
    let all = text.to_socket_addrs();
    let all = all.map_err(|e| format!("{e}; an address has a port, as in 127.0.0.1:9464"))?;
    // A name may resolve to one address per family.
    let mut all: Vec<SocketAddr> = all.collect();
    all.sort_by_key(SocketAddr::is_ipv6);
    let first = all.first().copied();
    first.ok_or_else(|| "the name has no address".to_owned())
}

/// Parses a percentage above 0 and up to 100 (`5%` or `5`) as a fraction: 0.05.
pub(super) fn share(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent = number.parse().ok().filter(|p| *p > 0.0 && *p <= 100.0);
    percent
        .map(|percent: f64| percent / 100.0)
        .ok_or_else(|| "a share is a number above 0 and up to 100, with %".to_owned())
}

/// Parses a number above 0 with its unit: `500ms`, `2s`, `1m` or `1h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let parsed = units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.parse().ok()?;
        Duration::try_from_secs_f64(number * seconds).ok()
    });
    parsed
        .filter(|d| !d.is_zero())
        .ok_or_else(|| "a time is a number above 0 with ms, s, m or h".to_owned())
}

/// Parses `NAME=VALUE` to the name and the value. The value may be empty: this label is left out.
/// An error if the name has other characters than letters, digits and `_`, or begins with a digit.
pub(super) fn label(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a label is NAME=VALUE")?;
    if label_name(name) == name {
        Ok((name.to_owned(), value.to_owned()))
    } else {
        Err("a label has a name of letters, digits and _".to_owned())
    }
}

/// Parses a percentage of at least 0 (`5%`, `5` or `150%`) as a fraction: 0.05 or 1.5.
pub(super) fn growth(text: &str) -> Result<f64, String> {
    let number = text.strip_suffix('%').unwrap_or(text).trim();
    let percent = number
        .parse()
        .ok()
        .filter(|p: &f64| *p >= 0.0 && p.is_finite());
    percent
        .map(|percent| percent / 100.0)
        .ok_or_else(|| "a threshold is a number of at least 0, with %".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_commas_between_them() {
        let of = patterns;
        assert_eq!(of("a,b"), ["a", "b"]);
        assert_eq!(of("a"), ["a"]);
        assert_eq!(of("a,"), ["a", ""]);
        assert_eq!(of("libc.so*!malloc,free"), ["libc.so*!malloc", "free"]);
        for whole in [
            "std::map<int, long>::at",
            "f(int, long)",
            "a::operator,(b)",
            "a::operator<(b, c)",
            "a::operator<<(b, c)",
            "a::operator->(b, c)",
            "/a{1,2}/",
            "libm.so*!/s\\/,x/",
            "{lambda(int, int)#1}",
            "map<int,",
            "a>,b",
            "/a,b",
        ] {
            assert_eq!(of(whole), [whole]);
        }
        assert_eq!(of("f<a,b>,g(c,d)"), ["f<a,b>", "g(c,d)"]);
        assert_eq!(of("/a,b/,c"), ["/a,b/", "c"]);
    }

    #[test]
    fn shares_are_percentages_up_to_100() {
        assert_eq!(share("5%"), Ok(0.05));
        assert_eq!(share("0.5"), Ok(0.005));
        for bad in ["", "%", "0%", "-1%", "101%", "NaN%", "inf"] {
            assert!(share(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn labels_are_split_at_the_first_equals_sign() {
        let of = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(label("a_1=x=y"), of("a_1", "x=y"));
        assert_eq!(label("host="), of("host", ""));
        for bad in ["", "a", "=x", "1=x", "a-b=x", "__name__=x"] {
            assert!(label(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ranks_are_numbers_and_ranges() {
        assert_eq!(ranks("3"), Ok(3..=3));
        assert_eq!(ranks("0-3"), Ok(0..=3));
        for bad in ["", "-", "3-", "-3", "3-0", "0-4294967295", "0..3", "a"] {
            assert!(ranks(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_have_a_port() {
        let is = |text: &str, number: &str| address(text) == Ok(number.parse().expect("one"));
        assert!(is("127.0.0.1:0", "127.0.0.1:0"));
        assert!(is("[::1]:9464", "[::1]:9464"));
        assert!(is("localhost:9464", "127.0.0.1:9464"));
        for bad in [
            "",
            "9464",
            "localhost",
            "127.0.0.1",
            "127.0.0.1:x",
            "127.0.0.1:70000",
        ] {
            assert!(address(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn durations_are_positive_numbers_with_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(duration("1m"), Ok(Duration::from_secs(60)));
        for bad in ["", "5", "s", "-1s", "0s", "1d", "NaNs", "infs"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
