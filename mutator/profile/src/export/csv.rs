//! Comma-separated values (RFC 4180): one line for each path, with all of its numbers.

use super::ExportError;
use super::model::{Callers, Model, Naming, is_partly, metrics};
use crate::profile::{COUNT, Profile, printable};
use std::borrow::Cow;
use std::io::Write;

/// Writes a heading and one line for each path, with the values of `metric` or of all metrics.
/// Unknown values are empty fields.
///
/// # Errors
/// The profile does not have the metric, or `out` fails.
pub fn to_csv(
    profile: &Profile,
    metric: Option<&str>,
    callers: Callers,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let asked = metrics(profile, metric)?;
    let model = Model::of(profile, Naming::by_line(callers));
    out.write_all(b"function,linkage,module,build_id,path,thread,complete,count,unwound,open,tail,wholly_measured,process")?;
    let asked: Vec<&str> = asked
        .iter()
        .map(|m| &*m.name)
        .filter(|&m| m != COUNT)
        .collect();
    for metric in &asked {
        for what in ["sum", "min", "max", "outermost", "exclusive"] {
            write!(out, ",{}", field(&format!("{metric}_{what}")))?;
        }
    }
    out.write_all(b"\r\n")?;
    for path in &profile.paths {
        let function = &profile.functions[path.function];
        let module = &profile.modules[function.module];
        let names: Vec<&str> = model
            .stack(path)
            .iter()
            .map(|&n| &*model.names[n])
            .collect();
        for text in [
            &*printable(&function.name),
            &*printable(&function.linkage),
            &*printable(&module.path),
            module.build_id.as_deref().unwrap_or(""),
            &names.join(";"),
        ] {
            write!(out, "{},", field(text))?;
        }
        write!(
            out,
            "{},{},{},{},{},{},{},{}",
            shown(path.thread),
            path.complete,
            path.metrics.count,
            shown(path.unwound),
            shown(path.open),
            path.tail,
            !is_partly(function),
            shown(profile.process_of(path).map(|process| process.pid))
        )?;
        for metric in &asked {
            match path.metrics.timers.get(metric) {
                Some(stats) if stats.values() > 0 => {
                    write!(out, ",{},{},{}", stats.sum, stats.min, stats.max)?;
                    write!(
                        out,
                        ",{},{}",
                        shown(stats.outermost),
                        shown(stats.exclusive)
                    )?;
                }
                _ => out.write_all(b",,,,,")?,
            }
        }
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

/// A number as a field. Empty for `None`.
fn shown(number: Option<impl ToString>) -> String {
    number.map(|n| n.to_string()).unwrap_or_default()
}

/// A text as one field, quoted if needed. A text that begins with `=`, `+`, `-` or `@` gets a `'`
/// in front: spreadsheets interpret it as a formula, and names may come from untrusted files.
fn field(text: &str) -> Cow<'_, str> {
    let is_formula = text.starts_with(['=', '+', '-', '@']);
    if is_formula || text.contains(['"', ',', '\r', '\n']) {
        let quote = if is_formula { "'" } else { "" };
        Cow::Owned(format!("\"{quote}{}\"", text.replace('"', "\"\"")))
    } else {
        Cow::Borrowed(text)
    }
}
