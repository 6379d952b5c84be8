//! Operations on several processes, some of which may fail.

use super::remarks::warn;
use crate::failure::Failure;

/// The results, and the failures with the items for which the operation failed.
type InEach<I, T> = (Vec<T>, Vec<(I, Failure)>);

/// Separates results from failures.
///
/// # Errors
/// The first failure, if no operation succeeded and one failed.
pub(super) fn in_each<I, T>(
    all: impl IntoIterator<Item = Result<T, (I, Failure)>>,
) -> Result<InEach<I, T>, Failure> {
    let (mut begun, mut failed) = (Vec::new(), Vec::new());
    for one in all {
        match one {
            Ok(one) => begun.push(one),
            Err(failure) => failed.push(failure),
        }
    }
    match failed.first() {
        Some((_, failure)) if begun.is_empty() => Err(failure.clone()),
        _ => Ok((begun, failed)),
    }
}

/// Keeps the results. Prints a line for each failure.
///
/// # Errors
/// The first failure, if no operation succeeded.
pub(super) fn in_some<T>(
    all: impl IntoIterator<Item = Result<T, Failure>>,
) -> Result<Vec<T>, Failure> {
    let all = all
        .into_iter()
        .map(|one| one.map_err(|failure| ((), failure)));
    let (begun, failed) = in_each(all)?;
    failed
        .iter()
        .for_each(|(_, failure)| warn(&failure.in_one_line()));
    Ok(begun)
}
