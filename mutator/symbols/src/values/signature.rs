//! The arguments and the return value of a function, by item.

use super::described::Described;
use super::item::Item;
use super::reason::{Reason, Unreadable};
use super::value::{Kind, Value, ValueRegister};

/// The readable values of a function's calls.
#[derive(Clone, Debug)]
pub struct Signature {
    /// The function's name.
    function: String,
    /// The values by debug information. `None` without debug information. An error if none of them
    /// can be read.
    known: Result<Option<Described>, Reason>,
}

impl Signature {
    /// True if nothing is known of the function, and registers are read as they are. False if it is
    /// described, or if its values must not be read.
    pub fn is_bare(&self) -> bool {
        matches!(self.known, Ok(None))
    }

    pub(super) fn new(function: String, known: Result<Option<Described>, Reason>) -> Self {
        Self { function, known }
    }

    /// The place and type of a value.
    ///
    /// # Errors
    /// There is no such value, or it is not a single number in a known register. Without debug
    /// information every item is read as an 8-byte number.
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

/// The value to read if nothing is known of a function.
fn undescribed(item: Item) -> Value {
    Value {
        place: ValueRegister::Integer(match item {
            Item::Argument(n) => n.saturating_sub(1),
            Item::Return => 0,
        }),
        width: 8,
        kind: Kind::Signed,
        name: None,
        type_name: None,
    }
}
