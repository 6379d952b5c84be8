//! Parsing of patterns.

use std::fmt;

use regex::Regex;

use super::glob::{Glob, is_signature, wildcards, without_words};
use super::spelling::Spelling;

/// Reasons why a text is not a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternError {
    /// The text is empty.
    Empty,
    /// An invalid regular expression.
    Regex {
        /// The expression.
        text: String,
        /// The error of the regular expression parser.
        cause: String,
    },
    /// A glob that is too long.
    Glob {
        /// The glob.
        text: String,
        /// The error of the regular expression parser.
        cause: String,
    },
    /// The text does not specify an instruction.
    Spot {
        /// The text.
        text: String,
    },
    /// The address is not a hexadecimal number.
    Address {
        /// The text.
        text: String,
    },
}

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => write!(f, "the pattern is empty"),
            Self::Regex { cause, .. } => write!(f, "the regular expression is invalid: {cause}"),
            Self::Glob { text, cause } => write!(f, "{text}: {cause}"),
            Self::Spot { text } => write!(
                f,
                "{text}: not an instruction: use FUNC+0xOFFSET, FUNC:blockN, FUNC:loopN, \
                module+0xOFFSET, 0xADDR or FILE:LINE"
            ),
            Self::Address { text } => write!(f, "{text}: not a hexadecimal address"),
        }
    }
}

impl std::error::Error for PatternError {}

/// The selection within a module.
#[derive(Clone, Debug)]
pub(super) enum What {
    /// A linkage name, a demangled name without arguments, or a full demangled signature.
    Name { text: String, spelling: Spelling },
    Glob {
        text: String,
        glob: Glob,
        spelling: Spelling,
    },
    Regex {
        regex: Regex,
        /// True if the expression has a parenthesis for the parameters of a function.
        has_parameters: bool,
    },
    /// An address in a process.
    Address(u64),
    /// A link-time address in the file.
    Offset(u64),
}

/// Splits `text` into the module, if there is one, and the selection in it.
pub(super) fn read(text: &str) -> Result<(Option<&str>, What), PatternError> {
    let (module, rest) = split_module(text);
    if rest.is_empty() {
        return Err(PatternError::Empty);
    }
    if module.is_none()
        && let Some((module, offset)) = rest.rsplit_once("+0x")
        && !module.is_empty()
        && let Ok(offset) = u64::from_str_radix(offset, 16)
    {
        return Ok((Some(module), What::Offset(offset)));
    }
    let what = if let Some(digits) = rest.strip_prefix("0x") {
        let address = u64::from_str_radix(digits, 16).map_err(|_| PatternError::Address {
            text: rest.to_owned(),
        })?;
        if module.is_some() {
            What::Offset(address)
        } else {
            What::Address(address)
        }
    } else if let Some(inner) = rest.strip_prefix('/').and_then(|r| r.strip_suffix('/')) {
        What::Regex {
            regex: regex(inner)?,
            has_parameters: has_parameters(inner),
        }
    } else if is_glob(rest) {
        What::Glob {
            glob: glob(rest)?,
            spelling: Spelling::of_glob(rest),
            text: rest.to_owned(),
        }
    } else {
        What::Name {
            spelling: Spelling::of_name(rest),
            text: rest.to_owned(),
        }
    };
    Ok((module, what))
}

fn regex(text: &str) -> Result<Regex, PatternError> {
    if text.is_empty() {
        return Err(PatternError::Empty);
    }
    Regex::new(text).map_err(|error| PatternError::Regex {
        text: text.to_owned(),
        cause: cause(&error),
    })
}

/// True if a regular expression has a literal parenthesis for the parameters of a function, not for
/// a name such as `\(anonymous namespace\)`.
fn has_parameters(regex: &str) -> bool {
    let regex = regex
        .replace(r"\(anonymous namespace\)", "")
        .replace(r"operator\(\)", "");
    [r"\(", r"\)", "[(", "[)"].iter().any(|p| regex.contains(p))
}

/// Compiles a glob. Fails with [`PatternError::Glob`] if it is too long.
pub(super) fn glob(text: &str) -> Result<Glob, PatternError> {
    Glob::new(text).map_err(|error| PatternError::Glob {
        text: text.to_owned(),
        cause: cause(&error),
    })
}

fn cause(error: &regex::Error) -> String {
    let text = error.to_string();
    let last = text.lines().last().unwrap_or_default().trim();
    last.strip_prefix("error: ").unwrap_or(last).to_owned()
}

/// True if `*` and `?` are wildcards. In a complete argument list and as operators they are not.
fn is_glob(text: &str) -> bool {
    if is_signature(text) {
        return !wildcards(text).is_empty();
    }
    let text = without_words(text);
    if text.contains('(') {
        return text.contains(['*', '?']);
    }
    let text = match text.rsplit_once("operator") {
        Some((path, "*" | "*=" | "->*")) => path,
        _ => &text,
    };
    text.contains(['*', '?'])
}

/// Splits `module!pattern`. A `!` in brackets or in a regular expression does not separate a
/// module.
pub(super) fn split_module(text: &str) -> (Option<&str>, &str) {
    match text.split_once('!') {
        Some((module, rest))
            if !module.is_empty()
                && !module.starts_with('/')
                && !module.contains(['(', '<'])
                // `operator!=` and similar.
                && !module.ends_with("operator") =>
        {
            (Some(module), rest)
        }
        _ => (None, text),
    }
}

#[cfg(test)]
mod tests {
    use super::{What, is_glob, read, wildcards};

    #[test]
    fn globs_are_told_from_names() {
        for (text, expected) in [
            ("MPI_*", true),
            ("ns::f?", true),
            ("(anonymous namespace)::f*", true),
            ("A::operator()*", true),
            ("*::operator*", true),
            ("A::operator*", false),
            ("A::operator->*", false),
            ("f(char const*)", false),
            ("f(ch*", true),
            ("f(char*)*", true),
            ("*f(int)", true),
            ("ns::f?(int)", true),
            ("*::f(char const*)", true),
            ("f(*)", true),
            ("f(int, *)", true),
            ("f(void (*)(int))", false),
            ("int* ns::f<int*>(int*)", false),
            ("ns::operator*(A*)", false),
            ("ns::A::operator->*(int)", false),
            ("A::operator()(int*)", false),
            ("main.(*T).Run", false),
            ("f", false),
        ] {
            // `*::operator*` is a glob because of its first star.
            assert_eq!(is_glob(text), expected, "{text}");
        }
    }

    #[test]
    fn the_error_of_a_regular_expression_is_one_clear_line() {
        let error = read("/[/").expect_err("not a regular expression");
        assert_eq!(
            error.to_string(),
            "the regular expression is invalid: unclosed character class"
        );
    }

    #[test]
    fn stars_of_types_are_no_wildcards_in_a_signature() {
        for (text, expected) in [
            ("*::f(char*, *)", &[0, 12][..]),
            ("*f<char*, *>(int*) const", &[0, 10]),
            ("f(char*)*", &[6, 8]),
            ("*.(*T).Run", &[0]),
        ] {
            assert_eq!(wildcards(text), expected, "{text}");
        }
    }

    #[test]
    fn modules_are_split_off() {
        for (text, expected) in [
            ("libmpi.so*!MPI_*", Some("libmpi.so*")),
            ("app+0x10", Some("app")),
            ("app!0x10", Some("app")),
            ("ns::operator!=", None),
            ("/a!b/", None),
            ("f<1!=2>(int)", None),
            ("f", None),
        ] {
            assert_eq!(read(text).map(|r| r.0), Ok(expected), "{text}");
        }
        assert!(matches!(read("app!0x10"), Ok((_, What::Offset(16)))));
        assert!(matches!(read("0x10"), Ok((_, What::Address(16)))));
        assert!(matches!(read("app!/x.y/"), Ok((_, What::Regex { .. }))));
        assert!(matches!(read("/"), Ok((_, What::Name { .. }))));
    }
}
