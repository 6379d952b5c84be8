//! The functions of an image, from its symbol tables and from its unwind tables, which may know
//! more.

mod also;
mod coroutine;
mod demangle;
mod go;
mod names;
mod nesting;
mod parts;
mod selected;
mod symbol;
mod symbols;
mod table;
mod unnamed;

#[cfg(test)]
mod tests;

pub use also::also_called;
pub use coroutine::{is_coroutine_body, is_coroutine_part};
pub use demangle::{demangle, demangle_without_arguments};
pub(crate) use demangle::{demangle_without_return_type, is_mangled};
pub use names::is_of_blocks;
pub use selected::{Function, FunctionKind};
pub use table::{FunctionRef, FunctionTable};
