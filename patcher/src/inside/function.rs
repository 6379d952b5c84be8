//! The inside of a function that is given by name or address.

use super::{Graph, Loops, NeverReturning, Refusal};
use crate::addr::Svma;
use crate::flow::{Flow, ModuleContext};
use crate::function::Function;
use crate::image::Image;
use crate::isa::{Control, Insn};

/// Parts of a function. Numbers are those of the function's control-flow graph, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The basic block with this number: [`BlockId`](super::BlockId).
    Block(u32),
    /// All basic blocks.
    Blocks,
    /// The loop with this number: [`LoopId`](super::LoopId).
    Loop(u32),
    /// All loops.
    Loops,
    /// The loop with this number, timed.
    TimedLoop(u32),
    /// All loops, each timed.
    TimedLoops,
    /// All edges, which are counted together.
    Edges,
    /// All paths, which are counted together.
    Paths,
    /// All paths, which are timed.
    TimedPaths,
    /// The trips of all loops.
    Trips,
    /// The inlined copies of the function, each timed. They are in other functions.
    Copies,
}

impl Part {
    /// True if the part is no set of instructions, but is counted or timed as a whole.
    pub fn is_whole(self) -> bool {
        matches!(
            self,
            Self::Edges | Self::Paths | Self::TimedPaths | Self::Trips
        )
    }

    /// True for loops that are timed.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::TimedLoop(_) | Self::TimedLoops)
    }
}

/// The instructions, basic blocks and loops of a function.
pub struct Inside {
    /// The instructions, and the jumps between them.
    pub flow: Flow,
    /// The control-flow graph.
    pub graph: Graph,
    /// The loop nest.
    pub loops: Loops,
}

impl Inside {
    /// Analyzes a function. `calls` keeps the results for callees, so that functions of the same
    /// image can share them. Fails if the control flow is not known well enough, or if the function
    /// is too large.
    pub fn of(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        function: &Function,
        calls: &mut NeverReturning,
    ) -> Result<Self, Refusal> {
        let flow = Flow::of(image, context, function).ok_or(Refusal::Empty)?;
        Self::with_flow(image, context, flow, calls)
    }

    /// As [`Self::of`]. `None` also if the function has no jump backward, and so no loop.
    pub fn with_loops(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        function: &Function,
        calls: &mut NeverReturning,
    ) -> Option<Self> {
        let flow = Flow::of(image, context, function)?;
        let leads_back = |insn: &Insn| match insn.control() {
            Control::Jump | Control::ConditionalJump => insn.target() <= insn.at(),
            Control::IndirectJump => true,
            _ => false,
        };
        let has_loops = flow.insns.iter().any(leads_back);
        let inside = has_loops.then(|| Self::with_flow(image, context, flow, calls));
        inside?.ok()
    }

    fn with_flow(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        flow: Flow,
        calls: &mut NeverReturning,
    ) -> Result<Self, Refusal> {
        let graph = Graph::of(image, context, &flow, calls)?;
        let loops = Loops::of(&graph);
        Ok(Self { flow, graph, loops })
    }

    /// The addresses for probes at the start of these blocks, or of the headers of these loops.
    /// Ascending, each once. Empty if the function has no such part.
    pub fn starts_of(&self, part: Part) -> Vec<Svma> {
        let headers = || self.loops.loops().iter().map(|of| of.header.index());
        let blocks: Vec<usize> = match part {
            Part::Block(number) => vec![number as usize],
            Part::Blocks => (0..self.graph.blocks().len()).collect(),
            Part::Loop(number) | Part::TimedLoop(number) => {
                headers().skip(number as usize).take(1).collect()
            }
            Part::Loops | Part::TimedLoops => headers().collect(),
            Part::Edges | Part::Paths | Part::TimedPaths | Part::Trips | Part::Copies => Vec::new(),
        };
        let blocks = blocks.into_iter();
        let blocks = blocks.filter_map(|block| self.graph.blocks().get(block));
        let mut starts: Vec<Svma> = blocks.map(|block| block.first).collect();
        starts.sort_unstable();
        starts.dedup();
        starts
    }
}
