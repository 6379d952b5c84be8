//! Recipes for code that has neither symbols nor unwind entries. A sweep of the text finds where
//! its functions start.
//!
//! A start is the target of a call or tail call, an address that is taken, or a function that the
//! loader calls. A taken address may also be a label. A wrong start shows when it is followed: at
//! some return, the stack is not as it was at the entry. So a start must lead to a return, or to a
//! tail call of a function, with the stack as it was. A function without a return counts if a sound
//! function calls it, or if the program's entry code passes it on. The code after one of its calls
//! is its own if the callee is known to return elsewhere.

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

/// The maximum number of starts that are followed in a module: a few seconds' work.
const MOST_STARTS: usize = 20_000;

/// The maximum amount of code that is swept in a module, in bytes.
const MOST_SWEPT: u64 = 64 << 20;

/// The maximum distance to the next start for code that counts as one function, in bytes.
const LONGEST_FUNCTION: u64 = 256 << 10;

/// The distances before and after a return address in which its function is searched, in bytes.
/// They are tried in turn.
const WINDOWS: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];

/// If the unknown code is less than the code divided by this, only the unknown code is swept.
const LITTLE: u64 = 8;

/// The result of following a start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    /// The start leads to a return with the stack as it was at the entry.
    Sound,
    /// No return proves the start.
    Unproven,
    /// The address is not a start, or the code that follows is not all one function.
    Wrong,
}

/// A start that has been followed.
struct Followed {
    verdict: Verdict,
    /// The recipes of the function's calls, each with the return address.
    recipes: Vec<(Svma, Recipe)>,
    /// The targets of the function's calls, including tail calls.
    calls: Vec<Svma>,
    /// The targets of the function's tail calls.
    tail_calls: Vec<Svma>,
    /// True if the function has calls, and the stack is aligned at each.
    is_aligned: bool,
    /// The function's callees, each with the kind of code after the call.
    callees: Vec<(Svma, AfterCall)>,
    /// The function's end. `None` unless all code before the end certainly belongs to it.
    end: Option<Svma>,
    /// The tables of labels that the function jumps through.
    tables: Vec<Svma>,
}

/// Possible starts of unknown functions, each with the result of following it.
struct StartSearch<'k> {
    known: Cow<'k, Known>,
    /// The possible starts, ascending.
    starts: Vec<Svma>,
    /// The starts that are called, according to a sweep of the code.
    called: HashSet<Svma>,
    followed: BTreeMap<Svma, Followed>,
}

impl<'k> StartSearch<'k> {
    /// Searches all code. `None` if there is too much code to search, or none.
    fn of(image: &Image<'_>, context: &ModuleContext<'_>) -> Option<Self> {
        let known = Known::of(image);
        let gaps = known.gaps(image);
        Self::among(image, context, Cow::Owned(known), &gaps)
    }

    /// Searches only `gaps` between known code. `None` if they contain too much code, or none.
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
        // Remove labels first: the code after one belongs to the function that the label cuts in
        // two. An address that only seems to be called may also be a label.
        for keeps_called in [true, false] {
            let followed = followed(&starts);
            starts.retain(|start| {
                let is_wrong = followed
                    .get(start)
                    .is_none_or(|f| f.verdict == Verdict::Wrong);
                !is_wrong || keeps_called && called.contains(start)
            });
            // The target of a tail call also begins a function.
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

    /// True if code may call a start that no return proves.
    fn has_unproven_callees(&self, context: &ModuleContext<'_>) -> bool {
        let unproven = |(start, f): (&Svma, &Followed)| {
            f.verdict == Verdict::Unproven && context.branches.contains(*start)
        };
        self.followed.iter().any(unproven)
    }
}

/// The addresses in the tables of labels of `followed` functions. Each label is within the code up
/// to the next called address.
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

/// The functions without symbols and unwind entries whose extent is certain, by their starts. Empty
/// if there is too much such code to search.
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

/// The recipes of calls in functions without symbols and unwind entries, by return address. Empty
/// if there is too much such code to search.
pub fn unnamed_recipes<'d>(
    image: &Image<'d>,
    context: &ModuleContext<'d>,
) -> BTreeMap<Svma, Recipe> {
    unless_too_large(image, &context).unwrap_or_default()
}

/// The recipes as [`unnamed_recipes`] returns them. `None` if there is too much code without
/// symbols and unwind entries to search all of it; then `context` is not dereferenced.
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

/// The recipes as [`unnamed_recipes`] returns them, in a module with too much code without symbols
/// and unwind entries to search all of it.
///
/// Searches only around the return addresses in `asked`, which are ascending. Empty if the code is
/// small enough for [`unnamed_recipes`].
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
            // Functions are not followed beyond the window.
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

/// The parts of `ranges` that are inside `of`. `ranges` are ascending and disjoint.
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
    // The functions that are certainly called are taken from the end, so they come first.
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

/// True if a function begins at `at`: a known one, or one in `called`.
fn is_known_function(known: &Known, called: &HashSet<Svma>, at: Svma) -> bool {
    called.contains(&at) || known.begins(at)
}

/// True if a function without a return may begin at `start` and only pointers lead to it.
///
/// The start may also be a label. At a label the stack is aligned, and at a function's entry it is
/// off by one word. So if a label is followed as an entry, no call seems to have an aligned stack.
fn may_be_pointed_at(image: &Image<'_>, context: &ModuleContext<'_>, start: Svma) -> bool {
    let begins = sweep::one(image, start).is_some_and(|insn| insn.begins_function());
    begins && context.is_taken(start) && !context.branches.contains(start)
}

/// The range to follow from `start`: up to known code or to the next of `starts`, which are
/// ascending. `None` if `start` is in no code to search, or the range exceeds [`LONGEST_FUNCTION`].
fn range(known: &Known, starts: &[Svma], start: Svma) -> Option<Range<Svma>> {
    let end = known.next(start)?;
    let after = starts.partition_point(|&at| at <= start);
    let end = starts.get(after).map_or(end, |&next| next.min(end));
    (end.0 - start.0 <= LONGEST_FUNCTION).then_some(start..end)
}

/// The callees of functions whose bounds are known. Empty if there is too much code.
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

/// The functions that the program's entry code passes on to be called: `main`.
fn handed_over(image: &Image<'_>) -> Vec<Svma> {
    /// The maximum number of instructions to examine, more than the entry code needs.
    const MOST_AT_ENTRY: usize = 24;
    let bytes = image.bytes_from(image.entry()).unwrap_or_default();
    let insns = decode(bytes, image.entry()).take(MOST_AT_ENTRY);
    let before = insns.take_while(|insn| insn.control() == Control::Next);
    let taken = before.filter_map(|insn| taken(image, &insn));
    taken.filter(|&at| image.is_code(at)).collect()
}

/// The code whose bounds are known.
#[derive(Clone)]
struct Known {
    /// Ordered by start. Each end is the maximum of all ends so far. So if any range covers an
    /// address, the last one that starts at or before it does.
    ranges: Vec<Range<Svma>>,
    /// The code to search, ascending and disjoint.
    code: Vec<Range<Svma>>,
    /// True if `code` is only a part of the module's code.
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

    /// True if a function begins at `at`.
    fn begins(&self, at: Svma) -> bool {
        let index = self.ranges.partition_point(|r| r.start < at);
        self.ranges.get(index).is_some_and(|r| r.start == at)
    }

    /// The code outside of the known ranges that contains calls.
    fn gaps(&self, image: &Image<'_>) -> Vec<Range<Svma>> {
        image.calls_outside(self.ranges.iter().cloned())
    }

    /// The next address after `at` at which known code begins, or the end of the code. `None` if
    /// `at` is in no code to search.
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

/// Possible starts of functions in the gaps, ascending, and the set of called addresses, in the
/// gaps or not. `None` if there is too much code to search, or none.
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
            // Possible calls from other code, by a scan of its bytes. The targets of jumps from the
            // gaps are labels.
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

/// The code address that an instruction calls or computes; `None` if there is none.
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

/// Follows the code from the start of `range`. `returning`, if given, decides which calls return.
/// `is_function` is true for known starts of functions. `None` if the file has no bytes for the
/// range.
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

/// The end of the function. `None` unless all code before it is its own and all its calls return.
fn end(flow: &Flow, own: &Own) -> Option<Svma> {
    let is_own = |index: usize| own.is_own[index];
    let last = (0..flow.insns.len()).rev().find(|&index| is_own(index))?;
    let is_whole = flow.insns[..=last].iter().enumerate().all(|(index, insn)| {
        let returns = || {
            // A call at the end does not return: after padding, the next function begins.
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
        // At the function's end, only an instruction that leaves it or a noreturn call is valid.
        if !insn.ends_block() && !insn.is_call() && !flow.contains(insn.end()) {
            return Verdict::Wrong;
        }
        let is_return = insn.is_return();
        let is_out = insn.is_jump() && !flow.contains(insn.target());
        // A jump to a part elsewhere may happen with a frame.
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
