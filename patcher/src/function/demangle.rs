//! Demangling: names as in the source.

use std::fmt::{self, Write};

use cpp_demangle::{DemangleOptions, Symbol};

use super::coroutine::Part;

/// The maximum length of a demangled name, in bytes. A short linkage name can stand for an
/// extremely long one.
const LONGEST_NAME: usize = 16 << 10;

/// The demangled form of a C++ or Rust linkage name; for Rust without its hash.
///
/// Any other name is returned unchanged, and so is one whose demangled form is longer than 16 KiB.
/// A clone keeps its suffix, as in `ns::work(int) [clone .constprop.0]`. A part of a coroutine is
/// marked, as in `f(long) [coroutine body]`.
pub fn demangle(linkage: &str) -> String {
    if let Some(name) = of_part(linkage, demangle) {
        return name;
    }
    let name = rust(linkage).or_else(|| cpp(linkage, &DemangleOptions::new()));
    name.unwrap_or_else(|| linkage.to_owned())
}

/// The displayed name of a part of a coroutine; `name` demangles its ramp. `None` if `linkage` is
/// no such part.
fn of_part(linkage: &str, name: impl Fn(&str) -> String) -> Option<String> {
    let part = Part::of(linkage)?;
    let clone = match part.rest {
        "" => String::new(),
        rest => format!(" [clone {rest}]"),
    };
    Some(format!("{} [{}]{clone}", name(part.ramp), part.title))
}

/// Like [`demangle`], without arguments and return type: `ns::work [clone .constprop.0]`.
pub fn demangle_without_arguments(linkage: &str) -> String {
    if let Some(name) = of_part(linkage, demangle_without_arguments) {
        return name;
    }
    let options = DemangleOptions::new().no_params().no_return_type();
    let short = || {
        let name = cpp(linkage, &options)?;
        // Without arguments, the demangler also leaves out the clone's suffix.
        let clone = linkage
            .split_once('.')
            .map(|(_, suffix)| format!(" [clone .{suffix}]"));
        Some(name + clone.as_deref().unwrap_or_default())
    };
    rust(linkage)
        .or_else(short)
        .unwrap_or_else(|| linkage.to_owned())
}

/// Like [`demangle`], without the return type that C++ puts before the name of a template function.
pub(crate) fn demangle_without_return_type(linkage: &str) -> String {
    if let Some(name) = of_part(linkage, demangle_without_return_type) {
        return name;
    }
    let options = DemangleOptions::new().no_return_type();
    rust(linkage)
        .or_else(|| cpp(linkage, &options))
        .unwrap_or_else(|| linkage.to_owned())
}

/// True if `linkage` may differ from its demangled form.
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
    Symbol::new(linkage)
        .ok()?
        .structured_demangle(&mut out, options)
        .ok()?;
    Some(out.0)
}

/// Text that refuses to grow beyond [`LONGEST_NAME`] bytes.
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > LONGEST_NAME {
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
            (
                "_ZN12_GLOBAL__N_11fEi",
                "(anonymous namespace)::f(int)",
                "(anonymous namespace)::f",
            ),
            (
                "_Z1fIPFviEEvT_",
                "void f<void (*)(int)>(void (*)(int))",
                "f<void (*)(int)>",
            ),
            ("_ZN1AC2Ev", "A::A()", "A::A"),
            (
                "_ZN4core3fmt5write17h0123456789abcdefE",
                "core::fmt::write",
                "core::fmt::write",
            ),
            (
                "_RNvCskwGfYPst2Cb_7mycrate3foo",
                "mycrate::foo",
                "mycrate::foo",
            ),
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
        let id = |n: u32| match n.checked_sub(1).map(|n| (n / 36, n % 36)) {
            None => "S_".to_owned(),
            Some((0, low)) => format!("S{}_", digit(low)),
            Some((high, low)) => format!("S{}{}_", digit(high), digit(low)),
        };
        // Each argument is a function whose two parameters have the previous argument's type.
        let doubled = |times: u32| {
            let arguments = (0..times).map(|n| format!("PF{0}{0}E", id(2 * n)));
            format!("_Z1f1a{}", arguments.collect::<String>())
        };
        assert_eq!(
            demangle(&doubled(2)),
            "f(a, a (*)(a), a (*(*)(a (*)(a)))(a))"
        );
        let linkage = doubled(30);
        assert_eq!(demangle(&linkage), linkage);
    }

    fn digit(n: u32) -> char {
        char::from_digit(n, 36)
            .expect("less than 36")
            .to_ascii_uppercase()
    }
}
