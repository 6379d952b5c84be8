//! The five readers, whose inputs may come from anyone.

#[path = "readers/document.rs"]
mod document;
#[path = "readers/elf.rs"]
mod elf;
#[path = "readers/profile.rs"]
mod profile;
#[path = "readers/segment.rs"]
mod segment;
#[path = "readers/unwind.rs"]
mod unwind;

#[global_allocator]
static COUNTED: ipath_fuzz::memory::Counted = ipath_fuzz::memory::Counted;
