//! Panics, which are bugs in this program. Everything in progress is ended first, then the panic is
//! reported as a failure.

use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind, set_hook};
use std::sync::Mutex;

use crate::failure::Failure;

/// The message and location of the latest panic.
static LATEST: Mutex<Option<String>> = Mutex::new(None);

/// Stores panics for [`caught`] instead of printing them. The view may be using the terminal, or
/// the terminal may be gone.
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

/// Runs `what`. A panic in it, or on a thread that it waits for, becomes a failure.
pub(super) fn caught<R>(
    operation: &str,
    what: impl FnOnce() -> Result<R, Failure>,
) -> Result<R, Failure> {
    // State that a panic left incomplete is not used again, except to remove the session, which
    // rereads everything.
    catch_unwind(AssertUnwindSafe(what)).unwrap_or_else(|_| Err(failure(operation)))
}

fn failure(operation: &str) -> Failure {
    let latest = match LATEST.lock() {
        Ok(mut latest) => latest.take(),
        Err(poisoned) => poisoned.into_inner().take(),
    };
    let cause = latest.unwrap_or_else(|| "a panic".to_owned());
    Failure::internal(operation, cause)
        .hint("this is a bug in ipath; RUST_BACKTRACE=1 shows details")
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
