//! Measures functions of running processes, per call path.
//!
//! A session inserts probes into a process, measures its calls, collects profiles, and removes the
//! probes. [`attach`] measures a running process, and [`launch()`] a program from its first
//! instruction on.
//!
//! ```no_run
//! use std::{thread::sleep, time::Duration};
//! use ipath_session::{Options, attach};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let pid = 4711;
//! let mut measured = attach(pid, &Options::of_functions(["parse*", "Table::find"]))?;
//! sleep(Duration::from_secs(5));
//! for path in measured.profile().paths {
//!     println!("{} calls", path.metrics.count);
//! }
//! measured.add(&["Table::insert"])?;
//! measured.remove(&["parse*"])?;
//! sleep(Duration::from_secs(5));
//! measured.detach()?.save("profile.json".as_ref())?;
//! # Ok(())
//! # }
//! ```
//!
//! The hidden modules serve only the command `ipath`, and change without notice.

#[doc(hidden)]
pub mod apart;
mod arch;
#[doc(hidden)]
pub mod collect;
pub mod condition;
#[doc(hidden)]
pub mod counter;
#[doc(hidden)]
pub mod follow;
#[doc(hidden)]
pub mod launch;
mod measured;
#[doc(hidden)]
pub mod metric;
#[doc(hidden)]
pub mod mpi;
#[doc(hidden)]
pub mod runtime_image;
#[doc(hidden)]
pub mod segment;
#[doc(hidden)]
pub mod session;

pub use measured::{Error, Measured, Options, attach, launch};
