//! The `ipath` command as a library.
