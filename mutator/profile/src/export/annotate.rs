//! Counted functions as text: source lines and instructions with counts, like `perf annotate`.

#[cfg(test)]
mod tests;

use std::io::Write;

use super::ExportError;
use super::annotated::{Annotated, Kind, annotate};
use super::code::Code;
use crate::profile::Profile;
use crate::report::human;

/// The headings of counts and shares.
const HEADINGS: [&str; 2] = ["count", "share"];

/// Writes the counted functions: their blocks, source lines, instructions and edges, each with its
/// count. The texts of source lines are those of the files on this machine.
///
/// # Errors
/// The control flow of no function was counted, or `out` fails.
pub fn to_annotate(
    profile: &Profile,
    code: Option<&Code>,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    if profile.inside.is_empty() {
        return Err(ExportError::NoInside);
    }
    let mut separator = "";
    annotate(profile, code, true, |function| {
        out.write_all(separator.as_bytes())?;
        separator = "\n";
        write(&function, out)
    })
}

fn write(function: &Annotated, out: &mut impl Write) -> Result<(), ExportError> {
    let Annotated {
        name, place, size, ..
    } = function;
    writeln!(out, "{name} ({place}): {size}")?;
    for note in &function.notes {
        writeln!(out, "  {note}")?;
    }
    let cells = |count: Option<(u64, u128)>| {
        count.map_or([String::new(), String::new()], |(count, of)| {
            let of = i128::try_from(of).unwrap_or(i128::MAX);
            [count.to_string(), human::share(count.into(), of)]
        })
    };
    let mut widths = HEADINGS.map(str::len);
    for row in &function.rows {
        for (width, cell) in widths.iter_mut().zip(cells(row.count)) {
            *width = cell.len().max(*width);
        }
    }
    let [counts, shares] = widths;
    let [count, share] = HEADINGS;
    writeln!(out, "  {count:>counts$}  {share:>shares$}")?;
    for row in &function.rows {
        let [count, share] = cells(row.count);
        let indent = match row.kind {
            Kind::Block => "",
            Kind::Line => "  ",
            Kind::Instruction => "      ",
            Kind::Arrival => "    <- ",
            Kind::Edge => "    -> ",
        };
        let line = format!(
            "  {count:>counts$}  {share:>shares$}  {indent}{}  {}",
            row.place, row.text
        );
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
