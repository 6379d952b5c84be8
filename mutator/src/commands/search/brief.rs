//! A step of a search on one line of a terminal.

use unicode_width::UnicodeWidthStr;

use ipath_profile::display_name;
use ipath_profile::report::human;
use ipath_sampling::search::Cost;

/// A step, before it is written.
#[derive(Default)]
pub(super) struct Brief {
    /// The number of the step and the explained shares.
    pub(super) head: String,
    /// The names of dropped functions.
    pub(super) dropped: Vec<String>,
    /// The names of functions that cannot be instrumented.
    pub(super) refused: Vec<String>,
    /// The names of added functions.
    pub(super) added: Vec<String>,
    /// Text at the end.
    pub(super) note: Option<&'static str>,
}

/// The widths for names to try, the largest first.
const NAMES: [usize; 3] = [40, 24, 16];

impl Brief {
    /// The step in at most `width` columns, with as many names as fit. The last list keeps its
    /// names longest.
    pub(super) fn line(&self, width: usize) -> String {
        let lists = self.lists();
        let longest = lists
            .iter()
            .map(|(_, names)| names.len())
            .max()
            .unwrap_or(0);
        let shapes = (0..=lists.len()).flat_map(|counted| {
            let most = (1..=longest).rev();
            most.flat_map(move |most| NAMES.map(|columns| (counted, most, columns)))
        });
        let mut texts = shapes.map(|(counted, most, columns)| {
            let lists = lists.iter().enumerate();
            self.joined(lists.map(|(index, (verb, names))| {
                if index < counted {
                    format!("{verb} {}", names.len())
                } else {
                    list(verb, names, most, columns)
                }
            }))
        });
        let found = texts.find(|text| text.width() <= width);
        found.unwrap_or_else(|| {
            display_name::start_of(&self.joined([].into_iter()), width).to_owned()
        })
    }

    fn lists(&self) -> Vec<(&'static str, &[String])> {
        let all = [
            ("dropped", &self.dropped[..]),
            ("cannot measure", &self.refused),
            ("added", &self.added),
        ];
        let some = all.into_iter().filter(|(_, names)| !names.is_empty());
        some.collect()
    }

    fn joined(&self, lists: impl Iterator<Item = String>) -> String {
        let head = [self.head.clone()].into_iter();
        let note = self.note.map(str::to_owned);
        head.chain(lists).chain(note).collect::<Vec<_>>().join("; ")
    }
}

/// A list such as `dropped a, b and 2 more`, with up to `most` names, each shortened to `columns`.
fn list(verb: &str, names: &[String], most: usize, columns: usize) -> String {
    let shown = names.iter().take(most);
    let shown = shown.map(|name| display_name::fit(name, columns));
    let text = shown.collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(most) {
        0 => format!("{verb} {text}"),
        more => format!("{verb} {text} and {more} more"),
    }
}

/// A short form of `explains 39 % of CPU time and 12 % of the time off it`.
pub(super) fn explains(share: Cost) -> String {
    let parts = [(share.cpu, "CPU"), (share.off, "off-CPU")];
    let said = parts.iter().filter(|(share, _)| *share >= 0.0005);
    let said: Vec<String> = said
        .map(|(share, of)| format!("{} of {of}", human::rounded(*share)))
        .collect();
    if said.is_empty() {
        "explains nothing yet".to_owned()
    } else {
        format!("explains {}", said.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_one_line_with_as_many_names_as_fit() {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let step = Brief {
            head: format!(
                "step 2: {}",
                explains(Cost {
                    cpu: 0.39,
                    off: 0.0
                })
            ),
            dropped: names(&[
                "shop::cache::LruCache<std::string, shop::Item>::get(std::string const&)",
                "std::_Hashtable<std::string, shop::Item>::_M_find_before_node",
            ]),
            added: names(&["std::thread::join()", "shop::price_of_basket(int)"]),
            ..Brief::default()
        };
        for (width, expected) in [
            (
                150,
                "step 2: explains 39 % of CPU; dropped LruCache<...>::get, _Ha…:_M_find_before_node; added std::thread::join(), shop::price_of_basket",
            ),
            (
                73,
                "step 2: explains 39 % of CPU; dropped 2; added thread::join and 1 more",
            ),
            (12, "step 2: expl"),
        ] {
            let line = step.line(width);
            assert!(line.width() <= width, "{line}");
            assert_eq!(line, expected, "{width}");
        }
    }
}
