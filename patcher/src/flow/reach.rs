//! Which instructions control can reach, following jump tables until nothing new is found.

use std::collections::HashSet;
use std::ops::Range;

use iced_x86::{Instruction, Mnemonic};

use crate::addr::Svma;
use crate::image::Image;

use super::module::ModuleContext;
use super::recovery;
use super::sweep::{self, Swept};
use super::tables::{self, Jumps};
use crate::insn::{ends_block, formed_address, is_call, is_jump};

/// What following every path from the entry found.
#[derive(Debug, Default)]
pub struct Reached {
    /// The instructions, ascending.
    pub insns: Vec<Instruction>,
    /// Their addresses.
    pub visited: HashSet<u64>,
    /// Those of them that control is not known to reach: a label leads there that may as well be a
    /// table amid the code, or a call of the function's own middle, which need not return.
    pub doubtful: HashSet<u64>,
    /// Where control can arrive other than by a direct branch.
    pub marks: Vec<u64>,
    /// Are some marks labels whose address is taken?
    pub has_labels: bool,
    /// A place where following paths and decoding linearly disagree.
    pub desync: Option<u64>,
    /// Is there an indirect jump whose targets are not among the marks?
    pub unexplained: bool,
    /// Those of the marks where control arrives from the function's own jump tables alone.
    pub switched: Vec<u64>,
    /// What is known of its indirect jumps.
    pub jumps: Jumps,
    /// Those of the marks where Go's runtime lets the function go on that has recovered from a panic.
    pub recovered: Vec<u64>,
}

/// Follows all paths of the function in `ranges`.
pub fn from(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    ranges: &[Range<Svma>],
    swept: &Swept,
) -> Reached {
    let mut reached = Reached::default();
    let inside = |at: u64| ranges.iter().any(|r| r.contains(&Svma(at)));
    // A word or displacement that merely looks like an address in here is no reason to doubt the
    // sweep; a landing pad or a branch that disagrees with it is.
    let starts = |at: u64| inside(at) && (!swept.complete || index(&swept.insns, at).is_some());
    for range in ranges {
        let inner = range.start.plus(1)..range.end;
        let words = context
            .words
            .within(inner.clone())
            .map(|at| at.0)
            .filter(|&at| starts(at));
        let before = reached.marks.len();
        reached.marks.extend(words);
        reached.has_labels |= reached.marks.len() > before;
        let leas = context
            .leas
            .within(inner)
            .map(|at| at.0)
            .filter(|&at| starts(at));
        reached.marks.extend(leas);
    }
    // Only the function itself forms addresses of its labels; further `lea`s are coincidence.
    let inner = |at: u64| starts(at) && ranges.iter().all(|r| r.start.0 != at);
    reached.has_labels |= swept.insns.iter().filter_map(formed_address).any(inner);
    let mut later = reached.marks.clone();
    let labels = later.len();
    for range in ranges {
        if let Some(fde) = image.fde(range.start) {
            let pads = image.landing_pads(&fde);
            reached
                .marks
                .extend(pads.into_iter().map(|pad| pad.0).filter(|&pad| inside(pad)));
        }
    }
    let ends = context.goroutine_ends(image).iter().map(|at| at.0);
    reached.marks.extend(ends.filter(|&at| inside(at)));
    let mut pads = reached.marks[labels..].to_owned();
    pads.sort_unstable();
    let mut work: Vec<u64> = ranges.iter().map(|r| r.start.0).collect();
    work.extend(&reached.marks[labels..]);
    let calls_part = |insn: &Instruction| {
        let to = insn.near_branch_target();
        insn.is_call_near()
            && to != insn.next_ip()
            && inside(to)
            && image
                .functions()
                .containing(Svma(to))
                .is_none_or(|f| f.start.0 != to)
    };
    let mut doubting = None;
    loop {
        while let Some(at) = work.pop() {
            let known = reached.insns.len();
            let behind = follow(
                image,
                swept,
                &inside,
                &calls_part,
                at,
                &mut work,
                &mut reached,
            );
            later.extend(behind);
            if doubting == Some(true) {
                let new = reached.insns[known..].iter().map(Instruction::ip);
                reached.doubtful.extend(new);
            }
        }
        reached.insns.sort_unstable_by_key(Instruction::ip);
        let reader = tables::Reader {
            image,
            context,
            insns: &reached.insns,
            starts: &starts,
            entry: ranges[0].start.0,
        };
        let found = reader.targets();
        reached.unexplained = found.unexplained;
        work.extend(
            found
                .landing
                .iter()
                .filter(|&at| !reached.visited.contains(at)),
        );
        if work.is_empty() && reached.desync.is_none() {
            work = recovery::tails(image, context, swept, &reached.visited);
            reached.recovered.extend(&work);
        }
        if !work.is_empty() {
            continue;
        }
        // A jump whose targets are not all read from a table of offsets is what labels are for.
        doubting.get_or_insert(!found.by_label);
        work.extend(later.drain(..).filter(|at| !reached.visited.contains(at)));
        if work.is_empty() {
            if !found.unexplained {
                let marks: HashSet<u64> = reached.marks.iter().copied().collect();
                let is_switched = |&at: &u64| {
                    let is_mark = marks.contains(&at);
                    !is_mark
                        || pads.binary_search(&at).is_err()
                            && context.is_pointed_at_within(image, Svma(at), &found.tables)
                };
                let landing = found.landing.iter().copied();
                reached.switched = landing.filter(is_switched).collect();
            }
            reached.jumps = found.jumps;
            reached.marks.extend(found.landing);
            reached.marks.extend(&reached.recovered);
            break;
        }
    }
    reached.marks.sort_unstable();
    reached.marks.dedup();
    reached
}

/// Follows one path. Ends at a call of the function's own middle, and answers where it stands to
/// return to.
fn follow(
    image: &Image<'_>,
    swept: &Swept,
    inside: &impl Fn(u64) -> bool,
    calls_part: &impl Fn(&Instruction) -> bool,
    start: u64,
    work: &mut Vec<u64>,
    reached: &mut Reached,
) -> Option<u64> {
    let mut at = start;
    let mut after_call = false;
    while inside(at) && reached.visited.insert(at) {
        let insn = match index(&swept.insns, at) {
            Some(i) => swept.insns[i],
            None if skips_lock(swept, at) => {
                work.push(swept.insns[before(&swept.insns, at)].next_ip());
                return None;
            }
            None => {
                // Behind a call that does not return anything may stand.
                if !after_call {
                    reached.desync.get_or_insert(at);
                }
                sweep::one(image, Svma(at))?
            }
        };
        reached.insns.push(insn);
        if (is_jump(&insn) || insn.mnemonic() == Mnemonic::Xbegin)
            && inside(insn.near_branch_target())
        {
            work.push(insn.near_branch_target());
        }
        if ends_block(&insn) {
            return None;
        }
        if calls_part(&insn) {
            work.push(insn.near_branch_target());
            return Some(insn.next_ip());
        }
        after_call = is_call(&insn);
        at = insn.next_ip();
    }
    None
}

fn index(insns: &[Instruction], at: u64) -> Option<usize> {
    insns.binary_search_by_key(&at, Instruction::ip).ok()
}

/// Is `at` the byte behind a lock prefix? Code that knows it is single-threaded jumps there.
fn skips_lock(swept: &Swept, at: u64) -> bool {
    let insn = swept.insns.get(before(&swept.insns, at));
    insn.is_some_and(|i| i.has_lock_prefix() && i.ip() + 1 == at)
}

/// The index of the last instruction that starts before `at`.
fn before(insns: &[Instruction], at: u64) -> usize {
    insns.partition_point(|i| i.ip() < at).saturating_sub(1)
}
