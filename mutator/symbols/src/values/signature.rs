//! The arguments and the return value of one function, as they are asked for.

use super::described::Described;
use super::item::Item;
use super::reason::{Reason, Unreadable};
use super::value::{Kind, Place, Value};

/// What can be read of the calls of a function.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The function's name.
    function: String,
    /// None where there is no debug information.
    known: Result<Option<Described>, Reason>,
}

impl Signature {
    /// True where nothing is known of the function, and registers are read as they are.
    pub fn is_bare(&self) -> bool {
        matches!(self.known, Ok(None))
    }

    pub(super) fn new(function: String, known: Result<Option<Described>, Reason>) -> Self {
        Self { function, known }
    }

    /// Where a value is and what it is.
    ///
    /// # Errors
    /// That there is no such value, or that it is not one number in a known register.
    pub fn read(&self, item: Item) -> Result<Value, Unreadable> {
        let refused = |reason: &Reason, what| Unreadable {
            function: self.function.clone(),
            item,
            what,
            reason: reason.clone(),
        };
        let described = match &self.known {
            Err(reason) => return Err(refused(reason, None)),
            Ok(None) => return Ok(undescribed(item)),
            Ok(Some(described)) => described,
        };
        let value = match item {
            Item::Return => &described.returned,
            Item::Argument(n) => {
                let count = described.arguments.len();
                let index = usize::from(n).checked_sub(1);
                match index.and_then(|index| described.arguments.get(index)) {
                    Some(value) => value,
                    None if described.is_variadic => {
                        return Err(refused(&Reason::Variadic(count), None));
                    }
                    None => return Err(refused(&Reason::NoSuchArgument(count), None)),
                }
            }
        };
        match &value.placed {
            Ok((number, place)) => Ok(Value {
                place: *place,
                width: number.width,
                kind: number.kind,
                name: value.name.clone(),
                type_name: value.type_name.clone(),
            }),
            Err(reason) => Err(refused(reason, value.what())),
        }
    }
}

/// What is read where nothing is known of a function.
fn undescribed(item: Item) -> Value {
    Value {
        place: Place::Integer(match item {
            Item::Argument(n) => n.saturating_sub(1),
            Item::Return => 0,
        }),
        width: 8,
        kind: Kind::Signed,
        name: None,
        type_name: None,
    }
}
