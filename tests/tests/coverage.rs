//! The share of Debian's libraries that `ipath list` can instrument.

use ipath_tests::command::Run;
use std::time::Duration;

/// The path of a library, as the loader finds it.
fn library(name: &str) -> String {
    let cache = Run::new("/sbin/ldconfig").arg("-p").run().expect(0);
    let line = cache.stdout.lines().find(|l| {
        let mut words = l.split_whitespace();
        words.next() == Some(name) && l.contains("x86-64")
    });
    let path = line.and_then(|l| l.split(" => ").nth(1));
    path.unwrap_or_else(|| panic!("{name} is not installed"))
        .to_owned()
}

/// Checks that at least 99.7 % of a library's functions can be instrumented at the entry and 99.2 %
/// also at every exit, and that all others have a reason.
fn assert_covered(file: &str) {
    let listed = Run::ipath(["list", file, "--json"])
        .limit(Duration::from_secs(120))
        .run()
        .expect(0)
        .json();
    let coverage = &listed["coverage"];
    let number = |key: &str| coverage[key].as_u64().expect(key);
    let (functions, entry, full) = (number("functions"), number("entry"), number("full"));
    let percent = |part: u64| 100.0 * part as f64 / functions as f64;
    println!(
        "{file}: {functions} functions, entry {:.2} %, entry and every exit {:.2} %, {}",
        percent(entry),
        percent(full),
        coverage["refused"]
    );
    assert!(functions > 500, "{file}: {functions} functions");
    assert!(
        percent(entry) >= 99.7,
        "{file}: entries {:.2} %",
        percent(entry)
    );
    assert!(percent(full) >= 99.2, "{file}: full {:.2} %", percent(full));
    for function in listed["functions"].as_array().expect("a list") {
        let refused = |tactic: &serde_json::Value| {
            let text = tactic.as_str().unwrap_or_default();
            text.is_empty() || text.starts_with("refused:")
        };
        let exits = function["exits"].as_array().expect("a list");
        let lacking = refused(&function["entry"]) || exits.iter().any(refused);
        let reason = function["refused"].as_str().unwrap_or_default();
        assert_eq!(lacking, !reason.is_empty(), "{function}");
    }
}

#[test]
fn coverage_of_libc() {
    assert_covered(&library("libc.so.6"));
}

#[test]
fn coverage_of_libm() {
    assert_covered(&library("libm.so.6"));
}

#[test]
fn coverage_of_libstdcxx() {
    assert_covered(&library("libstdc++.so.6"));
}

#[test]
fn coverage_of_libcrypto() {
    assert_covered(&library("libcrypto.so.3"));
}
