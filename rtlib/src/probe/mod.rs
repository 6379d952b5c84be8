//! What happens where a probe fires: the drivers of all else, and the stubs that call them.

mod busy;
mod departing;
mod ending;
pub mod entry;
pub mod exit;
mod forks;
mod loads;
mod moves;
mod next;
pub mod point;
#[cfg(ipath_image)]
mod quick;
mod registering;
#[cfg(ipath_image)]
mod stub;
mod switches;
#[cfg(ipath_image)]
mod trap;
#[cfg(ipath_image)]
mod trial;
