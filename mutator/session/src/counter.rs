//! Hardware counters: their names, and which of them are available.

mod attempt;
mod event;
mod names;
mod reason;
mod terms;

use std::path::Path;

pub use attempt::attempt;
pub use event::Event;
pub use reason::{NoEvent, NotHere};

use terms::Devices;

/// The folder in which the kernel describes the sources of events.
const DEVICES: &str = "/sys/bus/event_source/devices";

impl Event {
    /// The event with a name that perf uses: one for all processors, `rNNNN`, one of this
    /// processor, or `cpu/event=0x3c,.../`. The event may not be countable here.
    ///
    /// # Errors
    /// The name is not that of an event that a program's threads can count.
    pub fn named(name: &str) -> Result<Self, NoEvent> {
        Self::described(name, &Devices(Path::new(DEVICES)))
    }

    fn described(name: &str, devices: &Devices<'_>) -> Result<Self, NoEvent> {
        let of = |(kind, config): (u32, [u64; 3])| Self::new(name, kind, config);
        if let Some((kind, config)) = names::hardware(name)
            .or_else(|| names::cache(name))
            .or_else(|| names::raw(name))
        {
            return Ok(of((kind, [config, 0, 0])));
        }
        if let Some(found) = devices.of_processor(name) {
            return found.map(of);
        }
        if let Some((device, terms)) = terms::split(name) {
            return devices.event(device, terms).map(of);
        }
        match name.rsplit_once(':') {
            Some((name, "u")) => Self::described(name, devices),
            Some((name, modifier)) if Self::described(name, devices).is_ok() => {
                Err(NoEvent::Modifier(modifier.to_owned()))
            }
            // Tracepoints.
            Some(_) => Err(NoEvent::OfKernel),
            None if names::is_of_kernel(name) => Err(NoEvent::OfKernel),
            None => Err(NoEvent::Unknown),
        }
    }

    /// Returns the event if it can be counted here, or else the reason why not.
    pub fn check(self) -> Result<Self, NoEvent> {
        match attempt(&self) {
            Ok(()) => Ok(self),
            Err(not) => Err(NoEvent::NotHere(not)),
        }
    }
}

/// Names of events for all processors.
pub fn general() -> impl Iterator<Item = &'static str> {
    names::GENERAL.into_iter()
}

/// Names from [`general`] of events that can be counted here.
pub fn here() -> impl Iterator<Item = &'static str> {
    general().filter(|name| Event::named(name).is_ok_and(|event| attempt(&event).is_ok()))
}

#[cfg(test)]
mod tests;
