//! Functions that are probed besides those asked for, because calls that end without a return come
//! through them, or stacks that are moved.

use std::iter::once;

use patcher::function::Function;
use patcher::image::Image;
use patcher::plan::plan;

use super::select::{Candidate, display_name};
use crate::images;
use crate::process::modules::{Module, VDSO};
use crate::segment::Reaper;

/// Linkage names, and what their entry tells.
const REAPERS: [(&str, Reaper); 13] = [
    // Where a C++ handler begins, and where a cleanup hands on.
    ("__cxa_begin_catch", Reaper::Frames),
    ("_Unwind_Resume", Reaper::Frames),
    // What glibc calls on every thread that ends, returned, exited or cancelled; the second on the first
    // thread too, where it has a symbol.
    ("__call_tls_dtors", Reaper::Frames),
    ("__nptl_deallocate_tsd", Reaper::Frames),
    // musl comes here whichever way a thread ends.
    ("pthread_exit", Reaper::End),
    // Within glibc the latter ones lead to the jump itself, and where those it exports have no symbol.
    ("longjmp", Reaper::Jump),
    ("_longjmp", Reaper::Jump),
    ("siglongjmp", Reaper::Jump),
    ("__longjmp_chk", Reaper::Jump),
    ("__libc_longjmp", Reaper::Jump),
    ("__libc_siglongjmp", Reaper::Jump),
    ("__longjmp", Reaper::Jump),
    // Where Go copies a goroutine's stack to a larger or smaller one.
    ("runtime.copystack", Reaper::Moves),
];

/// Where Rust's `catch_unwind` takes over, part of the mangled name.
const RUST_CATCH: &str = "__rust_panic_cleanup";

/// A function that every C library has, and nothing else: what is called longjmp elsewhere may be
/// something else.
const OF_LIBC: &str = "__libc_start_main";

/// What Go programs have whose functions take their arguments in registers, since 1.17: by one name or, where
/// it is told what convention it follows itself, the other.
const OF_GO: [&str; 2] = ["runtime.spillArgs", "runtime.spillArgs.abi0"];

fn reaper_of(name: &str) -> Option<Reaper> {
    let known = REAPERS.iter().find(|(known, _)| *known == name);
    let rust = || name.contains(RUST_CATCH).then_some(Reaper::Frames);
    known.map(|&(_, reaper)| reaper).or_else(rust)
}

/// The functions of the modules that tell of such ends, as far as their entry can be had.
pub(super) fn reapers(modules: &[Module]) -> Vec<Candidate> {
    let mut found = Vec::new();
    let own = modules.iter().enumerate().filter(|(_, m)| m.path != VDSO);
    for (index, module) in own {
        let Ok(image) = images::of_module(module) else {
            continue;
        };
        let Some(bias) = module.bias(&image.image) else {
            continue;
        };
        for (function, reaper) in functions(&image.image) {
            let plan = plan(&image.image, &image.context, &function, reaper.effects());
            if plan.refused().is_some() {
                continue;
            }
            found.push(Candidate {
                module: index,
                image,
                bias,
                name: display_name(&function, module.file_name()),
                plan,
                reaper: Some(reaper),
                traps: false,
            });
        }
    }
    found
}

fn functions(image: &Image<'_>) -> Vec<(Function, Reaper)> {
    let table = image.functions();
    let known = table.with_name(|name| reaper_of(name).is_some());
    let has = |names: &[&str]| {
        !known.is_empty() && !table.with_name(|name| names.contains(&name)).is_empty()
    };
    let (has_libc, has_go) = (has(&[OF_LIBC]), has(&OF_GO));
    let with_reaper = known.into_iter().filter_map(|function| {
        let mut names = once(&function.linkage).chain(&function.aliases);
        let reaper = names.find_map(|name| reaper_of(name))?;
        let is_meant = match reaper {
            Reaper::Jump => has_libc,
            Reaper::Moves => has_go,
            Reaper::Frames | Reaper::End => true,
        };
        is_meant.then_some((function, reaper))
    });
    with_reaper.collect()
}
