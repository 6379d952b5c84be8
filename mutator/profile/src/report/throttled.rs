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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Options, summary, text};
    use crate::sample::sample;

    /// Each output names a throttled function and marks its total, but not its mean: that is of the
    /// calls that were timed.
    #[test]
    fn no_output_shows_times_as_those_of_all_calls() {
        for (how, said) in [
            (Throttling::Counted, "only counted since 310 ms"),
            (Throttling::Out, "taken out after 310 ms"),
        ] {
            let mut profile = sample();
            let full = profile.clone();
            profile.functions[0].throttled = Some(Throttled {
                calls_not_timed: None,
                since_ns: 310_000_000,
                how,
            });
            let written = |profile: &Profile| {
                let mut out = [Vec::new(), Vec::new()];
                text(profile, &Options::default(), &mut out[0]).unwrap();
                summary(profile, None, None, &mut out[1]).unwrap();
                out.map(|out| String::from_utf8(out).unwrap())
            };
            let line = format!(
                "throttled to keep the overhead low: {} ({said})",
                profile.functions[0].name
            );
            for (throttled, full) in written(&profile).iter().zip(written(&full)) {
                assert!(throttled.contains(&line), "{throttled}");
                let later = "later calls of throttled functions are not counted";
                assert_eq!(throttled.contains(later), how == Throttling::Out);
                let marks = |text: &str| text.matches('≥').count();
                assert!(marks(throttled) > marks(&full), "{throttled}");
                assert!(!full.contains("throttled"), "{full}");
            }
            let means = |text: &str| text.matches("mean ≥").count();
            assert_eq!(means(&written(&profile)[1]), means(&written(&full)[1]));
        }
    }
}
