//! Events as the kernel describes them in /sys/bus/event_source/devices (Documentation/ABI/testing/
//! sysfs-bus-event_source-devices-format and -events). The description consists of terms, such as
//! `event=0x3c,umask=0x1`, and of the place of each term in the configuration.

use std::fs;
use std::path::Path;

use super::reason::NoEvent;

/// The folder with the sources of events.
pub(super) struct Devices<'p>(pub(super) &'p Path);

/// A type and a configuration.
type Config = (u32, [u64; 3]);

/// The names of the processor's own source, with one kind of core and with several.
const PROCESSORS: [&str; 2] = ["cpu", "cpu_core"];
/// Terms that stand for a whole word of the configuration.
const WORDS: [&str; 3] = ["config", "config1", "config2"];

/// Splits `cpu/event=0x3c/` into a device and terms. `None` for a text of another form.
pub(super) fn split(name: &str) -> Option<(&str, &str)> {
    let (device, rest) = name.split_once('/')?;
    Some((device, rest.strip_suffix('/')?)).filter(|(_, terms)| !terms.contains('/'))
}

/// True if `text` can only be the name of a file in a folder.
fn is_name(text: &str) -> bool {
    let is_part = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    !text.is_empty() && !text.starts_with('.') && text.bytes().all(is_part)
}

fn wrong(term: &str, wrong: &'static str) -> NoEvent {
    NoEvent::Term {
        term: term.to_owned(),
        wrong,
    }
}

impl Devices<'_> {
    /// The trimmed contents of a file that describes the device. `None` if it cannot be read.
    fn read(&self, device: &str, file: &str) -> Option<String> {
        let text = fs::read_to_string(self.0.join(device).join(file)).ok()?;
        Some(text.trim().to_owned())
    }

    /// The event of the processor with this name; `None` if there is none. An error if the terms of
    /// the event cannot be used.
    pub(super) fn of_processor(&self, name: &str) -> Option<Result<Config, NoEvent>> {
        let has = |device: &&str| is_name(name) && self.alias(device, name).is_some();
        let device = PROCESSORS.into_iter().find(has)?;
        Some(self.event(device, name))
    }

    /// The terms that the name of an event stands for. `None` if the device has no such event.
    fn alias(&self, device: &str, name: &str) -> Option<String> {
        self.read(device, &format!("events/{name}"))
    }

    /// The event of a device that these terms describe.
    ///
    /// # Errors
    /// There is no such device, or a term is not valid.
    pub(super) fn event(&self, device: &str, terms: &str) -> Result<Config, NoEvent> {
        let kind = is_name(device).then(|| self.read(device, "type")).flatten();
        let kind = kind.and_then(|text| text.parse().ok());
        let kind =
            kind.ok_or_else(|| wrong(device, "is not a device with counters on this machine"))?;
        let mut config = [0; 3];
        self.add(device, terms, true, &mut config)?;
        Ok((kind, config))
    }

    /// Adds these terms to a configuration. With `has_names`, terms may also be names of events.
    fn add(
        &self,
        device: &str,
        terms: &str,
        has_names: bool,
        config: &mut [u64; 3],
    ) -> Result<(), NoEvent> {
        for term in terms.split(',').map(str::trim) {
            let (key, value) = term.split_once('=').unwrap_or((term, ""));
            if !is_name(key) {
                return Err(wrong(term, "is not a term of an event"));
            }
            let number = match value {
                // As in perf.
                "" if term == key => Some(1),
                value => number(value),
            };
            let number = number.ok_or_else(|| wrong(term, "has no number"))?;
            if let Some(word) = WORDS.iter().position(|&word| word == key) {
                config[word] = number;
                continue;
            }
            let place = self.read(device, &format!("format/{key}"));
            if let Some((word, bits)) = place.as_deref().and_then(place_of) {
                let placed = deposit(number, &bits);
                config[word] |= placed.ok_or_else(|| wrong(term, "has too large a number"))?;
                continue;
            }
            match self.alias(device, key).filter(|_| has_names && term == key) {
                Some(terms) => self.add(device, &terms, false, config)?,
                None => return Err(wrong(term, "is neither an event nor a term of the device")),
            }
        }
        Ok(())
    }
}

/// Parses a number, which is hexadecimal after `0x`. `None` if `text` is not a number.
fn number(text: &str) -> Option<u64> {
    let (digits, radix) = match text.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None => (text, 10),
    };
    let is_number = digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, radix)
        .ok()
        .filter(|_| is_number)
}

/// Parses `config:0-7,32-35`: the index of the word, and the places of the number's bits from the
/// lowest on. `None` for a text of another form, or a bit above 63.
fn place_of(text: &str) -> Option<(usize, Vec<u32>)> {
    let (word, ranges) = text.split_once(':')?;
    let word = WORDS.iter().position(|&known| known == word)?;
    let mut bits = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= u64::BITS {
            return None;
        }
        bits.extend(first..=last);
    }
    Some((word, bits))
}

/// Puts the bits of a number into these places; `None` if there are too few.
fn deposit(number: u64, bits: &[u32]) -> Option<u64> {
    let has_room = bits.len() >= 64 || number >> bits.len() == 0;
    let placed = bits.iter().zip(0..u64::BITS);
    let placed = placed.map(|(&to, from)| (number >> from & 1) << to);
    has_room.then(|| placed.fold(0, |all, bit| all | bit))
}
