//! The names of unknown callers and of modules.

use super::*;
use crate::profile::{Function, Module};

#[test]
fn callers_beyond_the_limit_of_paths_say_so_in_reports() {
    let mut profile = sample();
    let path = &mut profile.paths[0];
    (path.stack, path.complete) = (Vec::new(), false);
    let mut out = Vec::new();
    let options = Options::default();
    tree(&profile, &Selection::all(&profile), &options, &mut out).unwrap();
    for text in [
        report(&profile, &options),
        summarize(&profile, None),
        String::from_utf8(out).unwrap(),
    ] {
        assert!(text.contains("--max-paths reached"), "{text}");
        assert!(text.contains("--collapse-recursion"), "{text}");
    }
}

#[test]
fn a_program_has_the_name_by_which_it_was_started() {
    let mut profile = sample();
    profile.modules[0].started_as = Some("link".to_owned());
    let text = report(&profile, &Options::default());
    assert!(text.contains("at link+0x"), "{text}");
}

/// One file that is mapped in several places is one module, unless its functions would be mixed up.
#[test]
fn a_module_has_an_address_only_to_tell_functions_apart() {
    let mut profile = sample();
    let other = Module {
        base: Some(0x7fef_0000),
        ..profile.modules[0].clone()
    };
    profile.modules[0].base = Some(0x5555_0000);
    profile.modules.push(other);
    let other = profile.modules.len() - 1;
    assert_eq!(profile.module_name(Some(0)), "app");
    assert_eq!(profile.module_name(Some(other)), "app");
    let copy = Function {
        module: other,
        ..profile.functions[0].clone()
    };
    profile.functions.push(copy);
    assert_eq!(profile.module_name(Some(other)), "app@0x7fef0000");
}
