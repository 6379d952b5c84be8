//! What compilers append to linkage names.

use crate::image::c_str;

/// The name that `bytes` begins with, without its symbol version; "" where it is no text.
pub(super) fn name_in(bytes: &[u8]) -> &str {
    let name = c_str(bytes).unwrap_or("");
    match name.split_once('@') {
        Some((name, _version)) => name,
        None => name,
    }
}

/// A name in the part before a clone's suffix and the suffix without its first dot: for
/// `foo.isra.0.constprop.1` these are `foo` and `isra.0.constprop.1`.
pub(super) fn base_and_clone(name: &str) -> (&str, Option<&str>) {
    // GCC's function cloning and link-time optimization; ThinLTO's promotion of statics; clang's
    // -funique-internal-linkage-names.
    const NUMBERED: [&str; 6] = [
        ".part.",
        ".constprop.",
        ".isra.",
        ".lto_priv.",
        ".llvm.",
        ".__uniq.",
    ];
    const PLAIN: &str = ".localalias";
    let followed = |mark: &str| {
        // Go's names have dots of their own.
        let numbered = |&(at, _): &(usize, &str)| {
            name[at + mark.len()..].starts_with(|c: char| c.is_ascii_digit())
        };
        name.match_indices(mark).find(numbered).map(|(at, _)| at)
    };
    let first = NUMBERED
        .iter()
        .filter_map(|mark| followed(mark))
        .chain(name.find(PLAIN))
        .min();
    match first.filter(|&at| at > 0).map(|at| name.split_at(at)) {
        Some((base, clone)) => (base, clone.get(1..)),
        None => (name, None),
    }
}

/// `foo` for the names of its split-off parts: `foo.cold` (GCC, LLVM), `foo.cold.3` (GCC 8) and
/// `foo.warm` (BOLT).
pub(super) fn owner_of_part(name: &str) -> Option<&str> {
    let unnumbered = match name.rsplit_once('.') {
        Some((rest, number)) if is_number(number) => rest,
        _ => name,
    };
    let owner = unnumbered
        .strip_suffix(".cold")
        .or_else(|| unnumbered.strip_suffix(".warm"));
    owner.filter(|o| !o.is_empty())
}

/// Whether the name is `foo.cold.3`: of a part, or of a function that LLVM made of one.
pub(super) fn is_numbered(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, number)| is_number(number))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{base_and_clone, name_in, owner_of_part};

    #[test]
    fn clones() {
        for (name, base, clone) in [
            ("foo", "foo", None),
            ("foo.constprop.0", "foo", Some("constprop.0")),
            ("foo.isra.0.constprop.1", "foo", Some("isra.0.constprop.1")),
            ("foo.part.0", "foo", Some("part.0")),
            ("foo.lto_priv.0", "foo", Some("lto_priv.0")),
            ("foo.llvm.1234", "foo", Some("llvm.1234")),
            ("main.part.Of", "main.part.Of", None),
            ("main.part.Of.part.2", "main.part.Of", Some("part.2")),
            (".part.0", ".part.0", None),
        ] {
            assert_eq!(base_and_clone(name), (base, clone), "{name}");
        }
    }

    #[test]
    fn parts() {
        for (name, owner) in [
            ("foo.cold", Some("foo")),
            ("foo.cold.12", Some("foo")),
            ("foo.warm", Some("foo")),
            ("foo.part.0.cold", Some("foo.part.0")),
            ("foo.cold.cold", Some("foo.cold")),
            ("foo.cold.x", None),
            ("foo.colder", None),
            ("foo.12", None),
            (".cold", None),
            ("cold", None),
        ] {
            assert_eq!(owner_of_part(name), owner, "{name}");
        }
    }

    #[test]
    fn versions_are_cut_off() {
        assert_eq!(name_in(b"memcpy@@GLIBC_2.14\0"), "memcpy");
        assert_eq!(name_in(b"memcpy"), "");
        assert_eq!(name_in(b""), "");
        assert_eq!(name_in(b"\xff\xfe\0"), "");
    }
}
