//! The counted functions of a page.

use std::io::Write;

use serde_json::{Value, json};

use crate::export::ExportError;
use crate::export::annotated::{Annotated, Row, annotate};
use crate::export::code::Code;
use crate::profile::Profile;

/// Writes the counted functions, separated by commas, each escaped by `safe`. The texts of source
/// lines are left out if `sources` is false.
///
/// # Errors
/// Returns the errors of `out`.
pub(super) fn write(
    profile: &Profile,
    code: &Code,
    sources: bool,
    safe: fn(&str) -> String,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let mut separator = "";
    annotate(profile, Some(code), sources, |function| {
        write!(out, "{separator}{}", safe(&value(&function).to_string()))?;
        separator = ",";
        Ok(())
    })
}

fn value(function: &Annotated) -> Value {
    json!({
        "name": function.name,
        "about": format!("{}: {}", function.place, function.size),
        "notes": function.notes,
        "rows": function.rows.iter().map(row).collect::<Value>(),
    })
}

/// The kind, the count, the share from 0 to 1, the place and the text. Count and share are null if
/// there are none.
fn row(row: &Row) -> Value {
    let count = row.count.map(|(count, _)| count);
    let share = row.count.filter(|(_, of)| *of > 0);
    let share = share.map(|(count, of)| count as f64 / of as f64);
    json!([row.kind.word(), count, share, row.place, row.text])
}
