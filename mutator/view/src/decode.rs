//! Decodes the bytes of a terminal into keys. Understands xterm's control sequences, which tmux,
//! the Linux console and all current terminals share (ctlseqs, "PC-Style Function Keys").

use super::{Key, Mouse};

/// The meaning of the first bytes of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decoded {
    /// A key, and its number of bytes.
    Key(Key, usize),
    /// A mouse event, and its number of bytes.
    Mouse(Mouse, usize),
    /// A number of bytes that stand for no known key.
    Nothing(usize),
    /// An incomplete sequence or character.
    Part,
}

const ESC: u8 = 0x1b;
/// The longest incomplete sequence that is waited for, in bytes.
const LONGEST: usize = 32;

/// Decodes the first key or mouse event in `bytes`. [`Decoded::Part`] if they are empty.
pub(super) fn decode(bytes: &[u8]) -> Decoded {
    match bytes {
        [] | [ESC] => Decoded::Part,
        [ESC, b'[', rest @ ..] => sequence(rest),
        [ESC, b'O'] => Decoded::Part,
        [ESC, b'O', last, ..] => named(letter(*last), 3),
        // Alt and a key.
        [ESC, ESC, ..] => Decoded::Key(Key::Esc, 1),
        [ESC, rest @ ..] => match character(rest) {
            Decoded::Key(_, n) | Decoded::Mouse(_, n) | Decoded::Nothing(n) => {
                Decoded::Nothing(n + 1)
            }
            Decoded::Part => Decoded::Part,
        },
        _ => character(bytes),
    }
}

/// The key that the bytes stand for if no more bytes follow, and its number of bytes. `None` if the
/// bytes stand for no known key.
pub(super) fn decode_last(bytes: &[u8]) -> (Option<Key>, usize) {
    match decode(bytes) {
        Decoded::Key(key, n) => (Some(key), n),
        Decoded::Mouse(_, n) | Decoded::Nothing(n) => (None, n),
        Decoded::Part if bytes.first() == Some(&ESC) && bytes.len() == 1 => (Some(Key::Esc), 1),
        Decoded::Part => (None, bytes.len()),
    }
}

fn named(key: Option<Key>, n: usize) -> Decoded {
    key.map_or(Decoded::Nothing(n), |key| Decoded::Key(key, n))
}

/// Decodes the part of a key sequence after `ESC [`: parameters and intermediate bytes, then a
/// final byte (ECMA-48, 5.4).
fn sequence(rest: &[u8]) -> Decoded {
    let Some(end) = rest.iter().position(|b| !matches!(b, 0x20..=0x3f)) else {
        return if rest.len() < LONGEST {
            Decoded::Part
        } else {
            Decoded::Nothing(rest.len() + 2)
        };
    };
    if let [b'<', report @ ..] = &rest[..end] {
        return match mouse(report, rest[end]) {
            Some(mouse) => Decoded::Mouse(mouse, end + 3),
            None => Decoded::Nothing(end + 3),
        };
    }
    let key = match rest[end] {
        b'~' => match rest[..end].split(|&b| b == b';').next().unwrap_or_default() {
            b"1" | b"7" => Some(Key::Home),
            b"4" | b"8" => Some(Key::End),
            b"3" => Some(Key::Delete),
            b"5" => Some(Key::PageUp),
            b"6" => Some(Key::PageDown),
            _ => None,
        },
        // A mouse report, not Enter on the keypad.
        b'M' if end > 0 => None,
        last => letter(last),
    };
    named(key, end + 3)
}

/// Decodes a mouse report: button, column and line, counted from 1 (ctlseqs, "SGR (1006)"). `None`
/// for other events than a press of the first button and turns of the wheel.
fn mouse(report: &[u8], last: u8) -> Option<Mouse> {
    /// Shift, Alt and Ctrl.
    const MODIFIERS: u16 = 4 | 8 | 16;
    let text = std::str::from_utf8(report).ok()?;
    let mut numbers = text.split(';').map(|number| number.parse::<u16>().ok());
    let (button, column, line) = (numbers.next()??, numbers.next()??, numbers.next()??);
    match (button & !MODIFIERS, last) {
        (0, b'M') => Some(Mouse::Press(column.checked_sub(1)?, line.checked_sub(1)?)),
        (64, b'M') => Some(Mouse::WheelUp),
        (65, b'M') => Some(Mouse::WheelDown),
        _ => None,
    }
}

/// The key of a sequence's final letter. `None` if it is not known.
fn letter(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'F' => Key::End,
        b'H' => Key::Home,
        b'M' => Key::Enter,
        _ => return None,
    })
}

/// Decodes a control character, or a character in UTF-8. `bytes` must not be empty.
fn character(bytes: &[u8]) -> Decoded {
    let key = match bytes[0] {
        b'\r' | b'\n' => Key::Enter,
        0x08 | 0x7f => Key::Backspace,
        b'\t' => return Decoded::Nothing(1),
        c @ 0x01..=0x1a => Key::Ctrl((c - 1 + b'a') as char),
        0x00..=0x1f => return Decoded::Nothing(1),
        _ => {
            let most = &bytes[..bytes.len().min(4)];
            let valid = match std::str::from_utf8(most) {
                Ok(text) => text,
                Err(error) => match (error.valid_up_to(), error.error_len()) {
                    (0, None) => return Decoded::Part,
                    (0, Some(n)) => return Decoded::Nothing(n),
                    (n, _) => std::str::from_utf8(&most[..n]).unwrap_or_default(),
                },
            };
            return match valid.chars().next() {
                Some(c) if !c.is_control() => Decoded::Key(Key::Char(c), c.len_utf8()),
                Some(c) => Decoded::Nothing(c.len_utf8()),
                None => Decoded::Nothing(1),
            };
        }
    };
    Decoded::Key(key, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn all(mut bytes: &[u8]) -> Vec<Key> {
        let mut keys = Vec::new();
        while !bytes.is_empty() {
            let (key, n) = decode_last(bytes);
            keys.extend(key);
            bytes = &bytes[n..];
        }
        keys
    }

    #[test]
    fn keys_are_what_terminals_send_for_them() {
        use Key::*;
        for (bytes, keys) in [
            (&b"qG?"[..], &[Char('q'), Char('G'), Char('?')][..]),
            (b"\x1b[A\x1b[B\x1b[C\x1b[D", &[Up, Down, Right, Left]),
            (b"\x1bOA\x1bOH\x1bOF", &[Up, Home, End]),
            (
                b"\x1b[H\x1b[F\x1b[1~\x1b[4~\x1b[7~\x1b[8~",
                &[Home, End, Home, End, Home, End],
            ),
            (b"\x1b[5~\x1b[6~\x1b[3~", &[PageUp, PageDown, Delete]),
            (b"\x1b[1;5A\x1b[5;2~", &[Up, PageUp]),
            (b"\r\n\x7f\x08", &[Enter, Enter, Backspace, Backspace]),
            (
                b"\x01\x03\x0c\x1a",
                &[Ctrl('a'), Ctrl('c'), Ctrl('l'), Ctrl('z')],
            ),
            ("é名".as_bytes(), &[Char('é'), Char('名')]),
            (b"\x1b", &[Esc]),
            (b"\x1b\x1b[A", &[Esc, Up]),
            // Alt-x, F5, a mouse report, bytes that are no character.
            (b"\x1bx\x1b[15~\x1b[<0;3;4M\xff\x80q", &[Char('q')]),
        ] {
            assert_eq!(all(bytes), keys, "{bytes:?}");
        }
    }

    #[test]
    fn the_mouse_tells_where_it_is() {
        for (bytes, expected) in [
            (&b"\x1b[<0;3;4M"[..], Decoded::Mouse(Mouse::Press(2, 3), 9)),
            (b"\x1b[<4;3;4M", Decoded::Mouse(Mouse::Press(2, 3), 9)),
            (b"\x1b[<64;1;1M", Decoded::Mouse(Mouse::WheelUp, 10)),
            (b"\x1b[<65;1;1M", Decoded::Mouse(Mouse::WheelDown, 10)),
            // A released button, another button, a position outside the screen, not a number.
            (b"\x1b[<0;3;4m", Decoded::Nothing(9)),
            (b"\x1b[<2;3;4M", Decoded::Nothing(9)),
            (b"\x1b[<0;0;4M", Decoded::Nothing(9)),
            (b"\x1b[<0;999999;4M", Decoded::Nothing(14)),
            (b"\x1b[<0;3", Decoded::Part),
        ] {
            assert_eq!(decode(bytes), expected, "{bytes:?}");
        }
    }

    #[test]
    fn a_beginning_waits_for_its_rest() {
        for bytes in [
            &b"\x1b"[..],
            b"\x1b[",
            b"\x1b[1;",
            b"\x1bO",
            b"\xc3",
            b"\xf0\x9f\x98",
        ] {
            assert_eq!(decode(bytes), Decoded::Part, "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn every_input_comes_to_its_end(bytes in any::<Vec<u8>>()) {
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let n = match decode(rest) {
                    Decoded::Key(_, n) | Decoded::Mouse(_, n) | Decoded::Nothing(n) => n,
                    Decoded::Part => decode_last(rest).1,
                };
                prop_assert!(0 < n && n <= rest.len());
                rest = &rest[n..];
            }
        }
    }
}
