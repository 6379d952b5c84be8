//! Panics, which are defects of this program: whatever was begun is ended first, then they are
//! reported as any failure.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::sync::Mutex;

use ipath_base::error::Failure;

/// What the latest panic said, and where.
static LATEST: Mutex<Option<String>> = Mutex::new(None);

/// From now on a panic is kept for [`caught`] instead of being printed: the terminal may be the
/// view's at that moment, or gone.
pub(super) fn keep() {
    set_hook(Box::new(|info| {
        let text = describe(info);
        let mut latest = match LATEST.lock() {
            Ok(latest) => latest,
            Err(poisoned) => poisoned.into_inner(),
        };
        *latest = Some(text);
    }));
}

/// Does something; a panic in it, or on a thread that it waits for, is its failure.
pub(super) fn caught<R>(
    operation: &str,
    what: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    // What a panic has left half done is not used further, but to take the session out, which
    // reads everything anew.
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|_| Err(failure(operation)))
}

fn failure(operation: &str) -> Failure {
    let latest = match LATEST.lock() {
        Ok(mut latest) => latest.take(),
        Err(poisoned) => poisoned.into_inner().take(),
    };
    let cause = latest.unwrap_or_else(|| "a panic".to_owned());
    Failure::internal(operation, cause)
        .hint("this is a defect of ipath; with RUST_BACKTRACE=1 it says more")
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let payload = info.payload();
    let message = payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic".to_owned());
    let place = info.location().map(|at| format!(" at {at}"));
    let trace = std::env::var_os("RUST_BACKTRACE")
        .map(|_| format!(" {}", std::backtrace::Backtrace::force_capture()));
    message + &place.unwrap_or_default() + &trace.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_failure() {
        assert_eq!(caught("test", || Ok(3)), Ok(3));
        let failed: Result<(), _> = caught("test", || panic!("two\nlines"));
        let line = failed.unwrap_err().to_string();
        assert!(line.starts_with("internal error in test: "), "{line}");
        assert!(!line.contains('\n'), "{line}");
    }
}
