//! The code of the functions that paths must pass through, or must not (`--under`, `--not-under`).

use std::ops::Range;
use std::path::Path;

use abi::filter::{EXCLUDED, FilterRange, MOST_RANGES};
use patcher::select::Pattern;
use patcher::{Avma, Svma};

use super::SessionError;
use super::select::is_meant;
use ipath_symbols::images::{self, OpenImage};
use ipath_target::process::modules::Module;

/// The code of functions in the process, and the item of the filter that names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Filters {
    ranges: Vec<(Range<Avma>, u32)>,
    /// The number of functions that a path must pass through.
    pub(super) items: u32,
}

impl Filters {
    /// The filter for paths through functions of all of `under`, in this order from the root, and
    /// of none of `not_under`. Inlined copies of functions count, by the debug information.
    ///
    /// # Errors
    /// A pattern is invalid or has no match, unless `may_be_missing`, or there are too many copies.
    pub(super) fn of(
        under: &[String],
        not_under: &[String],
        modules: &[Module],
        may_be_missing: bool,
    ) -> Result<Self, SessionError> {
        let mut filters = Self {
            ranges: Vec::new(),
            items: under.len() as u32,
        };
        let items = (0..).zip(under);
        let excluded = not_under.iter().map(|text| (EXCLUDED, text));
        for (item, text) in items.chain(excluded) {
            let pattern = Pattern::parse(text);
            let pattern = pattern.map_err(|_| SessionError::NotUnder(text.clone()))?;
            let before = filters.ranges.len();
            for module in modules {
                if is_meant(&pattern, module.file_name(), Some(module)) {
                    let found = ranges_in(&pattern, module);
                    filters
                        .ranges
                        .extend(found.into_iter().map(|range| (range, item)));
                }
            }
            if filters.ranges.len() == before && !may_be_missing {
                return Err(SessionError::NotUnder(text.clone()));
            }
        }
        if filters.is_on() && filters.ranges.is_empty() {
            // Nothing is in the code of a function that is not there.
            filters.ranges.push((Avma(0)..Avma(0), 0));
        }
        if filters.ranges.len() > MOST_RANGES {
            return Err(SessionError::ManyUnder(filters.ranges.len()));
        }
        Ok(filters)
    }

    /// True if a path must pass through some function.
    fn is_on(&self) -> bool {
        self.items > 0
    }

    /// The number of ranges.
    pub(super) fn len(&self) -> u64 {
        self.ranges.len() as u64
    }

    /// The table in the runtime's encoding.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let encode = |(range, item): &(Range<Avma>, u32)| {
            let mut bytes = Vec::with_capacity(size_of::<FilterRange>());
            bytes.extend(range.start.0.to_le_bytes());
            bytes.extend(range.end.0.to_le_bytes());
            bytes.extend(item.to_le_bytes());
            bytes.extend(0_u32.to_le_bytes());
            bytes
        };
        self.ranges.iter().flat_map(encode).collect()
    }
}

/// The code of the functions of a module that a pattern names, and of their inlined copies.
fn ranges_in(pattern: &Pattern, module: &Module) -> Vec<Range<Avma>> {
    let Ok(opened) = images::of_module(module) else {
        return Vec::new();
    };
    let image = opened.image();
    let Some(bias) = module.bias(image) else {
        return Vec::new();
    };
    let mut found: Vec<Range<Svma>> = Vec::new();
    match pattern.absolute_address() {
        Some(at) => {
            let function = Pattern::select_at(image, bias.to_svma(at));
            found.extend(function.iter().flat_map(|f| f.ranges()).cloned());
        }
        None => {
            let functions = pattern.select(image, module.file_name());
            found.extend(functions.iter().flat_map(|f| f.ranges()).cloned());
            if !pattern.is_address() {
                found.extend(copies(pattern, &opened, Path::new(&module.path)));
            }
        }
    }
    let to_avma = |range: Range<Svma>| bias.to_avma(range.start)..bias.to_avma(range.end);
    let mut found: Vec<Range<Avma>> = found.into_iter().map(to_avma).collect();
    found.sort_unstable_by_key(|range| (range.start, range.end));
    found.dedup();
    found
}

/// The code of the inlined copies of the functions that a pattern names.
fn copies(pattern: &Pattern, opened: &OpenImage, path: &Path) -> Vec<Range<Svma>> {
    let is_wanted = |name: &[u8]| std::str::from_utf8(name).is_ok_and(|name| pattern.names(name));
    let functions = opened.image().functions();
    let name_at = |at: u64| {
        let function = functions.containing(Svma(at))?;
        let name = function.linkage.filter(|_| function.start == Svma(at))?;
        Some(name.to_owned())
    };
    let Some(lines) = opened.lines(path) else {
        return Vec::new();
    };
    let copies = lines.with(|lines| lines.copies(is_wanted, name_at));
    copies.into_iter().flat_map(|copy| copy.ranges).collect()
}
