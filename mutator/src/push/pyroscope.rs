//! Pyroscope: `POST /ingest` as described in its "Server HTTP API".
//!
//! The body is the pprof data (`format=pprof`). The multipart form is only needed for information
//! that the profile lacks.

use super::Series;
use ipath_profile::Profile;

/// The path of the address.
pub(super) const PATH: &str = "/ingest";

/// The query, the media type and the body. Times are in nanoseconds, which the server distinguishes
/// from seconds by their number of digits.
pub(super) fn request(
    series: &Series,
    profile: &Profile,
    pprof: Vec<u8>,
) -> (Vec<(&'static str, String)>, &'static str, Vec<u8>) {
    let session = &profile.session;
    let until = session.started_unix_ns.saturating_add(session.elapsed_ns);
    let query = vec![
        ("name", name(series)),
        ("from", session.started_unix_ns.to_string()),
        ("until", until.to_string()),
        ("format", "pprof".to_owned()),
        ("spyName", "ipath".to_owned()),
    ];
    (query, "application/octet-stream", pprof)
}

/// A name such as `app{host=n1,rank=0}`. There is no quoting: a value ends at the next comma or
/// brace.
fn name(series: &Series) -> String {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "-./_".contains(c);
    let app: String = series
        .name
        .chars()
        .map(|c| if is_of_name(c) { c } else { '_' })
        .collect();
    let labels = series.labels.iter().map(|(name, value)| {
        let value = value.replace([',', '{', '}'], "_");
        format!("{name}={value}")
    });
    let labels: Vec<String> = labels.collect();
    format!("{app}{{{}}}", labels.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_nothing_that_would_end_them() {
        let labels = [("host", "n1"), ("exe", "/a,b}c")];
        let labels = labels.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let name_of = "c++filt {x}".to_owned();
        let series = Series {
            name: name_of,
            labels: labels.into(),
        };
        assert_eq!(name(&series), "c__filt__x_{exe=/a_b_c,host=n1}");
    }
}
