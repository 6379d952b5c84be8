//! The arguments and the return value of one function, as the debug information describes them.

use super::entries::{self, Entries, Entry};
use super::function::{self, Parameters, is_artificial};
use super::language::{self, Language};
use super::location::{self, Found};
use super::reason::Reason;
use super::spelling;
use super::{bare, shape};
use crate::arch::classes::{self, Placed, Shape};
use gimli::constants;
use patcher::Svma;

/// What the debug information says of a function.
#[derive(Clone, Debug)]
pub(super) struct Described {
    /// Those that are written in the source.
    pub(super) arguments: Vec<DescribedValue>,
    pub(super) is_variadic: bool,
    pub(super) returned: DescribedValue,
}

/// An argument or a return value and its place.
#[derive(Clone, Debug)]
pub(super) struct DescribedValue {
    pub(super) name: Option<String>,
    pub(super) type_name: Option<String>,
    pub(super) placed: Placed,
}

impl DescribedValue {
    /// Its type and name as a declaration has them.
    pub(super) fn what(&self) -> Option<String> {
        match (&self.type_name, &self.name) {
            (Some(of), Some(name)) if of.ends_with(['*', '&']) => Some(format!("{of}{name}")),
            (Some(of), Some(name)) => Some(format!("{of} {name}")),
            (one, other) => one.clone().or(other.clone()),
        }
    }
}

/// A parameter and what its place depends on.
struct Parameter {
    name: Option<String>,
    type_name: Option<String>,
    shape: Shape,
    found: Found,
    is_written: bool,
}

impl Described {
    /// What is said of the function that has an entry and begins at `start`; none where that is nothing.
    pub(super) fn of<'d>(
        entries: &Entries<'d>,
        function: &Entry<'d>,
        start: Svma,
    ) -> Result<Option<Self>, Reason> {
        let source = entries.source(function)?;
        let language = language::of(entries, &source)?;
        if language == Language::Assembler {
            return Ok(None);
        }
        let convention = entries.bearer(function, constants::DW_AT_calling_convention)?;
        if let Some(bearer) = convention {
            check_convention(&bearer)?;
        }
        let parameters = Parameters::of(entries, function)?;
        let returned = entries.type_of(function)?;
        let has_prototype = entries
            .bearer(function, constants::DW_AT_prototyped)?
            .is_some();
        let is_bare = parameters.all.is_empty() && returned.is_none();
        if is_bare && !function::has_types(&source)? {
            language.check_registers()?;
            return Ok(None);
        }
        let context = Context {
            entries,
            function,
            start,
            language: &language,
        };
        let all = parameters.all.into_iter().enumerate();
        let all: Vec<_> = all
            .map(|(index, entry)| context.parameter(index, entry))
            .collect::<Result<_, _>>()?;
        let type_name = spelling::name(entries, returned.as_ref());
        let shape = match &returned {
            Some(of) => context.returned(of, type_name.as_deref())?,
            None => None,
        };
        let shapes: Vec<_> = all.iter().map(|p| p.shape.clone()).collect();
        let (places, placed) = classes::place(shape.as_ref(), &shapes);
        for (parameter, placed) in all.iter().zip(&places) {
            parameter.check(placed)?;
        }
        let is_c = matches!(language, Language::C);
        let arguments = all.into_iter().zip(places).filter(|(p, _)| p.is_written);
        let arguments = arguments.map(|(parameter, placed)| DescribedValue {
            name: parameter.name,
            type_name: parameter.type_name,
            placed: match placed {
                // Default argument promotions: C17, section 6.5.2.2.
                Ok((number, _)) if is_c && !has_prototype && number.is_single() => {
                    Err(Reason::NoPrototype)
                }
                placed => placed,
            },
        });
        Ok(Some(Self {
            arguments: arguments.collect(),
            is_variadic: parameters.is_variadic,
            returned: DescribedValue {
                name: None,
                type_name,
                placed,
            },
        }))
    }
}

/// Fails unless the function follows the calling convention of its language, or is Fortran's main program.
fn check_convention(function: &Entry<'_>) -> Result<(), Reason> {
    match entries::convention(function) {
        Some(constants::DW_CC_normal | constants::DW_CC_program) => Ok(()),
        other => Err(Reason::Convention(
            other.map_or(0, |convention| convention.0),
        )),
    }
}

/// What all parameters of a function have in common.
struct Context<'c, 'd> {
    entries: &'c Entries<'d>,
    function: &'c Entry<'d>,
    start: Svma,
    language: &'c Language,
}

impl<'d> Context<'_, 'd> {
    fn parameter(&self, index: usize, entry: Entry<'d>) -> Result<Parameter, Reason> {
        let name = self.entries.name(&entry);
        let of = self.entries.type_of(&entry)?.ok_or(Reason::Parameters)?;
        let type_name = spelling::name(self.entries, Some(&of));
        let found = location::at_entry(self.entries, self.function, &entry, self.start);
        let is_added = is_artificial(self.entries, &entry);
        let is_written = match self.language {
            // It marks descriptors of arrays, too. Results and lengths that it adds have such names.
            Language::Fortran => {
                let is_own = |name: &str| name.starts_with(['_', '.']);
                !(is_added && name.as_deref().is_some_and(is_own))
            }
            // An object that a function is called on is its first argument.
            _ => !is_added || index == 0,
        };
        let mut parameter = Parameter {
            name,
            type_name,
            shape: Shape::ByReference,
            found,
            is_written,
        };
        parameter.shape = match self.language {
            Language::Fortran => self.fortran(&of, &parameter, is_added)?,
            Language::Rust if !bare::is_scalar(self.entries, &of)? => {
                let what = parameter.name.or(parameter.type_name);
                return Err(Reason::Rust(what.unwrap_or_default()));
            }
            _ => self.shape(&of),
        };
        if parameter.shape == Shape::ByReference
            && let Some(name) = &mut parameter.type_name
        {
            name.push_str(" &");
        }
        Ok(parameter)
    }

    fn shape(&self, of: &Entry<'d>) -> Shape {
        shape::shape(self.entries, of, self.function)
    }

    /// The shape of an argument of Fortran: the address of what is of the type, unless it has VALUE.
    fn fortran(
        &self,
        of: &Entry<'d>,
        parameter: &Parameter,
        is_added: bool,
    ) -> Result<Shape, Reason> {
        let tag = bare::bare(self.entries, of)?.tag();
        let is_array = [constants::DW_TAG_array_type, constants::DW_TAG_string_type].contains(&tag);
        Ok(match parameter.found {
            _ if is_array => Shape::ByReference,
            Found::ByAddress | Found::AtRegister(_) => Shape::ByReference,
            Found::Register(_) | Found::Frame | Found::Stack => self.shape(of),
            _ if is_added && !parameter.is_written => self.shape(of),
            Found::Nothing | Found::OtherRegister => Shape::Unknown(Reason::MaybeByReference),
        })
    }

    /// The shape of what the function returns, which has this type; none for nothing.
    fn returned(&self, of: &Entry<'d>, name: Option<&str>) -> Result<Option<Shape>, Reason> {
        if *self.language != Language::Rust {
            return Ok(Some(self.shape(of)));
        }
        let bare = bare::bare(self.entries, of)?;
        if bare.number(constants::DW_AT_byte_size) == Some(0) {
            return Ok(None);
        }
        if bare::is_scalar(self.entries, of)? {
            Ok(Some(self.shape(of)))
        } else {
            Err(Reason::Rust(name.unwrap_or_default().to_owned()))
        }
    }
}

impl Parameter {
    /// Fails where the debug information has the argument elsewhere than the calling convention.
    fn check(&self, placed: &Placed) -> Result<(), Reason> {
        let by_reference = self.shape == Shape::ByReference;
        let agrees = match (placed, self.found) {
            (Ok((_, place)), Found::Register(found)) => found == *place,
            (Ok((_, place)), Found::AtRegister(found)) => by_reference && found == *place,
            (Ok(_), Found::OtherRegister | Found::Stack) => false,
            (Err(Reason::InMemory), Found::Register(_) | Found::AtRegister(_)) => false,
            _ => true,
        };
        if agrees {
            Ok(())
        } else {
            Err(Reason::Elsewhere(self.name.clone().unwrap_or_default()))
        }
    }
}
