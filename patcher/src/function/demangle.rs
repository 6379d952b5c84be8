//! Names as the source has them.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

/// The longest name that is demangled: a short linkage name can stand for an endless one.
const LONGEST: usize = 16 << 10;

/// The name behind a C++ or Rust linkage name, the latter without its hash; any other unchanged.
/// A clone keeps its mark: `ns::work(int) [clone .constprop.0]`.
pub fn demangle(linkage: &str) -> String {
    let name = rust(linkage).or_else(|| cpp(linkage, &DemangleOptions::new()));
    name.unwrap_or_else(|| linkage.to_owned())
}

/// As [`demangle`], without arguments and return type: `ns::work [clone .constprop.0]`.
pub fn demangle_without_arguments(linkage: &str) -> String {
    let options = DemangleOptions::new().no_params().no_return_type();
    let name = rust(linkage).or_else(|| cpp(linkage, &options));
    name.unwrap_or_else(|| linkage.to_owned())
}

/// As [`demangle`], without the return type that C++ puts before a template function's name.
pub(crate) fn demangle_without_return_type(linkage: &str) -> String {
    let options = DemangleOptions::new().no_return_type();
    rust(linkage).or_else(|| cpp(linkage, &options)).unwrap_or_else(|| linkage.to_owned())
}

/// Whether `linkage` may be more than the name it stands for.
pub(crate) fn is_mangled(linkage: &str) -> bool {
    linkage.starts_with("_Z") || linkage.starts_with("_R") || linkage.starts_with("_GLOBAL_")
}

fn rust(linkage: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(linkage).ok()?;
    let mut out = Bounded::default();
    write!(out, "{name:#}").ok()?;
    Some(out.0)
}

fn cpp(linkage: &str, options: &DemangleOptions) -> Option<String> {
    if !linkage.starts_with("_Z") && !linkage.starts_with("_GLOBAL_") {
        return None;
    }
    let mut out = Bounded::default();
    Symbol::new(linkage).ok()?.structured_demangle(&mut out, options).ok()?;
    Some(out.0)
}

/// Text that refuses to grow beyond [`LONGEST`] bytes.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{demangle, demangle_without_arguments, demangle_without_return_type};

    #[test]
    fn names_read_as_in_the_source() {
        for (linkage, full, short) in [
            ("main", "main", "main"),
            ("_ZN2ns4workEiPKc", "ns::work(int, char const*)", "ns::work"),
            (
                "_ZN2ns4workEi.constprop.0",
                "ns::work(int) [clone .constprop.0]",
                "ns::work [clone .constprop.0]",
            ),
            ("_ZN1AclEi", "A::operator()(int)", "A::operator()"),
            ("_ZNK1A3getEv", "A::get() const", "A::get"),
            ("_ZN12_GLOBAL__N_11fEi", "(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
            ("_Z1fIPFviEEvT_", "void f<void (*)(int)>(void (*)(int))", "f<void (*)(int)>"),
            ("_ZN1AC2Ev", "A::A()", "A::A"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write", "core::fmt::write"),
            ("_RNvCskwGfYPst2Cb_7mycrate3foo", "mycrate::foo", "mycrate::foo"),
            ("_Znope", "_Znope", "_Znope"),
            ("_R", "_R", "_R"),
        ] {
            assert_eq!(demangle(linkage), full);
            assert_eq!(demangle_without_arguments(linkage), short);
        }
        assert_eq!(demangle_without_return_type("_Z1fIiEvT_"), "f<int>(int)");
    }

    #[test]
    fn a_name_that_explodes_stays_mangled() {
        // Each argument is a function that takes the one before twice: 2^30 words in all.
        let id = |n: u32| match n {
            0 => "S_".to_owned(),
            n => format!("S{}_", char::from_digit(n - 1, 36).unwrap().to_ascii_uppercase()),
        };
        let arguments: String = (0..30).map(|n| format!("PF{0}{0}E", id(2 * n))).collect();
        let linkage = format!("_Z1f1a{arguments}");
        assert!(demangle(&linkage).len() <= super::LONGEST);
    }
}
