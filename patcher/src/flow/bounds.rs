//! Recipes for code that has neither symbols nor unwind entries. A sweep of the text finds where its functions start.
//!
//! A start is where a call goes, or a tail call, or what has its address taken, or what the loader calls. What has
//! its address taken may as well be a label. A wrong start shows when it is followed: at some return the stack is not
//! as it was at the entry. So a start counts where a return, or a tail call of a function, is reached with the stack
//! as it was. A function without a return counts where such a function calls it, or the program's entry hands it
//! over. What is after a call in it is its own where the callee has been seen to return elsewhere.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::ops::{Deref, Range};

use super::continued::{AfterCall, Own, is_as_at_entry, tail_call};
use super::graph::{Doubt, Flow};
use super::height::Heights;
use super::labels::{labels, tables_of_labels};
use super::module::ModuleContext;
use super::past_arguments;
use super::recipe::{self, Recipe};
use super::returning::{Returning, callee};
use super::sweep;
use crate::addr::Svma;
use crate::elf::called_by_the_loader;
use crate::function::Function;
use crate::image::Image;
use crate::isa::{Calls, Control, Insn, decode};

/// Most starts that are followed in a module: a few seconds' work.
const MOST_STARTS: usize = 20_000;

/// Most bytes of code that are swept in a module.
const MOST_SWEPT: u64 = 64 << 20;

/// Most bytes up to the next start that are taken for one function.
const LONGEST_FUNCTION: u64 = 256 << 10;

/// Bytes before and after a return address in which its function is looked for, in turn.
const WINDOWS: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

/// Where less than this part of the code is not known, only that is swept.
const LITTLE: u64 = 8;

/// What following a start shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// It leads to a return with the stack as it was.
    Sound,
    /// No return shows anything.
    Unproven,
    /// This is no start, or what is after it is not all one function.
    Wrong,
}

/// A start that has been followed.
struct Followed {
    verdict: Verdict,
    recipes: Vec<(Svma, Recipe)>,
    /// Where its calls go, tail calls too.
    calls: Vec<Svma>,
    /// Where its tail calls go.
    tail_calls: Vec<Svma>,
    /// Is the stack aligned at each of its calls, of which there is one?
    is_aligned: bool,
    /// What has been called, with what is after the call.
    callees: Vec<(Svma, AfterCall)>,
    /// Where it ends, if all before that is sure to be its own.
    end: Option<Svma>,
    /// The tables of labels that it jumps through.
    tables: Vec<Svma>,
}

/// Where functions may start that are not known, each with what following it shows.
struct StartSearch<'k> {
    known: Cow<'k, Known>,
    starts: Vec<Svma>,
    /// Those that are called, as far as a sweep of the code tells.
    called: HashSet<Svma>,
    followed: BTreeMap<Svma, Followed>,
}

impl<'k> StartSearch<'k> {
    /// In all code; `None` where there is too much to look through, or nothing.
    fn of(image: &Image<'_>, context: &ModuleContext<'_>) -> Option<Self> {
        let known = Known::of(image);
        let gaps = known.gaps(image);
        Self::among(image, context, Cow::Owned(known), &gaps)
    }

    /// In these gaps between known code alone.
    fn within(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        known: &'k Known,
        gaps: &[Range<Svma>],
    ) -> Option<Self> {
        Self::among(image, context, Cow::Borrowed(known), gaps)
    }

    fn among(
        image: &Image<'_>,
        context: &ModuleContext<'_>,
        known: Cow<'k, Known>,
        gaps: &[Range<Svma>],
    ) -> Option<Self> {
        let (mut starts, called) = starts(image, context, &known, gaps)?;
        let is_function = |at| is_known_function(&known, &called, at);
        let followed = |starts: &[Svma]| -> BTreeMap<Svma, Followed> {
            let each = starts.iter().copied().take(MOST_STARTS);
            each.filter_map(|start| {
                let range = range(&known, starts, start)?;
                Some((start, follow(image, context, range, None, &is_function)?))
            })
            .collect()
        };
        // What is after a label is its function's, and where a function has been cut in two by one it runs on: so
        // the labels go first. What only seems to be called may be one, too.
        for keeps_called in [true, false] {
            let followed = followed(&starts);
            starts.retain(|start| {
                let is_wrong = followed
                    .get(start)
                    .is_none_or(|f| f.verdict == Verdict::Wrong);
                !is_wrong || keeps_called && called.contains(start)
            });
            // What is only jumped to begins a function, too.
            let functions = followed.iter().filter(|(start, f)| match f.verdict {
                Verdict::Sound => true,
                Verdict::Unproven => called.contains(start),
                Verdict::Wrong => false,
            });
            let tails = functions.flat_map(|(_, f)| &f.tail_calls);
            let tails = tails.filter(|&&at| image.is_code(at) && !known.covers(at));
            starts.extend(tails.filter(|_| keeps_called));
            let labels = labels_in(image, context, &known, &followed, &called);
            starts.retain(|start| !labels.contains(start));
            starts.sort_unstable();
            starts.dedup();
        }
        let followed = followed(&starts);
        Some(Self {
            known,
            starts,
            called,
            followed,
        })
    }

    /// Is there a start that no return shows to be one, and that code may call?
    fn has_unproven_callees(&self, context: &ModuleContext<'_>) -> bool {
        let unproven = |(start, f): (&Svma, &Followed)| {
            f.verdict == Verdict::Unproven && context.branches.contains(*start)
        };
        self.followed.iter().any(unproven)
    }
}

/// The addresses in tables of labels of these functions, each within the code up to the next called
/// address.
fn labels_in(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    known: &Known,
    followed: &BTreeMap<Svma, Followed>,
    called: &HashSet<Svma>,
) -> HashSet<Svma> {
    let mut found = HashSet::new();
    for (&start, function) in followed.iter().filter(|(_, f)| !f.tables.is_empty()) {
        let next = followed.range(start.plus(1)..).map(|(&at, _)| at);
        let next = next.into_iter().find(|at| called.contains(at));
        let Some(end) = known
            .next(start)
            .map(|end| next.map_or(end, |at| at.min(end)))
        else {
            continue;
        };
        let within = start.plus(1)..end;
        let tables = function.tables.iter();
        found.extend(tables.flat_map(|&table| labels(image, context, table, &within)));
    }
    found
}

/// The functions that neither symbols nor unwind entries tell, where it is certain what belongs to them, by their starts.
pub fn unnamed_functions(image: &Image<'_>, context: &ModuleContext<'_>) -> Vec<Function> {
    let Some(search) = StartSearch::of(image, context) else {
        return Vec::new();
    };
    let function = |(&start, found): (&Svma, &Followed)| {
        let end = found.end.filter(|_| found.verdict == Verdict::Sound)?;
        Some(Function::nameless(start..end))
    };
    search.followed.iter().filter_map(function).collect()
}

/// The recipes of calls in functions that neither symbols nor unwind entries tell, by return address.
pub fn unnamed_recipes<'d>(
    image: &Image<'d>,
    context: &ModuleContext<'d>,
) -> BTreeMap<Svma, Recipe> {
    unless_too_large(image, &context).unwrap_or_default()
}

/// The same; `None` where there is too much code that neither symbols nor unwind entries tell, for all of it to be
/// looked through. `context` is not asked for then.
pub fn unless_too_large<'d>(
    image: &Image<'d>,
    context: &impl Deref<Target = ModuleContext<'d>>,
) -> Option<BTreeMap<Svma, Recipe>> {
    let known = Known::of(image);
    let gaps = known.gaps(image);
    if len(&gaps) > MOST_SWEPT {
        return None;
    }
    let search = StartSearch::among(image, context, Cow::Owned(known), &gaps);
    Some(search.map_or_else(BTreeMap::new, |search| recipes_of(image, context, &search)))
}

/// The same as [`unnamed_recipes`] for code of which there is too much to be looked through as a whole, around these return addresses,
/// which are ascending.
pub fn unnamed_recipes_around(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    asked: &[Svma],
) -> BTreeMap<Svma, Recipe> {
    let mut found = BTreeMap::new();
    if asked.is_empty() {
        return found;
    }
    let mut known = Known::of(image);
    let gaps = known.gaps(image);
    if len(&gaps) <= MOST_SWEPT {
        return found;
    }
    known.is_part = true;
    for window in WINDOWS {
        let left: Vec<Svma> = asked
            .iter()
            .copied()
            .filter(|at| !found.contains_key(at))
            .collect();
        for near in left.chunk_by(|a, b| b.0 - a.0 < window) {
            let around = Svma(near[0].0.saturating_sub(window))..near[near.len() - 1].plus(window);
            // No function is followed further.
            known.code = parts(&gaps, &around);
            let windows = known.code.clone();
            let Some(search) = StartSearch::within(image, context, &known, &windows) else {
                continue;
            };
            found.append(&mut recipes_of(image, context, &search));
        }
    }
    found
}

/// What of ranges, ordered and apart, lies in another.
fn parts(ranges: &[Range<Svma>], of: &Range<Svma>) -> Vec<Range<Svma>> {
    let first = ranges.partition_point(|range| range.end <= of.start);
    let rest = ranges[first..].iter();
    rest.take_while(|range| range.start < of.end)
        .map(|range| range.start.max(of.start)..range.end.min(of.end))
        .collect()
}

fn recipes_of(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    search: &StartSearch<'_>,
) -> BTreeMap<Svma, Recipe> {
    let followed = &search.followed;
    let mut found = BTreeMap::new();
    let mut vouched: Vec<Svma> = vec![image.entry()];
    vouched.extend(handed_over(image));
    if search.has_unproven_callees(context) {
        vouched.extend(called_by_known(image, &search.known));
    }
    let mut returning = Returning::default();
    let mut pointed_at = HashSet::new();
    for (&start, function) in followed {
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
    let is_function = |at| is_known_function(&search.known, &search.called, at);
    let mut seen = HashSet::new();
    // What is called for sure first.
    let mut work: Vec<Svma> = pointed_at.iter().copied().collect();
    work.append(&mut vouched);
    while let Some(at) = work.pop() {
        let called = followed.get(&at).filter(|f| f.verdict == Verdict::Unproven);
        if called.is_none() || !seen.insert(at) {
            continue;
        }
        let again = range(&search.known, &search.starts, at)
            .and_then(|range| follow(image, context, range, Some(&returning), &is_function))
            .filter(|again| again.verdict != Verdict::Wrong)
            .filter(|again| again.is_aligned || !pointed_at.contains(&at));
        if let Some(again) = again {
            found.extend(again.recipes);
            work.extend(again.calls);
        }
    }
    found
}

/// Does a function begin at `at`, as far as it is known or `called` has what is?
fn is_known_function(known: &Known, called: &HashSet<Svma>, at: Svma) -> bool {
    called.contains(&at) || known.begins(at)
}

/// May a function without a return begin at `start` that only pointers lead to? A label has the stack aligned where
/// a function has it one word off, so that from there it would not be aligned at any call.
fn may_be_pointed_at(image: &Image<'_>, context: &ModuleContext<'_>, start: Svma) -> bool {
    let begins = sweep::one(image, start).is_some_and(|insn| insn.begins_function());
    begins && context.is_taken(start) && !context.branches.contains(start)
}

/// What is followed from `start`: up to the next of `starts`, which are ascending, or known code.
fn range(known: &Known, starts: &[Svma], start: Svma) -> Option<Range<Svma>> {
    let end = known.next(start)?;
    let after = starts.partition_point(|&at| at <= start);
    let end = starts.get(after).map_or(end, |&next| next.min(end));
    (end.0 - start.0 <= LONGEST_FUNCTION).then_some(start..end)
}

/// What functions of which the bounds are known call; nothing where there is too much of them.
fn called_by_known(image: &Image<'_>, known: &Known) -> Vec<Svma> {
    if known.is_part || len(&known.code) > MOST_SWEPT {
        return Vec::new();
    }
    let ranges = image.functions().iter().map(|function| function.range);
    let swept = ranges.filter_map(|range| sweep::linear(image, &[range]));
    let insns = swept
        .filter(|swept| swept.complete)
        .flat_map(|swept| swept.insns);
    let calls = insns.filter(|insn| insn.control() == Control::Call);
    calls.map(|call| Svma(call.target())).collect()
}

/// The functions that the code at the program's entry hands over to be called: `main`.
fn handed_over(image: &Image<'_>) -> Vec<Svma> {
    /// More than it takes.
    const MOST_AT_ENTRY: usize = 24;
    let bytes = image.bytes_from(image.entry()).unwrap_or_default();
    let insns = decode(bytes, image.entry()).take(MOST_AT_ENTRY);
    let before = insns.take_while(|insn| insn.control() == Control::Next);
    let taken = before.filter_map(|insn| taken(image, &insn));
    taken.filter(|&at| image.is_code(at)).collect()
}

/// Code of which the bounds are known.
#[derive(Clone)]
struct Known {
    /// Ordered by start; the one before an address tells whether one of those before covers it.
    ranges: Vec<Range<Svma>>,
    /// The code that is looked at, ordered and apart.
    code: Vec<Range<Svma>>,
    /// Is that only a part of all?
    is_part: bool,
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
        let is_part = false;
        Self {
            ranges,
            code,
            is_part,
        }
    }

    fn covers(&self, at: Svma) -> bool {
        let after = self.ranges.partition_point(|r| r.start <= at);
        let before = after.checked_sub(1).map(|index| &self.ranges[index]);
        before.is_some_and(|r| at < r.end)
    }

    /// Does a function begin there?
    fn begins(&self, at: Svma) -> bool {
        let index = self.ranges.partition_point(|r| r.start < at);
        self.ranges.get(index).is_some_and(|r| r.start == at)
    }

    /// The code of which they are not, where calls are made in it.
    fn gaps(&self, image: &Image<'_>) -> Vec<Range<Svma>> {
        image.calls_outside(self.ranges.iter().cloned())
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

fn len(ranges: &[Range<Svma>]) -> u64 {
    ranges.iter().map(|r| r.end.0 - r.start.0).sum()
}

/// Where functions may start in the gaps, ascending, and which of them are called. `None` where there is too much
/// to look through, or nothing.
fn starts(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    known: &Known,
    gaps: &[Range<Svma>],
) -> Option<(Vec<Svma>, HashSet<Svma>)> {
    let is_little = known.is_part || len(gaps).saturating_mul(LITTLE) < len(&known.code);
    let swept = if is_little { gaps } else { &known.code };
    if gaps.is_empty() || len(swept) > MOST_SWEPT {
        return None;
    }
    let mut found = vec![image.entry()];
    found.extend(called_by_the_loader(image));
    let (mut called, mut jumps) = (HashSet::new(), BTreeSet::new());
    for range in swept {
        let bytes = image.bytes(range.start, range.end.0 - range.start.0);
        let bytes = bytes.unwrap_or_default();
        let mut decoder = decode(bytes, range.start);
        let mut insn = Insn::default();
        while decoder.read(&mut insn) {
            let taken = taken(image, &insn);
            found.extend(taken);
            called.extend(taken.filter(|_| insn.control() == Control::Call));
            if is_little && insn.is_jump() {
                jumps.insert(Svma(insn.target()));
            }
        }
    }
    for gap in gaps {
        found.extend(context.words.within(gap.clone()));
        if is_little {
            // What other code may call, by a scan of its bytes. Where code of the gaps jumps is a label.
            let branches = context.branches.within(gap.clone());
            let branches: Vec<Svma> = branches.filter(|to| !jumps.contains(to)).collect();
            found.extend(&branches);
            called.extend(branches);
            found.extend(context.formed.within(gap.clone()));
        }
    }
    found.retain(|&at| image.is_code(at) && !known.covers(at));
    found.sort_unstable();
    found.dedup();
    Some((found, called))
}

/// The code that an instruction calls, or whose address it forms.
fn taken(image: &Image<'_>, insn: &Insn) -> Option<Svma> {
    if insn.is_direct_call() {
        return Some(Svma(insn.target()));
    }
    if let Some(address) = insn.formed_address() {
        return Some(Svma(address));
    }
    let is_fixed = !image.is_position_independent();
    insn.moved_number().filter(|_| is_fixed).map(Svma)
}

/// Follows what starts at the beginning of `range`. Which calls return may be known.
fn follow(
    image: &Image<'_>,
    context: &ModuleContext<'_>,
    range: Range<Svma>,
    returning: Option<&Returning>,
    is_function: &dyn Fn(Svma) -> bool,
) -> Option<Followed> {
    let function = Function::nameless(range);
    let flow = Flow::of(image, context, &function)?;
    let heights = Heights::of(&flow, Calls::Keep);
    let returns =
        |call: &Insn| returning.is_some_and(|returning| returning.is_sure(image, &flow, call));
    let own = Own::of(&flow, &heights, returns, is_function);
    let is_own = |at: u64| flow.index_of(at).is_some_and(|index| own.is_own[index]);
    let calls = flow
        .insns
        .iter()
        .filter(|insn| insn.control() == Control::Call && is_own(insn.at()));
    let calls = calls.map(|call| Svma(call.target()));
    let tail_calls = (0..flow.insns.len()).filter(|&index| own.is_own[index]);
    let tail_calls = tail_calls.filter_map(|index| tail_call(&flow, &heights, index));
    let tail_calls: Vec<Svma> = tail_calls.collect();
    let recipes = recipe::of_heights(image, context, &flow, &heights, |index| own.is_own[index]);
    let callees = own.calls(&flow);
    let callees = callees.filter_map(|(call, after)| Some((callee(call)?, after)));
    Some(Followed {
        verdict: verdict(&flow, &heights, &own),
        recipes,
        calls: calls.chain(tail_calls.iter().copied()).collect(),
        tail_calls,
        is_aligned: own.is_aligned(&flow, &heights),
        callees: callees.collect(),
        end: end(&flow, &own),
        tables: tables_of_labels(&flow, &heights),
    })
}

/// Where the function ends, if what is before that is its own and every call of it returns.
fn end(flow: &Flow, own: &Own) -> Option<Svma> {
    let is_own = |index: usize| own.is_own[index];
    let last = (0..flow.insns.len()).rev().find(|&index| is_own(index))?;
    let is_whole = flow.insns[..=last].iter().enumerate().all(|(index, insn)| {
        let returns = || {
            // A call at the end does not return: the next function begins after the padding.
            let ends = index == last && flow.insns[last + 1..].iter().all(Insn::is_padding);
            !insn.is_call() || ends || flow.index_of(insn.end()).is_some_and(is_own)
        };
        is_own(index) && returns() || !is_own(index) && insn.is_padding()
    });
    let is_one = flow.ranges.len() == 1;
    (is_whole && is_one && flow.doubt != Some(Doubt::DataInCode))
        .then(|| Svma(flow.insns[last].end()))
}

fn verdict(flow: &Flow, heights: &Heights, own: &Own) -> Verdict {
    let is_epilogue = past_arguments::epilogues(flow, heights);
    for (index, insn) in flow.insns.iter().enumerate() {
        if !own.is_own[index] || is_epilogue[index] {
            continue;
        }
        // Nothing but a call that does not return can be the last of a function without leaving it.
        if !insn.ends_block() && !insn.is_call() && !flow.contains(insn.end()) {
            return Verdict::Wrong;
        }
        let is_return = insn.is_return();
        let is_out = insn.is_jump() && !flow.contains(insn.target());
        // A jump to a part elsewhere can be with a frame.
        let is_wrong = |height: i64| height > 0 || is_return && !is_as_at_entry(heights, index);
        let is_wrong = (is_return || is_out) && heights.before(index).is_some_and(is_wrong);
        if is_wrong || heights.is_above_entry(index) {
            return Verdict::Wrong;
        }
    }
    if own.returns {
        Verdict::Sound
    } else {
        Verdict::Unproven
    }
}
