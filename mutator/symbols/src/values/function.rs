//! The entry of a function and its parameters: DWARF 5, section 3.3.

use super::entries::{Entries, Entry, Side};
use super::reason::Reason;
use gimli::constants;
use gimli::{DebugInfoOffset, UnitOffset};
use patcher::function::Function;
use std::collections::{HashMap, HashSet};

/// The functions of a unit by the start addresses of their parts.
pub(super) struct Starts {
    /// The offset of the unit in `.debug_info`.
    pub(super) unit: DebugInfoOffset,
    /// The entries of functions by the start address of their first part.
    entries: HashMap<u64, Vec<UnitOffset>>,
    /// The start addresses of all other parts.
    parts: HashSet<u64>,
}

impl Starts {
    /// Reads the unit at `unit`.
    pub(super) fn of(entries: &Entries<'_>, unit: DebugInfoOffset) -> Result<Self, Reason> {
        let mut starts = Self {
            unit,
            entries: HashMap::new(),
            parts: HashSet::new(),
        };
        let (dwarf, unit) = (entries.dwarf(Side::Main)?, entries.unit(Side::Main, unit)?);
        let mut raw = unit.entries_raw(None)?;
        while !raw.is_empty() {
            let at = raw.next_offset();
            let Some(abbreviation) = raw.read_abbreviation()? else {
                continue;
            };
            raw.skip_attributes(abbreviation.attributes())?;
            if abbreviation.tag() != constants::DW_TAG_subprogram {
                continue;
            }
            let mut ranges = dwarf.die_ranges(&unit, &unit.entry(at)?)?;
            // The entry of a function is the start of its first range.
            if let Some(first) = ranges.next()? {
                starts.entries.entry(first.begin).or_default().push(at);
            }
            while let Some(further) = ranges.next()? {
                starts.parts.insert(further.begin);
            }
        }
        Ok(starts)
    }

    /// The entry of a function. `None` if the unit has none. Fails if the address is that of a
    /// further part, or if several entries begin there and not exactly one has the function's name.
    pub(super) fn find<'d>(
        &self,
        entries: &Entries<'d>,
        function: &Function,
    ) -> Result<Option<Entry<'d>>, Reason> {
        let start = function.range.start.0;
        let unit = entries.unit(Side::Main, self.unit)?;
        let entry = |at: &UnitOffset| entries.entry(Side::Main, &unit, *at);
        match self.entries.get(&start).map(Vec::as_slice) {
            None if self.parts.contains(&start) => Err(Reason::Part),
            None => Ok(None),
            Some([one]) => entry(one).map(Some),
            Some(several) => {
                let mut named = Vec::new();
                for at in several {
                    let entry = entry(at)?;
                    if has_name_of(entries, &entry, function) {
                        named.push(entry);
                    }
                }
                match named.len() {
                    1 => Ok(named.pop()),
                    _ => Err(Reason::Ambiguous),
                }
            }
        }
    }
}

fn has_name_of<'d>(entries: &Entries<'d>, entry: &Entry<'d>, function: &Function) -> bool {
    let names = [
        constants::DW_AT_linkage_name,
        constants::DW_AT_MIPS_linkage_name,
        constants::DW_AT_name,
    ];
    names.into_iter().any(|name| {
        let bearer = entries.bearer(entry, name).ok().flatten();
        let text = bearer.and_then(|bearer| entries.text(&bearer, name));
        text.is_some_and(|text| text == function.linkage || function.aliases.contains(&text))
    })
}

/// The parameters of a function in the order in which they are passed.
pub(super) struct Parameters<'d> {
    /// The parameters, with their locations if known.
    pub(super) all: Vec<Entry<'d>>,
    /// True if `...` follows them.
    pub(super) is_variadic: bool,
}

impl<'d> Parameters<'d> {
    /// Reads the parameters of the function with an entry. Fails with [`Reason::Parameters`] if the
    /// debug information does not list them all.
    pub(super) fn of(entries: &Entries<'d>, function: &Entry<'d>) -> Result<Self, Reason> {
        let own = Self::listed(entries, function)?;
        let Some(completed) = entries.completed(function)? else {
            return Ok(own);
        };
        let is_declaration = completed.flag(constants::DW_AT_declaration);
        let source = Self::listed(entries, &completed)?;
        let written = |entry: &&Entry<'d>| !is_artificial(entries, entry);
        let of_source: Vec<_> = source.all.iter().filter(written).collect();
        if is_declaration {
            // A definition lists its own parameters, with names. A declaration has none if the
            // class has its own unit.
            let count = own.all.iter().filter(written).count();
            return if source.all.is_empty() || count == of_source.len() {
                Ok(own)
            } else {
                Err(Reason::Parameters)
            };
        }
        if own.all.is_empty() && source.all.len() == of_source.len() {
            return Ok(source);
        }
        // An instance omits the parameters that the compiler removed. Of those that it added to
        // constructors, an instance lists the ones it takes.
        let passed = |entry: &&Entry<'d>| !is_of_constructors(entries, entry);
        let mut of_source = source.all.iter().filter(passed);
        for entry in own.all.iter().filter(passed) {
            let origin = entries.follow(entry, constants::DW_AT_abstract_origin)?;
            match (origin, of_source.next()) {
                (Some(origin), Some(expected)) if origin.is_same(expected) => {}
                _ => return Err(Reason::Parameters),
            }
        }
        if of_source.next().is_some() {
            return Err(Reason::Parameters);
        }
        Ok(Self {
            is_variadic: own.is_variadic || source.is_variadic,
            ..own
        })
    }

    fn listed(entries: &Entries<'d>, function: &Entry<'d>) -> Result<Self, Reason> {
        let mut listed = Self {
            all: Vec::new(),
            is_variadic: false,
        };
        for child in entries.children(function)? {
            match child.tag() {
                constants::DW_TAG_formal_parameter => listed.all.push(child),
                constants::DW_TAG_unspecified_parameters => listed.is_variadic = true,
                // The parameters for `T... a` in a template.
                constants::DW_TAG_GNU_formal_parameter_pack => {
                    listed.all.extend(Self::listed(entries, &child)?.all);
                }
                _ => {}
            }
        }
        Ok(listed)
    }
}

/// True for parameters that GCC adds to constructors and destructors in the source. Not every
/// instance takes all of them.
fn is_of_constructors<'d>(entries: &Entries<'d>, parameter: &Entry<'d>) -> bool {
    let name = entries.name(parameter);
    is_artificial(entries, parameter)
        && name.is_some_and(|name| name == "__in_chrg" || name == "__vtt_parm")
}

/// True for parameters added by the compiler.
pub(super) fn is_artificial<'d>(entries: &Entries<'d>, parameter: &Entry<'d>) -> bool {
    let bearer = entries.bearer(parameter, constants::DW_AT_artificial);
    bearer.is_ok_and(|bearer| bearer.is_some_and(|b| b.flag(constants::DW_AT_artificial)))
}

/// True if the unit of an entry describes types. With `-g1` it does not.
pub(super) fn has_types(entry: &Entry<'_>) -> Result<bool, Reason> {
    let mut raw = entry.unit.entries_raw(None)?;
    while !raw.is_empty() {
        if let Some(abbreviation) = raw.read_abbreviation()? {
            match abbreviation.tag() {
                constants::DW_TAG_base_type
                | constants::DW_TAG_pointer_type
                | constants::DW_TAG_formal_parameter => return Ok(true),
                _ => raw.skip_attributes(abbreviation.attributes())?,
            }
        }
    }
    Ok(false)
}

/// The suffix, without its dot, of the name of a function that the compiler derived from another,
/// perhaps with other arguments. `None` for a name without a suffix, or with one that changes no
/// arguments.
pub(super) fn changing_suffix(linkage: &str) -> Option<&str> {
    // The legacy names of Rust have dots of their own, before a hash.
    let own = if linkage.starts_with("_ZN") {
        linkage.rfind("17h").unwrap_or(0)
    } else {
        0
    };
    let (_, suffix) = linkage.get(own..)?.split_once('.')?;
    // A static made global by link-time optimization, or renamed. An alias. The variant for other
    // processors.
    const SAME: [&str; 5] = ["lto_priv", "llvm", "__uniq", "localalias", "default"];
    const PROCESSORS: [&str; 6] = ["arch_", "avx", "sse", "fma", "bmi", "popcnt"];
    let is_same = |word: &str| {
        SAME.contains(&word)
            || PROCESSORS.iter().any(|name| word.starts_with(name))
            || word.bytes().all(|b| b.is_ascii_digit())
    };
    (!suffix.split('.').all(is_same)).then_some(suffix)
}

#[cfg(test)]
mod tests {
    use super::changing_suffix;

    #[test]
    fn clones_whose_arguments_may_differ_are_told_by_their_names() {
        for (name, suffix) in [
            ("f", None),
            ("_ZN4core3ptr13drop_in_place17h0123456789abcdefE", None),
            (
                "_ZN4core3ptr42drop_in_place$LT$alloc..string..String$GT$17h0123456789abcdefE",
                None,
            ),
            ("_ZN1f17h0123456789abcdefE.llvm.12345", None),
            ("f.lto_priv.0", None),
            ("f.__uniq.123", None),
            ("f.localalias", None),
            ("f.arch_haswell.1", None),
            ("f.avx2.0", None),
            ("inner.0", None),
            ("f.isra.0", Some("isra.0")),
            ("f.constprop.0.lto_priv.3", Some("constprop.0.lto_priv.3")),
            ("f.part.0", Some("part.0")),
            ("f.cold", Some("cold")),
            ("f._omp_fn.0", Some("_omp_fn.0")),
            ("f.actor", Some("actor")),
            ("_ZN1f17h0123456789abcdefE.argprom", Some("argprom")),
        ] {
            assert_eq!(changing_suffix(name), suffix, "{name}");
        }
    }
}
