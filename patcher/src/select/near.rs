//! Suggestions for a name that was not found.

use strsim::levenshtein;

use crate::function::{demangle_without_arguments, is_mangled};

/// The maximum length of names that are compared, in bytes. The time for a comparison is quadratic
/// in it.
const LONGEST_NAME: usize = 64;
/// The maximum number of names that are demangled.
const MOST_NAMES: usize = 20_000;

/// A name that the user may have meant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Near {
    /// The distance of the name from the pattern, usually the edit distance of their last
    /// components. 0 if only the case differs, or if the pattern lacks the path.
    pub distance: usize,
    /// The name, demangled without arguments.
    pub name: String,
    /// True if the last component of the name's path equals the pattern's.
    pub has_last: bool,
}

/// Keeps only names whose last component equals the pattern's, if there are any. The others merely
/// look similar.
pub fn with_last(near: &mut Vec<Near>) {
    if near.iter().any(|near| near.has_last) {
        near.retain(|near| near.has_last);
    }
}

/// The demangled names of up to `most` functions that are similar to `wanted`, the most similar
/// first, each once. `names` are the linkage names of all functions. Empty if none is similar, or
/// if `wanted` has more than 64 bytes or no last component.
pub(super) fn names<'n>(
    wanted: &str,
    names: impl Iterator<Item = &'n str>,
    most: usize,
) -> Vec<Near> {
    let wanted = wanted.split('(').next().unwrap_or(wanted);
    let wanted = without_templates(wanted.trim_matches(['*', '?'])).to_lowercase();
    let last = last_segment(&wanted);
    if last.is_empty() || wanted.len() > LONGEST_NAME {
        return Vec::new();
    }
    let bound = 1 + last.len() / 4;
    let is_near = |word: &str| {
        word.contains(last)
            || word.len().abs_diff(last.len()) <= bound && levenshtein(last, word) <= bound
    };
    // Linkage names contain the identifiers of the name. Demangling is worthwhile only if one is
    // near.
    let near = names.filter(|linkage| {
        let linkage = linkage.to_lowercase();
        if is_mangled_lowercase(&linkage) {
            // A substitution (`S7_`) also ends with digits, but these are not a length.
            linkage.contains(last) || identifiers(&linkage).any(&is_near)
        } else {
            is_near(&linkage)
        }
    });
    let mut found: Vec<Near> = near
        .take(MOST_NAMES)
        .filter_map(|linkage| {
            let name = if is_mangled(linkage) {
                demangle_without_arguments(linkage)
            } else {
                linkage.to_owned()
            };
            let lower = without_templates(&name).to_lowercase();
            Some(Near {
                distance: score(&wanted, &lower, bound)?,
                has_last: last_segment(original(&lower)) == last,
                name,
            })
        })
        .collect();
    found.sort();
    found.dedup();
    with_last(&mut found);
    found.truncate(most);
    found
}

/// The distance of `name` from `wanted`, as [`Near::distance`]; 0 if `wanted` only lacks the path.
/// `None` if the two are not similar: the edit distance of their last components exceeds `bound`,
/// and that of `name` does not contain that of `wanted`.
fn score(wanted: &str, name: &str, bound: usize) -> Option<usize> {
    let (wanted_last, last) = (last_segment(wanted), last_segment(name));
    let original = original(name);
    if last_segment(original) == wanted_last {
        let is_elsewhere = !original.ends_with(wanted);
        return Some(usize::from(is_elsewhere) + usize::from(original != name));
    }
    let is_short = last.len() <= LONGEST_NAME;
    let apart = is_short
        .then(|| levenshtein(wanted_last, last))
        .filter(|&d| d <= bound);
    // A clone, a variant, a part of a longer name.
    let longer = || {
        last.contains(wanted_last)
            .then(|| 2 + (last.len() - wanted_last.len()) / 4)
    };
    apart.map(|d| 1 + d).or_else(longer)
}

/// The name of the function from which the compiler made this one. It is `f` for `f.part.0` and for
/// `f [clone .isra.0]`.
fn original(name: &str) -> &str {
    let end = name.find(" [clone ").or_else(|| {
        let last = name.len() - last_segment(name).len();
        Some(last + name[last..].find('.').filter(|&at| at > 0)?)
    });
    &name[..end.unwrap_or(name.len())]
}

/// `name` without template arguments, which can contain paths of their own.
fn without_templates(name: &str) -> String {
    if name.matches('<').count() != name.matches('>').count() {
        // An operator.
        return name.to_owned();
    }
    let mut depth = 0_usize;
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '<' => depth += 1,
            '>' => depth = depth.saturating_sub(1),
            c if depth == 0 => out.push(c),
            _ => {}
        }
    }
    out
}

fn last_segment(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

fn is_mangled_lowercase(linkage: &str) -> bool {
    linkage.starts_with("_z") || linkage.starts_with("_r")
}

/// The identifiers in a mangled name. Each follows its length, as in C++'s and both of Rust's
/// manglings.
fn identifiers(linkage: &str) -> impl Iterator<Item = &str> {
    let mut rest = linkage;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find(|c: char| c.is_ascii_digit())?..];
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            let (len, after) = rest.split_at(digits);
            rest = after;
            let len = len.parse().ok().filter(|&len: &usize| len > 0);
            if let Some((word, after)) = len.and_then(|len| rest.split_at_checked(len)) {
                rest = after;
                return Some(word);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::names;

    #[test]
    fn near_names_are_found_in_every_mangling() {
        let all = [
            "compute",
            "compute.part.0",
            "unrelated",
            "_ZN2ns7computeEi",
            "_ZN2ns9unrelatedEi",
            "_ZN5crate7compute17h0123456789abcdefE",
            "_RNvCskwGfYPst2Cb_7mycrate7compute",
            "_ZN4shop4Cart3addEi.isra.0",
            "__fadd",
            "daddl",
        ];
        let near = |wanted: &str| -> Vec<String> {
            let near = names(wanted, all.into_iter(), 9).into_iter();
            near.map(|near| near.name).collect()
        };
        let expected = [
            "compute",
            "crate::compute",
            "mycrate::compute",
            "ns::compute",
            "compute.part.0",
        ];
        assert_eq!(near("compute"), expected);
        assert_eq!(near("compte"), expected[..4]);
        assert_eq!(near("ns::Comptue(int)")[..1], ["compute"]);
        assert_eq!(near("ns::compute")[0], "ns::compute");
        assert!(near("zzzzzzzz").is_empty());
        let substituted = ["_ZN3app5CacheISt6vectorIiSaIiEES3_S3_E14get_or_computeERKS3_"];
        let found = names("get_or_compute", substituted.into_iter(), 9);
        assert!(found[0].name.ends_with("::get_or_compute"), "{found:?}");
        assert_eq!(
            near("shop::Cart::add")[0],
            "shop::Cart::add [clone .isra.0]"
        );
        let far = |wanted: &str| names(wanted, all.into_iter(), 1)[0].distance;
        assert_eq!([far("Compute"), far("compute_"), far("pute")], [0, 2, 2]);
    }

    /// The arguments of a template can contain `::`.
    #[test]
    fn template_arguments_are_no_part_of_the_last_component() {
        let all = ["_ZN2ns8templateISsEEiT_", "_ZN2ns8templateIiEEiT_"];
        let expected = ["ns::template<int>", "ns::template<std::string>"];
        for wanted in [
            "ns::template",
            "template<...>",
            "ns::template<long>",
            "templat",
        ] {
            let near = names(wanted, all.into_iter(), 9).into_iter();
            let near: Vec<String> = near.map(|near| near.name).collect();
            assert_eq!(near, expected, "{wanted}");
        }
    }

    /// A user who types a complete name does not mean a longer one.
    #[test]
    fn names_that_only_look_alike_are_left_out_beside_one_that_is_right() {
        let all = [
            "_ZN4shop4Cart3addEi",
            "__fadd",
            "ladd",
            "_ZN4shop3oddEi",
            "add_all",
        ];
        let near = |wanted: &str| {
            let near = names(wanted, all.into_iter(), 9).into_iter();
            near.map(|near| near.name).collect::<Vec<String>>()
        };
        assert_eq!(near("Add"), ["shop::Cart::add"]);
        assert_eq!(near("shop::Basket::add"), ["shop::Cart::add"]);
        assert!(near("addl").len() > 1);
    }
}
