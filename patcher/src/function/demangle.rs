//! Names as the source has them.

/// The name behind a C++ or Rust linkage name, the latter without its hash; any other unchanged.
pub fn demangle(linkage: &str) -> String {
    if let Ok(name) = rustc_demangle::try_demangle(linkage) {
        return format!("{name:#}");
    }
    if !linkage.starts_with("_Z") && !linkage.starts_with("__Z") {
        return linkage.to_owned();
    }
    // GCC's suffixes of clones are no part of the mangled name.
    let (mangled, suffix) = linkage.find('.').map_or((linkage, ""), |at| linkage.split_at(at));
    let demangled = cpp_demangle::Symbol::new(mangled).ok().and_then(|s| s.demangle().ok());
    demangled.map_or_else(|| linkage.to_owned(), |name| format!("{name}{suffix}"))
}

/// A demangled C++ name without its argument list and what follows it.
pub fn without_arguments(name: &str) -> &str {
    // `operator()(int)`: the brackets of the name itself are no argument list.
    let from = name.find("operator()").map_or(0, |at| at + "operator()".len());
    let mut depth = 0usize;
    for (at, byte) in name.bytes().enumerate().skip(from) {
        match byte {
            b'<' => depth += 1,
            b'>' if at > 0 && name.as_bytes()[at - 1] != b'-' => depth = depth.saturating_sub(1),
            b'(' if depth == 0 && !name[at..].starts_with("(anonymous") => {
                return name[..at].trim_end();
            }
            _ => {}
        }
    }
    name
}

#[cfg(test)]
mod tests {
    use super::{demangle, without_arguments};

    #[test]
    fn names_read_as_in_the_source() {
        assert_eq!(demangle("main"), "main");
        assert_eq!(demangle("_ZN2ns4workEiPKc"), "ns::work(int, char const*)");
        assert_eq!(demangle("_ZN2ns4workEi.constprop.0"), "ns::work(int).constprop.0");
        assert_eq!(demangle("_ZN4core3fmt5write17h0123456789abcdefE"), "core::fmt::write");
        assert_eq!(demangle("_Znope"), "_Znope");
    }

    #[test]
    fn arguments_are_cut_off() {
        let cases = [
            ("ns::work(int, char const*)", "ns::work"),
            ("core::fmt::write", "core::fmt::write"),
            ("f<void (*)(int)>(int)", "f<void (*)(int)>"),
            ("A::operator()(int) const", "A::operator()"),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ];
        for (name, expected) in cases {
            assert_eq!(without_arguments(name), expected);
        }
    }
}
