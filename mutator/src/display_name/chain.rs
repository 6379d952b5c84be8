//! Shortens call chains to one line each.

use unicode_width::UnicodeWidthStr;

use super::{GAP, LEAST, fit, fit_each};

/// A name in a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// The name, which may be shortened; empty if only the mark is shown.
    pub name: String,
    /// Text after the name that is not shortened, such as ` (inlined)`.
    pub mark: String,
}

impl Link {
    /// A name without a mark.
    pub fn of(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            mark: String::new(),
        }
    }

    /// Text that is not shortened.
    pub fn whole(text: impl Into<String>) -> Self {
        Self {
            name: String::new(),
            mark: text.into(),
        }
    }

    /// Replaces omitted links.
    pub fn gap() -> Self {
        Self::whole(GAP)
    }

    fn is_gap(&self) -> bool {
        self.name.is_empty() && self.mark == GAP
    }

    fn width(&self) -> usize {
        self.name.width() + self.mark.width()
    }
}

/// A function and its callers on one line.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The first is always shown.
    pub links: Vec<Link>,
    /// The columns for all of them.
    pub room: usize,
}

/// Writes the chains of one screen, each in its room, with `arrow` between names. In a chain that is
/// too long, `…` replaces the last names. Different names stay different.
pub fn fit_chains(chains: &[Chain], arrow: &str) -> Vec<String> {
    let all: Vec<(&str, usize)> = chains
        .iter()
        .flat_map(|chain| {
            let most = most_of_each(chain, arrow);
            let own = |(link, most): (_, usize)| -> (&str, usize) {
                let link: &Link = link;
                (&link.name, most.saturating_sub(link.mark.width()))
            };
            let links: Vec<(&str, usize)> = chain.links.iter().zip(most).map(own).collect();
            links
        })
        .collect();
    let mut short = fit_each(&all).into_iter();
    let line = |chain: &Chain| {
        let own = chain.links.iter().zip(short.by_ref());
        let names: Vec<String> = own
            .map(|(link, short)| format!("{short}{}", link.mark))
            .collect();
        let first = |n: usize| match n == names.len() {
            true => names.join(arrow),
            false => format!("{}{arrow}{GAP}", names[..n].join(arrow)),
        };
        let all_that_fit = (1..=names.len()).rev().map(first);
        let text = all_that_fit
            .into_iter()
            .find(|text| text.width() <= chain.room);
        text.unwrap_or_else(|| match chain.links.first() {
            Some(Link { name, mark }) if mark.width() + LEAST.min(name.width()) <= chain.room => {
                fit(name, chain.room - mark.width()) + mark
            }
            Some(link) => fit(&link.name, chain.room),
            None => String::new(),
        })
    };
    chains.iter().map(line).collect()
}

/// The most columns of each name with its mark. If the chain does not fit, the first two names share
/// the room.
fn most_of_each(chain: &Chain, arrow: &str) -> Vec<usize> {
    /// A name is not cut below this to make room for its callers.
    const LEAST_FIRST: usize = 16;
    /// A caller is not shown in less.
    const LEAST_SECOND: usize = 12;
    if chain.links.get(1).is_some_and(Link::is_gap) && chain.links.len() > 2 {
        return most_around_gap(chain, arrow);
    }
    let widths: Vec<usize> = chain.links.iter().map(Link::width).collect();
    let arrows = arrow.width() * widths.len().saturating_sub(1);
    let &[first, second, ..] = &widths[..] else {
        return vec![chain.room; widths.len()];
    };
    if widths.iter().sum::<usize>() + arrows <= chain.room {
        return widths;
    }
    let gap = if widths.len() > 2 {
        arrow.width() + GAP.width()
    } else {
        0
    };
    let room = chain.room.saturating_sub(arrow.width() + gap);
    let half = (room / 2).max(LEAST_FIRST).min(chain.room);
    let mut most = vec![half; widths.len()];
    // A short name leaves its spare columns to the other.
    most[0] = half.max(room.saturating_sub(second));
    most[1] = half.max(room.saturating_sub(first));
    // The first name is at least this wide, without its mark.
    let least = LEAST_FIRST + chain.links[0].mark.width();
    most[0] = most[0].max(least.min(chain.room));
    // The second name may be narrower than half.
    let left = room.saturating_sub(most[0]);
    if left >= LEAST_SECOND + chain.links[1].mark.width() {
        most[1] = most[1].min(left);
    }
    if most[0] + arrow.width() + most[1].min(second) + gap > chain.room {
        // The second name is not shown. If there is too little room, nor is it said that it is not.
        let room = chain.room.saturating_sub(arrow.width() + GAP.width());
        most[0] = if room < least.min(first) {
            chain.room
        } else {
            room
        };
    }
    most
}

/// The columns of each link, if a gap follows the first name: those of the chain without the gap.
fn most_around_gap(chain: &Chain, arrow: &str) -> Vec<usize> {
    let mut without = chain.clone();
    without.links.remove(1);
    without.room = chain.room.saturating_sub(arrow.width() + GAP.width());
    let mut most = most_of_each(&without, arrow);
    most.insert(1, GAP.width());
    most
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_lose_their_last_names() {
        let links = ["work", "shop::Store::load(int)", "main", "_start"].map(Link::of);
        let chain = |room| Chain {
            links: links.to_vec(),
            room,
        };
        for (room, expected) in [
            (60, "work < shop::Store::load(int) < main < _start"),
            (34, "work < shop::Store::load(int) < …"),
            (24, "work < Store::load < …"),
            (12, "work < …"),
            (3, "…rk"),
        ] {
            let shown = fit_chains(&[chain(room)], " < ");
            assert_eq!(shown, [expected], "{room}");
        }
    }
}
