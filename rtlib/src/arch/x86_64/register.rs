//! Registers by their DWARF numbers (psABI figure 3.36).

/// DWARF number of rbx.
pub const RBX: usize = 3;
/// DWARF number of rbp.
pub const RBP: usize = 6;
/// DWARF number of rsp.
pub const RSP: usize = 7;
/// DWARF number of the return-address column.
pub const RA: usize = 16;
/// Columns that are tracked: the sixteen general registers and the return address.
pub const COLUMNS: usize = 17;
