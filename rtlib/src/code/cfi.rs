//! Call-frame information, evaluated in the target: `.eh_frame` as defined by the System V ABI,
//! DWARF 5 chapter 6.4 and LSB 5 chapter 10.6. It allocates nothing, and every read is bounded.

mod cursor;
mod expression;
mod program;
mod table;

#[cfg(test)]
mod tests;

pub use cursor::{Cursor, Region};
pub use program::{Row, row_at};
pub use table::{Fde, find_fde, find_fde_in};

/// The rule of the canonical frame address.
pub type Cfa = unwind::Cfa<Cursor>;
/// The rule of a register.
pub type RegisterRule = unwind::RegisterRule<Cursor>;
