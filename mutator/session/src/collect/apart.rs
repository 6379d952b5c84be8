//! What keeps paths with the same call sites apart, in the terms of profiles.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering::{Acquire, Relaxed};

use abi::apart::Part;
use abi::segment::{FURTHER, MARKED};

use crate::segment::{Document, Segment};
use ipath_profile::{Apart, ByValue, Phase, clock};

/// The meaning of the parts of a path, the innermost first.
pub(super) fn apart(parts: &[Part]) -> Apart {
    let mut apart = Apart::default();
    let mut parts = parts.iter();
    while let Some(&part) = parts.next() {
        match part {
            Part::Phase(index) => apart.phase = Some(index as usize),
            Part::Long => apart.slower = true,
            Part::Number(number) => apart.by = Some(ByValue::Number(number)),
            Part::Lower(low) => {
                let high = match parts.next() {
                    Some(&Part::Upper(high)) => high,
                    _ => 0,
                };
                let number = u64::from(high) << u32::BITS | u64::from(low);
                apart.by = Some(ByValue::Number(number as i64));
            }
            Part::Text(_) | Part::TextEnd(_) | Part::TextCut(_) => {
                apart.by = Some(text(part, &mut parts));
            }
            Part::Others => apart.by = Some(ByValue::OTHERS),
            Part::Unread => apart.by = Some(ByValue::UNREAD),
            Part::Upper(_) => {}
        }
    }
    apart
}

/// The text that begins with the part `first`.
fn text<'p>(first: Part, rest: &mut impl Iterator<Item = &'p Part>) -> ByValue {
    let mut bytes = Vec::new();
    let mut part = Some(first);
    let is_cut = loop {
        match part {
            Some(Part::Text(piece)) => bytes.extend(piece),
            Some(Part::TextEnd(piece)) => {
                bytes.extend(piece.iter().take_while(|&&byte| byte != 0));
                break false;
            }
            Some(Part::TextCut(piece)) => {
                bytes.extend(piece);
                break true;
            }
            _ => break true,
        }
        part = rest.next().copied();
    };
    let text = readable(&bytes);
    if is_cut {
        ByValue::Cut { cut: text }
    } else {
        ByValue::Text(text)
    }
}

/// Bytes as text. Those that are not UTF-8 are escaped, and so are backslashes, so that different
/// bytes stay different.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// The phases of a session, by index. Empty if paths are not kept apart by phase.
pub(super) fn phases(segment: &Segment, document: &Document) -> Vec<Phase> {
    if !document.keeps_phases() {
        return Vec::new();
    }
    let header = segment.header();
    let ns = |tsc: u64| clock::ns_since_start(header, tsc);
    let first = if document.phases.is_empty() {
        "start"
    } else {
        "outside"
    };
    let end = document
        .phases
        .is_empty()
        .then(|| first_mark(segment, document));
    let mut phases = vec![Phase {
        name: first.to_owned(),
        start_ns: 0,
        end_ns: end.flatten().map(ns),
    }];
    let mut numbers: BTreeMap<u32, u64> = BTreeMap::new();
    for index in 1..segment.phases() {
        let Some(entry) = segment.phase(index) else {
            break;
        };
        let (begun, ended) = (entry.begun.load(Acquire), entry.ended.load(Relaxed));
        let name = match entry.function.load(Relaxed) {
            MARKED => document.marks.get(&index).cloned().unwrap_or_default(),
            id => {
                let number = numbers.entry(id).or_default();
                *number += 1;
                let function = document.functions.get(id as usize);
                let name = function.map_or("function", |function| &function.name);
                format!("{name}#{number}")
            }
        };
        phases.push(Phase {
            name,
            start_ns: ns(begun),
            end_ns: (ended != 0).then(|| ns(ended)),
        });
    }
    let further = header.phases_further.load(Relaxed);
    if further > 0 && phases.len() == FURTHER as usize {
        let start_ns = phases.last().map_or(0, |last| last.start_ns);
        phases.push(Phase {
            name: format!("{further} further"),
            start_ns,
            end_ns: None,
        });
    }
    phases
}

/// The time of the first mark, by the time-stamp counter.
fn first_mark(segment: &Segment, document: &Document) -> Option<u64> {
    let first = document.marks.keys().next()?;
    let entry = segment.phase(*first)?;
    Some(entry.begun.load(Acquire))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(parts: &[Part]) -> Option<ByValue> {
        apart(parts).by
    }

    #[test]
    fn parts_are_joined() {
        let both = [Part::Lower(7), Part::Upper(u32::MAX), Part::Phase(3)];
        let joined = apart(&both);
        let number = (u64::from(u32::MAX) << 32 | 7) as i64;
        assert_eq!(joined.by, Some(ByValue::Number(number)));
        assert_eq!((joined.phase, joined.slower), (Some(3), false));
        assert!(apart(&[Part::Long, Part::Number(3)]).slower);
        assert_eq!(apart(&[]), Apart::default());
    }

    #[test]
    fn texts_are_joined() {
        let whole = [Part::Text(*b"abcdef"), Part::TextEnd(*b"gh\0\0\0\0")];
        let text = |text: &str| Some(ByValue::Text(text.to_owned()));
        assert_eq!(by(&whole), text("abcdefgh"));
        let cut = Some(ByValue::Cut {
            cut: "abcdefghijkl".to_owned(),
        });
        assert_eq!(by(&[whole[0], Part::TextCut(*b"ghijkl")]), cut);
        assert_eq!(by(&[Part::TextEnd([0; 6])]), text(""));
        assert_eq!(by(&[Part::TextEnd(*b"a\xff\\\0\0\0")]), text("a\\xff\\\\"));
        assert_eq!(by(&[Part::Others]), Some(ByValue::OTHERS));
        assert_eq!(by(&[Part::Unread]), Some(ByValue::UNREAD));
    }
}
