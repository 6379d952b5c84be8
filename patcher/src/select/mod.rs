//! Patterns that name functions.

mod glob;
mod near;

#[cfg(test)]
mod tests;

use std::fmt;

use regex::Regex;

use crate::addr::{Avma, Svma};
use crate::function::{Function, demangle, without_arguments};
use crate::image::Image;

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// Nothing in it.
    Empty,
    /// A regular expression that cannot be read.
    Regex {
        /// The expression.
        text: String,
        /// What is wrong with it.
        cause: String,
    },
    /// An address that is no hexadecimal number.
    Address {
        /// The text.
        text: String,
    },
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "an empty pattern"),
            Self::Regex { text, cause } => write!(f, "/{text}/: {cause}"),
            Self::Address { text } => write!(f, "{text}: not a hexadecimal address"),
        }
    }
}

impl std::error::Error for PatternError {}

#[derive(Clone, Debug)]
enum What {
    /// A linkage name, a demangled name without arguments, or a full demangled signature.
    Name(String),
    Glob(String),
    Regex(Regex),
    /// An address in a process, or in a file.
    Address(u64),
    /// An address of the file.
    Offset(u64),
}

/// A pattern as the command line takes it.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    module: Option<String>,
    what: What,
}

impl Pattern {
    /// Reads a pattern: `name`, `Class::method`, a demangled signature, a glob, `/regex/`,
    /// `module!pattern`, `0xADDR`, `module+0xOFFSET`.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (module, rest) = split_module(text);
        if rest.is_empty() {
            return Err(PatternError::Empty);
        }
        if module.is_none()
            && let Some((module, offset)) = rest.rsplit_once("+0x")
            && !module.is_empty()
            && let Ok(offset) = u64::from_str_radix(offset, 16)
        {
            let what = What::Offset(offset);
            return Ok(Self { text: text.to_owned(), module: Some(module.to_owned()), what });
        }
        let what = if let Some(digits) = rest.strip_prefix("0x") {
            let address = u64::from_str_radix(digits, 16)
                .map_err(|_| PatternError::Address { text: rest.to_owned() })?;
            if module.is_some() { What::Offset(address) } else { What::Address(address) }
        } else if let Some(inner) = rest.strip_prefix('/').and_then(|r| r.strip_suffix('/')) {
            let regex = Regex::new(inner).map_err(|e| PatternError::Regex {
                text: inner.to_owned(),
                cause: e.to_string().lines().last().unwrap_or_default().trim().to_owned(),
            })?;
            What::Regex(regex)
        } else if rest.contains(['*', '?']) && !rest.contains('(') && !rest.contains("operator*") {
            What::Glob(rest.to_owned())
        } else {
            What::Name(rest.to_owned())
        };
        Ok(Self { text: text.to_owned(), module: module.map(str::to_owned), what })
    }

    /// The text it was read from.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether functions of the module with this file name are meant.
    pub fn module_matches(&self, file_name: &str) -> bool {
        self.module.as_deref().is_none_or(|glob| glob::matches(glob, file_name))
    }

    /// Whether it names a module.
    pub fn has_module(&self) -> bool {
        self.module.is_some()
    }

    /// The address, where it is one.
    pub fn absolute_address(&self) -> Option<Avma> {
        match self.what {
            What::Address(address) => Some(Avma(address)),
            _ => None,
        }
    }

    /// Every function of `image` that matches, by address. A function found under an alias comes
    /// under that name. An address selects the function that contains it.
    pub fn select(&self, image: &Image<'_>) -> Vec<Function> {
        let table = image.functions();
        if let What::Address(at) | What::Offset(at) = self.what {
            let index = table.index_containing(Svma(at));
            return index.map(|i| table.function(i)).into_iter().collect();
        }
        let mut found: Vec<Function> = table
            .named(|linkage| self.matches(linkage))
            .into_iter()
            .map(|(index, name)| under_name(table.function(index), name))
            .collect();
        found.sort_by_key(|f| f.range.start);
        found
    }

    /// Whether the function at this address would be selected by [`Pattern::select`] with it.
    pub fn select_at(image: &Image<'_>, at: Svma) -> Option<Function> {
        image.functions().index_containing(at).map(|i| image.functions().function(i))
    }

    /// Names that the user may have meant.
    pub fn suggestions(&self, image: &Image<'_>, most: usize) -> Vec<String> {
        match &self.what {
            What::Name(name) | What::Glob(name) => near::names(name, image.functions().names(), most),
            _ => Vec::new(),
        }
    }

    fn matches(&self, linkage: &str) -> bool {
        match &self.what {
            What::Name(name) => linkage == name || (can_hold(linkage, name) && is_named(linkage, name)),
            What::Glob(pattern) => {
                glob::matches(pattern, linkage) || (is_mangled(linkage) && {
                    glob::matches(pattern, without_arguments(&demangle(linkage)))
                })
            }
            What::Regex(regex) => {
                regex.is_match(linkage) || (is_mangled(linkage) && {
                    regex.is_match(without_arguments(&demangle(linkage)))
                })
            }
            What::Address(_) | What::Offset(_) => false,
        }
    }
}

fn is_mangled(linkage: &str) -> bool {
    linkage.starts_with("_Z") || linkage.starts_with("_R")
}

/// Cheap: whether a mangled name can stand for `name` at all. Every identifier of a name stands
/// in its mangling letter by letter; demangling all names of a big library takes seconds.
fn can_hold(linkage: &str, name: &str) -> bool {
    if !is_mangled(linkage) {
        return false;
    }
    let head = without_arguments(name);
    let is_letter = |c: char| c.is_alphanumeric() || c == '_';
    let identifiers = head.split(|c| !is_letter(c)).filter(|i| !i.is_empty());
    match identifiers.filter(|i| *i != "operator").max_by_key(|i| i.len()) {
        // Substitutions shorten repeated parts, so only the longest identifier is looked for.
        Some(longest) => head.contains(['<', '{']) || linkage.contains(longest),
        None => true,
    }
}

fn is_named(linkage: &str, name: &str) -> bool {
    let demangled = demangle(linkage);
    demangled == name || without_arguments(&demangled) == name
}

fn under_name(mut function: Function, name: &str) -> Function {
    if let Some(at) = function.aliases.iter().position(|a| a == name) {
        std::mem::swap(&mut function.linkage, &mut function.aliases[at]);
    }
    function
}

/// `module!pattern` in two; `!` inside brackets or a regular expression is none.
fn split_module(text: &str) -> (Option<&str>, &str) {
    match text.split_once('!') {
        Some((module, rest))
            if !module.is_empty() && !module.starts_with('/') && !module.contains(['(', '<']) =>
        {
            // `operator!=` and the like.
            if module.ends_with("operator") { (None, text) } else { (Some(module), rest) }
        }
        _ => (None, text),
    }
}
