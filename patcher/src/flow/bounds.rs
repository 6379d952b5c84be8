//! Recipes for code that has neither symbols nor unwind entries: where its functions start is found by a
//! sweep of the text.
//!
//! A start is where a call goes, or what has its address taken, or what the loader calls. The second may as
//! well be a label. What is followed from a wrong start shows: at some return the stack would not be as it
//! was at the entry. So a start counts where a return is reached with the stack as it was, and none otherwise;
//! functions without a return count where such a function calls them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::continued::{Own, is_as_at_entry, is_call};
use super::height::{Calls, Heights};
use super::recipe::{self, Recipe};
use super::{Doubt, Flow, ModuleContext, ends_block, is_jump, scan};
use crate::addr::Svma;
use crate::function::{Function, FunctionKind};
use crate::image::{Image, without};

/// Most starts that are followed in a module: a few seconds' work.
const MOST: usize = 20_000;

/// Most bytes of code that are swept in a module.
const LARGEST: u64 = 64 << 20;

/// Most bytes up to the next start that are taken for one function.
const LONGEST: u64 = 256 << 10;

/// Where less than this part of the code is not known, only that is swept.
const LITTLE: u64 = 8;

/// What following a start shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It leads to a return with the stack as it was.
    Sound,
    /// No return shows anything.
    Unproven,
    /// This is no start, or what is behind it is not all one function.
    Wrong,
}

/// A start that has been followed.
struct Followed {
    verdict: Verdict,
    recipes: Vec<(Svma, Recipe)>,
    /// Where its calls go.
    calls: Vec<Svma>,
    /// Where it ends, if all before that is sure to be its own.
    end: Option<Svma>,
}

/// The recipes of calls in functions that neither symbols nor unwind entries tell, by return address.
pub fn unnamed_recipes(image: &Image<'_>, context: &ModuleContext<'_>) -> BTreeMap<Svma, Recipe> {
    let followed = followed(image, context, &Known::of(image));
    let mut found = BTreeMap::new();
    let mut vouched: Vec<Svma> = vec![image.entry()];
    for sound in followed.values().filter(|f| f.verdict == Verdict::Sound) {
        found.extend(sound.recipes.iter().copied());
        vouched.extend(&sound.calls);
    }
    while let Some(at) = vouched.pop() {
        let called = followed.get(&at).filter(|f| f.verdict == Verdict::Unproven);
        let Some(called) = called else { continue };
        let before = found.len();
        found.extend(called.recipes.iter().copied());
        if found.len() > before {
            vouched.extend(&called.calls);
        }
    }
    found
}

/// The function around `at` that neither symbols nor unwind entries tell, where it is certain what belongs to it.
pub fn unnamed_function(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    at: Svma,
) -> Option<Function> {
    let known = Known::of(image);
    if !image.is_code(at) || known.covers(at) {
        return None;
    }
    let followed = followed(image, context, &known);
    let (&start, found) = followed.range(..=at).next_back()?;
    let end = found.end.filter(|_| found.verdict == Verdict::Sound)?;
    (at < end).then(|| nameless(start..end))
}

fn nameless(range: Range<Svma>) -> Function {
    Function {
        range,
        linkage: String::new(),
        aliases: Vec::new(),
        kind: FunctionKind::UnwindOnly,
        cold: Vec::new(),
    }
}

/// Where functions may start that are not known, each with what following it shows.
fn followed(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    known: &Known,
) -> BTreeMap<Svma, Followed> {
    let gaps = known.gaps(image);
    let Some(mut starts) = starts(image, context, known, &gaps) else {
        return BTreeMap::new();
    };
    let each = |starts: &[Svma]| -> BTreeMap<Svma, Followed> {
        let each = starts.iter().enumerate().take(MOST);
        each.filter_map(|(index, &start)| {
            let end = known.next(start)?;
            let end = starts.get(index + 1).map_or(end, |&next| next.min(end));
            let is_short = end.0 - start.0 <= LONGEST;
            Some((
                start,
                is_short.then(|| follow(image, context, start..end))??,
            ))
        })
        .collect()
    };
    let first = each(&starts);
    // What is behind a label is its function's.
    starts.retain(|start| {
        first
            .get(start)
            .is_some_and(|f| f.verdict != Verdict::Wrong)
    });
    each(&starts)
}

/// Code of which the bounds are known.
struct Known {
    /// Ordered by start; the one before an address tells whether one of those before covers it.
    ranges: Vec<Range<Svma>>,
    /// All code, ordered and apart.
    code: Vec<Range<Svma>>,
}

impl Known {
    fn of(image: &Image<'_>) -> Self {
        let mut ranges: Vec<Range<Svma>> = image.functions().ranges().collect();
        ranges.extend(image.unwind().ranges());
        ranges.sort_by_key(|r| (r.start, r.end));
        let mut end = Svma(0);
        for range in &mut ranges {
            end = end.max(range.end);
            range.end = end;
        }
        let code = image.code();
        Self { ranges, code }
    }

    fn covers(&self, at: Svma) -> bool {
        let after = self.ranges.partition_point(|r| r.start <= at);
        let before = after.checked_sub(1).map(|index| &self.ranges[index]);
        before.is_some_and(|r| at < r.end)
    }

    /// The code of which they are not, where calls are made in it.
    fn gaps(&self, image: &Image<'_>) -> Vec<Range<Svma>> {
        let mut gaps = without(self.code.clone(), self.ranges.iter().cloned());
        gaps.retain(|gap| image.has_calls(gap));
        gaps
    }

    /// Where the code from `at` on is known again, or ends.
    fn next(&self, at: Svma) -> Option<Svma> {
        let index = self.code.partition_point(|r| r.end <= at);
        let code = self.code.get(index).filter(|r| r.contains(&at))?;
        let after = self.ranges.partition_point(|r| r.start <= at);
        let next = self.ranges.get(after);
        Some(next.map_or(code.end, |r| r.start.min(code.end)))
    }
}

/// Where functions may start in the gaps, ascending; `None` where that is too much to look through, or nothing.
fn starts(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    known: &Known,
    gaps: &[Range<Svma>],
) -> Option<Vec<Svma>> {
    let len = |ranges: &[Range<Svma>]| ranges.iter().map(|r| r.end.0 - r.start.0).sum::<u64>();
    let is_little = len(gaps).saturating_mul(LITTLE) < len(&known.code);
    let swept = if is_little { gaps } else { &known.code };
    if gaps.is_empty() || len(swept) > LARGEST {
        return None;
    }
    let mut found = vec![image.entry()];
    found.extend(scan::called_by_the_loader(image));
    let mut jumps = BTreeSet::new();
    for range in swept {
        let bytes = image.bytes(range.start, range.end.0 - range.start.0);
        let bytes = bytes.unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, range.start.0, DecoderOptions::NONE);
        let mut insn = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut insn);
            found.extend(taken(image, &insn));
            if is_little && is_jump(&insn) {
                jumps.insert(Svma(insn.near_branch_target()));
            }
        }
    }
    for gap in gaps {
        found.extend(context.words.within(gap.clone()));
        if is_little {
            // What other code may call, by a scan of its bytes. Where code of the gaps jumps is a label.
            let branches = context.branches.within(gap.clone());
            found.extend(branches.filter(|to| !jumps.contains(to)));
            found.extend(context.leas.within(gap.clone()));
        }
    }
    found.retain(|&at| image.is_code(at) && !known.covers(at));
    found.sort_unstable();
    found.dedup();
    Some(found)
}

/// The code that an instruction calls, or whose address it forms.
fn taken(image: &Image<'_>, insn: &Instruction) -> Option<Svma> {
    if insn.flow_control() == FlowControl::Call && insn.op0_kind() == OpKind::NearBranch64 {
        return Some(Svma(insn.near_branch_target()));
    }
    if insn.mnemonic() == Mnemonic::Lea && insn.is_ip_rel_memory_operand() {
        return Some(Svma(insn.ip_rel_memory_address()));
    }
    let is_address = insn.mnemonic() == Mnemonic::Mov
        && !image.is_position_independent()
        && matches!(
            insn.op1_kind(),
            OpKind::Immediate32 | OpKind::Immediate32to64 | OpKind::Immediate64
        );
    is_address.then(|| Svma(insn.immediate(1)))
}

fn follow(image: &Image<'_>, context: &ModuleContext<'_>, range: Range<Svma>) -> Option<Followed> {
    let function = nameless(range);
    let flow = Flow::of(image, context, &function)?;
    let heights = Heights::of(&flow, Calls::Keep);
    let own = Own::of(&flow, &heights);
    let is_own = |at: u64| flow.index_of(at).is_some_and(|index| own.is_own[index]);
    let calls = flow
        .insns
        .iter()
        .filter(|insn| insn.flow_control() == FlowControl::Call && is_own(insn.ip()));
    let calls = calls.map(|call| Svma(call.near_branch_target())).collect();
    let mut recipes = recipe::of_heights(&flow, &heights, |index| own.is_own[index]);
    let is_start = function.range.start == image.entry();
    recipes.retain(|(after, recipe)| {
        *recipe != Recipe::Outermost || is_start || ends_thread(&flow, *after)
    });
    Some(Followed {
        verdict: verdict(&flow, &heights, &own),
        recipes,
        calls,
        end: end(&flow, &own),
    })
}

/// Where the function ends, if what is before that is its own and every call of it returns.
fn end(flow: &Flow, own: &Own) -> Option<Svma> {
    let is_own = |index: usize| own.is_own[index];
    let last = (0..flow.insns.len()).rev().find(|&index| is_own(index))?;
    let is_whole = flow.insns[..=last].iter().enumerate().all(|(index, insn)| {
        let aligns = matches!(insn.mnemonic(), Mnemonic::Nop | Mnemonic::Int3);
        let returns = || !is_call(insn) || flow.index_of(insn.next_ip()).is_some_and(is_own);
        is_own(index) && returns() || !is_own(index) && aligns
    });
    let is_one = flow.ranges.len() == 1;
    (is_whole && is_one && flow.doubt != Some(Doubt::DataInCode))
        .then(|| Svma(flow.insns[last].next_ip()))
}

/// Does the code at `after` end the thread? That the caller's frame pointer is gone is not enough: some code
/// has conventions of its own.
fn ends_thread(flow: &Flow, after: Svma) -> bool {
    /// More than a call of exit(2) takes.
    const LONGEST: usize = 8;
    let first = flow.insns.partition_point(|insn| insn.ip() < after.0);
    let rest = flow.insns.iter().skip(first).take(LONGEST);
    let mut until = rest.take_while(|insn| {
        matches!(insn.flow_control(), FlowControl::Next | FlowControl::Call)
            || insn.code() == Code::Hlt
    });
    until.any(|insn| insn.code() == Code::Hlt)
}

fn verdict(flow: &Flow, heights: &Heights, own: &Own) -> Verdict {
    for (index, insn) in flow.insns.iter().enumerate() {
        if !own.is_own[index] {
            continue;
        }
        // Nothing but a call that does not return can be the last of a function without leaving it.
        if !ends_block(insn) && !is_call(insn) && !flow.contains(insn.next_ip()) {
            return Verdict::Wrong;
        }
        let is_return = insn.flow_control() == FlowControl::Return;
        let is_out = is_jump(insn) && !flow.contains(insn.near_branch_target());
        // A jump to a part elsewhere can be with a frame.
        let is_wrong = |height: i64| height > 0 || is_return && !is_as_at_entry(heights, index);
        if (is_return || is_out) && heights.before(index).is_some_and(is_wrong) {
            return Verdict::Wrong;
        }
    }
    match own.returns {
        true => Verdict::Sound,
        false => Verdict::Unproven,
    }
}
