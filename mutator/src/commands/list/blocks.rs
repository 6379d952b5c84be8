//! `list --blocks`: the basic blocks and loops of functions, with the numbers that name points.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use patcher::function::Function;
use patcher::inside::{BlockId, Graph, Inside, Loops, NeverReturning, Node};
use serde::Serialize;

use ipath_base::printable::printable;
use ipath_symbols::images::{ImageId, OpenImage};
use ipath_symbols::lines::FileLines;

/// The inside of a function.
#[derive(Serialize)]
pub(super) struct Blocks {
    /// The basic blocks, in address order.
    blocks: Vec<Block>,
    /// The loops, in the address order of their headers.
    loops: Vec<Loop>,
    /// Why there are no blocks. `None` if the control flow is known.
    unknown: Option<String>,
}

#[derive(Serialize)]
struct Block {
    /// The link-time address (SVMA) of its first byte.
    address: u64,
    /// Its size in bytes.
    size: u64,
    /// The number of the innermost loop that contains it. `None` outside of loops.
    r#loop: Option<u32>,
    /// What ends it.
    end: String,
    /// The numbers of the blocks at which control may continue, ascending, each once.
    to: Vec<u32>,
    /// True if control can arrive from outside of the function.
    is_entered: bool,
    /// The source file of its first instruction. `None` if it is not known.
    file: Option<String>,
    /// The line in that file, from 1. `None` if it is not known.
    line: Option<u32>,
}

#[derive(Serialize)]
struct Loop {
    /// The number of its header.
    header: u32,
    /// The number of the loop around it. `None` for an outermost loop.
    parent: Option<u32>,
    /// The number of loops that contain it, plus 1.
    depth: u32,
    /// The numbers of its blocks, ascending, with those of the loops in it.
    blocks: Vec<u32>,
    /// True if control enters it only at its header.
    is_reducible: bool,
}

/// Facts about files that their functions share.
#[derive(Default)]
pub(super) struct KnownFiles(BTreeMap<ImageId, KnownFile>);

#[derive(Default)]
struct KnownFile {
    /// The source positions, read when they are first needed.
    lines: OnceCell<Option<FileLines>>,
    calls: NeverReturning,
}

impl Blocks {
    /// The inside of `function` in a file, the one at `path`.
    pub(super) fn of(
        function: &Function,
        image: &OpenImage,
        path: &str,
        known: &mut KnownFiles,
    ) -> Self {
        let known = known.0.entry(image.id()).or_default();
        let inside = Inside::of(image.image(), image.context(), function, &mut known.calls);
        let Inside { graph, loops, .. } = match inside {
            Ok(inside) => inside,
            Err(refusal) => {
                return Self {
                    blocks: Vec::new(),
                    loops: Vec::new(),
                    unknown: Some(refusal.to_string()),
                };
            }
        };
        let lines = known.lines.get_or_init(|| image.lines(Path::new(path)));
        let blocks = graph.block_ids();
        let blocks = blocks.map(|id| Block::of(id, (&graph, &loops), lines.as_ref()));
        let all = (0..).map(patcher::inside::LoopId).zip(loops.loops());
        let all = all.map(|(id, of)| Loop {
            header: of.header.0,
            parent: of.parent.map(|parent| parent.0),
            depth: of.depth,
            blocks: loops.blocks(id).map(|block| block.0).collect(),
            is_reducible: of.is_reducible,
        });
        Self {
            blocks: blocks.collect(),
            loops: all.collect(),
            unknown: None,
        }
    }

    /// Adds the blocks to a text, a line for each, and then the loops.
    pub(super) fn write(&self, text: &mut String) {
        // Writing to a string does not fail.
        if let Some(why) = &self.unknown {
            let _ = writeln!(text, "  its basic blocks are unknown: {why}");
        }
        for (number, block) in self.blocks.iter().enumerate() {
            let _ = write!(
                text,
                "  block{number}  {:#x}  {} bytes  {}",
                block.address, block.size, block.end
            );
            if !block.to.is_empty() {
                let _ = write!(text, " to {}", numbers(&block.to));
            }
            if block.is_entered && number != 0 {
                text.push_str(", entered from outside");
            }
            if let Some(number) = block.r#loop {
                let _ = write!(text, "  in loop{number}");
            }
            if let (Some(file), Some(line)) = (&block.file, block.line) {
                let name = Path::new(file).file_name().unwrap_or_default();
                let _ = write!(text, "  {}:{line}", printable(&name.to_string_lossy()));
            }
            text.push('\n');
        }
        for (number, of) in self.loops.iter().enumerate() {
            let _ = write!(text, "  loop{number}  header block{}", of.header);
            if let Some(parent) = of.parent {
                let _ = write!(text, ", in loop{parent}");
            }
            if !of.is_reducible {
                text.push_str(", entered in several places");
            }
            let _ = writeln!(text, ", blocks {}", numbers(&of.blocks));
        }
    }
}

impl Block {
    fn of(id: BlockId, (graph, loops): (&Graph, &Loops), lines: Option<&FileLines>) -> Self {
        let block = graph.block(id);
        let leaving = graph.leaving(Node::Block(id)).iter();
        let to = leaving.filter_map(|&edge| graph.edge(edge).to.block());
        let mut to: Vec<u32> = to.map(|block| block.0).collect();
        to.sort_unstable();
        to.dedup();
        let mut arriving = graph.arriving(Node::Block(id)).iter();
        let found = lines.map(|lines| lines.with(|lines| lines.lookup(block.first)));
        let position = found.and_then(|frames| frames.into_iter().next());
        let position = position.unwrap_or_default();
        Self {
            address: block.range.start.0,
            size: block.range.end.0 - block.range.start.0,
            r#loop: loops.innermost(id).map(|of| of.0),
            end: block.end.to_string(),
            to,
            is_entered: arriving.any(|&edge| graph.edge(edge).from == Node::Entry),
            file: position.file,
            line: position.line,
        }
    }
}

/// Ascending numbers as a text, with `A-B` for three or more in a row.
fn numbers(all: &[u32]) -> String {
    let mut texts = Vec::new();
    for run in all.chunk_by(|before, after| before + 1 == *after) {
        match run {
            [first, _, .., last] => texts.push(format!("{first}-{last}")),
            few => texts.extend(few.iter().map(u32::to_string)),
        }
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn numbers_in_a_row_are_ranges() {
        assert_eq!(numbers(&[]), "");
        assert_eq!(numbers(&[3]), "3");
        assert_eq!(numbers(&[0, 1, 3, 4, 5, 9]), "0, 1, 3-5, 9");
    }
}
