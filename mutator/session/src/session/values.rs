//! Locating the arguments and return values of selected functions.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use abi::value;

use super::{Selected, Selection};
use crate::apart::By;
use crate::metric::number_of;
use ipath_symbols::lines::{Lines, Places};
use ipath_symbols::values::{Item, Kind, Value, ValueRegister, Values};
use ipath_target::process::modules::Module;
use ipath_target::progress::Step;

/// The values of calls to locate.
#[derive(Clone, Debug, Default)]
pub struct WantedValues {
    /// Arguments and return values.
    items: Vec<Item>,
    /// A field of what an argument points to, by which calls are kept apart.
    field: Option<By>,
    /// True to locate further values if they can be read.
    all: bool,
}

impl WantedValues {
    /// These items, and the field if calls are kept apart by one.
    pub fn of(items: Vec<Item>, by: Option<&By>) -> Self {
        let field = by.filter(|by| matches!(by, By::Field(..)));
        Self {
            items,
            field: field.cloned(),
            all: false,
        }
    }

    /// Also locates all other arguments and the return value if they can be read, if `all`.
    pub fn and_all(self, all: bool) -> Self {
        Self { all, ..self }
    }
}

impl Selected {
    /// Locates these values of each function. A function is refused if one of its values cannot be
    /// read.
    pub fn find_values(&mut self, wanted: &WantedValues) {
        if wanted.all || !wanted.items.is_empty() {
            self.selection.find_values(&self.modules, wanted);
        }
    }
}

impl Selection {
    /// Locates these values of each function. A function is refused if one of its values cannot be
    /// read.
    fn find_values(&mut self, modules: &[Module], wanted: &WantedValues) {
        let mut by_module: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            by_module.entry(candidate.module).or_default().push(index);
        }
        for (module, indexes) in by_module {
            let opened = Arc::clone(&self.candidates[indexes[0]].image);
            let image = opened.image();
            let path = modules.get(module).map_or("", |m| m.path.as_str());
            let _step = Step::begin(format!("reading the debug information of {path}"));
            let lines = Lines::load(image.data(), &Places::for_file(Path::new(path)));
            let values = Values::new(image.data(), lines.as_ref());
            for index in indexes {
                let candidate = &mut self.candidates[index];
                let signature = values.of(&candidate.plan.function);
                candidate.values = 0;
                // Registers are only warned of where they have been asked for.
                candidate.is_bare = signature.is_bare() && !wanted.items.is_empty();
                let others = Item::all().filter(|item| !wanted.items.contains(item));
                let others: Vec<Item> = others.filter(|_| wanted.all).collect();
                for &item in wanted.items.iter().chain(&others) {
                    let read = signature.read(item).map_err(|e| e.to_string());
                    match read.and_then(|value| place(item, &value)) {
                        Ok(byte) => {
                            let number = number_of(item);
                            candidate.values |= u64::from(byte) << (8 * u32::from(number));
                            if wanted.all {
                                candidate.values |= value::is_known(number);
                            }
                        }
                        Err(_) if others.contains(&item) => {}
                        Err(reason) => {
                            candidate.unreadable.get_or_insert(reason);
                            candidate.unread.push(item);
                        }
                    }
                }
                if let Some(by @ By::Field(number, path)) = &wanted.field {
                    match values.field(&candidate.plan.function, *number, path) {
                        Ok(field) => candidate.by = Some(by.encode(Some(field))),
                        Err(reason) => {
                            candidate
                                .unreadable
                                .get_or_insert(format!("{by}: {reason}"));
                            candidate.unread.push(by.item());
                        }
                    }
                }
            }
        }
    }
}

/// The location in the runtime's encoding. The error is the reason why the value cannot be read,
/// for users.
fn place(item: Item, found: &Value) -> Result<u8, String> {
    /// Size in bytes of the smallest floating-point number that can be read.
    const SINGLE: u8 = 4;
    let is_float = found.kind == Kind::Float;
    if is_float && found.width < SINGLE {
        return Err(format!("{item} is a number with a fraction of 16 bits"));
    }
    let (register, is_vector) = match found.place {
        ValueRegister::Integer(register) => (register, false),
        ValueRegister::Vector(register) => (register, true),
    };
    // An integer in a vector register is a part of a structure.
    if is_vector != is_float {
        return Err(format!("{item} is in a register of the other kind"));
    }
    let place = value::ValueLocation {
        register,
        is_vector,
        width: found.width.ilog2() as u8,
        is_signed: found.kind != Kind::Unsigned,
    };
    Ok(place.encode())
}
