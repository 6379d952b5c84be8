//! Witnesses: functions that are probed in addition to the requested ones. Through them calls end
//! without a return, stacks are moved, libraries are loaded, children share the process's memory,
//! or the program ends.

use std::collections::BTreeSet;
use std::iter::once;
use std::sync::Arc;

use patcher::Svma;
use patcher::function::Function;
use patcher::image::Image;
use patcher::plan::{Allowed, FunctionPlan, RefuseReason, plan_allowed};

use super::candidate::{Candidate, Origin, display_name};
use super::enders::measured_places;

use super::remeasure::sees_ends;
use super::{forks, slices};
use crate::segment::{Document, Forking, Role, Witness};
use ipath_symbols::{images, jit};
use ipath_target::process::modules::{Module, VDSO};

/// Linkage names, and the events that calls of them report.
const WITNESSES: [(&str, Witness); 24] = [
    // The beginning of a C++ handler, and the end of a cleanup.
    ("__cxa_begin_catch", Witness::Frames),
    ("_Unwind_Resume", Witness::Frames),
    // glibc calls these on every thread that ends: returned, exited or canceled. It calls the
    // second on the first thread too. There may be no symbol for it.
    ("__call_tls_dtors", Witness::Frames),
    ("__nptl_deallocate_tsd", Witness::Frames),
    // In musl, every thread ends here.
    ("pthread_exit", Witness::End),
    // Within glibc the later ones lead to the jump itself. They serve if its exported names have no
    // symbol.
    ("longjmp", Witness::Jump),
    ("_longjmp", Witness::Jump),
    ("siglongjmp", Witness::Jump),
    ("__longjmp_chk", Witness::Jump),
    ("__libc_longjmp", Witness::Jump),
    ("__libc_siglongjmp", Witness::Jump),
    ("__longjmp", Witness::Jump),
    // Copies a goroutine's stack to a larger or smaller one.
    (MOVER, Witness::Moves),
    // The loader calls it for debuggers after it has loaded or unloaded libraries, before any code
    // of them runs (glibc's elf/dl-debug.c, musl's ldso/dynlink.c).
    ("_dl_debug_state", Witness::Loads),
    (forks::OF_GO[0], Witness::Forks(Forking::Always)),
    (forks::OF_GO[1], Witness::Forks(Forking::Always)),
    // Go's standard library passes the kernel's numbers as arguments (syscall/exec_unix.go).
    ("syscall.Exec", Witness::Execs),
    // Returning from `main` ends here as well. The next two are the leak checks that a program can
    // request from LeakSanitizer.
    ("exit", Witness::Exits),
    (LEAK_CHECK, Witness::Checks),
    ("__lsan_do_recoverable_leak_check", Witness::Checks),
    // Deregister unwind entries of generated code, with the unwinder (libgcc's unwind-dw2-fde.c,
    // LLVM's UnwindLevel1-gcc-ext.c) or with debuggers.
    ("__deregister_frame", Witness::TakesBack),
    ("__deregister_frame_info", Witness::TakesBack),
    ("__deregister_frame_info_bases", Witness::TakesBack),
    (jit::REGISTERING, Witness::TakesBack),
];

/// A function of every program with LeakSanitizer, standalone or in AddressSanitizer
/// (sanitizer/lsan_interface.h).
const LEAK_CHECK: &str = "__lsan_do_leak_check";

/// True if one of these modules contains LeakSanitizer, which traces its own process at the end. It
/// fails if another process traces it.
pub fn has_leak_check(modules: &[Module]) -> bool {
    let mut images = modules.iter().filter(|m| m.path != VDSO);
    images.any(|module| {
        let image = images::of_module(module);
        image.is_ok_and(|i| {
            let functions = i.image().functions();
            !functions.with_name(|name| name == LEAK_CHECK).is_empty()
        })
    })
}

/// Part of the mangled name of the function with which Rust's `catch_unwind` handles a panic.
const RUST_CATCH: &str = "__rust_panic_cleanup";

/// A function that every C library has, and no other module. Elsewhere `longjmp` may mean something
/// else.
const OF_LIBC: &str = "__libc_start_main";

/// A function of Go programs that pass arguments in registers (since 1.17). Some builds append the
/// calling convention to its name.
const OF_GO: [&str; 2] = ["runtime.spillArgs", "runtime.spillArgs.abi0"];

/// The function with which Go moves a stack.
const MOVER: &str = "runtime.copystack";

/// The event that calls of the function with this linkage name report. `None` for a function that
/// is no witness.
fn witness_of(name: &str) -> Option<Witness> {
    let known = WITNESSES.iter().find(|(known, _)| *known == name);
    let rust = || name.contains(RUST_CATCH).then_some(Witness::Frames);
    known.map(|&(_, witness)| witness).or_else(rust)
}

/// Plans the witnesses in the modules, except those that cannot be patched. Without `exits`, plans
/// only those needed for counting.
pub(super) fn witnesses(modules: &[Module], exits: bool, allowed: Allowed) -> Vec<Candidate> {
    let mut found = Vec::new();
    let own = modules.iter().enumerate().filter(|(_, m)| m.path != VDSO);
    for (index, module) in own {
        let Ok(image) = images::of_module(module) else {
            continue;
        };
        let Some(bias) = module.bias(image.image()) else {
            continue;
        };
        let origin = Origin {
            module: index,
            image: Arc::clone(&image),
            bias,
        };
        let functions = image.derived(functions);
        let functions = functions
            .iter()
            .filter(|(_, witness)| exits || witness.is_for_counts());
        for (function, witness) in functions.filter(|(f, _)| module.maps_function(bias, f)) {
            let want = witness.effects();
            let plan = plan_allowed(image.image(), image.context(), function, want, allowed);
            if plan.refused().is_some() {
                continue;
            }
            let name = display_name(function, module.file_name());
            found.push(Candidate::new(
                origin.clone(),
                Role::Witness(*witness),
                name,
                plan,
            ));
        }
    }
    found
}

/// Puts the candidates that follow moving stacks first. Requested functions at the same places are
/// refused: bytes have only one probe, and without these candidates the times of others are wrong.
pub(super) fn put_moves_first(candidates: &mut [Candidate]) {
    let place = |c: &Candidate| (c.module, c.plan.function.range.start);
    let is_had = |c: &&Candidate| follows(c) && c.plan.refused().is_none();
    let moves: Vec<_> = candidates.iter().filter(is_had).map(place).collect();
    let taken = |c: &&mut Candidate| c.role.is_measured() && moves.contains(&place(c));
    for candidate in candidates.iter_mut().filter(taken) {
        let function = candidate.plan.function.clone();
        candidate.plan = FunctionPlan::refusal(&function, RefuseReason::UsedByIpath);
    }
    candidates.sort_by_key(|c| !follows(c));
}

/// True if the candidate follows stacks that the program moves or switches.
fn follows(candidate: &Candidate) -> bool {
    matches!(
        candidate.role,
        Role::Witness(Witness::Moves | Witness::Switches)
    )
}

/// Drops the witnesses whose functions are measured, by a candidate or by a function that is in. A
/// measured function that may create a child reports this itself.
pub(super) fn but_measured(
    document: &Document,
    candidates: &mut [Candidate],
    witnesses: Vec<Candidate>,
) -> Vec<Candidate> {
    let measured = measured_places(document);
    let mut is_needed = |witness: &Candidate| {
        let Some(forking) = witness.role.forking() else {
            return true;
        };
        let mut same = candidates.iter_mut().filter(|c| {
            c.role.is_measured() && c.plan.refused().is_none() && c.place() == witness.place()
        });
        match same.next() {
            Some(measured) => {
                measured.children = Some(forking);
                false
            }
            None => !measured.contains(&witness.place()),
        }
    };
    witnesses.into_iter().filter(|r| is_needed(r)).collect()
}

/// Paths of modules with measured functions whose stacks Go may move, without a probe that follows
/// the moves. Empty if the session sees no ends of calls.
pub(super) fn unfollowed(document: &Document, modules: &[Module]) -> Vec<String> {
    if !sees_ends(document, &[]) {
        return Vec::new();
    }
    let active = |role: Role| {
        let functions = document.functions.iter();
        let found = functions.filter(move |f| f.is_in() && f.role == role);
        found.map(|f| f.module).collect::<BTreeSet<usize>>()
    };
    let followed = active(Role::Witness(Witness::Moves));
    let left = active(Role::Measured)
        .into_iter()
        .filter(|id| !followed.contains(id));
    let docs = left.filter_map(|id| document.modules.get(id));
    let of_go = docs.filter_map(|doc| {
        let module = modules.iter().find(|m| m.path == doc.path)?;
        let opened = images::of_module(module).ok()?;
        let table = opened.image().functions();
        (!table.with_name(|name| name == MOVER).is_empty()).then(|| doc.path.clone())
    });
    of_go.collect()
}

/// The functions of an image that can be witnesses, with the events that they report.
fn functions(image: &Image<'_>) -> Vec<(Function, Witness)> {
    let table = image.functions();
    let known = table.with_name(|name| witness_of(name).is_some());
    let has = |names: &[&str]| {
        !known.is_empty() && !table.with_name(|name| names.contains(&name)).is_empty()
    };
    let (has_libc, has_go) = (has(&[OF_LIBC]), has(&OF_GO));
    // The C library itself, including the one in a static program.
    let is_libc = || has_libc || image.interpreter().is_none() && image.entry() != Svma(0);
    let forking = if !has_go && is_libc() {
        forks::forking(image)
    } else {
        Vec::new()
    };
    let with_witness = known.into_iter().filter_map(|function| {
        let mut names = once(&function.linkage).chain(&function.aliases);
        let witness = names.find_map(|name| witness_of(name))?;
        let is_meant = match witness {
            Witness::Jump => has_libc,
            Witness::Moves => has_go,
            Witness::Exits => has_libc,
            _ => true,
        };
        is_meant.then_some((function, witness))
    });
    with_witness
        .chain(forking)
        .chain(slices::switching(image))
        .collect()
}
