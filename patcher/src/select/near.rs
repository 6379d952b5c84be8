//! Names near one that was not found.

use crate::function::{demangle, without_arguments};

/// Longest names that are compared: the distance takes time by the square of it.
const LONGEST: usize = 64;

/// Up to `most` of the `names` that are nearest to `wanted`, nearest first.
pub(super) fn names<'n>(
    wanted: &str,
    names: impl Iterator<Item = &'n str>,
    most: usize,
) -> Vec<String> {
    let wanted = wanted.trim_matches('*').to_lowercase();
    if wanted.is_empty() || wanted.len() > LONGEST {
        return Vec::new();
    }
    let bound = 1 + wanted.len() / 4;
    let mut found: Vec<(usize, String)> = Vec::new();
    for linkage in names {
        let is_mangled = linkage.starts_with("_Z") || linkage.starts_with("_R");
        if is_mangled && !linkage.to_lowercase().contains(&wanted) {
            continue;
        }
        let demangled = demangle(linkage);
        let name = without_arguments(&demangled);
        let lower = name.to_lowercase();
        let last = lower.rsplit("::").next().unwrap_or(&lower);
        let score = if last == wanted {
            0
        } else if lower.contains(&wanted) {
            2 + (lower.len() - wanted.len()) / 4
        } else if last.len().abs_diff(wanted.len()) <= bound {
            1 + distance(&wanted, last)
        } else {
            continue;
        };
        if score <= 1 + bound + usize::from(lower.contains(&wanted)) * LONGEST {
            found.push((score, name.to_owned()));
        }
    }
    found.sort();
    found.dedup_by(|a, b| a.1 == b.1);
    found.into_iter().take(most).map(|(_, name)| name).collect()
}

/// Levenshtein distance in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = change.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}
