//! Call paths on one line each: the function, then its callers outwards.

use std::collections::{HashMap, HashSet};

use unicode_width::UnicodeWidthStr;

use super::table::Frame;
use super::{Report, wrapped};
use crate::display_name::{self, Chain, Link, fit_chains};
use crate::folding::{self, Item};
use crate::profile::printable;
use crate::services::is_service;
use std::rc::Rc;

/// Separates a function from its caller.
pub(super) const ARROW: &str = " < ";
/// The most frames of a path that are used for one line.
const DEPTH: usize = 64;

/// A call path for one line.
pub(super) struct Line {
    /// The function, then its callers outwards.
    links: Vec<Link>,
    /// The place of each link in the source. It distinguishes paths of the same functions.
    places: Vec<String>,
    /// The index in `links` of the first caller that is the program's own function. `None` if there
    /// is none.
    own: Option<usize>,
    /// Remarks on the path, such as its thread.
    pub(super) remarks: Vec<String>,
}

/// A path as it is shown.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Written {
    /// The path on one line, with the remarks that fit.
    pub(super) path: String,
    /// Remarks that did not fit beside the path.
    pub(super) below: Vec<String>,
}

impl Report<'_> {
    /// The lines of the first `most` frames of a stack, the innermost first. Each inlined function
    /// has a line of its own.
    pub(super) fn frames(&self, stack: &[usize], most: usize) -> Vec<Rc<Frame>> {
        let frames = stack.iter().take(most);
        frames
            .flat_map(|&frame| self.lines(frame).iter().map(Rc::clone))
            .collect()
    }

    /// The outermost of the services with which a path ends, and the stack of the function that
    /// calls it. `None` if the measured function is no service, if no other service is between it
    /// and that caller, or if there is no such caller.
    pub(super) fn service<'s>(
        &self,
        function: usize,
        stack: &'s [usize],
    ) -> Option<(&str, &'s [usize])> {
        let serves = |name: &str, module: Option<usize>| {
            is_service(name, Some(&self.profile.module_name(module)))
        };
        let measured = &self.profile.functions[function];
        if !serves(&measured.name, Some(measured.module)) {
            return None;
        }
        // The function of a frame is the one into which the others are inlined.
        let own = |frame: usize| self.lines(frame).last();
        let is_one = |&&frame: &&usize| {
            let module = self.profile.frames[frame].module;
            own(frame).is_some_and(|own| serves(&own.name, module))
        };
        let (inside, outside) = stack.split_at(stack.iter().take_while(is_one).count());
        let entry = own(*inside.last()?)?;
        (!outside.is_empty()).then_some((&entry.name, outside))
    }

    /// A path of the function at this index. `end` says what follows the last frame of `stack`.
    pub(super) fn chain(&self, function: usize, stack: &[usize], end: End) -> Line {
        let name = printable(&self.profile.functions[function].name).into_owned();
        let mut first = Link::of(name);
        first.mark = self.profile.distinction(function);
        let mut line = Line {
            links: vec![first],
            places: vec![String::new()],
            own: None,
            remarks: Vec::new(),
        };
        let frames = self.frames(stack, DEPTH);
        for item in folding::fold(frames.iter().map(|frame| frame.fold)) {
            match item {
                Item::Frame(index) => line.push(&frames[index]),
                Item::Runtime(text) => line.add(Link::fold(text), String::new()),
                // The caller into which they are inlined follows.
                Item::Wrappers(_) => {}
            }
        }
        let end = match end {
            _ if stack.len() > DEPTH => Some("…"),
            End::Unknown => Some(self.profile.unknown_callers_of(stack)),
            End::Root if stack.is_empty() => Some("[no caller]"),
            End::Root | End::Several => None,
        };
        if let Some(end) = end {
            line.add(Link::whole(end), String::new());
        }
        line
    }
}

/// What follows the last frame of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing: the frame is the first one of its thread.
    Root,
    /// Callers that the walk did not find.
    Unknown,
    /// Different callers: it is the common beginning of several paths.
    Several,
}

impl End {
    /// The end of a path in a profile.
    pub(super) fn of(is_complete: bool) -> Self {
        if is_complete {
            Self::Root
        } else {
            Self::Unknown
        }
    }
}

impl Line {
    fn add(&mut self, link: Link, place: String) {
        self.links.push(link);
        self.places.push(place);
    }

    /// Adds text after the last caller.
    pub(super) fn end_with(&mut self, text: String) {
        self.add(Link::whole(text), String::new());
    }

    /// Adds the line of a caller.
    fn push(&mut self, frame: &Frame) {
        if frame.is_own {
            self.own.get_or_insert(self.links.len());
        }
        self.add(Link::of(frame.name.as_str()), frame.site());
    }

    /// Links of the path without those between the function and the link at `at`: the function, a
    /// gap, then the links from `at` on.
    fn without(&self, at: usize) -> Vec<Link> {
        let mut links = self.links[..1].to_vec();
        if at > 1 {
            links.push(Link::gap());
        }
        links.extend(self.links[at..].iter().cloned());
        links
    }

    /// All links of the path. The link at `at` has its place in the source after it.
    fn with_place(&self, at: usize) -> Vec<Link> {
        let mut links = self.links.clone();
        links[at].mark.push_str(&self.places[at]);
        links
    }

    /// The links before `at`, then the place in the source of the link at `at`, without its name.
    fn up_to_place(&self, at: usize) -> Vec<Link> {
        self.some_and_place(at, at)
    }

    /// The function and its caller, then the place in the source of the link at `at`.
    fn caller_and_place(&self, at: usize) -> Vec<Link> {
        self.some_and_place(at.min(2), at)
    }

    /// The first `count` links, then the place in the source of the link at `at`.
    fn some_and_place(&self, count: usize, at: usize) -> Vec<Link> {
        let mut links = self.links[..count].to_vec();
        links.push(Link::whole(format!("…{}", self.places[at])));
        links
    }

    /// The function, then the links from `at` on. The first of these has its place in the source
    /// after it.
    fn starting_at_place(&self, at: usize) -> Vec<Link> {
        let mut links = self.without(at);
        links[if at > 1 { 2 } else { 1 }]
            .mark
            .push_str(&self.places[at]);
        links
    }
}

/// A way of writing a path so that the link at an index is shown.
type Way = fn(&Line, usize) -> Vec<Link>;

impl Line {
    /// The fewest terminal columns in which the function and its first caller that is the program's
    /// own code fit, with the arrow and the gap marks. Without such a caller: the function and a
    /// gap.
    fn least(&self) -> usize {
        let of = |link: &Link| display_name::least_width(&link.name) + link.mark.width();
        let gap = || ARROW.width() + Link::gap().mark.width();
        let Some(own) = self.own else {
            return of(&self.links[0]) + gap();
        };
        let before = if own > 1 { gap() } else { 0 };
        let after = if own + 1 < self.links.len() { gap() } else { 0 };
        of(&self.links[0]) + before + ARROW.width() + of(&self.links[own]) + after
    }

    /// The remarks to write beside the path in `width` terminal columns. `None` if they would take
    /// the room of the first own caller.
    fn beside(&self, width: usize) -> Option<String> {
        let remarks = self.remarks.iter();
        let text: String = remarks.map(|remark| format!(", {remark}")).collect();
        (text.is_empty() || self.least() + text.width() <= width).then_some(text)
    }
}

/// The number of links, other than gaps, at the start of a chain's text.
fn shown_links(text: &str) -> usize {
    let links = text.split(ARROW);
    links.filter(|link| *link != Link::gap().mark).count()
}

/// Writes each path in `width` columns. A path keeps its function and its first own caller. Paths
/// that would look the same are written from the first caller that differs. `values` returns the
/// values for the path at an index; they follow the path, with its remarks.
pub(super) fn write(
    lines: &[&Line],
    values: impl Fn(usize) -> Vec<String>,
    width: usize,
) -> Vec<Written> {
    let mut after: Vec<Option<String>> = Vec::new();
    let mut below: Vec<Vec<String>> = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        let values = values(index);
        let beside = line.beside(width).filter(|_| values.is_empty());
        below.push(match beside {
            Some(_) => Vec::new(),
            None => {
                let all = [&values[..], &line.remarks].concat().join(", ");
                wrapped(all.split(' '), " ", width)
            }
        });
        after.push(beside);
    }
    let after: Vec<String> = after.into_iter().map(Option::unwrap_or_default).collect();
    let paths = write_paths(lines, &after, width);
    let written = paths.into_iter().zip(below);
    written
        .map(|(path, below)| Written { path, below })
        .collect()
}

/// Returns each path followed by its text in `after`, together in `width` terminal columns if
/// possible. Paths that would look the same are written so that they differ.
fn write_paths(lines: &[&Line], after: &[String], width: usize) -> Vec<String> {
    let chain = |index: usize, links: Vec<Link>| Chain {
        links,
        room: width.saturating_sub(after[index].width()),
    };
    let chains = lines.iter().enumerate();
    let mut chains: Vec<Chain> = chains
        .map(|(index, line)| chain(index, line.links.clone()))
        .collect();
    let mut texts = fit_chains(&chains, ARROW);
    let mut is_any_cut = false;
    for ((chain, line), text) in chains.iter_mut().zip(lines).zip(&texts) {
        if let Some(own) = line.own.filter(|own| shown_links(text) <= *own) {
            chain.links = line.without(own);
            is_any_cut = true;
        }
    }
    if is_any_cut {
        texts = fit_chains(&chains, ARROW);
    }
    let mut alike: HashMap<String, Vec<usize>> = HashMap::new();
    for (index, text) in texts.iter().enumerate() {
        let text = format!("{text}{}", after[index]);
        alike.entry(text).or_default().push(index);
    }
    for group in alike.into_values().filter(|group| group.len() > 1) {
        let first = lines[group[0]];
        let others = || group.iter().map(|&index| lines[index]);
        let most = others().map(|line| line.links.len()).max().unwrap_or(0);
        let differs = |same: &dyn Fn(&Line, usize) -> bool| {
            (1..most).find(|&at| others().any(|line| !same(line, at)))
        };
        let by_name = differs(&|line, at| line.links.get(at) == first.links.get(at));
        let by_place = || differs(&|line, at| line.places.get(at) == first.places.get(at));
        let (at, ways): (usize, &[Way]) = match (by_name, by_place()) {
            (Some(at), _) => (at, &[Line::without]),
            (None, Some(at)) => (
                at,
                &[
                    Line::with_place,
                    Line::up_to_place,
                    Line::caller_and_place,
                    Line::starting_at_place,
                ],
            ),
            (None, None) => continue,
        };
        let written = |way: &Way| {
            let text = |&index: &usize| {
                let line = lines[index];
                let at = at.min(line.links.len().saturating_sub(1)).max(1);
                if at < line.links.len() {
                    fit_chains(&[chain(index, way(line, at))], ARROW).concat()
                } else {
                    texts[index].clone()
                }
            };
            group.iter().map(text).collect::<Vec<String>>()
        };
        let are_different =
            |all: &Vec<String>| all.iter().collect::<HashSet<_>>().len() == all.len();
        let mut all = ways.iter().map(written);
        let last = ways.last().map(written).unwrap_or_default();
        let found = all.find(are_different).unwrap_or(last);
        for (&index, text) in group.iter().zip(found) {
            texts[index] = text;
        }
    }
    let with_after = texts.into_iter().zip(after);
    with_after.map(|(text, after)| text + after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::display_name::tests::large_projects;

    /// `find`, called by one of two functions, each called by `page` from two lines of `main`.
    fn four() -> Vec<Line> {
        let line = |(caller, number): (&str, u32)| {
            let place = |name: &str, line: u32| (Link::of(name), format!(" at {name}.c:{line}"));
            let links = [
                place("find", 0),
                place(caller, 7),
                place("page", 8),
                place("main", number),
            ];
            let (links, places) = links.into_iter().unzip();
            Line {
                links,
                places,
                own: Some(1),
                remarks: Vec::new(),
            }
        };
        let all = [("check", 1), ("check", 2), ("order", 1), ("order", 2)];
        all.map(line).into()
    }

    /// 2,000 functions, each called by the next, with a remark on each path.
    #[test]
    fn paths_of_large_projects_look_different_beside_their_remarks() {
        let names = large_projects();
        let line = |(index, name): (usize, &String)| Line {
            links: vec![
                Link::of(name.as_str()),
                Link::of(names[(index + 1) % names.len()].as_str()),
            ],
            places: vec![String::new(); 2],
            own: Some(1),
            remarks: vec!["3 left by a tail call".to_owned()],
        };
        let lines: Vec<Line> = names.iter().enumerate().map(line).collect();
        let lines: Vec<&Line> = lines.iter().collect();
        for width in [60, 80, 100, 140] {
            let shown = write(&lines, |_| Vec::new(), width);
            let paths = || shown.iter().map(|written| &written.path);
            assert!(paths().all(|text| text.width() <= width), "{width}");
            let is_marked = |written: &Written| match written.below.as_slice() {
                [] => written.path.ends_with(", 3 left by a tail call"),
                below => below == ["3 left by a tail call"],
            };
            assert!(shown.iter().all(is_marked), "{width}");
            let different: HashSet<&String> = paths().collect();
            assert_eq!(different.len(), shown.len(), "{width}");
        }
    }

    #[test]
    fn paths_that_differ_in_a_line_keep_their_callers() {
        let lines = four();
        let lines: Vec<&Line> = lines.iter().collect();
        let at = |width| {
            let written = write(&lines, |_| Vec::new(), width).into_iter();
            written.map(|written| written.path).collect::<Vec<_>>()
        };
        assert_eq!(
            at(60),
            [
                "find < check < page < main at main.c:1",
                "find < check < page < main at main.c:2",
                "find < order < page < main at main.c:1",
                "find < order < page < main at main.c:2",
            ]
        );
        assert_eq!(
            at(37)[..2],
            [
                "find < check < page < … at main.c:1",
                "find < check < page < … at main.c:2",
            ]
        );
        assert_eq!(
            at(30),
            [
                "find < check < … at main.c:1",
                "find < check < … at main.c:2",
                "find < order < … at main.c:1",
                "find < order < … at main.c:2",
            ]
        );
    }
}
