//! The counts inside functions in profiles.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use serde_json::Value;

use crate::profile::Profile;
use crate::stepped::Transfers;

/// The number that a value is.
///
/// # Panics
/// If it is none.
pub fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a number: {value}"))
}

/// The list in a field.
///
/// # Panics
/// If there is none.
pub fn list<'v>(value: &'v Value, field: &str) -> &'v Vec<Value> {
    value[field]
        .as_array()
        .unwrap_or_else(|| panic!("{field}: {value}"))
}

/// The entries of `inside` in a profile, by the name of their function.
pub fn insides(file: &Path) -> BTreeMap<String, Value> {
    let profile = Profile::read(file);
    let text = std::fs::read_to_string(file).expect("a profile");
    let json: Value = serde_json::from_str(&text).expect("JSON");
    let entries = list(&json, "inside").iter().map(|entry| {
        let function = &profile.functions[number(&entry["function"]) as usize];
        (function.name.clone(), entry.clone())
    });
    let found: BTreeMap<String, Value> = entries.collect();
    found.values().for_each(check_conservation);
    found
}

/// As many transfers arrive at each block as leave it, and its count is their number.
fn check_conservation(inside: &Value) {
    assert_eq!(inside["uncertain"], 0, "{inside}");
    for (index, block) in list(inside, "blocks").iter().enumerate() {
        let sum = |end: &str| -> u64 {
            let edges = list(inside, "edges").iter();
            let there = edges.filter(|edge| edge[end].as_u64() == Some(index as u64));
            there.map(|edge| number(&edge["count"])).sum()
        };
        let expected = number(&block["count"]);
        assert_eq!(
            [sum("to"), sum("from")],
            [expected; 2],
            "block {index} of {inside}"
        );
    }
}

/// The addresses of each block.
pub fn ranges(inside: &Value) -> Vec<Range<u64>> {
    let blocks = list(inside, "blocks").iter();
    let range = |b: &Value| number(&b["address"])..number(&b["address"]) + number(&b["size"]);
    blocks.map(range).collect()
}

/// Compares the edges between blocks with the transfers that were stepped through.
pub fn compare(name: &str, inside: &Value, stepped: &Transfers) {
    let ranges = ranges(inside);
    let mut expected: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for (&(from, to), &count) in stepped {
        let block = |at: u64| ranges.iter().position(|range| range.contains(&at));
        if let (Some(from_block), Some(to_block)) = (block(from), block(to))
            && ranges[to_block].start == to
            && (from_block != to_block || from >= to)
        {
            *expected.entry((from_block, to_block)).or_default() += count;
        }
    }
    let mut found: BTreeMap<(usize, usize), u64> = BTreeMap::new();
    for edge in list(inside, "edges") {
        if let (Some(from), Some(to)) = (edge["from"].as_u64(), edge["to"].as_u64())
            && number(&edge["count"]) > 0
        {
            *found.entry((from as usize, to as usize)).or_default() += number(&edge["count"]);
        }
    }
    assert_eq!(found, expected, "{name}: {inside}");
}
