//! A profile with the control flow inside its functions.

use super::sample;
use crate::profile::{
    Block, Edge, EdgeKind, Inside, Loop, PathEnd, PathStart, PathTotals, Profile, TakenPath,
};

/// A block without a source position: address, size, count.
fn block(address: u64, size: u64, count: u64) -> Block {
    Block {
        address,
        size,
        count,
        ..Block::default()
    }
}

/// A block that begins at a line of the file.
fn block_at(file: &str, line: u32, block: Block) -> Block {
    Block {
        file: Some(format!("/src/app/{file}")),
        line: Some(line),
        ..block
    }
}

fn edge(kind: EdgeKind, from: Option<usize>, to: Option<usize>, count: u64) -> Edge {
    Edge {
        in_call: false,
        from,
        to,
        kind,
        count,
    }
}

/// A loop that begins and ends at these lines of the file.
fn loop_at((line, end_line): (u32, u32), own: Loop) -> Loop {
    Loop {
        file: Some("/src/app/app.c".to_owned()),
        line: Some(line),
        end_line: Some(end_line),
        ..own
    }
}

/// A loop in another one, with source positions:
///
/// ```text
/// entry -> 0 -> 1 -> 2 -> 3 -> 4
///               |^   |^---+----+
///               |+-5-+
///               +-> 6 -> exit
/// ```
fn nested_loops() -> Inside {
    use EdgeKind::{Entry, Exit, Fall, Taken};
    Inside {
        function: 0,
        uncertain: 0,
        blocks: vec![
            block_at("app.c", 20, block(0x11d0, 9, 1004)),
            block_at("app.c", 22, block(0x11d9, 5, 11_044)),
            block_at("app.c", 23, block(0x11de, 6, 40_160)),
            block_at("app.c", 24, block(0x11e4, 8, 30_120)),
            block_at("app.h", 3, block(0x11ec, 7, 120)),
            block_at("app.c", 22, block(0x11f3, 4, 10_040)),
            block_at("app.c", 30, block(0x11f7, 9, 1004)),
        ],
        edges: vec![
            edge(Entry, None, Some(0), 1004),
            edge(Fall, Some(0), Some(1), 1004),
            edge(Fall, Some(1), Some(2), 10_040),
            edge(Taken, Some(1), Some(6), 1004),
            edge(Fall, Some(2), Some(3), 30_120),
            edge(Taken, Some(2), Some(5), 10_040),
            edge(Fall, Some(3), Some(4), 120),
            edge(Taken, Some(3), Some(2), 30_000),
            edge(Taken, Some(4), Some(2), 120),
            edge(Taken, Some(5), Some(1), 10_040),
            edge(Exit, Some(6), None, 1004),
        ],
        loops: vec![
            loop_at(
                (22, 28),
                Loop {
                    header: 1,
                    parent: None,
                    entries: 1004,
                    iterations: 11_044,
                    ..Loop::default()
                },
            ),
            loop_at(
                (23, 26),
                Loop {
                    header: 2,
                    parent: Some(0),
                    entries: 10_040,
                    iterations: 40_160,
                    ..Loop::default()
                },
            ),
        ],
        ..Inside::default()
    }
}

/// A jump table and a landing pad, without source positions. An activation is in progress.
fn jump_table() -> Inside {
    use EdgeKind::{Case, Entry, Exit};
    Inside {
        function: 1,
        uncertain: 1,
        blocks: vec![
            block(0x12c0, 24, 100),
            block(0x12d8, 8, 60),
            block(0x12e0, 8, 40),
            block(0x12e8, 4, 0),
            block(0x12ec, 12, 2),
        ],
        edges: vec![
            edge(Entry, None, Some(0), 100),
            edge(Entry, None, Some(4), 2),
            edge(Case, Some(0), Some(1), 60),
            edge(Case, Some(0), Some(2), 40),
            edge(Case, Some(0), Some(3), 0),
            edge(Exit, Some(1), None, 59),
            edge(Exit, Some(2), None, 40),
            edge(Exit, Some(3), None, 0),
            edge(Exit, Some(4), None, 2),
        ],
        loops: Vec::new(),
        ..Inside::default()
    }
}

/// The [`sample`] with the control flow inside both of its functions.
pub fn with_inside() -> Profile {
    Profile {
        inside: vec![nested_loops(), jump_table()],
        ..sample()
    }
}

/// [`with_inside`] with the paths through the nested loops.
pub fn with_paths() -> Profile {
    use {PathEnd as End, PathStart as Start};
    let mut profile = with_inside();
    let nested = &mut profile.inside[0];
    let taken = [
        (Start::Entry, vec![0, 1, 2, 3], End::Loop, 1004),
        (Start::Loop, vec![1, 6], End::Exit, 1004),
        (Start::Loop, vec![1, 2, 3], End::Loop, 9036),
        (Start::Loop, vec![2, 3], End::Loop, 19_960),
        (Start::Loop, vec![2, 3, 4], End::Loop, 120),
        (Start::Loop, vec![2, 5], End::Loop, 10_040),
    ];
    let taken = (0..).zip(taken);
    let taken = taken.map(|(number, (start, blocks, end, count))| TakenPath {
        number,
        start: Some(start),
        blocks,
        end: Some(end),
        count,
        contexts: Vec::new(),
    });
    nested.paths = taken.collect();
    nested.path_totals = Some(PathTotals {
        possible: 13,
        split: false,
        begun: 1004,
        unknown: 0,
        uncounted: 0,
    });
    profile
}
