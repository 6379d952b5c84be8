//! Service code: library and runtime code that the program calls. Calls from the program into a
//! service are worth showing; calls inside a service mostly are not.

use crate::folding::path;

/// Prefixes of the file names of service libraries: the C and C++ libraries, the loader, and
/// libraries for threads and message passing.
const LIBRARIES: [&str; 33] = [
    "[vdso]",
    "ld-linux",
    "ld-musl",
    "libc.",
    "libc-",
    "libpthread",
    "librt.",
    "libm.",
    "libmvec",
    "libdl.",
    "libstdc++",
    "libc++",
    "libgcc_s",
    "libgomp",
    "libomp",
    "libiomp",
    "libtbb",
    "libjemalloc",
    "libtcmalloc",
    "libmimalloc",
    "libmpi",
    "libopen-",
    "libopal",
    "libpmix",
    "libprrte",
    "libevent",
    "libhwloc",
    "libuc",
    "libfabric",
    "libibverbs",
    "librdmacm",
    "libpsm",
    "mca_",
];

/// Prefixes of the paths of service functions in the program's own file: the runtimes of Go and
/// Rust, Rust's locks and channels, and the C and C++ libraries in static programs.
const NAMES: [&str; 15] = [
    "runtime.",
    "runtime/",
    "internal/",
    "syscall.",
    "sync.",
    "std::",
    "core::",
    "alloc::",
    "crossbeam",
    "flume::",
    "lock_api::",
    "parking_lot",
    "__gnu_cxx::",
    "__libc_",
    "__pthread",
];

/// True if the function with the demangled `name` in the file named `file` is service code. Code
/// that belongs to no file is.
pub fn is_service(name: &str, file: Option<&str>) -> bool {
    let is_library = |file: &str| LIBRARIES.iter().any(|l| file.starts_with(l));
    file.is_none_or(is_library) || serves(path(name))
}

/// True if the function path is service code. A method of a trait is service code if both the type
/// and the trait are.
fn serves(path: &str) -> bool {
    let begins = |path: &str| NAMES.iter().any(|name| path.starts_with(name));
    let of_trait = path.split_once(" as ").map(|(_, of_trait)| of_trait);
    begins(path) && of_trait.is_none_or(begins)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_told_by_file_or_name() {
        for (name, file, expected) in [
            ("malloc", Some("libc.so.6"), true),
            ("MPI_Wait", Some("libmpi.so.40"), true),
            ("work", Some("app"), false),
            (
                "PyEval_EvalFrameDefault",
                Some("libpython3.11.so.1.0"),
                false,
            ),
            ("runtime.mallocgc", Some("server"), true),
            ("std::thread::sleep", Some("app"), true),
            (
                "<&std::net::tcp::TcpStream as std::io::Read>::read",
                Some("app"),
                true,
            ),
            (
                "<alloc::vec::Vec<u8> as app::Digest>::digest",
                Some("app"),
                false,
            ),
            ("<app::Job as core::fmt::Debug>::fmt", Some("app"), false),
            (
                "parking_lot::raw_mutex::RawMutex::lock_slow",
                Some("app"),
                true,
            ),
            (
                "<parking_lot_core::thread_parker::imp::ThreadParker>::park",
                Some("app"),
                true,
            ),
            (
                "void std::condition_variable::wait<Queue::pop()::{lambda()#1}>(int)",
                Some("app"),
                true,
            ),
            ("", None, true),
        ] {
            assert_eq!(is_service(name, file), expected, "{name} in {file:?}");
        }
    }
}
