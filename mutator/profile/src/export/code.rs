//! The instructions of counted functions, which a profile does not contain.

use std::collections::BTreeMap;
use std::time::SystemTime;

use crate::profile::{Block, Inside};

/// The instructions of the functions whose control flow was counted, from the files of their
/// modules.
#[derive(Clone, Debug, Default)]
pub struct Code {
    /// The paths of source files, for [`Instruction::source`].
    pub files: Vec<String>,
    /// The listings, by their index in [`Profile::inside`](crate::Profile::inside). A missing
    /// listing has no instructions.
    pub listings: Vec<Listing>,
}

/// The instructions of one function.
#[derive(Clone, Debug)]
pub struct Listing {
    /// The instructions of each block, by the blocks' indexes, or the reason for having none.
    pub blocks: Result<Vec<Vec<Instruction>>, String>,
    /// The time of the last modification of the module's file. `None` if it was not read.
    pub modified: Option<SystemTime>,
}

/// An instruction as text, with its source line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    /// The link-time address.
    pub address: u64,
    /// The instruction as text: `call 0x1030`.
    pub text: String,
    /// The name of the function that it calls. Empty if it calls none or the name is not known.
    pub callee: String,
    /// True if it is a call. An exception or `longjmp` may end the block in it.
    pub is_call: bool,
    /// An index into [`Code::files`], and the line in that file, from 1. `None` if it is not known.
    pub source: Option<(usize, u32)>,
}

/// A counted function with its instructions.
#[derive(Clone, Copy)]
pub(super) struct Listed<'a> {
    /// The counts.
    pub(super) inside: &'a Inside,
    /// The paths of source files.
    files: &'a [String],
    /// `None` if they are not known.
    listing: Option<&'a Listing>,
}

impl<'a> Listed<'a> {
    /// The function at `index` in the profile's list.
    pub(super) fn of(index: usize, inside: &'a Inside, code: Option<&'a Code>) -> Self {
        Self {
            inside,
            files: code.map_or(&[], |code| &code.files),
            listing: code.and_then(|code| code.listings.get(index)),
        }
    }

    /// The instructions of a block. Empty if they are not known.
    pub(super) fn instructions(&self, block: usize) -> &'a [Instruction] {
        let blocks = self
            .listing
            .and_then(|listing| listing.blocks.as_ref().ok());
        let block = blocks.and_then(|blocks| blocks.get(block));
        block.map_or(&[], |instructions| instructions)
    }

    /// Why there are no instructions. `None` if there are some.
    pub(super) fn missing(&self) -> Option<&'a str> {
        match self.listing {
            Some(listing) => listing.blocks.as_ref().err().map(String::as_str),
            None => Some("the file of its module was not read"),
        }
    }

    /// The time of the last modification of the module's file. `None` if it is not known.
    pub(super) fn modified(&self) -> Option<SystemTime> {
        self.listing?.modified
    }

    /// The source line of an instruction. `None` if it is not known.
    pub(super) fn source(&self, instruction: &Instruction) -> Option<(&'a str, u32)> {
        let (file, line) = instruction.source?;
        Some((self.files.get(file)?, line))
    }

    /// The count of each source line: the largest count of its instructions. If these are not
    /// known, only lines at which a block begins have a count, that of its start.
    pub(super) fn lines(&self) -> BTreeMap<(&'a str, u32), LineCount> {
        let mut lines: BTreeMap<(&str, u32), LineCount> = BTreeMap::new();
        let mut add = |source, count, address| {
            let new = LineCount { count, address };
            let known = lines.entry(source).or_insert(new);
            if known.count < count {
                *known = new;
            }
        };
        let in_calls = self.in_calls();
        for (index, block) in self.inside.blocks.iter().enumerate() {
            let instructions = self.instructions(index);
            let [arrivals, departures] = in_calls[index];
            if instructions.is_empty()
                && let Some(source) = block.source()
            {
                add(source, block.count.saturating_sub(arrivals), block.address);
            }
            // Activations that left inside a call did not execute what follows the last call, and
            // those that arrived inside a call did not execute what precedes the first one. Between
            // two calls the number of activations is not known exactly, and this is the largest.
            let is_call = |one: &Instruction| one.is_call;
            let first = instructions.iter().position(is_call);
            let last = instructions.iter().rposition(is_call);
            for (place, instruction) in instructions.iter().enumerate() {
                let count = match (first, last) {
                    (Some(first), _) if place <= first => block.count.saturating_sub(arrivals),
                    (_, Some(last)) if place > last => block.count.saturating_sub(departures),
                    _ => block.count,
                };
                if let Some(source) = self.source(instruction) {
                    add(source, count, instruction.address);
                }
            }
        }
        lines
    }

    /// For each block, the numbers of arrivals and of departures inside its calls.
    fn in_calls(&self) -> Vec<[u64; 2]> {
        let mut counts = vec![[0_u64; 2]; self.inside.blocks.len()];
        for edge in self.inside.edges.iter().filter(|edge| edge.in_call) {
            for (side, block) in [edge.to, edge.from].into_iter().enumerate() {
                if let Some(block) = block {
                    let count = &mut counts[block][side];
                    *count = count.saturating_add(edge.count);
                }
            }
        }
        counts
    }

    /// The blocks without a source line.
    pub(super) fn without_lines(&self) -> impl Iterator<Item = &'a Block> {
        let blocks = self.inside.blocks.iter().enumerate();
        let has_line = move |(index, block): (usize, &Block)| match self.instructions(index) {
            [] => block.source().is_some(),
            all => all.iter().any(|one| self.source(one).is_some()),
        };
        blocks
            .filter(move |&of| !has_line(of))
            .map(|(_, block)| block)
    }
}

/// The number of executions of a source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineCount {
    pub(super) count: u64,
    /// The first instruction of the line in the block with this count.
    pub(super) address: u64,
}
