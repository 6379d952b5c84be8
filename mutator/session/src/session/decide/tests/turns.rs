//! Decisions about changing the metrics of functions, and about lending.

use std::collections::BTreeSet;

use abi::probe::{Children, Kind};
use abi::schema::{SCHEMA_COUNT, SCHEMA_WALL};

use super::program::{MADE, add, function, session};
use crate::segment::{Document, Forking, Reach, Role, State, Witness};
use crate::session::SessionError;
use crate::session::enders::ending_places;
use crate::session::lending::{lending_functions, lending_groups};
use crate::session::remeasure::{Turn, come_in_changed, decide_taking, possible_turns};

fn turn(id: usize, schema: u8, waits: bool) -> Turn {
    Turn {
        id,
        schema,
        values: 0,
        waits,
    }
}

#[test]
fn what_comes_in_measures_what_has_been_decided() {
    let mut document = session(true);
    let coming = add(&mut document, "plain", Role::Measured, State::Out);
    let other = add(&mut document, "other", Role::Measured, State::In);
    let turns = [coming, other].map(|id| turn(id, SCHEMA_COUNT, false));
    let left = come_in_changed(&mut document, turns.to_vec(), &[coming]);
    assert_eq!(left, [turns[1]]);
    let row = &document.functions[coming];
    assert_eq!(
        (row.schema, row.reach, row.remeasured),
        (SCHEMA_COUNT, Reach::Entry, true)
    );
    assert_eq!(document.functions[other].schema, SCHEMA_WALL);
}

#[test]
fn a_turn_that_waits_for_exits_is_possible_once_they_are_there() {
    let mut document = session(false);
    let id = add(&mut document, "plain", Role::Measured, State::In);
    let turns = vec![turn(id, SCHEMA_WALL, true)];
    assert!(possible_turns(&document, turns.clone()).is_empty());
    document.functions[id].exits.push("window".to_owned());
    assert_eq!(possible_turns(&document, turns.clone()), turns);
}

#[test]
fn a_metric_is_taken_from_those_that_measure_it() {
    let mut document = session(true);
    let timed = add(&mut document, "plain", Role::Measured, State::In);
    let counted = add(&mut document, "other", Role::Measured, State::In);
    document.functions[counted].schema = SCHEMA_COUNT;
    let names = vec!["wall".to_owned()];
    let turns = decide_taking(&mut document, &[timed, counted], names, MADE).expect("one");
    assert_eq!(turns, [turn(timed, SCHEMA_COUNT, false)]);
}

#[test]
fn a_metric_that_none_measures_is_an_error() {
    let mut document = session(true);
    let id = add(&mut document, "plain", Role::Measured, State::In);
    let out = add(&mut document, "other", Role::Measured, State::Out);
    let before = serde_json::to_string(&document).expect("JSON");
    for (ids, name) in [(vec![id], "cpu"), (vec![out], "wall"), (vec![], "wall")] {
        let error = decide_taking(&mut document, &ids, vec![name.to_owned()], MADE);
        assert!(
            matches!(error, Err(SessionError::NotMeasured(..))),
            "{name}"
        );
    }
    assert_eq!(serde_json::to_string(&document).expect("JSON"), before);
}

fn lends(document: &mut Document, from: usize, to: &str) {
    document.functions[from]
        .lends
        .push(function(to).range.start.0);
}

#[test]
fn a_function_lends_once_all_that_it_leads_to_are_in() {
    let mut document = session(true);
    let caller = add(&mut document, "caller", Role::Measured, State::In);
    lends(&mut document, caller, "plain");
    assert!(lending_functions(&document).is_empty());
    let ender = add(&mut document, "plain", Role::Ender, State::In);
    assert_eq!(lending_functions(&document), BTreeSet::from([caller]));
    document.functions[ender].state = State::Out;
    assert!(lending_functions(&document).is_empty());
}

#[test]
fn an_ender_that_leads_nowhere_stops_what_leads_to_it() {
    let mut document = session(true);
    let further = add(&mut document, "further", Role::Measured, State::In);
    let between = add(&mut document, "caller", Role::Ender, State::In);
    lends(&mut document, further, "caller");
    lends(&mut document, between, "plain");
    assert!(lending_functions(&document).is_empty());
    add(&mut document, "plain", Role::Ender, State::In);
    assert_eq!(lending_functions(&document), BTreeSet::from([further]));
}

#[test]
fn those_that_lend_to_each_other_are_a_group() {
    let mut document = session(true);
    let further = add(&mut document, "further", Role::Measured, State::In);
    let caller = add(&mut document, "caller", Role::Measured, State::In);
    let plain = add(&mut document, "plain", Role::Measured, State::In);
    let other = add(&mut document, "other", Role::Measured, State::In);
    lends(&mut document, further, "caller");
    lends(&mut document, other, "plain");
    let lending = lending_functions(&document);
    assert_eq!(lending, BTreeSet::from([further, other]));
    let groups = lending_groups(&document, &lending);
    let expected = [
        BTreeSet::from([further, caller]),
        BTreeSet::from([plain, other]),
    ];
    assert_eq!(groups, expected);
}

#[test]
fn only_what_is_in_with_its_exits_ends_calls() {
    for (role, state, reach, ends) in [
        (Role::Measured, State::In, Reach::Whole, true),
        (Role::Ender, State::In, Reach::Whole, true),
        (Role::Measured, State::In, Reach::Entry, false),
        (Role::Measured, State::Out, Reach::Whole, false),
        (Role::Ender, State::Retired, Reach::Whole, false),
    ] {
        let mut document = session(true);
        let id = add(&mut document, "plain", role, state);
        document.functions[id].reach = reach;
        assert_eq!(
            ending_places(&document).len() == 1,
            ends,
            "{role:?} {state:?}"
        );
    }
}

#[test]
fn the_runtime_has_a_kind_for_each_role() {
    let witness = Role::Witness;
    let forks = |forking| witness(Witness::Forks(forking));
    for (role, kind, children) in [
        (Role::Measured, Kind::Entry, Children::Never),
        (Role::Point, Kind::Point, Children::Never),
        (Role::Carrier, Kind::Point, Children::Never),
        (Role::Ender, Kind::Ender, Children::Never),
        (witness(Witness::Frames), Kind::Frames, Children::Never),
        (witness(Witness::Jump), Kind::Jump, Children::Never),
        (witness(Witness::End), Kind::End, Children::Never),
        (witness(Witness::Moves), Kind::Moves, Children::Never),
        (witness(Witness::Switches), Kind::Switches, Children::Never),
        (witness(Witness::Loads), Kind::Loads, Children::Never),
        (
            witness(Witness::TakesBack),
            Kind::TakesBack,
            Children::Never,
        ),
        (witness(Witness::Execs), Kind::Execs, Children::Never),
        (witness(Witness::Exits), Kind::Exits, Children::Never),
        (witness(Witness::Checks), Kind::Checks, Children::Never),
        (forks(Forking::Always), Kind::Forks, Children::Always),
        (forks(Forking::Clone), Kind::Forks, Children::Clone),
        (forks(Forking::Clone3), Kind::Forks, Children::Clone3),
        (forks(Forking::Copies), Kind::Ender, Children::Never),
    ] {
        assert_eq!(
            role.probe_kind(false, None),
            kind.with(children),
            "{role:?}"
        );
    }
    let measured = Role::Measured.probe_kind(true, Some(Forking::Clone));
    assert_eq!(measured, Kind::Call.with(Children::Clone));
}

#[test]
fn a_retired_row_stays_retired() {
    assert_eq!(State::Out.switched(true), State::In);
    assert_eq!(State::In.switched(false), State::Out);
    assert_eq!(State::Out.switched(false), State::Out);
    assert_eq!(State::Retired.switched(false), State::Retired);
}
