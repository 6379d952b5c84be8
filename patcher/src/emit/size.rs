//! Upper bounds of the sizes of trampolines.

use crate::inside::{Region, Tally};
use crate::isa::{
    ADVANCE, COMPARED, COUNT, COUNT_IN, DISPATCH, Displaced, ENTER, GROWS, HOOK, HOOK_AT_POINT,
    JUMP, LEAVE, LOOP_ALIGNMENT, PATH_HOOK, TIMED_PATH_HOOK,
};
use crate::plan::{Effect, ProbePoint, Site};

use super::versions::most_copies;

/// The length in bytes of a jump to any target within 2 GiB.
const LONG: usize = JUMP as usize;

/// An upper bound of the length of a trampoline for `site`, in bytes.
pub fn max_len(site: &Site) -> usize {
    let copies = |displaced: &[Displaced]| displaced.iter().map(Displaced::max_len).sum::<usize>();
    let hook = |point: &ProbePoint| match point.effect {
        Effect::Entry => HOOK,
        Effect::Point(_) => HOOK_AT_POINT,
        Effect::Count(..) => COUNT + HOOK_AT_POINT + 2 * LONG,
        Effect::Path(step) => {
            let timed = step.timed.map_or(0, |_| 2 * TIMED_PATH_HOOK);
            PATH_HOOK + timed + LONG
        }
        Effect::Span(..) => HOOK_AT_POINT + LONG,
        Effect::Enter(_) => enter_len(),
        // Hooks of a conditional jump that is taken follow all other code, with a jump after them.
        Effect::Exit | Effect::TailExit(_) => HOOK + LONG,
    };
    let compared = |point: &ProbePoint| point.effect.target().map_or(0, |_| COMPARED);
    let row = |displaced: &[Displaced], points: &[ProbePoint]| {
        let hooks = points.iter().map(|point| hook(point) + compared(point));
        copies(displaced) + hooks.sum::<usize>() + LONG
    };
    let rows = site
        .rows
        .iter()
        .map(|r| row(&r.displaced, &r.points))
        .sum::<usize>();
    let copies = site.regions.iter().map(|(_, region)| copies_len(region));
    row(&site.displaced, &site.points) + rows + copies.sum::<usize>()
}

/// An upper bound of the number of program counters in copies of regions, and beside them. Returns
/// 0 if the site has no copies.
pub fn max_copied_pcs(site: &Site) -> usize {
    if site.regions.is_empty() {
        return 0;
    }
    let row = |displaced: &[Displaced], points: &[ProbePoint]| displaced.len() + 1 + points.len();
    let rows = site.rows.iter().map(|r| row(&r.displaced, &r.points));
    let copies = site.regions.iter().map(|(_, region)| copied_pcs(region));
    row(&site.displaced, &site.points) + rows.sum::<usize>() + copies.sum::<usize>()
}

/// An upper bound of the length of the copies of `region`, in bytes.
fn copies_len(region: &Region) -> usize {
    // It may have a taken side out of line, and a way out after it.
    let way = LONG + LEAVE + ADVANCE;
    let insns = region.insns.iter();
    let insns = insns.map(|insn| {
        let tabled = insn.dispatch.as_ref();
        let tabled = tabled.map_or(0, |of| {
            DISPATCH + LEAVE + of.table_len() + way * of.targets().len()
        });
        insn.displaced.max_len() + GROWS + 2 * way + tabled
    });
    let insns = insns.sum::<usize>() + LOOP_ALIGNMENT;
    let headers = region.headers.len() * LONG;
    let copies = copies(region);
    let counts = region.tallies.iter().map(|(_, tally)| match tally {
        Tally::Count(_) => COUNT_IN + HOOK_AT_POINT,
        Tally::Path(_) => (copies - 1) * (COUNT_IN + ADVANCE) + PATH_HOOK,
    });
    copies * insns + headers + counts.sum::<usize>()
}

/// An upper bound of how often each instruction is in the copies of `region`.
fn copies(region: &Region) -> usize {
    if region.follows() {
        most_copies(region) + 1
    } else {
        2
    }
}

/// The maximum number of instructions of a count or of a step of a path.
const COUNTS: usize = 9;
/// The maximum number of instructions of a way out, with the jump.
const LEAVES: usize = 11;

/// An upper bound of the number of program counters with an original in the copies of `region`.
fn copied_pcs(region: &Region) -> usize {
    // Each may have two ways out.
    let tabled = region
        .insns
        .iter()
        .filter_map(|insn| insn.dispatch.as_ref());
    let ways = tabled.map(|of| of.targets().len()).sum::<usize>();
    let insns = region.insns.len() * (1 + 2 * LEAVES) + region.headers.len() + LEAVES * ways;
    copies(region) * (insns + COUNTS * region.tallies.len())
}

/// An upper bound of the length of the way into a copy, in bytes.
fn enter_len() -> usize {
    2 * (ENTER + LONG) + HOOK_AT_POINT
}
