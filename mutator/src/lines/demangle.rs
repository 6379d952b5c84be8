//! Linkage names back into what the programmer wrote.

use std::fmt::{self, Write};

/// The longest demangled name that is shown; templates can make a short symbol explode.
const MOST: usize = 16 << 10;

/// The C++ or Rust name behind `linkage` (Rust's without its hash), or `linkage` itself.
pub fn demangle(linkage: &str) -> String {
    rust(linkage)
        .or_else(|| cpp(linkage))
        .unwrap_or_else(|| linkage.to_owned())
}

fn rust(linkage: &str) -> Option<String> {
    let name = rustc_demangle::try_demangle(linkage).ok()?;
    let mut out = Bounded::default();
    write!(out, "{name:#}").ok()?;
    Some(out.0)
}

fn cpp(linkage: &str) -> Option<String> {
    if !linkage.starts_with("_Z") && !linkage.starts_with("_GLOBAL_") {
        return None;
    }
    let symbol = cpp_demangle::Symbol::new(linkage).ok()?;
    let mut out = Bounded::default();
    symbol
        .structured_demangle(&mut out, &cpp_demangle::DemangleOptions::default())
        .ok()?;
    Some(out.0)
}

/// Text that refuses to grow beyond [`MOST`] bytes.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > MOST {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_of_each_language_are_what_was_written() {
        for (linkage, name) in [
            ("main", "main"),
            ("_ZN3foo3barEi", "foo::bar(int)"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            (
                "_ZN4core3fmt5Write9write_str17h0123456789abcdefE",
                "core::fmt::Write::write_str",
            ),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("_Z", "_Z"),
            ("_ZNot_a_name", "_ZNot_a_name"),
            ("", ""),
        ] {
            assert_eq!(demangle(linkage), name);
        }
    }

    #[test]
    fn a_clone_keeps_its_suffix() {
        assert_eq!(
            demangle("_ZN3foo3barEi.constprop.0"),
            "foo::bar(int) [clone .constprop.0]"
        );
        assert_eq!(demangle("work.part.0"), "work.part.0");
    }

    #[test]
    fn a_name_that_explodes_stays_mangled() {
        // Each level names the one before twice: the text doubles with every eleven characters.
        let mut linkage = String::from("_Z1fI1aE");
        linkage.truncate(4);
        let mut arguments = String::from("1a");
        for _ in 0..40 {
            arguments = format!("1pI{arguments}S_E");
        }
        let linkage = format!("{linkage}{arguments}Ev");
        assert!(demangle(&linkage).len() <= super::MOST + linkage.len());
        let substitutions: String = (0..30)
            .map(|n| {
                let id = |n: u32| match n {
                    0 => "S_".to_owned(),
                    n => format!(
                        "S{}_",
                        char::from_digit(n - 1, 36).unwrap().to_ascii_uppercase()
                    ),
                };
                format!("PF{0}{0}E", id(n))
            })
            .collect();
        let linkage = format!("_Z1f1a{substitutions}");
        assert!(demangle(&linkage).len() <= super::MOST + linkage.len());
    }
}
