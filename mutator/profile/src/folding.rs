//! Decides which frames of a stack are folded into one line: frames of a language's runtime, and
//! functions of a standard library that were inlined into a caller.
//!
//! Reports, summaries and the view use these rules. A single frame of a runtime is not folded: the
//! folded line would not be shorter.

/// Why a frame is folded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// It belongs to a runtime, and enters a program, a thread or a task.
    Runtime(Runtime),
    /// It is a function of a standard library that was inlined.
    Wrapper,
    /// It is named `main`, like the C function that enters a Rust program.
    Main,
}

/// The runtime that calls the functions of a program. Each is built on some of those before it.
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

/// One line for frames of a stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// The frame at an index.
    Frame(usize),
    /// Frames of a runtime, as text.
    Runtime(String),
    /// Inlined functions of a standard library, as text.
    Wrappers(String),
}

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
const GO: [&str; 5] = [
    "runtime.goexit",
    "runtime.goexit.abi0",
    "runtime.main",
    "runtime.mcall",
    "runtime.mstart",
];
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
const TOKIO: [&str; 3] = [
    "tokio::runtime::",
    "tokio::task::coop::",
    "tokio::util::wake_list::",
];
const STANDARD: [&str; 5] = ["std::", "core::", "alloc::", "__gnu_cxx::", "__gthread_"];

/// Packages of Go that implement the language.
const OF_GO: [&str; 4] = ["runtime.", "internal/", "sync.", "sync/atomic."];

/// Files of system libraries, by the start of their names.
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

/// Folders of the sources of standard libraries.
const FOLDERS: [&str; 4] = [
    "/include/c++/",
    "/rustc/",
    "/rustlib/src/rust/library/",
    "/usr/lib/go",
];

impl Fold {
    /// The reason to fold a frame of this demangled name. `None` if it is shown.
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

    /// The reason to fold an inlined function, whose source is in `file`. Debug information often has
    /// only the last part of its name.
    pub fn of_inlined(name: &str, file: Option<&str>) -> Option<Self> {
        let is_in = |folder: &&str| file.is_some_and(|file| file.contains(*folder));
        let is_standard = begins(path(name), &STANDARD) || FOLDERS.iter().any(is_in);
        Self::of(name)
            .filter(|fold| *fold != Self::Main)
            .or(is_standard.then_some(Self::Wrapper))
    }
}

/// True if a function is the program's own: not part of a runtime, a standard library or a system library.
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

/// The part of a demangled name from its path on. For an implementation of a trait it is the path of
/// the type, or of the trait if the type is a parameter.
pub(crate) fn path(name: &str) -> &str {
    let mut depth = 0_usize;
    let mut start = 0;
    let mut before = ' ';
    for (at, c) in name.char_indices() {
        match c {
            '<' => depth += 1,
            // The arrow of a function type closes nothing.
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

/// Folds the frames of a stack, in either direction.
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

/// Adds a line for the run of folded frames that ends before `end`. It has the name of the runtime
/// that is built on the others.
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

    /// The lines of frames, where a name that ends with ` *` is inlined.
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
            // The same from the root.
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
