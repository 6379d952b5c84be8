//! Source positions of machine code: file, line and inlined functions, from DWARF.

mod demangle;

pub use demangle::demangle;
