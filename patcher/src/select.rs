//! Patterns that select functions.

mod glob;
mod near;
mod pattern;
mod spelling;
mod spot;

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;

use crate::addr::{Avma, Svma};
use crate::function::{
    Function, demangle, demangle_without_arguments, demangle_without_return_type, is_mangled,
};
use crate::image::Image;
use glob::Glob;

pub use near::{Near, with_last};
pub use pattern::PatternError;
use pattern::What;
pub use spot::{SourceLine, Spot};

/// Characters that give a pattern a special meaning: globs, regular expressions, modules.
pub const MEANING: [char; 4] = ['*', '?', '/', '!'];

/// A pattern, as given on the command line.
#[derive(Clone, Debug)]
pub struct Pattern {
    text: String,
    /// The glob for the file names of modules; `None` for all modules.
    module: Option<Glob>,
    what: What,
}

impl Pattern {
    /// Parses a pattern: `name`, `Class::method`, a demangled signature, a glob, `/regex/`,
    /// `module!pattern`, `0xADDR`, `module+0xOFFSET`.
    ///
    /// # Errors
    /// The text is empty, or its regular expression, glob or address is invalid.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let (module, what) = pattern::read(text)?;
        Ok(Self {
            text: text.to_owned(),
            module: module.map(pattern::glob).transpose()?,
            what,
        })
    }

    /// A pattern with the same text and module that selects functions by exact name. `name` is
    /// demangled and without arguments; its characters have no special meaning.
    pub fn for_name(&self, name: &str) -> Self {
        Self {
            what: What::Name {
                spelling: spelling::Spelling::of_name(name),
                text: name.to_owned(),
            },
            ..self.clone()
        }
    }

    /// The text from which the pattern was parsed.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// True if the pattern names no module, or one that matches this file name.
    pub fn module_matches(&self, file_name: &str) -> bool {
        self.module
            .as_ref()
            .is_none_or(|glob| glob.matches(file_name))
    }

    /// True if the pattern names a module.
    pub fn has_module(&self) -> bool {
        self.module.is_some()
    }

    /// The name, if the pattern is a name; otherwise `None`.
    pub fn name(&self) -> Option<&str> {
        match &self.what {
            What::Name { text, .. } => Some(text),
            _ => None,
        }
    }

    /// True if the pattern has a parenthesis for the parameters of a function.
    pub fn has_arguments(&self) -> bool {
        match &self.what {
            What::Name { text, .. } | What::Glob { text, .. } => has_parameters(text),
            What::Regex { has_parameters, .. } => *has_parameters,
            What::Address(_) | What::Offset(_) => false,
        }
    }

    /// False if no form of the name of a function with this linkage name can match the pattern. A
    /// glob or regular expression is tried on the name as it is displayed only if this is true.
    pub fn can_name(&self, linkage: &str) -> bool {
        match &self.what {
            What::Glob { spelling, .. } => spelling.can_be(linkage),
            What::Name { .. } | What::Regex { .. } => true,
            What::Address(_) | What::Offset(_) => false,
        }
    }

    /// True if the pattern is an address in a process or in a file.
    pub fn is_address(&self) -> bool {
        matches!(self.what, What::Address(_) | What::Offset(_))
    }

    /// The address in a process, if the pattern is one; otherwise `None`.
    pub fn absolute_address(&self) -> Option<Avma> {
        match self.what {
            What::Address(address) => Some(Avma(address)),
            _ => None,
        }
    }

    /// The address in the file, if the pattern is one; otherwise `None`.
    pub fn address_in_file(&self) -> Option<Svma> {
        match self.what {
            What::Offset(at) => Some(Svma(at)),
            _ => None,
        }
    }

    /// The matching functions of `image`, a file with the name `module`, by address.
    ///
    /// A function found under an alias is returned under that name. An address selects the function
    /// that contains it, in its main part or in a split-off part. An address in a process is taken
    /// as a link-time address. The pattern's own module is not compared with `module`.
    pub fn select(&self, image: &Image<'_>, module: &str) -> Vec<Function> {
        if let What::Address(at) | What::Offset(at) = self.what {
            return Self::select_at(image, Svma(at)).into_iter().collect();
        }
        let table = image.functions();
        let found = table.named(|linkage| self.names(linkage)).into_iter();
        let mut found: Vec<Function> = found
            .map(|(index, name)| under_name(table.function(index), name))
            .collect();
        let nameless = table.nameless();
        let nameless = nameless.filter(|(_, start)| self.names_start(module, *start));
        found.extend(nameless.map(|(index, _)| table.function(index)));
        found.sort_by_key(|f| f.range.start);
        found
    }

    /// The function that contains `at`, in its main part or in a split-off part; `None` if none
    /// does.
    pub fn select_at(image: &Image<'_>, at: Svma) -> Option<Function> {
        image.functions().function_at(at)
    }

    /// Up to `most` names of functions of `image` that the user may have meant, nearest first.
    /// Empty if the pattern is neither a name nor a glob.
    pub fn suggestions(&self, image: &Image<'_>, most: usize) -> Vec<Near> {
        match &self.what {
            What::Name { text, .. } | What::Glob { text, .. } => {
                near::names(text, image.functions().names(), most)
            }
            _ => Vec::new(),
        }
    }

    /// True if the pattern selects the function without a name at `start` in the file `module`.
    fn names_start(&self, module: &str, start: Svma) -> bool {
        match &self.what {
            What::Glob { glob, .. } => glob.matches(&name_of_start(module, start)),
            What::Regex { regex, .. } => regex.is_match(&name_of_start(module, start)),
            What::Name { .. } | What::Address(_) | What::Offset(_) => false,
        }
    }

    /// True if a glob or regular expression is matched against the linkage name as it is.
    ///
    /// A mangled name contains letters that are not part of any name in the source (`_ZStplI` is
    /// `std::operator+`). So it is matched only if the pattern contains a mangling prefix.
    fn can_be_linkage(&self, linkage: &str) -> bool {
        !is_mangled(linkage) || ["_Z", "_R"].iter().any(|begin| self.text.contains(begin))
    }

    /// True if the pattern selects a function with this linkage name. Always false for an address.
    /// The pattern's own module is not considered.
    pub fn names(&self, linkage: &str) -> bool {
        match &self.what {
            What::Name { text, spelling } => {
                linkage == text
                    || is_mangled(linkage) && spelling.can_be(linkage) && is_named(linkage, text)
            }
            What::Glob {
                text,
                glob,
                spelling,
            } => {
                self.can_be_linkage(linkage) && glob.matches(linkage)
                    || is_mangled(linkage)
                        && spelling.can_be(linkage)
                        && (glob.matches(&demangle_without_arguments(linkage))
                            || has_parameters(text)
                                && (glob.matches(&demangle(linkage))
                                    || glob.matches(&demangle_without_return_type(linkage))))
            }
            What::Regex {
                regex,
                has_parameters,
            } => {
                self.can_be_linkage(linkage) && regex.is_match(linkage)
                    || is_mangled(linkage)
                        && (regex.is_match(&demangle_without_arguments(linkage))
                            || *has_parameters
                                && (regex.is_match(&demangle_without_return_type(linkage))
                                    || regex.is_match(&demangle(linkage))))
            }
            What::Address(_) | What::Offset(_) => false,
        }
    }
}

/// True if a name or glob has a parenthesis for the parameters of a function.
fn has_parameters(text: &str) -> bool {
    glob::without_words(text).contains('(')
}

/// The name shown for a function without a name at `start` in the file `module`.
pub fn name_of_start(module: &str, start: Svma) -> String {
    format!("{module}+{start}")
}

/// True if `text` is the demangled form of `linkage` without arguments, or its full signature.
fn is_named(linkage: &str, text: &str) -> bool {
    demangle_without_arguments(linkage) == text
        || text.contains('(')
            && (is_alike(&demangle(linkage), text)
                || is_alike(&demangle_without_return_type(linkage), text))
}

/// True if two signatures differ at most in spaces.
fn is_alike(a: &str, b: &str) -> bool {
    let letters = |text: &str| text.bytes().filter(|&b| b != b' ').collect::<Vec<u8>>();
    letters(a) == letters(b)
}

fn under_name(mut function: Function, name: &str) -> Function {
    if let Some(at) = function.aliases.iter().position(|a| a == name) {
        std::mem::swap(&mut function.linkage, &mut function.aliases[at]);
    }
    function
}
