//! Facts about code from files and processes: functions, lines, values of arguments, and names of
//! generated code.

mod arch;
pub mod debuginfod;
pub mod elf_symbols;
pub mod images;
pub mod jit;
pub mod lines;
pub mod recipes;
pub mod values;
