//! What a counter counts.

/// An event that a counter can count, as perf_event_open(2) has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// As in the profile.
    pub name: &'static str,
    /// Type.
    pub kind: u32,
    /// config, config1 and config2.
    pub config: [u64; 3],
}

impl Event {
    /// One of this name.
    pub fn new(name: &str, kind: u32, config: [u64; 3]) -> Self {
        // There are as many as a command line names, for as long as the command runs.
        let name = name.to_owned().leak();
        Self { name, kind, config }
    }

    /// The same event by another name.
    pub fn called(self, name: &'static str) -> Self {
        Self { name, ..self }
    }
}
