//! Profiles of `ipath`: how they are read, checked, merged, compared, reported and exported.

pub mod clock;
pub mod diff;
pub mod display_name;
pub mod export;
pub mod folding;
pub mod merge;
pub mod openmetrics;
pub mod profile;
pub mod report;
pub mod sample;
pub mod services;
