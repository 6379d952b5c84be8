//! The events that counters count.

use std::sync::Arc;

/// An event that a counter can count, as in perf_event_open(2).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The event's name in the profile.
    pub name: Arc<str>,
    /// The event's `type` in `struct perf_event_attr`.
    pub kind: u32,
    /// The event's `config`, `config1` and `config2` in `struct perf_event_attr`.
    pub config: [u64; 3],
}

impl Event {
    /// An event with this name.
    pub fn new(name: &str, kind: u32, config: [u64; 3]) -> Self {
        let name = name.into();
        Self { name, kind, config }
    }

    /// An event with another name.
    pub fn called(self, name: &str) -> Self {
        let name = name.into();
        Self { name, ..self }
    }
}
