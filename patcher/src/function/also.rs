//! One body under several names: identical code folded by the linker, merged by the compiler, or
//! aliased in the source.

use std::collections::BTreeSet;

use super::demangle::demangle;
use super::names::base_and_clone;

/// The other names of a function, demangled.
///
/// Names that differ only in spelling are left out: the constructors of a complete object and of a
/// base, or `__libc_malloc` for `malloc`.
pub fn also_called(linkage: &str, aliases: &[String]) -> Vec<String> {
    let own = demangle(linkage);
    let mut known = BTreeSet::from([plain(&own).to_owned()]);
    let names = aliases.iter().map(|alias| demangle(alias));
    names
        .filter(|name| known.insert(plain(name).to_owned()))
        .collect()
}

/// A name without the affixes that libraries and compilers add for an internal alias.
fn plain(name: &str) -> &str {
    const PREFIXES: [&str; 4] = ["libc_", "GI_", "new_", "libc"];
    let (name, _) = base_and_clone(name);
    let mut rest = name.trim_start_matches('_');
    while let Some(shorter) = PREFIXES.iter().find_map(|prefix| rest.strip_prefix(prefix)) {
        rest = shorter.trim_start_matches('_');
    }
    if rest.is_empty() { name } else { rest }
}

#[cfg(test)]
mod tests {
    use super::also_called;

    fn also(linkage: &str, aliases: &[&str]) -> Vec<String> {
        let aliases: Vec<String> = aliases.iter().map(|&a| a.to_owned()).collect();
        also_called(linkage, &aliases)
    }

    #[test]
    fn names_of_other_functions_are_told() {
        let folded = also("_Z5alphal", &["_Z4betal", "_ZN1C5gammaEl"]);
        assert_eq!(folded, ["beta(long)", "C::gamma(long)"]);
        assert_eq!(
            also("free", &["cfree", "_ZdlPv"]),
            ["cfree", "operator delete(void*)"]
        );
        assert_eq!(also("__libc", &["libc_"]), ["libc_"]);
    }

    #[test]
    fn other_spellings_of_a_name_are_not() {
        assert_eq!(also("_ZN1CC1Ev", &["_ZN1CC2Ev"]), [""; 0]);
        assert_eq!(
            also(
                "malloc",
                &["__libc_malloc", "__malloc", "__GI___libc_malloc"]
            ),
            [""; 0]
        );
        assert_eq!(also("f", &["f.localalias"]), [""; 0]);
        assert_eq!(also("a", &["b", "__b"]), ["b"]);
    }
}
