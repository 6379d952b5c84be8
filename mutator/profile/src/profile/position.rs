//! Source positions as text.

use ipath_base::printable::printable;

/// The source position as `FILE:LINE`, or `FILE` if the line is not known. `None` without a file.
pub(crate) fn position(file: Option<&str>, line: Option<u32>) -> Option<String> {
    let file = printable(last_component(file?));
    Some(match line {
        Some(line) => format!("{file}:{line}"),
        None => file.into_owned(),
    })
}

/// The part of a path after its last slash; the whole path if that is empty.
pub(super) fn last_component(path: &str) -> &str {
    path.rsplit('/')
        .next()
        .filter(|name| !name.is_empty())
        .unwrap_or(path)
}
