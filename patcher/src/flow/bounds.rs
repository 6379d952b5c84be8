//! Recipes for code that has neither symbols nor unwind entries: where its functions start is found by a
//! sweep of the text.
//!
//! A start is where a call goes, or what has its address taken. The second may as well be a label. What
//! is followed from a wrong start shows: at some return the stack would not be as it was at the entry. So
//! a start counts where a return is reached with the stack as it was, and none otherwise; functions
//! without a return count where such a function calls them, or the program's entry hands them over. What is
//! behind a call in them is theirs where what they call has been seen to return elsewhere.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, Mnemonic, OpKind};

use super::continued::{Behind, Own, is_as_at_entry};
use super::height::{Calls, Heights};
use super::recipe::{self, Recipe};
use super::returning::{Returning, callee, is_beginning};
use super::{Flow, ModuleContext, ends_block, is_jump, sweep};
use crate::addr::Svma;
use crate::function::{Function, FunctionKind};
use crate::image::Image;
use crate::insn::is_call;

/// Most starts that are followed in a module: a few seconds' work.
const MOST: usize = 20_000;

/// Most bytes of code of a module that is swept.
const LARGEST: u64 = 64 << 20;

/// Most bytes up to the next start that are taken for one function.
const LONGEST: u64 = 256 << 10;

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
    /// Is the stack aligned at each of its calls, of which there is one?
    is_aligned: bool,
    /// What has been called, with what is behind the call.
    callees: Vec<(Svma, Behind)>,
}

/// The recipes of calls in functions that neither symbols nor unwind entries tell, by return address.
pub fn unnamed_recipes(image: &Image<'_>, context: &ModuleContext<'_>) -> BTreeMap<Svma, Recipe> {
    let code = image.segments().iter().filter(|s| s.execute);
    if code.map(|s| s.file_size).sum::<u64>() > LARGEST {
        return BTreeMap::new();
    }
    let known = Known::of(image);
    let (mut starts, called) = starts(image, context, &known);
    let followed = |starts: &[Svma]| -> BTreeMap<Svma, Followed> {
        let each = starts.iter().copied().take(MOST);
        each.filter_map(|start| {
            let range = range(image, &known, starts, start)?;
            Some((start, follow(image, context, range, None)?))
        })
        .collect()
    };
    // What is behind a label is its function's, and where a function has been cut in two by one it runs on: so
    // the labels go first. What only seems to be called may be one, too.
    for keeps_called in [true, false] {
        let followed = followed(&starts);
        starts.retain(|start| {
            let is_wrong = followed
                .get(start)
                .is_none_or(|f| f.verdict == Verdict::Wrong);
            !is_wrong || keeps_called && called.contains(start)
        });
    }
    let followed = followed(&starts);
    let mut found = BTreeMap::new();
    let mut vouched: Vec<Svma> = vec![image.entry()];
    vouched.extend(handed_over(image));
    vouched.extend(called_by_known(image));
    let mut returning = Returning::default();
    let mut pointed_at = HashSet::new();
    for (&start, function) in &followed {
        if function.verdict == Verdict::Sound {
            found.extend(function.recipes.iter().copied());
            vouched.extend(&function.calls);
            returning.add_sound(start, &function.callees);
        } else {
            returning.add(&function.callees);
        }
        if function.verdict == Verdict::Unproven && may_be_pointed_at(image, context, start) {
            pointed_at.insert(start);
        }
    }
    let mut seen = HashSet::new();
    // What is called for sure first.
    let mut work: Vec<Svma> = pointed_at.iter().copied().collect();
    work.append(&mut vouched);
    while let Some(at) = work.pop() {
        let called = followed.get(&at).filter(|f| f.verdict == Verdict::Unproven);
        if called.is_none() || !seen.insert(at) {
            continue;
        }
        let again = range(image, &known, &starts, at)
            .and_then(|range| follow(image, context, range, Some(&returning)))
            .filter(|again| again.verdict != Verdict::Wrong)
            .filter(|again| again.is_aligned || !pointed_at.contains(&at));
        if let Some(again) = again {
            found.extend(again.recipes);
            work.extend(again.calls);
        }
    }
    found
}

/// May a function without a return begin at `start` that only pointers lead to? A label has the stack aligned where
/// a function has it one word off, so that from there it would not be aligned at any call.
fn may_be_pointed_at(image: &Image<'_>, context: &ModuleContext<'_>, start: Svma) -> bool {
    let begins = sweep::one(image, start).is_some_and(|insn| is_beginning(&insn));
    begins && context.is_taken(start) && !context.branches.contains(start)
}

/// What is followed from `start`: up to the next of `starts`, which are ascending, or known code.
fn range(image: &Image<'_>, known: &Known, starts: &[Svma], start: Svma) -> Option<Range<Svma>> {
    let end = known.next(image, start)?;
    let after = starts.partition_point(|&at| at <= start);
    let end = starts.get(after).map_or(end, |&next| next.min(end));
    (end.0 - start.0 <= LONGEST).then_some(start..end)
}

/// What functions of which the bounds are known call.
fn called_by_known(image: &Image<'_>) -> Vec<Svma> {
    let ranges = image.functions().iter().map(|function| function.range);
    let swept = ranges.filter_map(|range| sweep::linear(image, &[range]));
    let insns = swept
        .filter(|swept| swept.complete)
        .flat_map(|swept| swept.insns);
    let calls = insns.filter(|insn| insn.flow_control() == FlowControl::Call);
    calls.map(|call| Svma(call.near_branch_target())).collect()
}

/// The functions that the code at the program's entry hands over to be called: `main`.
fn handed_over(image: &Image<'_>) -> Vec<Svma> {
    /// More than it takes.
    const LONGEST: usize = 24;
    let bytes = image.bytes_from(image.entry()).unwrap_or_default();
    let decoder = Decoder::with_ip(64, bytes, image.entry().0, DecoderOptions::NONE);
    let insns = decoder.into_iter().take(LONGEST);
    let before = insns.take_while(|insn| insn.flow_control() == FlowControl::Next);
    let taken = before.filter_map(|insn| taken(image, &insn));
    taken.filter(|&at| image.is_code(at)).collect()
}

/// Code of which the bounds are known.
struct Known(Vec<Range<Svma>>);

impl Known {
    fn of(image: &Image<'_>) -> Self {
        let named = image.functions().iter();
        let mut ranges: Vec<Range<Svma>> = named
            .flat_map(|f| std::iter::once(f.range).chain(f.cold))
            .chain(image.unwind().ranges())
            .collect();
        ranges.sort_by_key(|r| (r.start, r.end));
        // So that the one before an address tells whether one of those before covers it.
        let mut end = Svma(0);
        for range in &mut ranges {
            end = end.max(range.end);
            range.end = end;
        }
        Self(ranges)
    }

    fn covers(&self, at: Svma) -> bool {
        let after = self.0.partition_point(|r| r.start <= at);
        after.checked_sub(1).is_some_and(|i| at < self.0[i].end)
    }

    /// Where the code from `at` on is known again, or ends.
    fn next(&self, image: &Image<'_>, at: Svma) -> Option<Svma> {
        let end = image.segment_at(at)?.file_end();
        let after = self.0.partition_point(|r| r.start <= at);
        Some(self.0.get(after).map_or(end, |r| r.start.min(end)))
    }
}

/// Where functions may start, ascending, and which of them are called.
fn starts(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    known: &Known,
) -> (Vec<Svma>, HashSet<Svma>) {
    let mut found = vec![image.entry()];
    let mut called = HashSet::new();
    for segment in image.segments().iter().filter(|s| s.execute) {
        let range = segment.range.start..segment.file_end();
        let len = range.end.0.saturating_sub(range.start.0);
        let bytes = image.bytes(range.start, len).unwrap_or_default();
        let mut decoder = Decoder::with_ip(64, bytes, range.start.0, DecoderOptions::NONE);
        let mut insn = Instruction::default();
        while decoder.can_decode() {
            decoder.decode_out(&mut insn);
            let taken = taken(image, &insn);
            found.extend(taken);
            called.extend(taken.filter(|_| insn.flow_control() == FlowControl::Call));
        }
        found.extend(context.words.within(range));
    }
    found.retain(|&at| image.is_code(at) && !known.covers(at));
    found.sort_unstable();
    found.dedup();
    (found, called)
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

/// Follows what starts at the beginning of `range`. Which calls return may be known.
fn follow(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    range: Range<Svma>,
    returning: Option<&Returning>,
) -> Option<Followed> {
    let function = Function {
        range,
        linkage: String::new(),
        aliases: Vec::new(),
        kind: FunctionKind::UnwindOnly,
        cold: Vec::new(),
    };
    let flow = Flow::of(image, context, &function)?;
    let heights = Heights::of(&flow, Calls::Keep);
    let returns = |call: &Instruction| {
        returning.is_some_and(|returning| returning.is_sure(image, &flow, call))
    };
    let own = Own::of(&flow, &heights, returns);
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
    let callees = own.calls(&flow);
    let callees = callees.filter_map(|(call, behind)| Some((callee(call)?, behind)));
    Some(Followed {
        verdict: verdict(&flow, &heights, &own),
        recipes,
        calls,
        is_aligned: own.is_aligned(&flow, &heights),
        callees: callees.collect(),
    })
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
