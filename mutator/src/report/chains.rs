//! Call paths on one line each: the function, then its callers outwards.

use std::collections::HashMap;

use unicode_width::UnicodeWidthStr;

use super::Report;
use super::table::Frame;
use crate::display_name::{Chain, Link, fit_chains, start_of};
use crate::folding::{self, Item};
use crate::profile::{CALLERS_BEYOND_LIMIT, UNKNOWN_CALLERS, printable};
use std::rc::Rc;

/// Between a function and its caller.
pub(super) const ARROW: &str = " < ";
/// The most frames of a path that are used for one line.
const DEPTH: usize = 64;

/// A call path for one line.
pub(super) struct Line {
    links: Vec<Link>,
    /// The place of each link, to tell apart paths of the same functions.
    places: Vec<String>,
    /// Text after the path, such as a thread.
    pub(super) after: String,
}

impl Report<'_> {
    /// The frames of a stack, the innermost first. Each inlined function is a frame.
    pub(super) fn frames(&self, stack: &[usize], most: usize) -> Vec<Rc<Frame>> {
        let frames = stack.iter().take(most);
        frames
            .flat_map(|&frame| self.lines(frame).iter().map(Rc::clone))
            .collect()
    }

    /// A path of the function at this index.
    pub(super) fn chain(&self, function: usize, stack: &[usize], is_complete: bool) -> Line {
        let name = printable(&self.profile.functions[function].name).into_owned();
        let mut line = Line {
            links: vec![Link::of(name)],
            places: vec![String::new()],
            after: String::new(),
        };
        let frames = self.frames(stack, DEPTH);
        for item in folding::fold(frames.iter().map(|frame| frame.fold)) {
            match item {
                Item::Frame(index) => line.push(&frames[index]),
                Item::Runtime(text) => line.add(Link::whole(text), String::new()),
                // The caller into which they are inlined follows.
                Item::Wrappers(_) => {}
            }
        }
        let end = match (stack.len() > DEPTH, is_complete, stack.is_empty()) {
            (true, ..) => Some("…"),
            (_, false, true) => Some(CALLERS_BEYOND_LIMIT),
            (_, false, false) => Some(UNKNOWN_CALLERS),
            (_, true, true) => Some("[no caller]"),
            _ => None,
        };
        if let Some(end) = end {
            line.add(Link::whole(end), String::new());
        }
        line
    }
}

impl Line {
    fn add(&mut self, link: Link, place: String) {
        self.links.push(link);
        self.places.push(place);
    }

    fn push(&mut self, frame: &Frame) {
        self.add(Link::of(frame.name.as_str()), frame.site());
    }

    /// The function, then the links from `at` on.
    fn without(&self, at: usize, with_place: bool) -> Vec<Link> {
        let mut links = self.links[..1].to_vec();
        if at > 1 {
            links.push(Link::whole("…"));
        }
        links.extend(self.links[at..].iter().cloned());
        if with_place && let Some(link) = links.get_mut(if at > 1 { 2 } else { 1 }) {
            link.mark.push_str(&self.places[at]);
        }
        links
    }
}

/// Writes each path in `width` columns. Paths that would look the same are written from the first
/// caller that differs.
pub(super) fn write(lines: &[&Line], width: usize) -> Vec<String> {
    let after: Vec<String> = lines
        .iter()
        .map(|line| cut(&line.after, width / 2))
        .collect();
    let chain = |index: usize, links: Vec<Link>| Chain {
        links,
        room: width.saturating_sub(after[index].width()),
    };
    let chains = lines.iter().enumerate();
    let chains: Vec<Chain> = chains
        .map(|(index, line)| chain(index, line.links.clone()))
        .collect();
    let mut texts = fit_chains(&chains, ARROW);
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
        let Some((at, with_place)) = by_name
            .map(|at| (at, false))
            .or_else(|| by_place().map(|at| (at, true)))
        else {
            continue;
        };
        for &index in &group {
            let line = lines[index];
            let at = at.min(line.links.len().saturating_sub(1)).max(1);
            if at < line.links.len() {
                let chain = chain(index, line.without(at, with_place));
                texts[index] = fit_chains(&[chain], ARROW).concat();
            }
        }
    }
    let with_after = texts.into_iter().zip(&after);
    with_after.map(|(text, after)| text + after).collect()
}

/// The beginning of `text` in at most `width` columns.
fn cut(text: &str, width: usize) -> String {
    match text.width() <= width {
        true => text.to_owned(),
        false => format!("{}…", start_of(text, width.saturating_sub(1))),
    }
}
