//! Where the functions that were selected have their arguments and return values.

use std::collections::BTreeMap;
use std::path::Path;

use abi::value;

use super::{Selected, Selection};
use crate::metric::number_of;
use ipath_symbols::lines::{Lines, Places};
use ipath_symbols::values::{Item, Kind, Place, Value, Values};
use ipath_target::process::modules::Module;
use ipath_target::progress::Step;

impl Selected {
    /// Finds out where these values of each function are. A function with one that cannot be read is refused.
    pub fn find_values(&mut self, items: &[Item]) {
        if !items.is_empty() {
            self.selection.find_values(&self.modules, items);
        }
    }
}

impl Selection {
    /// Finds out where these values of each function are. A function with one that cannot be read is refused.
    fn find_values(&mut self, modules: &[Module], items: &[Item]) {
        let mut by_module: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (index, candidate) in self.candidates.iter().enumerate() {
            by_module.entry(candidate.module).or_default().push(index);
        }
        for (module, indexes) in by_module {
            let image = self.candidates[indexes[0]].image.image;
            let path = modules.get(module).map_or("", |m| m.path.as_str());
            let _step = Step::begin(format!("reading the debug information of {path}"));
            let lines = Lines::load(image.data(), &Places::for_file(Path::new(path)));
            let values = Values::new(image.data(), lines.as_ref());
            for index in indexes {
                let candidate = &mut self.candidates[index];
                let signature = values.of(&candidate.plan.function);
                candidate.values = 0;
                candidate.is_bare = signature.is_bare();
                for &item in items {
                    let read = signature.read(item).map_err(|e| e.to_string());
                    match read.and_then(|value| place(item, &value)) {
                        Ok(byte) => {
                            candidate.values |= u64::from(byte) << (8 * u32::from(number_of(item)));
                        }
                        Err(reason) => {
                            candidate.unreadable.get_or_insert(reason);
                        }
                    }
                }
            }
        }
    }
}

/// As the runtime has it.
fn place(item: Item, found: &Value) -> Result<u8, String> {
    /// Bytes of the smallest number with a fraction that is read.
    const SINGLE: u8 = 4;
    let is_float = found.kind == Kind::Float;
    if is_float && found.width < SINGLE {
        return Err(format!("{item} is a number with a fraction of 16 bits"));
    }
    let (register, is_vector) = match found.place {
        Place::Integer(register) => (register, false),
        Place::Vector(register) => (register, true),
    };
    // An integer in a vector register is a part of a structure.
    if is_vector != is_float {
        return Err(format!("{item} is in a register of the other kind"));
    }
    let place = value::Place {
        register,
        is_vector,
        width: found.width.ilog2() as u8,
        is_signed: found.kind != Kind::Unsigned,
    };
    Ok(place.encode())
}
