//! The threads that the runtime has met, found by their FS base.

mod place;
pub mod registry;

pub use place::{Thread, is_same, renew};
pub use registry::current;
