//! Decisions about functions to remove along with others.

use patcher::Svma;

use super::super::{decide_removal, in_one_stop};
use super::program::{add, add_point, function, session, site};
use crate::segment::{Document, Forking, PendingDoc, Reach, Role, State, Witness};

const LOADS: Role = Role::Witness(Witness::Loads);
const FRAMES: Role = Role::Witness(Witness::Frames);
const COPIES: Role = Role::Witness(Witness::Forks(Forking::Copies));

fn out(document: &Document, ids: &[usize]) -> Vec<usize> {
    decide_removal(document, ids).out
}

/// Adds a tail call from one function to another.
fn leads(document: &mut Document, from: usize, to: &str) {
    document.functions[from]
        .lends
        .push(function(to).range.start.0);
}

#[test]
fn one_of_two_goes_alone() {
    let mut document = session(true);
    let one = add(&mut document, "plain", Role::Measured, State::In);
    add(&mut document, "other", Role::Measured, State::In);
    add(&mut document, "__cxa_begin_catch", FRAMES, State::In);
    assert_eq!(out(&document, &[one]), [one]);
}

#[test]
fn witnesses_go_with_the_last_function() {
    let mut document = session(true);
    let one = add(&mut document, "plain", Role::Measured, State::In);
    let frames = add(&mut document, "__cxa_begin_catch", FRAMES, State::In);
    let loads = add(&mut document, "_dl_debug_state", LOADS, State::In);
    let removal = decide_removal(&document, &[one]);
    assert_eq!(removal.ids, [one]);
    assert_eq!(removal.out, [one, frames, loads]);
}

#[test]
fn witnesses_of_ends_go_with_the_last_exits() {
    let mut document = session(true);
    let one = add(&mut document, "plain", Role::Measured, State::In);
    let counted = add(&mut document, "other", Role::Measured, State::In);
    document.functions[counted].exits.clear();
    let frames = add(&mut document, "__cxa_begin_catch", FRAMES, State::In);
    add(&mut document, "_dl_debug_state", LOADS, State::In);
    assert_eq!(out(&document, &[one]), [one, frames]);
}

#[test]
fn exits_that_are_out_need_no_witnesses() {
    let mut document = session(true);
    let one = add(&mut document, "plain", Role::Measured, State::In);
    let counted = add(&mut document, "other", Role::Measured, State::In);
    document.functions[counted].reach = Reach::Entry;
    let frames = add(&mut document, "__cxa_begin_catch", FRAMES, State::In);
    assert_eq!(out(&document, &[one]), [one, frames]);
}

#[test]
fn libraries_are_seen_as_long_as_patterns_wait() {
    let mut document = session(true);
    let one = add(&mut document, "plain", Role::Measured, State::In);
    let frames = add(&mut document, "__cxa_begin_catch", FRAMES, State::In);
    add(&mut document, "_dl_debug_state", LOADS, State::In);
    document.pending.push(PendingDoc::of("libx.so!f"));
    assert_eq!(out(&document, &[one]), [one, frames]);
}

#[test]
fn what_sees_to_children_stays_for_the_moment() {
    let mut document = session(true);
    let one = add(&mut document, "plain", Role::Measured, State::In);
    add(&mut document, "_dl_debug_state", COPIES, State::In);
    assert_eq!(out(&document, &[one]), [one]);
}

#[test]
fn what_is_out_stays_out() {
    let mut document = session(true);
    let gone = add(&mut document, "plain", Role::Measured, State::Out);
    let retired = add(&mut document, "plain", Role::Measured, State::Retired);
    let removal = decide_removal(&document, &[gone, retired, 17]);
    assert_eq!(removal, Default::default());
}

#[test]
fn what_nobody_has_named_is_not_removed_by_name() {
    let mut document = session(true);
    add(&mut document, "plain", Role::Measured, State::In);
    let frames = add(&mut document, "__cxa_begin_catch", FRAMES, State::In);
    let ender = add(&mut document, "other", Role::Ender, State::In);
    let removal = decide_removal(&document, &[frames, ender]);
    assert_eq!(removal.ids, [0; 0]);
}

#[test]
fn an_ender_goes_with_its_caller() {
    let mut document = session(true);
    let caller = add(&mut document, "caller", Role::Measured, State::In);
    leads(&mut document, caller, "plain");
    let ender = add(&mut document, "plain", Role::Ender, State::In);
    add(&mut document, "other", Role::Measured, State::In);
    assert_eq!(out(&document, &[caller]), [caller, ender]);
}

#[test]
fn an_ender_stays_for_another_caller() {
    let mut document = session(true);
    let caller = add(&mut document, "caller", Role::Measured, State::In);
    let further = add(&mut document, "further", Role::Measured, State::In);
    leads(&mut document, caller, "plain");
    leads(&mut document, further, "plain");
    add(&mut document, "plain", Role::Ender, State::In);
    assert_eq!(out(&document, &[caller]), [caller]);
}

#[test]
fn enders_that_enders_lead_to_stay() {
    let mut document = session(true);
    let further = add(&mut document, "further", Role::Measured, State::In);
    let between = add(&mut document, "caller", Role::Ender, State::In);
    add(&mut document, "plain", Role::Ender, State::In);
    let other = add(&mut document, "other", Role::Measured, State::In);
    leads(&mut document, further, "caller");
    leads(&mut document, between, "plain");
    assert_eq!(out(&document, &[other]), [other]);
    assert_eq!(out(&document, &[further]), [0, 1, 2]);
}

#[test]
fn a_caller_that_is_only_counted_needs_no_ender() {
    let mut document = session(true);
    let caller = add(&mut document, "caller", Role::Measured, State::In);
    leads(&mut document, caller, "plain");
    document.functions[caller].reach = Reach::Entry;
    let ender = add(&mut document, "plain", Role::Ender, State::In);
    let other = add(&mut document, "other", Role::Measured, State::In);
    assert_eq!(out(&document, &[other]), [ender, other]);
}

#[test]
fn a_carrier_goes_with_its_last_point() {
    let mut document = session(false);
    add(&mut document, "plain", Role::Measured, State::In);
    let (carrier, point) = add_point(&mut document, Svma(0x1084), State::In);
    assert_eq!(out(&document, &[point]), [carrier, point]);
}

#[test]
fn a_carrier_stays_for_another_point() {
    let mut document = session(false);
    let (carrier, point) = add_point(&mut document, Svma(0x1084), State::In);
    let (second, other) = add_point(&mut document, Svma(0x1089), State::In);
    document.functions[other].carried_by = Some(carrier);
    // The second carrier has no active points left.
    assert_eq!(out(&document, &[point]), [point, second]);
}

#[test]
fn a_carrier_stays_for_its_function() {
    let mut document = session(true);
    let (carrier, point) = add_point(&mut document, Svma(0x1084), State::In);
    let measured = add(&mut document, "other", Role::Measured, State::In);
    document.functions[measured].carried_by = Some(carrier);
    assert_eq!(out(&document, &[point]), [point]);
    assert_eq!(out(&document, &[measured, point]), [0, 1, 2]);
}

#[test]
fn what_goes_together_goes_once() {
    let mut document = session(true);
    let one = add(&mut document, "plain", Role::Measured, State::In);
    let ender = add(&mut document, "other", Role::Ender, State::In);
    assert_eq!(out(&document, &[one, one]), [one, ender]);
}

#[test]
fn a_stop_has_a_thousand_sites() {
    let mut document = session(true);
    for _ in 0..3 {
        let id = add(&mut document, "plain", Role::Measured, State::In);
        let own = document.functions[id].sites[0].window.clone();
        document.functions[id].sites = vec![site(own); 400];
    }
    assert_eq!(in_one_stop(&document, [0, 1, 2].iter()), 2);
    let own = document.functions[0].sites[0].window.clone();
    document.functions[0].sites = vec![site(own); 1001];
    assert_eq!(in_one_stop(&document, [0, 1, 2].iter()), 1, "at least one");
}
