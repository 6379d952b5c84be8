//! Makes text from elsewhere safe for a terminal. Names come from untrusted files, and a terminal
//! executes the control sequences that it receives.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write;
use std::io;
use std::os::unix::ffi::OsStrExt;

/// `text` on one line. Control characters, and characters that reorder or hide text, are escaped as
/// in Rust: `\x1b`, `\n`, `\u{202e}`.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_active) {
        return Cow::Borrowed(text);
    }
    let mut out = String::new();
    text.chars().for_each(|c| push(&mut out, c));
    Cow::Owned(out)
}

/// A file name or an argument, escaped like [`printable`]. Bytes that are not UTF-8 are shown as
/// `\xff`.
pub fn printable_os(text: impl AsRef<OsStr>) -> String {
    let mut out = String::new();
    for chunk in text.as_ref().as_bytes().utf8_chunks() {
        chunk.valid().chars().for_each(|c| push(&mut out, c));
        for byte in chunk.invalid() {
            // Writing to a string does not fail.
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

/// Text for a terminal. Whatever is written to it, its output consists of line ends and plain
/// characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page(String);

impl Page {
    /// The text, escaped except for its line ends. Names in it should be passed through
    /// [`printable`] first, so that they cannot end a line either.
    pub fn of(text: &str) -> Self {
        let mut page = Self::default();
        page.push(text);
        page
    }

    /// True if nothing was written.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text to send to a terminal.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn push(&mut self, text: &str) {
        for c in text.chars() {
            match c {
                '\n' => self.0.push(c),
                c => push(&mut self.0, c),
            }
        }
    }
}

impl Write for Page {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.push(text);
        Ok(())
    }
}

/// Passes text on, escaped like [`Page::of`], without holding all of it. Each piece must consist of
/// whole characters, as the pieces of `write!` do.
#[derive(Debug)]
pub struct Pages<W>(pub W);

impl<W: io::Write> io::Write for Pages<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(piece);
        let is_harmless = |c| c == '\n' || !is_active(c);
        if text.chars().all(is_harmless) {
            self.0.write_all(text.as_bytes())?
        } else {
            self.0.write_all(Page::of(&text).as_str().as_bytes())?
        }
        Ok(piece.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// True for a character that controls a terminal or changes how the text around it reads: control
/// characters, line and paragraph separators, directional and invisible formatting (Unicode TR36
/// and TR39), tags.
pub fn is_active(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}'
            | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// Appends `c`, escaped if it is active.
fn push(out: &mut String, c: char) {
    // Writing to a string does not fail.
    let _ = match c {
        c if !is_active(c) => {
            out.push(c);
            Ok(())
        }
        '\n' | '\t' | '\r' => write!(out, "{}", c.escape_default()),
        c if u32::from(c) < 0x80 => write!(out, "\\x{:02x}", u32::from(c)),
        c => write!(out, "{}", c.escape_unicode()),
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped() {
        assert!(matches!(
            printable("ok\u{e9} 名前 \u{1f600}"),
            Cow::Borrowed(_)
        ));
        assert_eq!(printable("a\x1b[2Jb\nc"), "a\\x1b[2Jb\\nc");
        assert_eq!(printable("\x7f\u{9b}31m\r\t"), "\\x7f\\u{9b}31m\\r\\t");
        assert_eq!(printable("if\u{202e}fi\u{2066}"), "if\\u{202e}fi\\u{2066}");
        assert_eq!(
            printable_os(OsStr::from_bytes(b"a\xff\x1b\xc3")),
            "a\\xff\\x1b\\xc3"
        );
    }

    #[test]
    fn a_page_has_lines_and_nothing_else() {
        let mut page = Page::of("one\n\x1b[31mtwo\n");
        writeln!(page, "thr\u{202e}ee").unwrap();
        assert_eq!(page.as_str(), "one\n\\x1b[31mtwo\nthr\\u{202e}ee\n");
    }

    proptest! {
        #[test]
        fn nothing_active_comes_through(text in any::<String>(), bytes in any::<Vec<u8>>()) {
            prop_assert!(!printable(&text).contains(is_active));
            prop_assert!(!printable_os(OsStr::from_bytes(&bytes)).contains(is_active));
            let page = Page::of(&text);
            prop_assert!(!page.as_str().replace('\n', "").contains(is_active));
            let mut written = Vec::new();
            io::Write::write_all(&mut Pages(&mut written), text.as_bytes()).unwrap();
            prop_assert_eq!(written, page.as_str().as_bytes());
        }

        #[test]
        fn what_is_harmless_stays(text in "[a-zA-Z0-9_:<>*&, é名]*") {
            prop_assert_eq!(printable(&text).into_owned(), text.clone());
            prop_assert_eq!(printable_os(&text), text);
        }
    }
}
