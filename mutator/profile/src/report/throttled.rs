//! The functions that `--max-overhead` has throttled, in words.

use std::borrow::Cow;
use std::cmp::Reverse;

use super::human;
use crate::display_name;
use crate::profile::{Function, Profile, Throttled, Throttling};

/// The most terminal columns for a function's name.
const LONGEST: usize = 60;

/// The state of a throttled function: `only counted since 0.3 s`.
pub fn state(throttled: Throttled) -> String {
    let since = human::time(throttled.since_ns.into());
    match throttled.how {
        Throttling::Counted => format!("only counted since {since}"),
        Throttling::Out => format!("taken out after {since}"),
    }
}

impl Profile {
    /// The functions that are throttled, as text: `f (only counted since 0.3 s), g (taken out after
    /// 1.2 s)`. `None` if there are none. Names are raw: escape them before display.
    pub fn throttled_text(&self) -> Option<String> {
        /// The most functions to name.
        const NAMED: usize = 8;
        let mut all: Vec<&Function> = self.functions.iter().collect();
        all.retain(|function| function.throttled.is_some());
        all.sort_by_key(|function| Reverse(function.totals.counts.count));
        let told = |function: &&Function| {
            let state = state(function.throttled?);
            let name = display_name::fit(&function.name, LONGEST);
            Some(format!("{name} ({state})"))
        };
        let mut named: Vec<String> = all.iter().take(NAMED).filter_map(told).collect();
        let more = all.len().saturating_sub(NAMED);
        named.extend((more > 0).then(|| format!("{more} more")));
        (!named.is_empty()).then(|| named.join(", "))
    }

    /// A line that names the throttled functions and says what that means for their figures. `None`
    /// if there are none. Names are raw: escape them before display.
    pub fn throttled_line(&self) -> Option<String> {
        let text = self.throttled_text()?;
        Some(format!(
            "throttled to keep the overhead low: {text}; times are those of the calls that were \
            timed"
        ))
    }

    /// The notes that qualify the numbers: those of the session, and [`Profile::throttled_line`].
    pub fn said(&self) -> impl Iterator<Item = Cow<'_, str>> {
        self.session
            .said()
            .chain(self.throttled_line().map(Cow::Owned))
    }
}
