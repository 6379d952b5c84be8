//! Order between stores.

use core::sync::atomic::{Ordering, compiler_fence};

/// Orders the stores before the call ahead of the stores after it, for readers on other processors.
/// x86 processors keep stores in order (Intel SDM volume 3, 9.2.3), so this is a compiler fence.
#[inline(always)]
pub fn stores_in_order() {
    compiler_fence(Ordering::SeqCst);
}
