//! Decides which frames of a stack are folded into one line: frames of a language's runtime, and
//! functions of a standard library that were inlined into a caller.
//!
//! Reports, summaries and the view use these rules. A single frame of a runtime is not folded: the
//! folded line would not be shorter.

/// The reason to fold a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// The frame belongs to a runtime, and enters a program, a thread or a task.
    Runtime(Runtime),
    /// The frame is an inlined function of a standard library.
    Wrapper,
    /// The frame is named `main`, like the C function that enters a Rust program. It is folded only
    /// beside a frame of Rust's runtime.
    Main,
}

/// A runtime that calls the functions of a program. Each is built on some of the runtimes before
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    /// libc.
    C,
    /// libstdc++ or libc++.
    Cpp,
    /// Go's package `runtime`.
    Go,
    /// Rust's `std`.
    Rust,
    /// tokio's scheduler.
    Tokio,
}

impl Runtime {
    /// The display name of the runtime's language or library.
    fn name(self) -> &'static str {
        match self {
            Self::C => "C",
            Self::Cpp => "C++",
            Self::Go => "Go",
            Self::Rust => "Rust",
            Self::Tokio => "tokio",
        }
    }
}

/// A line that stands for one or several frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The frame with this index in the stack.
    Frame(usize),
    /// Consecutive frames of a runtime, folded to this text.
    Runtime(String),
    /// Consecutive inlined functions of a standard library, folded to this text.
    Wrappers(String),
}

/// Functions of [`Runtime::C`].
const C: [&str; 9] = [
    "_start",
    "__libc_start_main",
    "__libc_start_main_impl",
    "__libc_start_call_main",
    "start_thread",
    "clone3",
    "__clone3",
    "clone",
    "__clone",
];
/// Functions of [`Runtime::Go`].
const GO: [&str; 5] = [
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.main",
    "runtime.mcall",
    "runtime.mstart",
];
/// Prefixes of functions of [`Runtime::Cpp`].
const CPP: [&str; 14] = [
    "__invoke<",
    "__invoke_impl<",
    "__invoke_r<",
    "execute_native_thread_routine",
    "libc++.so",
    "libstdc++.so",
    "std::__1::__function::",
    "std::__1::__thread_",
    "std::__1::__invoke",
    "std::_Function_handler<",
    "std::__invoke",
    "std::function<",
    "std::invoke",
    "std::thread::_",
];
/// Prefixes of functions of [`Runtime::Rust`].
const RUST: [&str; 15] = [
    "__rust_try",
    "alloc::boxed::Box<F,A> as core::ops::function::FnOnce",
    "core::ops::function::FnOnce",
    "core::ops::function::impls::",
    "core::panic::unwind_safe::AssertUnwindSafe<",
    "std::panic::catch_unwind",
    "std::panicking::",
    "std::rt::",
    "std::sys::backtrace::__rust_begin_short_backtrace",
    "std::sys_common::backtrace::__rust_begin_short_backtrace",
    "std::sys::pal::unix::thread::",
    "std::sys::thread::unix::",
    "std::sys::unix::thread::",
    "std::thread::Builder::spawn",
    "std::thread::lifecycle::",
];
/// Prefixes of functions of [`Runtime::Tokio`].
const TOKIO: [&str; 3] = [
    "tokio::runtime::",
    "tokio::task::coop::",
    "tokio::util::wake_list::",
];
/// Prefixes of functions of the standard libraries of C++ and Rust.
const STANDARD: [&str; 5] = ["std::", "core::", "alloc::", "__gnu_cxx::", "__gthread_"];

/// Go packages that implement the language.
const OF_GO: [&str; 4] = ["runtime.", "internal/", "sync.", "sync/atomic."];

/// System libraries, by the prefix of their file name.
const SYSTEM: [&str; 13] = [
    "[vdso]",
    "ld-linux",
    "ld-musl",
    "libc++",
    "libc-",
    "libc.",
    "libdl.",
    "libgcc_s.",
    "libm.",
    "libpthread",
    "librt.",
    "libstdc++",
    "linux-vdso",
];

/// Folders with the sources of standard libraries.
const FOLDERS: [&str; 4] = [
    "/include/c++/",
    "/rustc/",
    "/rustlib/src/rust/library/",
    "/usr/lib/go",
];

impl Fold {
    /// The reason to fold a frame with this demangled name. `None` if there is no reason.
    pub fn of(name: &str) -> Option<Self> {
        if name == "main" {
            return Some(Self::Main);
        }
        let path = path(name);
        let begins = |with: &[&str]| begins(path, with);
        let runtime = match () {
            () if C.contains(&path) => Runtime::C,
            () if GO.contains(&path) => Runtime::Go,
            () if begins(&TOKIO) => Runtime::Tokio,
            () if begins(&RUST) => Runtime::Rust,
            () if begins(&CPP) => Runtime::Cpp,
            () => return None,
        };
        Some(Self::Runtime(runtime))
    }

    /// The reason to fold an inlined function with this demangled name and its source in `file`.
    /// `None` if there is no reason. Debug information often has only the last component of the
    /// function's name.
    pub fn of_inlined(name: &str, file: Option<&str>) -> Option<Self> {
        let is_in = |folder: &&str| file.is_some_and(|file| file.contains(*folder));
        let is_standard = begins(path(name), &STANDARD) || FOLDERS.iter().any(is_in);
        Self::of(name)
            .filter(|fold| *fold != Self::Main)
            .or(is_standard.then_some(Self::Wrapper))
    }
}

/// True if the function with this demangled name is the program's own: not part of a runtime, a
/// standard library or a system library. `module` is the path of its file, if known.
pub fn is_own(name: &str, module: Option<&str>) -> bool {
    let file = module.map(|module| module.rsplit('/').next().unwrap_or(module));
    let is_system = file.is_some_and(|file| begins(file, &SYSTEM));
    let path = path(name);
    let is_standard = begins(path, &STANDARD) || begins(path, &OF_GO);
    !is_system && !is_standard && !matches!(Fold::of(name), Some(Fold::Runtime(_)))
}

fn begins(path: &str, with: &[&str]) -> bool {
    with.iter().any(|begin| path.starts_with(begin))
}

/// The path in a demangled name and the text after it. For a trait implementation, this is the path
/// of the type, or of the trait if the type is a parameter.
pub(crate) fn path(name: &str) -> &str {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut before = ' ';
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            // The arrow of a function type does not close a bracket.
            '>' if before != '-' => depth = depth.saturating_sub(1),
            '(' if depth == 0 => break,
            ' ' if depth == 0 => start = at + 1,
            _ => {}
        }
        before = c;
    }
    let path = name[start..].trim_start_matches(['<', '&', '*', '(']);
    let path = ["impl ", "dyn ", "mut "]
        .iter()
        .fold(path, |path, word| path.strip_prefix(word).unwrap_or(path));
    match path.split_once(" as ") {
        Some((parameter, of_trait)) if !parameter.contains("::") => of_trait,
        _ => path,
    }
}

/// The lines that show a stack, in the order of its frames, which may be in either direction. Each
/// frame is given by the reason to fold it. A single frame of a runtime is not folded.
pub fn fold(frames: impl IntoIterator<Item = Option<Fold>>) -> Vec<Item> {
    const RUST: Option<Fold> = Some(Fold::Runtime(Runtime::Rust));
    let frames: Vec<Option<Fold>> = frames.into_iter().collect();
    let mut items = Vec::new();
    let mut run: Vec<Fold> = Vec::new();
    for (index, &fold) in frames.iter().enumerate() {
        let is_beside_rust = || {
            let before = index.checked_sub(1).and_then(|index| frames.get(index));
            let beside = [before, frames.get(index + 1)];
            beside.contains(&Some(&RUST))
        };
        match fold.filter(|fold| *fold != Fold::Main || is_beside_rust()) {
            Some(fold) => run.push(fold),
            None => {
                close(&mut items, &mut run, index);
                items.push(Item::Frame(index));
            }
        }
    }
    close(&mut items, &mut run, frames.len());
    items
}

/// Adds a line for the run of folded frames that ends before the index `end`, and clears the run.
/// The line names the runtime that is built on the others. An empty run adds nothing.
fn close(items: &mut Vec<Item>, run: &mut Vec<Fold>, end: usize) {
    let runtimes = run.iter().filter_map(|fold| match fold {
        Fold::Runtime(runtime) => Some(runtime),
        _ => None,
    });
    let runtime = runtimes.max();
    match (run.len(), runtime) {
        (0, _) => {}
        (1, Some(_)) => items.push(Item::Frame(end - 1)),
        (n, Some(runtime)) => {
            let name = runtime.name();
            items.push(Item::Runtime(format!("[{n} frames of the {name} runtime]")));
        }
        (1, None) => items.push(Item::Wrappers("[1 inlined frame of std]".to_owned())),
        (n, None) => items.push(Item::Wrappers(format!("[{n} inlined frames of std]"))),
    }
    run.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of frames. A name that ends with ` *` is inlined.
    fn folded(names: &[&str]) -> Vec<String> {
        let of = |name: &&str| match name.strip_suffix(" *") {
            Some(name) => Fold::of_inlined(name, Some("/src/shop.cc")),
            None => Fold::of(name),
        };
        let line = |item| match item {
            Item::Frame(index) => names[index].to_owned(),
            Item::Runtime(text) | Item::Wrappers(text) => text,
        };
        fold(names.iter().map(of)).into_iter().map(line).collect()
    }

    #[test]
    fn frames_of_each_runtime_are_one_line() {
        for (names, runtime) in [
            (
                &["__libc_start_call_main", "__libc_start_main_impl", "_start"][..],
                "C",
            ),
            (&["runtime.main", "runtime.goexit.abi0"], "Go"),
            (
                &[
                    "void std::__invoke_impl<void, void (*)()>(std::__invoke_other, void (*&&)())",
                    "std::thread::_State_impl<std::thread::_Invoker<std::tuple<void (*)()> > >::_M_run()",
                    "execute_native_thread_routine",
                    "start_thread",
                    "clone3",
                ],
                "C++",
            ),
            (
                &[
                    "core::ops::function::FnOnce::call_once *",
                    "std::sys::backtrace::__rust_begin_short_backtrace",
                    "std::rt::lang_start::{{closure}}",
                    "<&F as core::ops::function::FnOnce<A>>::call_once *",
                    "std::rt::lang_start_internal",
                    "main",
                    "__libc_start_call_main",
                    "_start",
                ],
                "Rust",
            ),
            (
                &[
                    "tokio::runtime::task::core::Core<T,S>::poll",
                    "<core::panic::unwind_safe::AssertUnwindSafe<F> as core::ops::function::FnOnce<()>>::call_once",
                    "std::panicking::try",
                    "tokio::runtime::scheduler::multi_thread::worker::Context::run",
                ],
                "tokio",
            ),
        ] {
            let all: Vec<&str> = [&["work"], names].concat();
            let expected = format!("[{} frames of the {runtime} runtime]", names.len());
            assert_eq!(folded(&all), ["work", &expected]);
            // The same frames from the root.
            let from_root: Vec<&str> = all.iter().rev().copied().collect();
            assert_eq!(folded(&from_root), [&expected, "work"]);
        }
    }

    #[test]
    fn frames_of_the_program_are_shown() {
        let names = [
            "main",
            "start",
            "clone_list",
            "runtime.mallocgc",
            "std::vector<int>::push_back(int const&)",
            "std::vector<int> shop::load(int) *",
            "<shop::Cache as core::ops::drop::Drop>::drop *",
            "std::shared_ptr<int> (*shop::choose(int))(int) *",
        ];
        assert_eq!(folded(&names), names);
        assert_eq!(folded(&["main", "_start"]), ["main", "_start"]);
    }

    #[test]
    fn inlined_functions_of_a_standard_library_are_one_line() {
        let names = [
            "std::unique_ptr<int, std::default_delete<int> >::get() const *",
            "int& std::vector<int, std::allocator<int> >::emplace_back<int>(int&&) *",
            "shop::load(int)",
            "<core::slice::iter::Iter<T> as core::iter::traits::iterator::Iterator>::next *",
            "shop::total",
            "__gthread_mutex_lock(pthread_mutex_t*) *",
            "std::mutex::lock() *",
            "shop::close",
        ];
        let expected = [
            "[2 inlined frames of std]",
            "shop::load(int)",
            "[1 inlined frame of std]",
            "shop::total",
            "[2 inlined frames of std]",
            "shop::close",
        ];
        assert_eq!(folded(&names), expected);
        let file = "/usr/include/c++/12/bits/stl_vector.h";
        assert_eq!(
            Fold::of_inlined("push_back", Some(file)),
            Some(Fold::Wrapper)
        );
        assert_eq!(Fold::of_inlined("push_back", None), None);
    }
}
