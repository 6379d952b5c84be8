//! The loops around call sites, with the source lines that they span.
//!
//! A loop is shown in the innermost function that contains all of it. That may be a function whose
//! inlined copy is in the function that was compiled. Its lines are those of its blocks in that
//! function. A call in a function that is inlined into the loop is at the line of that call.

use std::collections::HashMap;
use std::sync::Arc;

use patcher::Svma;
use patcher::function::Function;
use patcher::inside::{BlockId, Inside, LoopId, NeverReturning};

use ipath_profile::FrameLoop;
use ipath_symbols::images::OpenImage;
use ipath_symbols::lines::{FileLines, SourceFrame};

/// The maximum number of functions of an image whose loops are kept. They are discarded when there
/// are more.
const MOST_FUNCTIONS: usize = 1 << 12;
/// The maximum size of a function whose loops are found, in bytes of code.
const MOST_BYTES: u64 = 1 << 18;
/// The maximum sum of the blocks of all loops of a function.
const MOST_BLOCKS: usize = 1 << 16;
/// The maximum number of loops around a call, from the innermost on.
const MOST_AROUND: usize = 16;

/// The loops of the functions of one image that have been looked at.
#[derive(Default)]
pub(super) struct ImageLoops {
    functions: HashMap<Svma, Arc<[Found]>>,
    calls: NeverReturning,
}

/// A loop of a function.
struct Found {
    /// Its blocks, as ranges of addresses.
    blocks: Vec<(Svma, Svma)>,
    /// The loop, as a profile has it.
    shown: FrameLoop,
}

impl ImageLoops {
    /// The loops around the instruction that contains `at`, the innermost first. Empty as well if
    /// the control flow of the function is not known.
    pub(super) fn around(
        &mut self,
        image: &OpenImage,
        at: Svma,
        lines: Option<&FileLines>,
    ) -> Vec<FrameLoop> {
        let Some(function) = image.image().functions().function_at(at) else {
            return Vec::new();
        };
        let start = function.range.start;
        if self.functions.len() >= MOST_FUNCTIONS && !self.functions.contains_key(&start) {
            self.functions.clear();
        }
        let calls = &mut self.calls;
        let known = self.functions.entry(start);
        let all = known.or_insert_with(|| found(image, &function, lines, calls).into());
        let is_in = |(start, end): &(Svma, Svma)| (*start..*end).contains(&at);
        let around = all.iter().filter(|of| of.blocks.iter().any(is_in));
        let around = around.take(MOST_AROUND);
        around.map(|of| of.shown.clone()).collect()
    }
}

/// The loops of a function, each before those around it.
fn found(
    image: &OpenImage,
    function: &Function,
    lines: Option<&FileLines>,
    calls: &mut NeverReturning,
) -> Vec<Found> {
    if function.range.end.0 - function.range.start.0 > MOST_BYTES {
        return Vec::new();
    }
    let inside = Inside::with_loops(image.image(), image.context(), function, calls);
    let Some(inside) = inside else {
        return Vec::new();
    };
    // The branch at the end of a block is often at another line than its start.
    let mut chains: HashMap<BlockId, [Chain; 2]> = HashMap::new();
    let all = inside.loops.loops();
    // Jumps between the parts of an interpreter make a loop of each part and all later ones.
    let is_shown = |id: &LoopId| {
        let own = &all[id.index()];
        let around = own.parent.map(|parent| &all[parent.index()]);
        own.is_reducible || around.is_none_or(|around| around.is_reducible)
    };
    let ids = (0..all.len() as u32).map(LoopId).filter(is_shown);
    let mut ids: Vec<LoopId> = ids.collect();
    let blocks = ids.iter().map(|&id| inside.loops.blocks(id).count());
    if blocks.sum::<usize>() > MOST_BLOCKS {
        return Vec::new();
    }
    ids.sort_by_key(|id| std::cmp::Reverse(all[id.index()].depth));
    let of = |id: LoopId| {
        let blocks: Vec<BlockId> = inside.loops.blocks(id).collect();
        for &block in &blocks {
            let own = inside.graph.block(block);
            let ends = || [own.first, own.last].map(|at| Chain::at(at, lines));
            chains.entry(block).or_insert_with(ends);
        }
        let header = all[id.index()].header;
        let own = blocks.iter().flat_map(|block| &chains[block]);
        let shown = shown(&chains[&header][0], own);
        let range = |&block: &BlockId| {
            let range = &inside.graph.block(block).range;
            (range.start, range.end)
        };
        Found {
            blocks: blocks.iter().map(range).collect(),
            shown: FrameLoop {
                header: inside.graph.block(header).first.0,
                ..shown
            },
        }
    };
    ids.into_iter().map(of).collect()
}

/// The functions around an instruction, from the one that was compiled inwards, each with the
/// position of the instruction, or of the call of the next one. Empty if they are not known.
struct Chain(Vec<SourceFrame>);

impl Chain {
    fn at(at: Svma, lines: Option<&FileLines>) -> Self {
        let mut found = lines.map_or_else(Vec::new, |lines| lines.with(|lines| lines.lookup(at)));
        found.reverse();
        Self(found)
    }

    /// The number of functions, from the outermost on, that are the same copies as those of
    /// `other`.
    fn in_common(&self, other: &Self) -> usize {
        let pairs = self.0.iter().zip(&other.0).enumerate();
        let same = pairs.take_while(|&(depth, (own, others))| {
            // Two copies in one function differ in the positions of their calls.
            let call = |chain: &Self| {
                let call = depth.checked_sub(1).map(|around| &chain.0[around]);
                call.map(|call| (call.file.clone(), call.line))
            };
            own.function == others.function && call(self) == call(other)
        });
        same.count()
    }
}

/// The loop with this header and these blocks, without its address.
fn shown<'c>(header: &Chain, blocks: impl Iterator<Item = &'c Chain> + Clone) -> FrameLoop {
    let known = blocks.filter(|chain| !chain.0.is_empty());
    let depths = known.clone().map(|chain| header.in_common(chain));
    let depth = depths.min().unwrap_or(0);
    let Some(inner) = depth.checked_sub(1) else {
        return FrameLoop::default();
    };
    let file = &header.0[inner].file;
    let positions = known.map(|chain| &chain.0[inner]);
    let lines = positions
        .filter(|position| position.file == *file)
        .filter_map(|position| position.line);
    FrameLoop {
        header: 0,
        file: file.clone(),
        line: lines.clone().min(),
        end_line: lines.max(),
        inlined: inner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `main:10 > outer:20 > inner:30` as a chain.
    fn chain(text: &str) -> Chain {
        let frames = text.split(" > ").map(|frame| {
            let (function, line) = frame.split_once(':').expect("FUNCTION:LINE");
            SourceFrame {
                function: Some(function.to_owned()),
                file: Some(format!("{function}.c")),
                line: line.parse().ok(),
            }
        });
        Chain(frames.collect())
    }

    fn loop_of(blocks: &[&str]) -> (String, Option<u32>, Option<u32>, usize) {
        let chains: Vec<Chain> = blocks.iter().map(|text| chain(text)).collect();
        let shown = shown(&chains[0], chains.iter());
        let file = shown.file.expect("a file");
        (file, shown.line, shown.end_line, shown.inlined)
    }

    #[test]
    fn loops_are_in_the_innermost_function_that_contains_them() {
        let found = loop_of(&["work:10", "work:14 > next:3", "work:12 > next:4 > more:9"]);
        assert_eq!(found, ("work.c".to_owned(), Some(10), Some(14), 0));
        let found = loop_of(&["work:7 > each:20", "work:7 > each:22 > next:1"]);
        assert_eq!(found, ("each.c".to_owned(), Some(20), Some(22), 1));
    }

    #[test]
    fn copies_in_two_places_are_two() {
        let found = loop_of(&["work:7 > each:20", "work:9 > each:20"]);
        assert_eq!(found, ("work.c".to_owned(), Some(7), Some(9), 0));
    }

    /// The condition of a loop is often in an inlined function.
    #[test]
    fn headers_in_inlined_functions_do_not_move_the_loop() {
        let found = loop_of(&["work:10 > next:3", "work:11", "work:12"]);
        assert_eq!(found, ("work.c".to_owned(), Some(10), Some(12), 0));
    }
}
