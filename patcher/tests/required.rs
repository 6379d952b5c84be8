//! Functions that users ask for first: big, hand-written, stripped, tiny. If the file is installed,
//! the entry and every exit must be available.

mod libraries;

use patcher::function::Function;
use patcher::image::Image;
use patcher::plan::{Effects, FunctionPlan, ModuleContext, RefuseReason, plan};

fn plan_of(image: &Image<'_>, context: &ModuleContext<'_>, name: &str) -> FunctionPlan {
    let is = |f: &Function| f.linkage == name || f.aliases.iter().any(|a| a == name);
    let function = image.functions().iter().find(is);
    let function = function.unwrap_or_else(|| panic!("no function {name}"));
    plan(
        image,
        context,
        &function,
        Effects {
            entry: true,
            exits: true,
        },
    )
}

fn all_had(data: &[u8], names: &[&str]) {
    let image = Image::parse(data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    for name in names {
        let plan = plan_of(&image, &context, name);
        assert_eq!(plan.refused(), None, "{name}");
        assert!(!plan.sites.is_empty());
    }
}

#[test]
fn the_c_library() {
    let names = [
        "malloc",
        "free",
        "calloc",
        "realloc",
        "qsort",
        "getenv",
        "strtol",
        "printf",
        "fwrite",
        "read",
        "write",
        "nanosleep",
        "pthread_mutex_lock",
        "pthread_create",
        "getpid",
        "rand",
    ];
    all_had(&libraries::libc(), &names);
}

/// The part of `clone3` that only a new thread runs has its own frame description, which states
/// that it has no caller.
#[test]
fn where_a_thread_begins_is_no_function() {
    let data = libraries::libc();
    let image = Image::parse(&data).expect("libc is an image");
    let context = ModuleContext::new(&image);
    let want = Effects {
        entry: true,
        exits: true,
    };
    let begins: Vec<_> = image
        .functions()
        .iter()
        .filter(|f| f.linkage.is_empty() && image.is_outermost(f.range.start))
        .collect();
    assert!(!begins.is_empty(), "clone3 has one");
    for function in begins {
        let plan = plan(&image, &context, &function, want);
        let reason = plan.refused().map(|(_, reason)| reason);
        assert_eq!(reason, Some(RefuseReason::Fragment));
    }
}

#[test]
fn the_message_passing_library() {
    if let Some(data) = libraries::library("libmpi.so.40") {
        all_had(
            &data,
            &[
                "MPI_Wait",
                "MPI_Send",
                "MPI_Recv",
                "MPI_Allreduce",
                "MPI_Init",
            ],
        );
    }
}

#[test]
fn the_python_interpreter() {
    if let Ok(data) = std::fs::read("/usr/bin/python3.11") {
        let names = [
            "_PyEval_EvalFrameDefault",
            "PyObject_GetAttr",
            "PyObject_Malloc",
            "PyDict_GetItem",
            "PyLong_FromLong",
            "PyMem_RawMalloc",
        ];
        all_had(&data, &names);
    }
}

/// The interpreter's loop has computed gotos through tables of addresses. They lead only to the
/// loop's own labels, so they are no exits.
#[test]
fn computed_gotos_stay_in_the_function() {
    if let Ok(data) = std::fs::read("/usr/bin/python3.11") {
        let image = Image::parse(&data).expect("an ELF image");
        let plan = plan_of(
            &image,
            &ModuleContext::new(&image),
            "_PyEval_EvalFrameDefault",
        );
        let exits: Vec<_> = plan.exits.iter().map(|e| e.point.at).collect();
        assert!(!exits.is_empty() && exits.len() < 40, "{exits:?}");
    }
}

/// `redis-server` is stripped: its functions are known from unwind tables.
#[test]
fn a_stripped_server() {
    let Ok(data) = std::fs::read("/usr/bin/redis-server") else {
        return;
    };
    let image = Image::parse(&data).expect("an ELF image");
    let context = ModuleContext::new(&image);
    let want = Effects {
        entry: true,
        exits: true,
    };
    let big = image.functions().iter().filter(|f| f.size() > 64);
    let refused = big
        .filter_map(|f| plan(&image, &context, &f, want).refused())
        // A split-off part is not a function of its own.
        .filter(|(_, reason)| *reason != RefuseReason::Fragment);
    assert_eq!(refused.collect::<Vec<_>>(), []);
}

/// The program beside this file, as a shared library: switches, computed gotos, exceptions, loops
/// to the entry, compiled with and without optimization.
#[test]
fn everything_of_a_compiled_program() {
    for optimization in ["-O0", "-O1", "-O2", "-O3", "-Os"] {
        let Some(data) = libraries::compiled(optimization) else {
            return;
        };
        let image = Image::parse(&data).expect("an ELF image");
        let names = [
            "tiny",
            "nothing",
            "tail_caller",
            "tail_through",
            "switched",
            "threaded",
            "loop",
            "tail",
            "_Z7throweri",
            "_Z7catcheri",
        ];
        all_had(&data, &names);
        let plan = plan_of(&image, &ModuleContext::new(&image), "threaded");
        assert_eq!(
            plan.exits.len(),
            1,
            "{optimization}: computed gotos are no exits"
        );
    }
}
