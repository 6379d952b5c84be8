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
    /// True for folded frames and functions of libraries. They give way to a name that follows.
    pub is_fold: bool,
}

impl Link {
    /// A name without a mark.
    pub fn of(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..Self::default()
        }
    }

    /// Text that is not shortened.
    pub fn whole(text: impl Into<String>) -> Self {
        Self {
            mark: text.into(),
            ..Self::default()
        }
    }

    /// The link that replaces omitted links.
    pub fn gap() -> Self {
        Self::whole(GAP)
    }

    /// Text for folded frames. `…` replaces it if the chain is too long and a name follows.
    pub fn fold(text: impl Into<String>) -> Self {
        Self {
            is_fold: true,
            ..Self::whole(text)
        }
    }

    /// True for a gap, and for folded frames, which a gap can replace.
    fn is_gap(&self) -> bool {
        self.name.is_empty() && (self.is_fold || self.mark == GAP)
    }

    fn width(&self) -> usize {
        self.name.width() + self.mark.width()
    }
}

/// A function and its callers on one line.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// The function and its callers. The first link is always shown.
    pub links: Vec<Link>,
    /// The terminal columns for all links together.
    pub room: usize,
}

/// Writes the chains of one screen, each in its room, with `arrow` between names. In a chain that
/// is too long, `…` replaces the last names. Different names stay different.
pub fn fit_chains(chains: &[Chain], arrow: &str) -> Vec<String> {
    let chains: Vec<Chain> = chains.iter().map(|chain| chain.condensed(arrow)).collect();
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
        let first = |n: usize| {
            if n == names.len() {
                names.join(arrow)
            } else {
                format!("{}{arrow}{GAP}", names[..n].join(arrow))
            }
        };
        // An omission at the end covers the one before it.
        let ends_in_gap = |&n: &usize| n < names.len() && chain.links[n - 1].is_gap();
        let ends = (1..=names.len()).rev().filter(|n| !ends_in_gap(n));
        let all_that_fit = ends.map(first);
        let text = all_that_fit
            .into_iter()
            .find(|text| text.width() <= chain.room);
        text.unwrap_or_else(|| match chain.links.first() {
            Some(Link { name, mark, .. })
                if mark.width() + LEAST.min(name.width()) <= chain.room =>
            {
                fit(name, chain.room - mark.width()) + mark
            }
            Some(link) => fit(&link.name, chain.room),
            None => String::new(),
        })
    };
    chains.iter().map(line).collect()
}

impl Chain {
    fn width(&self, arrow: &str) -> usize {
        let arrows = arrow.width() * self.links.len().saturating_sub(1);
        self.links.iter().map(Link::width).sum::<usize>() + arrows
    }

    /// The chain. If it does not fit, `…` replaces folded frames before a name.
    fn condensed(&self, arrow: &str) -> Self {
        let mut chain = self.clone();
        if chain.width(arrow) <= chain.room {
            return chain;
        }
        let last_name = chain.links.iter().rposition(|link| !link.name.is_empty());
        for link in &mut chain.links[..last_name.unwrap_or(0)] {
            if link.is_gap() {
                *link = Link::gap();
            }
        }
        chain.leave_out_libraries(arrow);
        chain
            .links
            .dedup_by(|next, link| next.is_gap() && *next == *link);
        chain
    }

    /// Replaces the functions of libraries before the first function of the program by gaps, if
    /// the program's function has no room otherwise.
    fn leave_out_libraries(&mut self, arrow: &str) {
        let is_of_program = |link: &Link| !link.name.is_empty() && !link.is_fold;
        let Some(own) = self.links.iter().position(is_of_program) else {
            return;
        };
        let shown = self.links[..=own].iter();
        let shown: usize = shown.map(|link| link.width() + arrow.width()).sum();
        if shown + GAP.width() <= self.room {
            return;
        }
        for link in &mut self.links[..own] {
            *link = Link::gap();
        }
    }
}

/// The most columns for each name with its mark, in the order of the links. If the chain does not
/// fit, the first two names share the room.
fn most_of_each(chain: &Chain, arrow: &str) -> Vec<usize> {
    /// The terminal columns below which a name is not cut to make room for its callers.
    const LEAST_FIRST: usize = 16;
    /// A caller is not shown in less.
    const LEAST_SECOND: usize = 12;
    let is_gap = |link: &Link| *link == Link::gap();
    if chain.links.get(1).is_some_and(is_gap) && chain.links.len() > 2 {
        return most_around_gap(chain, arrow);
    }
    let widths: Vec<usize> = chain.links.iter().map(Link::width).collect();
    let [first, second, ..] = widths[..] else {
        return vec![chain.room; widths.len()];
    };
    if chain.width(arrow) <= chain.room {
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
        // The second name is not shown. If there is too little room, its gap is not shown either.
        let room = chain.room.saturating_sub(arrow.width() + GAP.width());
        most[0] = if room < least.min(first) {
            chain.room
        } else {
            room
        };
    }
    most
}

/// [`most_of_each`] for a chain whose second link is a gap: the columns of the other links are
/// those of the chain without the gap.
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

    /// The frame of a program that follows folded frames is named.
    #[test]
    fn folded_frames_make_room_for_the_function_after_them() {
        let runtime = || Link::fold("[5 frames of the Rust runtime]");
        let links = [
            Link::of("checksum"),
            runtime(),
            Link::of("shop::handle"),
            runtime(),
        ];
        let chain = |links: &[Link], room| Chain {
            links: links.to_vec(),
            room,
        };
        for (room, expected) in [
            (
                100,
                "checksum < [5 frames of the Rust runtime] < shop::handle < [5 frames of the Rust runtime]",
            ),
            (
                60,
                "checksum < … < shop::handle < [5 frames of the Rust runtime]",
            ),
            (40, "checksum < … < shop::handle < …"),
            (23, "checksum < …"),
        ] {
            assert_eq!(
                fit_chains(&[chain(&links, room)], " < "),
                [expected],
                "{room}"
            );
        }
        // The folded frames are the last of the chain.
        let shown = fit_chains(&[chain(&links[..2], 41)], " < ");
        assert_eq!(shown, ["checksum < [5 frames of the Rust runtime]"]);
        // A path from the first caller that differs.
        let links = [
            Link::of("svc::shop::checksum"),
            Link::whole("…"),
            Link::of("core::slice::sort::shared::smallsort::insertion_sort_shift_left"),
            Link::of("svc::shop::collect"),
        ];
        let shown = fit_chains(&[chain(&links, 64)], " < ").concat();
        let (start, rest) = shown.split_once(" < … < ").unwrap();
        assert_eq!(start, "svc::shop::checksum");
        assert!(rest.starts_with(char::is_alphabetic), "{shown}");
        assert!(rest.ends_with("insertion_sort_shift_left < …"), "{shown}");
    }

    #[test]
    fn functions_of_libraries_make_room_for_the_first_of_the_program() {
        let library = |name: &str| Link {
            is_fold: true,
            ..Link::of(name)
        };
        let links = [
            library("operator()"),
            library("__unguarded_linear_insert"),
            Link::of("shop::page"),
            Link::of("main"),
        ];
        for (room, expected) in [
            (
                80,
                "operator() < __unguarded_linear_insert < shop::page < main",
            ),
            (55, "operator() < __ungua…ed_linear_insert < shop::page < …"),
            (30, "… < shop::page < main"),
            (20, "… < shop::page < …"),
        ] {
            let chain = Chain {
                links: links.to_vec(),
                room,
            };
            assert_eq!(fit_chains(&[chain], " < "), [expected], "{room}");
        }
    }

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
