//! The tables of a message, without duplicates.

use std::collections::HashMap;

use super::proto;
use crate::profile::Profile;

/// Strings without duplicates, the empty string first.
pub(super) struct Strings {
    all: Vec<String>,
    /// The index in `all` of each string.
    places: HashMap<String, i64>,
}

impl Default for Strings {
    fn default() -> Self {
        Self {
            all: vec![String::new()],
            places: HashMap::from([(String::new(), 0)]),
        }
    }
}

impl Strings {
    /// The index of a string, which is added if it is missing.
    pub(super) fn of(&mut self, text: &str) -> i64 {
        if let Some(&known) = self.places.get(text) {
            return known;
        }
        let place = self.all.len() as i64;
        self.all.push(text.to_owned());
        self.places.insert(text.to_owned(), place);
        place
    }
    /// All strings, by their indexes.
    pub(super) fn into_table(self) -> Vec<String> {
        self.all
    }
}

/// The functions of a message, by name, linkage name and source file. All three are strings of the
/// message.
#[derive(Default)]
pub(super) struct Functions(HashMap<(i64, i64, i64), u64>);

impl Functions {
    /// The id of a function, which is added to the message if it is missing.
    pub(super) fn id(
        &mut self,
        made: &mut proto::Profile,
        name: i64,
        system_name: i64,
        filename: i64,
    ) -> u64 {
        let next = self.0.len() as u64 + 1;
        let known = self.0.entry((name, system_name, filename));
        *known.or_insert_with(|| {
            made.function.push(proto::Function {
                id: next,
                name,
                system_name,
                filename,
                start_line: 0,
            });
            next
        })
    }
}

/// The address at which a module is mapped. 0 if it is not known.
pub(super) fn base(profile: &Profile, module: Option<usize>) -> u64 {
    let module = module.and_then(|m| profile.modules.get(m));
    module.and_then(|m| m.base).unwrap_or(0)
}
