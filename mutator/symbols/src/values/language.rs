//! Languages with different calling conventions.

use super::entries::{Entries, Entry};
use super::reason::Reason;
use gimli::AttributeValue;
use gimli::constants::{self, DwLang};

// Assigned after DWARF 5: https://dwarfstd.org/languages.html.
const C_PLUS_PLUS_23: DwLang = DwLang(0x3a);
const FORTRAN_23: DwLang = DwLang(0x3d);
const C23: DwLang = DwLang(0x3e);
const ASSEMBLY: DwLang = DwLang(0x31);

/// The language of a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Language {
    C,
    Cpp,
    Fortran,
    Rust,
    /// Its entries have no types.
    Assembler,
    /// A language whose functions need not follow the psABI.
    Other(String),
}

impl Language {
    /// Fails if functions without types may pass arguments in other registers than the psABI says.
    pub(super) fn check_registers(&self) -> Result<(), Reason> {
        match self {
            Self::C | Self::Cpp | Self::Fortran | Self::Assembler => Ok(()),
            Self::Rust => Err(Reason::Language("Rust".to_owned())),
            Self::Other(name) => Err(Reason::Language(name.clone())),
        }
    }

    /// Fails if types do not determine the registers.
    pub(super) fn check_types(&self) -> Result<(), Reason> {
        match self {
            Self::Rust => Ok(()),
            other => other.check_registers(),
        }
    }

    /// True if type names include keywords such as `struct`.
    pub(super) fn has_tags(&self) -> bool {
        !matches!(self, Self::Cpp | Self::Rust)
    }
}

/// The language of an entry's unit. [`Language::Other`] if it is unknown. Fails if the unit cannot
/// be read.
pub(super) fn of<'d>(entries: &Entries<'d>, entry: &Entry<'d>) -> Result<Language, Reason> {
    let root = entries.root(entry)?;
    let producer = entries.text(&root, constants::DW_AT_producer);
    // The units of Zig claim to be C.
    if producer.is_some_and(|producer| producer.starts_with("zig")) {
        return Ok(Language::Other("Zig".to_owned()));
    }
    let given = match root.die.attr_value(constants::DW_AT_language) {
        Some(AttributeValue::Language(language)) => language,
        _ => return Ok(Language::Other("of an unknown language".to_owned())),
    };
    Ok(match given {
        constants::DW_LANG_C89
        | constants::DW_LANG_C
        | constants::DW_LANG_C99
        | constants::DW_LANG_C11
        | constants::DW_LANG_C17
        | C23
        | constants::DW_LANG_ObjC => Language::C,
        constants::DW_LANG_C_plus_plus
        | constants::DW_LANG_C_plus_plus_03
        | constants::DW_LANG_C_plus_plus_11
        | constants::DW_LANG_C_plus_plus_14
        | constants::DW_LANG_C_plus_plus_17
        | constants::DW_LANG_C_plus_plus_20
        | C_PLUS_PLUS_23
        | constants::DW_LANG_ObjC_plus_plus => Language::Cpp,
        constants::DW_LANG_Fortran77
        | constants::DW_LANG_Fortran90
        | constants::DW_LANG_Fortran95
        | constants::DW_LANG_Fortran03
        | constants::DW_LANG_Fortran08
        | constants::DW_LANG_Fortran18
        | FORTRAN_23 => Language::Fortran,
        constants::DW_LANG_Rust => Language::Rust,
        constants::DW_LANG_Mips_Assembler | ASSEMBLY => Language::Assembler,
        other => Language::Other(spoken(other)),
    })
}

fn spoken(language: DwLang) -> String {
    match language.static_string() {
        Some(name) => name.trim_start_matches("DW_LANG_").to_owned(),
        None => format!("of language {:#x}", language.0),
    }
}
