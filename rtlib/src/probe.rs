//! The actions of probes: the drivers that the stubs call.

mod busy;
mod called;
mod departing;
mod ending;
pub mod entry;
pub mod exit;
mod forks;
mod loads;
mod moves;
pub mod next;
pub mod path;
pub mod point;
mod recording;
mod registering;
mod remembering;
pub mod span;
mod switches;
pub mod timed_path;
#[cfg(ipath_image)]
pub mod trap;
pub mod trial;
pub mod verify;
