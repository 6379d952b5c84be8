//! The formats of standard output of `attach` and `run`.

use clap::ValueEnum;

/// Formats of standard output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// A summary each interval and a final one
    Text,
    /// The final profile
    Json,
    /// A profile each interval, one per line
    Jsonl,
}
