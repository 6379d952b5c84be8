//! The threads that the runtime has seen, by their thread pointer.

mod mark;
mod place;
pub mod registry;
mod settling;

pub use place::{MEMO, Thread, is_same};
pub use registry::current;
pub use settling::{keep_room, settle};
