//! The reasons why a value cannot be read.

use super::item::Item;
use std::fmt;

/// The reason why an argument or a return value cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The function has only this many arguments.
    NoSuchArgument(usize),
    /// It is one of the arguments passed for `...`. The function has this many named arguments.
    Variadic(usize),
    /// The function returns nothing.
    ReturnsNothing,
    /// It is passed or returned in memory.
    InMemory,
    /// It is in several registers.
    SeveralRegisters,
    /// It is returned in a register of the x87.
    X87,
    /// It is empty and needs no register.
    Empty,
    /// It is not a single integer or floating-point number of 1, 2, 4 or 8 bytes.
    NoNumber,
    /// The debug information does not describe its type.
    NotDescribed,
    /// Its class may be passed by reference or by value: the debug information does not say.
    MaybeByReference,
    /// It is a vector. Its register depends on the compiler's options.
    Vector,
    /// It follows an argument with unknown registers.
    AfterUnknown,
    /// It is declared without a prototype, so callers pass it as a double.
    NoPrototype,
    /// The compiler derived the function from another and may have changed its arguments. With the
    /// suffix of the name.
    Clone(String),
    /// The function has debug information but no symbol, so it may be a clone.
    NoSymbol,
    /// The function does not follow the psABI. With its language.
    Language(String),
    /// A Rust function has a value that is not a scalar. With that value.
    Rust(String),
    /// By its debug information, the function does not follow the calling convention. With the
    /// number of the `DW_CC` constant.
    Convention(u8),
    /// The debug information and the calling convention disagree about the place of an argument.
    /// With that argument.
    Elsewhere(String),
    /// The debug information does not list all arguments of the function.
    Parameters,
    /// The function begins at a further part of another function and not at its entry.
    Part,
    /// Several functions with debug information begin at the function's address.
    Ambiguous,
    /// The debug information is in a `.dwo` file.
    Split,
    /// The debug information needs a supplement (`.gnu_debugaltlink`) that is missing.
    Supplement,
    /// The debug information cannot be read. With the error.
    Broken(String),
}

impl From<gimli::Error> for Reason {
    fn from(error: gimli::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// An unreadable argument or return value of a function, with the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// The function's name.
    pub(super) function: String,
    pub(super) item: Item,
    /// Its type and name, if known.
    pub(super) what: Option<String>,
    /// The reason.
    pub reason: Reason,
}

impl Unreadable {
    /// The value, its function, and its declaration.
    fn value(&self) -> String {
        let function = &self.function;
        let value = match self.item {
            Item::Argument(n) => format!("argument {n} of `{function}`"),
            Item::Return => format!("the return value of `{function}`"),
        };
        match &self.what {
            Some(what) => format!("{value}, `{what}`,"),
            None => value,
        }
    }
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (function, value) = (&self.function, self.value());
        let passed = match self.item {
            Item::Argument(_) => "passed",
            Item::Return => "returned",
        };
        match &self.reason {
            Reason::NoSuchArgument(n) => write!(f, "`{function}` has {}", arguments(*n)),
            Reason::Variadic(n) => write!(f, "`{function}` has {} before its `...`", arguments(*n)),
            Reason::ReturnsNothing => write!(f, "`{function}` returns nothing"),
            Reason::InMemory => write!(f, "{value} is {passed} in memory"),
            Reason::SeveralRegisters => write!(f, "{value} is in more than one register"),
            Reason::X87 => write!(f, "{value} is in an x87 register"),
            Reason::Empty => write!(f, "{value} is empty"),
            Reason::NoNumber => write!(
                f,
                "{value} is not an integer or floating-point number of 1, 2, 4 or 8 bytes"
            ),
            Reason::NotDescribed => write!(
                f,
                "{value} has a type that the debug information does not describe"
            ),
            Reason::MaybeByReference => write!(
                f,
                "{value} may be {passed} in memory or not: the debug information does not say"
            ),
            Reason::Vector => {
                write!(
                    f,
                    "{value} is a vector whose place depends on compiler options"
                )
            }
            Reason::AfterUnknown => {
                write!(
                    f,
                    "{value} comes after a value whose registers are not known"
                )
            }
            Reason::NoPrototype => write!(
                f,
                "{value} is declared without a prototype and passed as a double"
            ),
            Reason::Clone(suffix) => write!(
                f,
                "`{function}` is a clone (`.{suffix}`), whose arguments do not follow its source"
            ),
            Reason::NoSymbol => write!(f, "`{function}` has no symbol, so it may be a clone"),
            Reason::Language(language) => write!(
                f,
                "`{function}` is {language}, which has its own calling convention"
            ),
            Reason::Rust(other) => write!(
                f,
                "`{function}` is Rust and `{other}` is not a scalar, so its registers are not specified"
            ),
            Reason::Convention(number) => write!(
                f,
                "`{function}` does not follow the calling convention (DW_AT_calling_convention {number})"
            ),
            Reason::Elsewhere(argument) => write!(
                f,
                "`{function}` does not follow the calling convention: its argument `{argument}` is elsewhere"
            ),
            Reason::Parameters => write!(
                f,
                "the debug information does not list all arguments of `{function}`"
            ),
            Reason::Part => write!(
                f,
                "`{function}` is a part of a function and has no arguments"
            ),
            Reason::Ambiguous => write!(f, "several functions begin where `{function}` does"),
            Reason::Split => write!(
                f,
                "the debug information of `{function}` is in a .dwo file, which is not read"
            ),
            Reason::Supplement => write!(
                f,
                "the debug information of `{function}` needs a supplement that is not found"
            ),
            Reason::Broken(error) => write!(
                f,
                "the debug information of `{function}` cannot be read: {error}"
            ),
        }
    }
}

impl std::error::Error for Unreadable {}

fn arguments(count: usize) -> String {
    match count {
        0 => "no arguments".to_owned(),
        1 => "1 argument".to_owned(),
        n => format!("{n} arguments"),
    }
}
