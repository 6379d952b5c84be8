//! The arguments and the return value of a function, by its debug information.

use super::entries::{self, Entries, Entry};
use super::function::{self, Parameters, is_artificial};
use super::language::{self, Language};
use super::location::{self, ArgumentLocation};
use super::reason::Reason;
use super::spelling;
use super::{bare, shape};
use crate::arch::classes::{self, Placed, Shape};
use gimli::constants;
use patcher::Svma;

/// A function as the debug information describes it.
#[derive(Clone, Debug)]
pub(super) struct Described {
    /// The arguments that the source lists, in its order.
    pub(super) arguments: Vec<DescribedValue>,
    /// True if `...` follows the arguments.
    pub(super) is_variadic: bool,
    pub(super) returned: DescribedValue,
}

/// An argument or a return value and its place.
#[derive(Clone, Debug)]
pub(super) struct DescribedValue {
    /// Its name in the source. `None` for a return value, or if it is unknown.
    pub(super) name: Option<String>,
    /// The name of its type in the source, if known.
    pub(super) type_name: Option<String>,
    pub(super) placed: Placed,
}

impl DescribedValue {
    /// Its type and name, as in a declaration. `None` if neither is known.
    pub(super) fn what(&self) -> Option<String> {
        match (&self.type_name, &self.name) {
            (Some(of), Some(name)) if of.ends_with(['*', '&']) => Some(format!("{of}{name}")),
            (Some(of), Some(name)) => Some(format!("{of} {name}")),
            (one, other) => one.clone().or(other.clone()),
        }
    }
}

/// A parameter and the facts that determine its place.
struct Parameter {
    name: Option<String>,
    type_name: Option<String>,
    shape: Shape,
    /// Its place by the debug information.
    found: ArgumentLocation,
    /// False if the compiler added it.
    is_written: bool,
}

impl Described {
    /// Describes the function with this entry, which begins at `start`. `None` if the debug
    /// information says nothing about it.
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

/// Fails unless the function follows the calling convention of its language, or is Fortran's main
/// program.
fn check_convention(function: &Entry<'_>) -> Result<(), Reason> {
    match entries::convention(function) {
        Some(constants::DW_CC_normal | constants::DW_CC_program) => Ok(()),
        other => Err(Reason::Convention(
            other.map_or(0, |convention| convention.0),
        )),
    }
}

/// The common facts of a function's parameters.
struct Context<'c, 'd> {
    entries: &'c Entries<'d>,
    function: &'c Entry<'d>,
    /// The function's first address.
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
            // The flag also marks descriptors of arrays. The compiler's own results and lengths
            // have these names.
            Language::Fortran => {
                let is_own = |name: &str| name.starts_with(['_', '.']);
                !(is_added && name.as_deref().is_some_and(is_own))
            }
            // The object that a method is called on is its first argument.
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

    /// The shape of a Fortran argument: the address of a value of its type, unless it has VALUE.
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
            ArgumentLocation::ByAddress | ArgumentLocation::AtRegister(_) => Shape::ByReference,
            ArgumentLocation::Register(_) | ArgumentLocation::Frame | ArgumentLocation::Stack => {
                self.shape(of)
            }
            _ if is_added && !parameter.is_written => self.shape(of),
            ArgumentLocation::Nothing | ArgumentLocation::OtherRegister => {
                Shape::Unknown(Reason::MaybeByReference)
            }
        })
    }

    /// The shape of a return value of this type. `None` if nothing is returned.
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
    /// Fails if the debug information contradicts the calling convention about the argument's
    /// place.
    fn check(&self, placed: &Placed) -> Result<(), Reason> {
        let by_reference = self.shape == Shape::ByReference;
        let agrees = match (placed, self.found) {
            (Ok((_, place)), ArgumentLocation::Register(found)) => found == *place,
            (Ok((_, place)), ArgumentLocation::AtRegister(found)) => {
                by_reference && found == *place
            }
            (Ok(_), ArgumentLocation::OtherRegister | ArgumentLocation::Stack) => false,
            (
                Err(Reason::InMemory),
                ArgumentLocation::Register(_) | ArgumentLocation::AtRegister(_),
            ) => false,
            _ => true,
        };
        if agrees {
            Ok(())
        } else {
            Err(Reason::Elsewhere(self.name.clone().unwrap_or_default()))
        }
    }
}
