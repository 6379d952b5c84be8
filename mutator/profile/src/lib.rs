//! Profiles of `ipath`: reading, checking, merging, comparing, reporting and exporting.
//!
//! A [`Profile`] is the file format `ipath-profile/1` as a value: the fields of its structs are the
//! fields of the JSON. Times are in nanoseconds. Indexes (`module`, `function`, `stack`) point into
//! the lists of the same profile.
//!
//! ```
//! use ipath_profile::{Profile, diff::Diff};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let scratch = std::env::temp_dir().join(format!("ipath-profile-{}", std::process::id()));
//! # std::fs::create_dir_all(&scratch)?;
//! # let (before, after) = (scratch.join("before.json"), scratch.join("after.json"));
//! # ipath_profile::sample::sample().save(&before)?;
//! # ipath_profile::sample::sample().save(&after)?;
//! let before = Profile::load(&before)?;
//! before.check()?;
//! for function in &before.functions {
//!     println!("{}", function.name);
//! }
//! // Find the call paths that became slower, by the metric `wall`.
//! let after = Profile::load(&after)?;
//! let diff = Diff::of(&before, &after, "wall");
//! assert_eq!(diff.worse(0.1), 0);
//! # std::fs::remove_dir_all(&scratch)?;
//! # Ok(())
//! # }
//! ```

mod arch;
#[doc(hidden)]
pub mod clock;
pub mod diff;
#[doc(hidden)]
pub mod display_name;
pub mod export;
#[doc(hidden)]
pub mod folding;
pub mod merge;
pub mod openmetrics;
mod profile;
pub mod report;
pub mod sample;
#[doc(hidden)]
pub mod services;
#[doc(hidden)]
pub mod timeline;

pub use profile::*;
