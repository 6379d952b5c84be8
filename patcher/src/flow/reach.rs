//! Instructions that control can reach. Paths and jump tables are followed until nothing new is
//! found.

use std::collections::HashSet;
use std::ops::Range;

use crate::addr::Svma;
use crate::image::Image;
use crate::isa::Insn;

use super::address_set::AddressSet;
use super::module::ModuleContext;
use super::recovery;
use super::sweep::{self, Swept};
use super::tables::{Jumps, Reader, Targets};

/// The result of following every path from the entry.
#[derive(Debug, Default)]
pub struct Reached {
    /// The instructions that control can reach, by address.
    pub insns: Vec<Insn>,
    /// The addresses of `insns`.
    pub visited: HashSet<u64>,
    /// Addresses of instructions that control may not reach. Some follow only a label, which may
    /// mark a table in the code. Others follow a call of the function's own middle, which may not
    /// return.
    pub doubtful: HashSet<u64>,
    /// Addresses at which control can arrive other than by a direct branch.
    pub marks: Vec<u64>,
    /// True if some marks are labels whose address is taken.
    pub has_labels: bool,
    /// An address at which following paths and decoding linearly disagree; `None` if they agree.
    pub desync: Option<u64>,
    /// True if there is an indirect jump whose targets are not among the marks.
    pub unexplained: bool,
    /// The marks at which control arrives only from the function's own jump tables.
    pub switched: Vec<u64>,
    /// The classification of the function's indirect jumps.
    pub jumps: Jumps,
    /// The marks at which Go's runtime continues the function after it has recovered from a panic.
    pub recovered: Vec<u64>,
}

/// Follows all paths of the function in `ranges`. `swept` is their linear decoding.
pub fn from(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    ranges: &[Range<Svma>],
    swept: &Swept,
) -> Reached {
    let search = PathSearch {
        image,
        context,
        ranges,
        swept,
        reached: Reached::default(),
    };
    search.run()
}

/// The search and its results so far.
struct PathSearch<'a, 'd> {
    image: &'a Image<'d>,
    context: &'a ModuleContext<'a>,
    ranges: &'a [Range<Svma>],
    swept: &'a Swept,
    reached: Reached,
}

impl<'d> PathSearch<'_, 'd> {
    fn run(mut self) -> Reached {
        // Labels are followed last: the tables decide if labels lead to code.
        self.mark_labels();
        let mut later = self.reached.marks.clone();
        let pads = self.mark_arrivals();
        let mut work: Vec<u64> = self.ranges.iter().map(|r| r.start.0).collect();
        work.extend(&pads);
        let mut doubting = None;
        let mut read = 0;
        let found = loop {
            while let Some(at) = work.pop() {
                let known = self.reached.insns.len();
                later.extend(self.follow(at, &mut work));
                if doubting == Some(true) {
                    let new = self.reached.insns[known..].iter().map(Insn::at);
                    self.reached.doubtful.extend(new);
                }
            }
            // A table may lead to the jump through the next table. All tables are read together
            // only once this finds nothing more.
            work = self.follow_tables(&mut read);
            if !work.is_empty() {
                continue;
            }
            let found = self.read_tables();
            let landing = found.landing.iter();
            work.extend(landing.filter(|&at| !self.reached.visited.contains(at)));
            if work.is_empty() && self.reached.desync.is_none() {
                let Self { image, context, .. } = self;
                work = recovery::tails(image, context, self.swept, &self.reached.visited);
                self.reached.recovered.extend(&work);
            }
            if !work.is_empty() {
                continue;
            }
            // Labels exist for jumps whose targets are not all read from a table of offsets.
            doubting.get_or_insert(!found.by_label);
            let labels = later.drain(..);
            work.extend(labels.filter(|at| !self.reached.visited.contains(at)));
            if work.is_empty() {
                break found;
            }
        };
        self.finish(found, pads)
    }

    fn is_inside(&self, at: u64) -> bool {
        self.ranges.iter().any(|r| r.contains(&Svma(at)))
    }

    /// True if an instruction may start at `at`. A word or displacement that only looks like an
    /// address in the function is no reason to doubt the sweep. A landing pad or branch that
    /// contradicts it is.
    fn starts(&self, at: u64) -> bool {
        let swept = self.swept;
        self.is_inside(at) && (!swept.complete || index(&swept.insns, at).is_some())
    }

    /// Marks the addresses that anything in the module takes.
    fn mark_labels(&mut self) {
        let mut marks = Vec::new();
        let mut has_labels = false;
        for range in self.ranges {
            let inner = range.start.plus(1)..range.end;
            let taken = |set: &AddressSet| {
                let all = set.within(inner.clone()).map(|at| at.0);
                all.filter(|&at| self.starts(at)).collect::<Vec<u64>>()
            };
            let words = taken(&self.context.words);
            has_labels |= !words.is_empty();
            marks.extend(words);
            marks.extend(taken(&self.context.formed));
        }
        // Only the function itself computes addresses of its labels. Any others are coincidence.
        let is_inner = |at: u64| self.starts(at) && self.ranges.iter().all(|r| r.start.0 != at);
        let mut formed = self.swept.insns.iter().filter_map(Insn::formed_address);
        self.reached.has_labels = has_labels || formed.any(is_inner);
        self.reached.marks = marks;
    }

    /// Marks the landing pads of exceptions and the return addresses of goroutines. Returns them,
    /// ascending.
    fn mark_arrivals(&mut self) -> Vec<u64> {
        let fdes = self.ranges.iter().filter_map(|r| self.image.fde(r.start));
        let pads = fdes.flat_map(|fde| self.image.landing_pads(&fde));
        let ends = self.context.goroutine_ends(self.image).iter().copied();
        let arrivals = pads.chain(ends).map(|at| at.0);
        let mut arrivals: Vec<u64> = arrivals.filter(|&at| self.is_inside(at)).collect();
        arrivals.sort_unstable();
        self.reached.marks.extend(&arrivals);
        arrivals
    }

    /// The unreached targets of tables that instructions from the index `read` on reference.
    ///
    /// No table is read until the function contains an indirect jump, because tables matter only
    /// for these.
    fn follow_tables(&self, read: &mut usize) -> Vec<u64> {
        let new = &self.reached.insns[*read..];
        if *read == 0 && !new.iter().any(Insn::is_indirect_jump) {
            return Vec::new();
        }
        *read = self.reached.insns.len();
        let mut landing = self.reader(&|at| self.starts(at)).named_by(new);
        landing.retain(|at| !self.reached.visited.contains(at));
        landing
    }

    fn read_tables(&mut self) -> Targets {
        self.reached.insns.sort_unstable_by_key(Insn::at);
        let found = self.reader(&|at| self.starts(at)).targets();
        self.reached.unexplained = found.unexplained;
        found
    }

    fn reader<'r, S: Fn(u64) -> bool>(&'r self, starts: &'r S) -> Reader<'r, 'd, S> {
        Reader {
            image: self.image,
            context: self.context,
            insns: &self.reached.insns,
            starts,
            entry: self.ranges[0].start.0,
        }
    }

    /// Follows one path, and adds the targets of its branches to `work`. Ends at a call of the
    /// function's own middle, and returns that call's return address; `None` at any other end.
    fn follow(&mut self, start: u64, work: &mut Vec<u64>) -> Option<u64> {
        let mut at = start;
        let mut after_call = false;
        let swept = self.swept;
        while self.is_inside(at) && self.reached.visited.insert(at) {
            let insn = match index(&swept.insns, at) {
                Some(i) => swept.insns[i],
                None if skips_lock(swept, at) => {
                    work.push(swept.insns[before(&swept.insns, at)].end());
                    return None;
                }
                None => {
                    // Anything may follow a call that does not return.
                    if !after_call {
                        self.reached.desync.get_or_insert(at);
                    }
                    sweep::one(self.image, Svma(at))?
                }
            };
            self.reached.insns.push(insn);
            let to = insn.target();
            if insn.is_branch() && self.is_inside(to) {
                work.push(to);
            }
            if insn.ends_block() {
                return None;
            }
            if self.calls_part(&insn) {
                work.push(to);
                return Some(insn.end());
            }
            after_call = insn.is_call();
            at = insn.end();
        }
        None
    }

    /// True if `insn` calls the function's own middle.
    fn calls_part(&self, insn: &Insn) -> bool {
        let to = insn.target();
        let is_start = || {
            let function = self.image.functions().containing(Svma(to));
            function.is_some_and(|f| f.start.0 == to)
        };
        insn.is_direct_call() && to != insn.end() && self.is_inside(to) && !is_start()
    }

    /// Adds the results of reading all tables. `pads` are the landing pads of exceptions.
    fn finish(self, found: Targets, pads: Vec<u64>) -> Reached {
        let mut reached = self.reached;
        if !found.unexplained {
            let marks: HashSet<u64> = reached.marks.iter().copied().collect();
            let is_switched = |&at: &u64| {
                let is_pointed_at = || {
                    let (image, context) = (self.image, self.context);
                    context.is_pointed_at_within(image, Svma(at), &found.tables)
                };
                !marks.contains(&at) || pads.binary_search(&at).is_err() && is_pointed_at()
            };
            let landing = found.landing.iter().copied();
            reached.switched = landing.filter(is_switched).collect();
        }
        reached.jumps = found.jumps;
        reached.marks.extend(found.landing);
        reached.marks.extend(&reached.recovered);
        reached.marks.sort_unstable();
        reached.marks.dedup();
        reached
    }
}

fn index(insns: &[Insn], at: u64) -> Option<usize> {
    insns.binary_search_by_key(&at, Insn::at).ok()
}

/// True if `at` is the byte after a lock prefix. Code that knows it is single-threaded jumps there.
fn skips_lock(swept: &Swept, at: u64) -> bool {
    let insn = swept.insns.get(before(&swept.insns, at));
    insn.is_some_and(|i| i.is_unlocked_at(at))
}

/// The index of the last instruction that starts before `at`; 0 if there is none.
fn before(insns: &[Insn], at: u64) -> usize {
    insns.partition_point(|i| i.at() < at).saturating_sub(1)
}
