//! `--clock`.

use clap::ValueEnum;
use ipath_profile::clock::ExitClock;

/// How an exit reads the time-stamp counter, as it is typed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Clock {
    /// When the processor has completed the work of the function
    #[default]
    Ordered,
    /// At once, at a lower cost per call; the times of short functions may be wrong
    Loose,
}

impl From<Clock> for ExitClock {
    fn from(clock: Clock) -> Self {
        match clock {
            Clock::Ordered => Self::Ordered,
            Clock::Loose => Self::Loose,
        }
    }
}
