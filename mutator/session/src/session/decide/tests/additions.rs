//! Decisions about functions and points that are added.

use abi::schema::{SCHEMA_COUNT, SCHEMA_WALL};
use ipath_target::process::{Pid, ProcessError};
use patcher::inside::{Inside, NeverReturning};
use patcher::plan::{Allowed, FunctionPlan, RefuseReason};
use patcher::{Avma, Svma};

use super::super::{Way, decide, row_of};
use super::program::{
    BIAS, MADE, add, add_point, candidate, change, decided, fresh, function, planned, program,
    selection, session, site,
};
use crate::metric::Metric;
use crate::segment::{Document, Forking, Reach, RefusedDoc, Remeasure, Role, State, Witness};
use crate::session::candidate::Point;
use crate::session::counted::{Counted, Wanted};
use crate::session::pointed::Pointed;
use crate::session::refusing::forget_refusals;
use crate::session::{Refusal, SessionError};

const FRAMES: Role = Role::Witness(Witness::Frames);
const LOADS: Role = Role::Witness(Witness::Loads);

fn point(at: Svma) -> Pointed {
    Pointed {
        module: 0,
        image: candidate("other", false).image,
        bias: BIAS,
        function: function("other"),
        points: vec![Point::new(
            at,
            format!("other+{:#x}", at.0 - function("other").range.start.0),
        )],
        counted: None,
        allowed: Allowed::ALL,
        traps: false,
    }
}

fn at(name: &str) -> Svma {
    function(name).range.start
}

#[test]
fn a_new_function_is_laid_out() {
    let change = change(&session(false), &["plain"]);
    assert_eq!(fresh(&change)[0], ("plain", Role::Measured));
    assert!(change.ids.is_empty());
    assert!(change.bytes > 0);
    assert_eq!(change.fresh[0].schema, SCHEMA_COUNT);
}

#[test]
fn a_session_of_counts_sees_libraries_and_no_ends() {
    let change = change(&session(false), &["plain"]);
    assert_eq!(
        fresh(&change),
        [("plain", Role::Measured), ("_dl_debug_state", LOADS)]
    );
}

#[test]
fn a_session_of_times_sees_ends() {
    let change = change(&session(true), &["plain"]);
    assert!(fresh(&change).contains(&("__cxa_begin_catch", FRAMES)));
    assert_eq!(change.fresh[0].schema, SCHEMA_WALL);
}

#[test]
fn the_document_given_stays_as_it_was() {
    let mut document = session(true);
    add(&mut document, "other", Role::Measured, State::Out);
    let before = serde_json::to_string(&document).expect("JSON");
    change(&document, &["plain", "other", "caller", "tiny"]);
    assert_eq!(serde_json::to_string(&document).expect("JSON"), before);
}

#[test]
fn what_is_in_is_in_already() {
    let mut document = session(false);
    add(&mut document, "plain", Role::Measured, State::In);
    let change = change(&document, &["plain"]);
    assert_eq!(change.changed.already, ["plain"]);
    assert!(change.ids.is_empty() && change.changed.functions.is_empty());
    assert!(!fresh(&change).contains(&("plain", Role::Measured)));
}

#[test]
fn what_is_out_comes_in_again() {
    let mut document = session(false);
    let id = add(&mut document, "plain", Role::Measured, State::Out);
    let change = change(&document, &["plain"]);
    assert_eq!(change.ids, [id]);
    assert_eq!(change.changed.functions, ["plain"]);
}

#[test]
fn what_is_retired_is_laid_out_anew() {
    let mut document = session(false);
    add(&mut document, "plain", Role::Measured, State::Retired);
    let change = change(&document, &["plain"]);
    assert!(change.ids.is_empty());
    assert_eq!(fresh(&change)[0], ("plain", Role::Measured));
}

#[test]
fn a_row_is_of_one_role() {
    let mut document = session(true);
    add(&mut document, "plain", Role::Ender, State::In);
    add(&mut document, "plain", Role::Point, State::In);
    let mut plain = candidate("plain", true);
    assert_eq!(row_of(&document, &plain), None);
    let id = add(&mut document, "plain", Role::Measured, State::Out);
    assert_eq!(row_of(&document, &plain), Some(id));
    plain.role = Role::Ender;
    assert_eq!(row_of(&document, &plain), Some(0));
}

#[test]
fn a_carrier_is_never_used_for_other_points() {
    let mut document = session(false);
    add(&mut document, "other", Role::Carrier, State::Out);
    let mut other = candidate("other", false);
    other.role = Role::Carrier;
    assert_eq!(row_of(&document, &other), None);
}

#[test]
fn a_row_whose_file_has_gone_is_of_no_use() {
    let mut document = session(false);
    add(&mut document, "plain", Role::Measured, State::Out);
    document.modules[0].is_gone = true;
    assert_eq!(row_of(&document, &candidate("plain", false)), None);
}

#[test]
fn what_is_too_short_is_refused() {
    let change = change(&session(false), &["tiny", "plain"]);
    let refused = ("tiny".to_owned(), RefuseReason::TooShort.into());
    assert_eq!(change.changed.refused, [refused]);
    let noted = &change.document.refused[0];
    assert_eq!(
        (noted.name.as_str(), noted.reason.as_str()),
        ("tiny", "too-short")
    );
    assert_eq!((noted.role, noted.module), (Role::Measured, 0));
    assert_eq!(fresh(&change)[0], ("plain", Role::Measured));
}

#[test]
fn each_reason_is_noted_as_it_is() {
    for reason in [
        RefuseReason::Vdso,
        RefuseReason::SharedText,
        RefuseReason::Ifunc,
        RefuseReason::PunOutOfReach,
        RefuseReason::ShadowStack,
    ] {
        let mut plain = candidate("plain", false);
        plain.plan = FunctionPlan::refusal(&function("plain"), reason);
        let change = decided(&session(false), selection(vec![plain])).expect("a decision");
        assert_eq!(change.changed.refused[0].1, Refusal::Reason(reason));
        assert_eq!(change.document.refused[0].reason, reason.to_string());
    }
}

#[test]
fn what_is_in_and_refused_stays_in() {
    let mut document = session(false);
    add(&mut document, "plain", Role::Measured, State::In);
    let mut plain = candidate("plain", false);
    plain.unreadable = Some("no argument 3".to_owned());
    let change = decided(&document, selection(vec![plain])).expect("a decision");
    let unchanged = (
        "plain".to_owned(),
        Refusal::Value("no argument 3".to_owned()),
    );
    assert_eq!(change.changed.unchanged, [unchanged]);
    assert!(change.changed.refused.is_empty() && change.document.refused.is_empty());
}

#[test]
fn a_value_that_cannot_be_read_refuses_the_function() {
    let mut plain = candidate("plain", false);
    plain.unreadable = Some("no argument 3".to_owned());
    let change = decided(&session(false), selection(vec![plain])).expect("a decision");
    assert_eq!(change.changed.refused[0].1.to_string(), "no argument 3");
    assert!(!fresh(&change).contains(&("plain", Role::Measured)));
}

#[test]
fn a_refusal_is_noted_once() {
    let first = change(&session(false), &["tiny"]);
    let again = change(&first.document, &["tiny"]);
    assert_eq!(again.document.refused.len(), 1);
    assert_eq!(again.changed.refused.len(), 1);
}

#[test]
fn bytes_of_another_function_are_not_overwritten() {
    let mut document = session(false);
    let id = add(&mut document, "other", Role::Measured, State::Out);
    let start = BIAS.to_avma(at("plain"));
    document.functions[id].sites = vec![site(start.plus(2)..start.plus(7))];
    let change = change(&document, &["plain"]);
    let refused = ("plain".to_owned(), RefuseReason::OverlapsFunction.into());
    assert_eq!(change.changed.refused, [refused]);
}

#[test]
fn bytes_of_a_retired_function_are_free() {
    let mut document = session(false);
    let id = add(&mut document, "other", Role::Measured, State::Retired);
    let start = BIAS.to_avma(at("plain"));
    document.functions[id].sites = vec![site(start.plus(2)..start.plus(7))];
    let change = change(&document, &["plain"]);
    assert!(change.changed.refused.is_empty());
}

#[test]
fn an_ender_makes_way_for_what_is_asked_for() {
    let mut document = session(true);
    let id = add(&mut document, "other", Role::Ender, State::In);
    let start = BIAS.to_avma(at("plain"));
    document.functions[id].sites = vec![site(start.plus(2)..start.plus(7))];
    let change = change(&document, &["plain"]);
    let way = Way {
        given_up: Vec::new(),
        out: vec![id],
        retired: vec![id],
    };
    assert_eq!(change.way, way);
    assert_eq!(fresh(&change)[0], ("plain", Role::Measured));
    // The row stays in until the target has been changed.
    assert_eq!(change.document.functions[id].state, State::In);
}

#[test]
fn an_ender_that_is_out_is_retired_only() {
    let mut document = session(true);
    let id = add(&mut document, "other", Role::Ender, State::Out);
    let start = BIAS.to_avma(at("plain"));
    document.functions[id].sites = vec![site(start.plus(2)..start.plus(7))];
    let way = change(&document, &["plain"]).way;
    assert_eq!((way.out, way.retired), (vec![], vec![id]));
}

#[test]
fn an_ender_goes_where_its_function_is_measured() {
    let mut document = session(true);
    let id = add(&mut document, "plain", Role::Ender, State::In);
    let change = change(&document, &["plain"]);
    assert_eq!(change.way.out, [id]);
    assert!(change.way.retired.is_empty(), "it may come back");
    assert_eq!(fresh(&change)[0], ("plain", Role::Measured));
}

#[test]
fn a_witness_of_children_goes_where_its_function_is_measured() {
    let mut document = session(true);
    let role = Role::Witness(Witness::Forks(Forking::Always));
    let id = add(&mut document, "plain", role, State::In);
    let loads = add(&mut document, "other", LOADS, State::In);
    let change = change(&document, &["plain", "other"]);
    assert_eq!(change.way.out, [id]);
    assert!(!change.way.out.contains(&loads));
}

#[test]
fn tail_calls_lead_to_enders() {
    let change = change(&session(true), &["caller"]);
    assert!(fresh(&change).contains(&("plain", Role::Ender)));
}

#[test]
fn enders_are_found_along_tail_calls() {
    let change = change(&session(true), &["further"]);
    let enders = fresh(&change);
    let enders = enders.iter().filter(|(_, role)| *role == Role::Ender);
    assert_eq!(
        enders.map(|(name, _)| *name).collect::<Vec<_>>(),
        ["caller", "plain"]
    );
}

#[test]
fn counting_needs_no_enders() {
    let change = change(&session(false), &["caller", "further"]);
    assert!(fresh(&change).iter().all(|(_, role)| *role != Role::Ender));
}

#[test]
fn an_ender_that_is_in_serves_another_caller() {
    let mut document = session(true);
    add(&mut document, "plain", Role::Ender, State::In);
    let change = change(&document, &["caller"]);
    assert!(!fresh(&change).contains(&("plain", Role::Ender)));
}

#[test]
fn a_measured_function_ends_calls_itself() {
    let change = change(&session(true), &["caller", "plain"]);
    assert!(!fresh(&change).contains(&("plain", Role::Ender)));
}

#[test]
fn nothing_is_lent_where_stacks_move() {
    let mut document = session(true);
    let moves = Role::Witness(Witness::Moves);
    add(&mut document, "other", moves, State::In);
    let change = change(&document, &["caller"]);
    assert!(!fresh(&change).contains(&("plain", Role::Ender)));
}

#[test]
fn what_nobody_has_asked_for_comes_last() {
    let change = change(&session(true), &["caller", "other"]);
    let roles: Vec<Role> = fresh(&change).into_iter().map(|(_, role)| role).collect();
    let last = roles
        .iter()
        .position(|role| *role == Role::Ender)
        .expect("one");
    assert!(roles[last..].iter().all(|role| *role == Role::Ender));
}

#[test]
fn a_witness_that_is_in_is_not_laid_out_again() {
    let mut document = session(false);
    add(&mut document, "_dl_debug_state", LOADS, State::In);
    let change = change(&document, &["plain"]);
    assert_eq!(fresh(&change), [("plain", Role::Measured)]);
    assert!(change.changed.already.is_empty(), "nobody has named it");
}

#[test]
fn a_witness_that_is_out_comes_in_again() {
    let mut document = session(false);
    let id = add(&mut document, "_dl_debug_state", LOADS, State::Out);
    let change = change(&document, &["plain"]);
    assert_eq!(change.ids, [id]);
    assert!(change.changed.functions.is_empty(), "nobody has named it");
}

#[test]
fn a_point_is_carried_by_itself() {
    let mut selected = selection(Vec::new());
    selected.points.push(point(at("other")));
    let change = decided(&session(false), selected).expect("a decision");
    let carrier = change.fresh.iter().find(|c| c.role == Role::Carrier);
    assert_eq!(carrier.expect("a carrier").points[0].name, "other+0x0");
}

#[test]
fn a_point_is_carried_by_its_function_where_both_are_new() {
    let mut selected = selection(vec![candidate("other", false)]);
    selected.points.push(point(at("other").plus(4)));
    let change = decided(&session(false), selected).expect("a decision");
    assert_eq!(fresh(&change)[0], ("other", Role::Measured));
    assert_eq!(change.fresh[0].points.len(), 1);
    assert!(change.fresh.iter().all(|c| c.role != Role::Carrier));
}

#[test]
fn a_point_that_is_in_is_in_already() {
    let mut document = session(false);
    add_point(&mut document, at("other"), State::In);
    let mut selected = selection(Vec::new());
    selected.points.push(point(at("other")));
    let change = decided(&document, selected).expect("a decision");
    assert_eq!(change.changed.already, ["other+0x0"]);
    assert!(change.ids.is_empty());
}

#[test]
fn a_point_that_is_out_comes_in_with_its_carrier() {
    let mut document = session(false);
    let (carrier, id) = add_point(&mut document, at("other"), State::Out);
    let mut selected = selection(Vec::new());
    selected.points.push(point(at("other")));
    let change = decided(&document, selected).expect("a decision");
    assert_eq!(change.ids, [id, carrier]);
    assert_eq!(change.changed.functions, ["other+0x0"]);
}

/// The edges of a function of the program.
fn edges(name: &str) -> Pointed {
    let image = candidate(name, false).image;
    let mut calls = NeverReturning::default();
    let inside = Inside::of(image.image(), image.context(), &function(name), &mut calls);
    let wanted = Wanted {
        edges: true,
        ..Wanted::default()
    };
    let counted = Counted::of(
        &image,
        &function(name),
        inside.as_ref(),
        (name.to_owned(), wanted),
        None,
    );
    Pointed {
        function: function(name),
        points: Vec::new(),
        counted: Some(counted),
        ..point(at("other"))
    }
}

/// Makes the site of a row contain a whole function.
fn claim_all(document: &mut Document, id: usize, name: &str) {
    let start = BIAS.to_avma(at(name));
    document.functions[id].sites = vec![site(start..start.plus(function(name).size()))];
}

#[test]
fn counters_share_new_patches_with_measured_calls() {
    let mut document = session(false);
    let id = add(&mut document, "plain", Role::Measured, State::In);
    claim_all(&mut document, id, "plain");
    let mut selected = selection(Vec::new());
    selected.points.push(edges("plain"));
    let change = decided(&document, selected).expect("a decision");
    let relaid = change.fresh[0].relaid.as_ref().expect("new patches");
    assert_eq!((relaid.function, relaid.edges), (Some(id), None));
    assert_eq!(
        (&change.way.out, &change.way.given_up),
        (&vec![id], &vec![id])
    );
    assert!(change.changed.already.is_empty() && change.changed.refused.is_empty());
    let sites = &change.document.functions[id].sites;
    assert_eq!(sites.len(), 1, "nothing is given up yet");
}

#[test]
fn counters_beside_points_of_another_command_are_refused() {
    let mut document = session(false);
    let (carrier, point) = add_point(&mut document, at("other"), State::In);
    claim_all(&mut document, carrier, "other");
    let mut selected = selection(Vec::new());
    selected.points.push(edges("other"));
    let change = decided(&document, selected).expect("a decision");
    let reason = RefuseReason::OverlapsFunction.into();
    assert_eq!(change.changed.refused, [("other".to_owned(), reason)]);
    assert!(change.document.functions[carrier].is_in());
    assert!(change.document.functions[point].is_in());
}

#[test]
fn what_is_refused_gives_nothing_up() {
    let mut document = session(false);
    let id = add(&mut document, "plain", Role::Measured, State::In);
    // The bytes behind its patch belong to something else.
    let other = add(&mut document, "other", Role::Measured, State::In);
    let start = BIAS.to_avma(at("plain"));
    document.functions[id].sites = vec![site(start..start.plus(5))];
    document.functions[other].sites = vec![site(start.plus(5)..start.plus(16))];
    let mut selected = selection(Vec::new());
    selected.points.push(edges("plain"));
    let change = decided(&document, selected).expect("a decision");
    assert!(change.way.out.is_empty() && change.way.given_up.is_empty());
    assert_eq!(change.changed.refused.len(), 1);
}

#[test]
fn a_refused_point_is_noted_as_a_point() {
    let mut pointed = point(at("other"));
    pointed.points[0].refused = Some(RefuseReason::UnknownFrame.into());
    let mut selected = selection(Vec::new());
    selected.points.push(pointed);
    let change = decided(&session(false), selected).expect("a decision");
    let noted = &change.document.refused[0];
    assert_eq!((noted.role, noted.address), (Role::Point, at("other")));
    assert_eq!(
        change.changed.refused[0].1,
        RefuseReason::UnknownFrame.into()
    );
}

#[test]
fn refusals_are_forgotten_by_place_and_role() {
    let mut document = session(false);
    add(&mut document, "plain", Role::Measured, State::In);
    add(&mut document, "other", Role::Measured, State::Out);
    let refused = |name: &str, role| RefusedDoc {
        name: name.to_owned(),
        module: 0,
        address: at(name),
        reason: RefuseReason::Occupied.to_string(),
        role,
    };
    document.refused = vec![
        refused("plain", Role::Measured),
        refused("plain", Role::Point),
        refused("other", Role::Measured),
    ];
    forget_refusals(&mut document);
    let left: Vec<_> = document
        .refused
        .iter()
        .map(|r| (r.name.as_str(), r.role))
        .collect();
    assert_eq!(left, [("plain", Role::Point), ("other", Role::Measured)]);
}

#[test]
fn registers_that_nothing_is_known_of_are_told() {
    let mut plain = candidate("plain", false);
    plain.is_bare = true;
    let mut tiny = candidate("tiny", false);
    tiny.is_bare = true;
    let change = decided(&session(false), selection(vec![plain, tiny])).expect("a decision");
    assert_eq!(change.changed.bare, ["plain"], "the other one is refused");
}

fn remeasured(
    document: &Document,
    name: &str,
    change: Remeasure,
) -> Result<super::super::Change, SessionError> {
    let mut selected = selection(vec![candidate(name, true)]);
    selected.remeasure = Some(change);
    decided(document, selected)
}

#[test]
fn what_is_in_turns_to_another_schema() {
    let mut document = session(false);
    let id = add(&mut document, "plain", Role::Measured, State::In);
    let change = remeasured(&document, "plain", Remeasure::Set(vec![Metric::Wall])).expect("room");
    let turn = change.turns[0];
    assert_eq!((turn.id, turn.schema, turn.waits), (id, SCHEMA_WALL, true));
    assert!(change.is_other && change.changed.already.is_empty());
    // Its entry is in, and the exits are laid out beside it.
    let exits = change.fresh.iter().find(|c| c.exits_of == Some(id));
    assert!(exits.expect("its exits").plan.sites.len() == 1);
}

#[test]
fn exits_that_are_laid_out_are_not_planned_again() {
    let mut document = session(true);
    document.schema = SCHEMA_COUNT;
    let id = add(&mut document, "plain", Role::Measured, State::In);
    let row = &mut document.functions[id];
    row.exits = vec!["window".to_owned()];
    row.reach = Reach::Entry;
    let change = remeasured(&document, "plain", Remeasure::Set(vec![Metric::Wall])).expect("room");
    assert!(!change.turns[0].waits);
    assert!(change.fresh.iter().all(|c| c.exits_of.is_none()));
}

#[test]
fn exits_that_overlap_the_entry_are_refused() {
    let mut document = session(false);
    let id = add(&mut document, "plain", Role::Measured, State::In);
    let start = BIAS.to_avma(at("plain"));
    document.functions[id].sites = vec![site(start..Avma(start.0 + 0x20))];
    let change = remeasured(&document, "plain", Remeasure::Set(vec![Metric::Wall])).expect("room");
    assert!(change.turns.is_empty());
    let unchanged = ("plain".to_owned(), RefuseReason::ExitsOverlapEntry.into());
    assert_eq!(change.changed.unchanged, [unchanged]);
}

#[test]
fn what_is_out_and_has_no_room_for_exits_is_laid_out_anew() {
    let mut document = session(false);
    let id = add(&mut document, "plain", Role::Measured, State::Out);
    let start = BIAS.to_avma(at("plain"));
    document.functions[id].sites = vec![site(start..Avma(start.0 + 0x20))];
    let change = remeasured(&document, "plain", Remeasure::Set(vec![Metric::Wall])).expect("room");
    assert!(change.document.functions[id].is_retired());
    assert!(change.turns.is_empty() && change.ids.is_empty());
    assert_eq!(fresh(&change)[0], ("plain", Role::Measured));
}

#[test]
fn a_quiet_runtime_measures_nothing_that_takes_system_calls() {
    let document = Document {
        quiet: true,
        ..session(false)
    };
    let error = remeasured(&document, "plain", Remeasure::Set(vec![Metric::Cpu])).err();
    assert!(matches!(error, Some(SessionError::NeedsSystemCalls(_))));
    assert!(remeasured(&document, "plain", Remeasure::Set(vec![Metric::Wall])).is_ok());
}

#[test]
fn mappings_are_read_where_a_jump_is_punned() {
    let maps = || Err(ProcessError::Gone(Pid(1)));
    let decided = |name, allowed| {
        let selected = selection(vec![planned(name, false, allowed)]);
        decide(&session(false), selected, &program(), &maps, MADE).map(drop)
    };
    assert!(decided("plain", Allowed::ALL).is_ok());
    assert!(decided("tiny", Allowed::ALL).is_err());
}
