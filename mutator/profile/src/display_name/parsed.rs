//! Names with a known structure.

use super::generated::Generated;
use super::parts::{Form, Parts};

/// A name of compiled code, or of code that was generated at run time.
pub(super) enum Parsed {
    Compiled(Parts),
    Generated(Generated),
}

impl Parsed {
    /// Parses a name. `None` if its structure is not known.
    pub(super) fn of(name: &str) -> Option<Self> {
        let generated = Generated::of(name).map(Self::Generated);
        generated.or_else(|| Parts::of(name).map(Self::Compiled))
    }

    /// Writes the name in one of the forms for a width.
    pub(super) fn write(&self, form: Form) -> String {
        match self {
            Self::Compiled(parts) => parts.write(form),
            Self::Generated(name) => name.shown(form),
        }
    }

    /// Writes the name in one of the forms that tell names apart.
    pub(super) fn telling(&self, form: Form) -> String {
        match self {
            Self::Compiled(parts) => parts.write(form),
            Self::Generated(name) => name.telling(form),
        }
    }

    /// See [`Parts::split`]. `None` for generated code.
    pub(super) fn split(&self, text: &str, forms: &[Form]) -> Option<(String, String)> {
        match self {
            Self::Compiled(parts) => parts.split(text, forms),
            Self::Generated(_) => None,
        }
    }

    /// The function without namespaces, types and template arguments.
    pub(super) fn method(&self) -> String {
        match self {
            Self::Compiled(parts) => parts.method(),
            Self::Generated(name) => name.function().to_owned(),
        }
    }

    /// The function without namespaces and classes, with its template arguments as `<...>`.
    pub(super) fn last(&self) -> String {
        match self {
            Self::Compiled(parts) => parts.last(),
            Self::Generated(name) => name.function().to_owned(),
        }
    }

    /// True if the name is shortened even if there is room for all of it.
    pub(super) fn is_always_shortened(&self) -> bool {
        match self {
            Self::Compiled(parts) => parts.is_clone(),
            Self::Generated(_) => true,
        }
    }
}
