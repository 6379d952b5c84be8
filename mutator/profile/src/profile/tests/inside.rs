//! Tests of the control flow inside functions: the format, its checks, and parts of a session.

use super::*;
use crate::sample::with_inside;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// The example of the contract, with a loop of one block.
fn contract_with_inside() -> Value {
    let mut value = contract();
    value["inside"] = json!([{
        "function": 0, "uncertain": 0,
        "blocks": [{"address": 4560, "size": 16, "file": "app.c", "line": 12, "count": 10},
                   {"address": 4576, "size": 64, "count": 30}],
        "edges": [{"from": null, "to": 0, "kind": "entry", "count": 10},
                  {"from": 0, "to": 1, "kind": "fall", "count": 3},
                  {"from": 0, "to": null, "kind": "exit", "count": 7},
                  {"from": 1, "to": 1, "kind": "taken", "count": 27},
                  {"from": 1, "to": null, "kind": "exit", "count": 3}],
        "loops": [{"header": 1, "parent": null, "file": "app.c", "line": 13, "end_line": 14,
                   "entries": 3, "iterations": 30}]
    }]);
    value
}

#[test]
fn the_control_flow_is_read_and_written_back_field_for_field() {
    let profile = read(&contract_with_inside());
    profile.check().unwrap();
    assert_eq!(
        serde_json::to_value(&profile).unwrap(),
        contract_with_inside()
    );
    with_inside().check().unwrap();
    let without = serde_json::to_value(sample()).unwrap();
    assert_eq!(without.get("inside"), None);
}

/// Later versions have more fields, in each part of the control flow.
#[test]
fn fields_that_are_not_known_are_ignored() {
    let mut value = contract_with_inside();
    let inside = &mut value["inside"][0];
    inside["paths"] = json!([{"number": 3, "blocks": [0, 1], "count": 7, "path": 0}]);
    inside["loops"][0]["trips"] = json!([[3, 3]]);
    inside["loops"][0]["other"] = json!({"sum": 1});
    inside["edges"][0]["other"] = json!(1);
    inside["blocks"][0]["other"] = json!(1);
    let mut found = read(&value);
    let inside = &mut found.inside[0];
    let paths = std::mem::take(&mut inside.paths);
    assert_eq!((paths[0].number, paths[0].count), (3, 7));
    assert_eq!(std::mem::take(&mut inside.loops[0].trips), [(3, 3)]);
    assert_eq!(found, read(&contract_with_inside()));
}

#[test]
fn contradictions_of_the_control_flow_are_found_and_named() {
    for (pointer, wrong, message) in [
        (
            "/function",
            json!(1),
            "inside[0].function is 1, but there are 1 functions",
        ),
        (
            "/edges/1/to",
            json!(2),
            "inside[0].edges[1].to is 2, but there are 2 blocks",
        ),
        (
            "/edges/1/from",
            json!(9),
            "inside[0].edges[1].from is 9, but there are 2 blocks",
        ),
        (
            "/edges/1/kind",
            json!("exit"),
            "the kind of inside[0].edges[1] does not fit its `from` and `to`",
        ),
        (
            "/edges/2/to",
            json!(0),
            "the kind of inside[0].edges[2] does not fit its `from` and `to`",
        ),
        (
            "/loops/0/header",
            json!(2),
            "inside[0].loops[0].header is 2, but there are 2 blocks",
        ),
        (
            "/loops/0/parent",
            json!(1),
            "inside[0].loops[0].parent is 1, but there are 1 loops",
        ),
        (
            "/loops/0/parent",
            json!(0),
            "inside[0].loops[0] is around itself",
        ),
        (
            "/blocks/1/count",
            json!(31),
            "inside[0].blocks[1].count is 31, but its incoming edges give 30",
        ),
        (
            "/edges/4/count",
            json!(2),
            "inside[0].blocks[1].count is 30, but its outgoing edges give 29",
        ),
    ] {
        let mut value = contract_with_inside();
        *value["inside"][0].pointer_mut(pointer).unwrap() = wrong;
        let error = read(&value).check().unwrap_err().to_string();
        assert_eq!(error, message, "{pointer}");
    }
}

#[test]
fn loops_around_each_other_are_found() {
    let mut profile = with_inside();
    profile.inside[0].loops[0].parent = Some(1);
    let error = profile.check_structure().unwrap_err().to_string();
    assert_eq!(error, "inside[0].loops[0] is around itself");
}

#[test]
fn uncertain_activations_allow_as_many_differences() {
    let mut profile = with_inside();
    profile.inside[1].uncertain = 0;
    let error = profile.check().unwrap_err().to_string();
    let message = "inside[1].blocks[1].count is 60, but its outgoing edges give 59";
    assert_eq!(error, message);
    profile.inside[1].uncertain = 2;
    profile.check().unwrap();
    profile.inside[1].blocks[1].count = 62;
    let error = profile.check().unwrap_err().to_string();
    let message = "inside[1].blocks[1].count is 62, but its outgoing edges give 59, and \
        `uncertain` is 2";
    assert_eq!(error, message);
}

/// Arrivals inside a call, where `setjmp` returns again, are in the count of the block alone: they
/// are no activations, and have not executed the line at which the block begins.
#[test]
fn arrivals_inside_calls_do_not_begin_at_the_block() {
    let mut value = contract_with_inside();
    let inside = &mut value["inside"][0];
    inside["blocks"][0]["count"] = json!(15);
    let edges = inside["edges"].as_array_mut().unwrap();
    edges[2]["count"] = json!(12);
    edges.push(json!({"from": null, "to": 0, "kind": "entry", "in_call": true, "count": 5}));
    let profile = read(&value);
    profile.check().unwrap();
    let inside = &profile.inside[0];
    assert_eq!((inside.activations(4560), inside.arrivals()), (10, 15));
    assert_eq!(inside.starts(), [10, 30]);
    assert_eq!(inside.lines(), BTreeMap::from([(("app.c", 12), 10)]));
}

/// Arrivals at landing pads are no activations.
#[test]
fn activations_are_the_entries_at_the_start() {
    let profile = with_inside();
    let numbers = |index: usize| {
        let inside = &profile.inside[index];
        let address = profile.functions[inside.function].address;
        (inside.activations(address), inside.arrivals())
    };
    assert_eq!(numbers(0), (1004, 1004));
    assert_eq!(numbers(1), (100, 102));
    assert_eq!(Inside::default().activations(0), 0);
}

#[test]
fn parts_of_a_session_have_the_counts_since_its_beginning() {
    let old = with_inside();
    let mut new = with_inside();
    let more = old.inside[0].clone();
    new.inside[0].combine(&more, u64::saturating_add);
    new.inside[0].combine(&more, u64::saturating_add);
    new.inside[1].blocks.pop();
    let (part, _) = new.clone().since(&old);
    let counts = |inside: &Inside| inside.blocks.iter().map(|b| b.count).collect::<Vec<u64>>();
    let twice: Vec<u64> = counts(&old.inside[0]).iter().map(|n| 2 * n).collect();
    assert_eq!(counts(&part.inside[0]), twice);
    assert_eq!(part.inside[0].loops[1].iterations, 2 * 40_160);
    // The graph of the other function has changed.
    assert_eq!(part.inside[1], new.inside[1]);
}

/// A random walk through random blocks, as a graph with counts. Each step goes to one of `blocks`
/// blocks. A step beyond them ends the activation.
fn walked(blocks: usize, steps: &[usize]) -> Inside {
    let mut inside = Inside {
        blocks: vec![Block::default(); blocks],
        ..Inside::default()
    };
    let count = |inside: &mut Inside, from: Option<usize>, to: Option<usize>| {
        let known = inside
            .edges
            .iter_mut()
            .find(|e| (e.from, e.to) == (from, to));
        match known {
            Some(edge) => edge.count += 1,
            None => inside.edges.push(Edge {
                in_call: false,
                from,
                to,
                kind: match (from, to) {
                    (None, _) => EdgeKind::Entry,
                    (_, None) => EdgeKind::Exit,
                    _ => EdgeKind::Taken,
                },
                count: 1,
            }),
        }
    };
    let mut at = None;
    for &step in steps.iter().chain([&blocks]) {
        let next = Some(step).filter(|&block| block < blocks);
        if at.is_some() || next.is_some() {
            count(&mut inside, at, next);
        }
        if let Some(block) = next {
            inside.blocks[block].count += 1;
        }
        at = next;
    }
    inside
}

proptest! {
    /// The counts of walks are consistent, and those of a walk with a wrong count are not. As many
    /// uncertain activations make them consistent again.
    #[test]
    fn counts_of_walks_are_consistent(
        blocks in 1..8_usize,
        steps in proptest::collection::vec(0..10_usize, 1..60),
        wrong in any::<proptest::sample::Index>(),
        by in 1..5_u64,
    ) {
        let mut profile = sample();
        profile.inside = vec![walked(blocks, &steps)];
        prop_assert_eq!(profile.check(), Ok(()));
        let inside = &mut profile.inside[0];
        inside.blocks[wrong.index(blocks)].count += by;
        prop_assert!(profile.check().is_err());
        for (uncertain, is_enough) in [(by - 1, false), (by, true)] {
            profile.inside[0].uncertain = uncertain;
            prop_assert_eq!(profile.check().is_ok(), is_enough);
        }
        let text = serde_json::to_string(&profile).unwrap();
        prop_assert_eq!(serde_json::from_str::<Profile>(&text).unwrap(), profile);
    }

    /// Sums of walks through one graph are consistent, and differences give the part.
    #[test]
    fn sums_of_walks_are_consistent(
        blocks in 1..6_usize,
        steps in proptest::collection::vec(0..8_usize, 1..40),
        uncertain in 0..3_u64,
    ) {
        let mut profile = sample();
        let one = Inside { uncertain, ..walked(blocks, &steps) };
        let mut sum = one.clone();
        prop_assert!(sum.has_graph_of(&one, 0));
        sum.combine(&one, u64::saturating_add);
        prop_assert_eq!(sum.uncertain, 2 * uncertain);
        profile.inside = vec![sum.clone()];
        prop_assert_eq!(profile.check(), Ok(()));
        sum.combine(&one, u64::saturating_sub);
        prop_assert_eq!(sum.blocks, one.blocks);
        prop_assert_eq!(sum.edges, one.edges);
    }
}
