//! Order between stores.

use core::sync::atomic::{Ordering, compiler_fence};

/// Keeps the stores before it before those after it, for readers on other processors. x86 keeps stores in
/// order (Intel SDM volume 3, 9.2.3): only the compiler must be told.
#[inline(always)]
pub fn stores_in_order() {
    compiler_fence(Ordering::SeqCst);
}
