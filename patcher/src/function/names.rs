//! Suffixes that compilers append to linkage names.

use crate::elf::c_str;

/// The name at the start of `bytes`, without its symbol version; "" if it is not valid text.
pub(super) fn name_in(bytes: &[u8]) -> &str {
    let name = c_str(bytes).unwrap_or("");
    match name.split_once('@') {
        Some((name, _version)) => name,
        None => name,
    }
}

/// Splits a name into the part before a clone's suffix, and the suffix without its first dot.
/// `foo.isra.0.constprop.1` becomes `foo` and `isra.0.constprop.1`.
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
    let first = NUMBERED
        .iter()
        .filter_map(|mark| numbered(name, mark))
        .chain(name.find(PLAIN))
        .min();
    match first.filter(|&at| at > 0).map(|at| name.split_at(at)) {
        Some((base, clone)) => (base, clone.get(1..)),
        None => (name, None),
    }
}

/// The byte offset of the first `mark` in `name` that a number follows; `None` if there is none.
/// Go's names contain dots of their own.
fn numbered(name: &str, mark: &str) -> Option<usize> {
    let has_number = |&(at, _): &(usize, &str)| {
        name[at + mark.len()..].starts_with(|c: char| c.is_ascii_digit())
    };
    name.match_indices(mark).find(has_number).map(|(at, _)| at)
}

/// The name of the function from which GCC made the function `name`, to be called in its place.
/// `None` if the name has no such suffix.
///
/// It is `foo` for a part of it (`foo.part.0`), or for a version with fewer or known arguments
/// (`foo.isra.0`, `foo.constprop.0`).
pub(super) fn cloned(name: &str) -> Option<&str> {
    const MARKS: [&str; 3] = [".part.", ".isra.", ".constprop."];
    if owner_of_part(name).is_some() {
        return None;
    }
    let first = MARKS.iter().filter_map(|mark| numbered(name, mark)).min();
    first.filter(|&at| at > 0).map(|at| &name[..at])
}

/// The name of the function from which the part `name` was split off; `None` if it is no part. It
/// is `foo` for `foo.cold` (GCC, LLVM), `foo.cold.3` (GCC 8), `foo.warm` (BOLT), and `foo.__part.3`
/// and `foo.eh` (LLVM's basic block sections).
pub(super) fn owner_of_part(name: &str) -> Option<&str> {
    const BLOCK: &str = ".__part";
    const PLAIN: [&str; 3] = [".cold", ".warm", ".eh"];
    let (unnumbered, has_number) = match name.rsplit_once('.') {
        Some((rest, number)) if is_number(number) => (rest, true),
        _ => (name, false),
    };
    let block = unnumbered.strip_suffix(BLOCK).filter(|_| has_number);
    let mut plain = PLAIN
        .iter()
        .filter_map(|mark| unnumbered.strip_suffix(mark));
    let owner = block.or_else(|| plain.next());
    owner.filter(|o| !o.is_empty())
}

/// True if LLVM gives this name to a section of basic blocks. The source has no function of that
/// name.
pub fn is_of_blocks(name: &str) -> bool {
    let is_numbered = is_numbered(name) && name.contains(".__part.");
    (is_numbered || name.ends_with(".eh")) && owner_of_part(name).is_some()
}

/// True for names that end in a dot and a number. `foo.cold.3` is a part, or a function that LLVM
/// made from one.
pub(super) fn is_numbered(name: &str) -> bool {
    name.rsplit_once('.')
        .is_some_and(|(_, number)| is_number(number))
}

fn is_number(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::{base_and_clone, cloned, is_of_blocks, name_in, owner_of_part};

    #[test]
    fn clones_are_separated_from_their_base() {
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
    fn called_in_its_place() {
        for (name, of) in [
            ("foo.part.0", Some("foo")),
            ("foo.isra.0.constprop.1", Some("foo")),
            ("foo.lto_priv.0.part.1", Some("foo.lto_priv.0")),
            ("foo.part.0.cold", None),
            ("foo.lto_priv.0", None),
            ("foo.localalias", None),
            ("main.part.Of", None),
            ("foo", None),
        ] {
            assert_eq!(cloned(name), of, "{name}");
        }
    }

    #[test]
    fn parts_belong_to_their_owner() {
        for (name, owner) in [
            ("foo.cold", Some("foo")),
            ("foo.cold.12", Some("foo")),
            ("foo.warm", Some("foo")),
            ("foo.part.0.cold", Some("foo.part.0")),
            ("foo.cold.cold", Some("foo.cold")),
            ("foo.__part.12", Some("foo")),
            ("foo.part.0.__part.1", Some("foo.part.0")),
            ("foo.__part", None),
            ("foo.__part.x", None),
            ("foo.eh", Some("foo")),
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
    fn sections_of_blocks() {
        for (name, is_it) in [
            ("foo.__part.12", true),
            ("foo.eh", true),
            ("foo.cold", false),
            ("foo.cold.12", false),
            ("foo.part.0", false),
            (".eh", false),
        ] {
            assert_eq!(is_of_blocks(name), is_it, "{name}");
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
