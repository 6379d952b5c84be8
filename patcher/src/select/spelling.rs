//! A cheap filter before demangling: it rules out mangled names that cannot stand for the wanted
//! name.
//!
//! A mangled name spells every identifier letter by letter at its first mention. Everything that it
//! abbreviates is in a closed set: the words of the languages and a few names of `std`.

/// Words of demangled names that mangled names abbreviate.
const ABBREVIATED: [&str; 13] = [
    "anonymous namespace std abi clone coroutine body destroy cleanup",
    "operator co_await new delete alignof sizeof decltype noexcept throw typeid",
    "dynamic_cast static_cast const_cast reinterpret_cast",
    "unsigned signed char short int long float double bool void wchar_t complex imaginary",
    "char8_t char16_t char32_t _Float16 __int128 nullptr nullptr_t auto half",
    "decimal32 decimal64 decimal128 const volatile restrict true false",
    "allocator basic_string string char_traits",
    "basic_istream basic_ostream basic_iostream istream ostream iostream",
    "lambda unnamed type default block invocation function parm parameter pack this",
    "vtable VTT typeinfo name for guard variable reference temporary thunk virtual override offset",
    "construction init wrapper transaction global constructors destructors keyed literal",
    "closure shim impl dyn extern unsafe for as mut str usize isize",
    "i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f16 f32 f64 f128",
];

/// The text that a mangled name must contain; `None` accepts all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Spelling(Option<String>);

impl Spelling {
    /// The filter for exactly this name, with or without arguments.
    pub(super) fn of_name(name: &str) -> Self {
        let outside = outside_brackets(name);
        let abbreviated = |w: &str| {
            ABBREVIATED
                .iter()
                .any(|words| words.split(' ').any(|word| word == w))
        };
        let is_word = |w: &&str| !w.is_empty() && w.is_ascii() && !abbreviated(w);
        let last = outside.rsplit(|c| !is_letter(c)).find(is_word);
        Self(last.map(|word| {
            // An identifier follows its length, so that short ones are not found everywhere. But
            // Rust's legacy mangling counts `f<T>` as one identifier, and `f{{shim}}` too. The new
            // mangling puts `_` before an identifier that begins with `_`.
            if name.contains(['<', '{']) || word.starts_with('_') {
                word.to_owned()
            } else {
                format!("{}{word}", word.len())
            }
        }))
    }

    /// The filter for a glob: its longest piece within an identifier.
    pub(super) fn of_glob(glob: &str) -> Self {
        let pieces = glob
            .split(|c| !is_letter(c))
            .filter(|p| p.len() >= 3 && is_spelled(p));
        Self(pieces.max_by_key(|p| p.len()).map(str::to_owned))
    }

    /// True if `mangled` can stand for the wanted name.
    pub(super) fn can_be(&self, mangled: &str) -> bool {
        let spells = |word: &String| mangled.contains(word) || mangled.starts_with("_GLOBAL_");
        self.0.as_ref().is_none_or(spells)
    }
}

/// True if a mangled name spells out this piece of an identifier wherever it occurs.
fn is_spelled(piece: &str) -> bool {
    // Numbers are mangled in another base, or without `0x`.
    let digits = piece.trim_start_matches(['0', 'x']);
    let is_number = digits.bytes().all(|b| b.is_ascii_hexdigit());
    piece.is_ascii() && !is_number && !ABBREVIATED.iter().any(|words| words.contains(piece))
}

fn is_letter(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// `name` up to its arguments or suffixes, without text in angle brackets and braces.
fn outside_brackets(name: &str) -> String {
    let name = name
        .replace("(anonymous namespace)", "")
        .replace("operator()", "operator");
    let mut depth = 0usize;
    let mut outside = String::new();
    for c in name.chars() {
        match c {
            '<' | '{' => depth += 1,
            '>' | '}' => depth = depth.saturating_sub(1),
            '(' | '[' if depth == 0 => break,
            _ if depth == 0 => outside.push(c),
            _ => {}
        }
    }
    outside
}

#[cfg(test)]
mod tests {
    use super::{Spelling, is_letter};
    use crate::function::{demangle, demangle_without_arguments, is_mangled};
    use crate::image::Image;

    /// Checks that each name passes its own filter. Returns the number of names.
    fn holds(data: &[u8]) -> usize {
        let image = Image::parse(data).expect("an image");
        let names: Vec<&str> = image
            .functions()
            .names()
            .filter(|n| is_mangled(n))
            .collect();
        for linkage in &names {
            let (name, full) = (demangle_without_arguments(linkage), demangle(linkage));
            if name == **linkage {
                continue;
            }
            for name in [&name, &full] {
                assert!(Spelling::of_name(name).can_be(linkage), "{name} {linkage}");
            }
            for word in name.split(|c| !is_letter(c)) {
                for piece in [
                    Some(word),
                    word.get(1..),
                    word.get(..word.len().saturating_sub(1)),
                ] {
                    let Some(piece) = piece else { continue };
                    assert!(
                        Spelling::of_glob(piece).can_be(linkage),
                        "{piece} {name} {linkage}"
                    );
                }
            }
        }
        names.len()
    }

    #[test]
    fn names_of_this_program_are_spelled_in_it() {
        let this = std::env::current_exe()
            .and_then(std::fs::read)
            .expect("this program");
        assert!(holds(&this) > 1000);
    }

    #[test]
    fn names_of_the_cpp_library_are_spelled_in_it() {
        let data = std::fs::read("/lib/x86_64-linux-gnu/libstdc++.so.6").expect("the C++ library");
        assert!(holds(&data) > 1000);
    }

    #[test]
    fn other_names_are_ruled_out() {
        for (name, linkage) in [
            ("ns::work", "_ZN2ns5otherEi"),
            ("f", "_ZN2ns5offerEi"),
            ("std::vector<int>::push_back", "_ZNSt6vectorIiSaIiEE4sizeEv"),
        ] {
            assert!(!Spelling::of_name(name).can_be(linkage), "{name} {linkage}");
        }
        assert!(!Spelling::of_glob("ns::wor*").can_be("_ZN2ns5otherEi"));
    }
}
