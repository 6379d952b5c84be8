//! The unwind tables of this process's own libraries, read by us and by gimli.
use super::*;
