//! The functions that a compiler generates for one C++20 coroutine. The function itself, the
//! *ramp*, creates the coroutine and returns at its first suspension. The body is another function.
//!
//! ```text
//!            body                                destroy
//! clang, and
//! gcc 15     RAMP.resume, RAMP.actor             RAMP.destroy, RAMP.cleanup
//! gcc        _Z...PZ...E17RAMP.Frame.actor       the same with .destroy
//! ```
//!
//! GCC names them like functions with an argument: a pointer to a type `RAMP.Frame`.

/// Suffixes and their meanings.
const PARTS: [(&str, &str); 4] = [
    (".resume", "coroutine body"),
    (".actor", "coroutine body"),
    (".destroy", "coroutine destroy"),
    (".cleanup", "coroutine cleanup"),
];
const BODY: &str = PARTS[0].1;
const FRAME: &str = ".Frame";

/// A part of a coroutine by its linkage name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'n> {
    /// The linkage name of the ramp.
    pub(super) ramp: &'n str,
    /// The displayed name of the part.
    pub(super) title: &'static str,
    /// The suffix of `linkage` after the part's: the marks of a clone.
    pub(super) rest: &'n str,
}

impl<'n> Part<'n> {
    /// The part that `linkage` names; `None` for any other name. Unmangled names contain dots of
    /// their own (Go).
    pub(super) fn of(linkage: &'n str) -> Option<Self> {
        if !linkage.starts_with("_Z") {
            return None;
        }
        let ends = |rest: &str| rest.is_empty() || rest.starts_with('.');
        let found = PARTS.iter().filter_map(|&(suffix, title)| {
            let (name, rest) = linkage.split_once(suffix)?;
            ends(rest).then_some((name, title, rest))
        });
        let (name, title, rest) = found.min_by_key(|(name, ..)| name.len())?;
        let ramp = match name.strip_suffix(FRAME) {
            Some(named) => ramp_of_frame(named)?,
            None => name,
        };
        (!ramp.contains('.')).then_some(Self { ramp, title, rest })
    }
}

/// The linkage name of the ramp in the name of a GCC coroutine part: `_Z1fl` from
/// `_Z1fPZ1flE11_Z1fl`. It is the identifier at the end, which follows its length and contains
/// [`FRAME`]. `None` for other names.
fn ramp_of_frame(name: &str) -> Option<&str> {
    let mut starts = name.match_indices("_Z").map(|(at, _)| at);
    let start = starts.find(|&at| {
        let length = name.len() - at + FRAME.len();
        name[..at].ends_with(&format!("E{length}"))
    })?;
    Some(&name[start..])
}

/// True for the linkage name of a coroutine's body, which its ramp does not call.
pub fn is_coroutine_body(linkage: &str) -> bool {
    Part::of(linkage).is_some_and(|part| part.title == BODY)
}

/// True for the linkage name of any part of a coroutine except the ramp.
pub fn is_coroutine_part(linkage: &str) -> bool {
    Part::of(linkage).is_some()
}

#[cfg(test)]
mod tests {
    use super::{Part, is_coroutine_body};
    use crate::function::{demangle, demangle_without_arguments};

    #[test]
    fn parts_of_all_compilers_have_one_spelling() {
        for (linkage, ramp, full, short) in [
            (
                "_Z1fPZ1flE11_Z1fl.Frame.actor",
                "_Z1fl",
                "f(long) [coroutine body]",
                "f [coroutine body]",
            ),
            (
                "_Z1fl.resume",
                "_Z1fl",
                "f(long) [coroutine body]",
                "f [coroutine body]",
            ),
            (
                "_Z1fl.actor",
                "_Z1fl",
                "f(long) [coroutine body]",
                "f [coroutine body]",
            ),
            (
                "_Z1fPZ1flE11_Z1fl.Frame.destroy",
                "_Z1fl",
                "f(long) [coroutine destroy]",
                "f [coroutine destroy]",
            ),
            (
                "_Z1fl.cleanup",
                "_Z1fl",
                "f(long) [coroutine cleanup]",
                "f [coroutine cleanup]",
            ),
            ("_ZN2ns1gEPZNS_1gEvE15_ZN2ns1gEv.Frame.actor", "", "", ""),
            (
                "_ZN2ns1gEPZNS_1gEvE16_ZN2ns1gEv.Frame.actor",
                "_ZN2ns1gEv",
                "ns::g() [coroutine body]",
                "ns::g [coroutine body]",
            ),
            (
                "_Z1fl.resume.constprop.0",
                "_Z1fl",
                "f(long) [coroutine body] [clone .constprop.0]",
                "f [coroutine body] [clone .constprop.0]",
            ),
        ] {
            let part = Part::of(linkage);
            // An identifier with a wrong length does not match.
            if ramp.is_empty() {
                assert_eq!(part, None, "{linkage}");
                continue;
            }
            assert_eq!(part.map(|part| part.ramp), Some(ramp), "{linkage}");
            assert_eq!(demangle(linkage), full);
            assert_eq!(demangle_without_arguments(linkage), short);
            assert_eq!(is_coroutine_body(linkage), full.contains("body"));
        }
    }

    #[test]
    fn other_names_are_none() {
        for name in [
            "_Z1fl",
            "main.resume",
            "f.actor",
            "_Z1fl.resumed",
            "_Z1fl.part.0",
            "_Z6resumev",
            ".resume",
        ] {
            assert_eq!(Part::of(name), None, "{name}");
        }
    }
}
