//! Code that is awkward to move or to name: operands that depend on where an instruction stands,
//! what compilers put at a function's start, several functions of one name, several names of one
//! function.

use ipath_tests::compile::program;
use ipath_tests::session::{Session, own_counts};
use ipath_tests::target::Target;
use nix::sys::signal::Signal;
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// Starts a program that waits for SIGUSR1 once it is ready, instruments functions while it waits,
/// and compares what it then prints with what it prints alone, and its own counts with ours. Gives
/// back the functions that were refused, with the reasons.
fn survives(program: &Path, functions: &[&str]) -> BTreeMap<String, String> {
    let alone = go_on(&mut Target::start(program, [""; 0]).await_output("ready"));
    let mut target = Target::start(program, [""; 0]).await_output("ready");
    let session = Session::attach(target.pid(), functions);
    assert_eq!(go_on(&mut target), alone);
    let mut profile = session.detach();
    let refused: BTreeMap<String, String> = std::mem::take(&mut profile.refused)
        .iter()
        .map(|r| (text(&r["name"]), text(&r["reason"])))
        .collect();
    profile.assert_lossless();
    for (name, calls) in own_counts(&alone) {
        assert_ne!(
            profile.function(&name).is_some(),
            refused.contains_key(&name),
            "{name} is neither in nor refused"
        );
        if !refused.contains_key(&name) {
            assert_eq!(profile.calls(&name), calls, "{name}");
        }
    }
    target.finish("ok ");
    refused
}

/// Lets it do its work; everything it has printed then.
fn go_on(target: &mut Target) -> String {
    target.signal(Signal::SIGUSR1);
    let limit = Duration::from_secs(20);
    target.until(limit, "done its work", |t| t.stdout().contains("\nok "));
    target.stdout()
}

fn text(value: &serde_json::Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

#[test]
fn rip_relative_far() {
    let patterns = ["far_*", "own_*", "short_*", "loop*", "jrcxz_*", "jecxz_*"];
    let refused = survives(&program("rip_far.c"), &patterns);
    println!("{refused:?}");
    // Without a form through a register: what uses the stack pointer too, and what jumps.
    let expected = [
        ("far_call", "out-of-reach"),
        ("far_pop", "out-of-reach"),
        ("far_push", "out-of-reach"),
        ("far_tail", "out-of-reach"),
        ("own_jump", "indirect-jump"),
    ];
    let expected = expected.map(|(name, reason)| (name.to_owned(), reason.to_owned()));
    assert_eq!(refused, BTreeMap::from(expected));
}
