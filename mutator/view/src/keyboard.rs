//! Inputs from the terminal and signals, while the view has the terminal.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use nix::poll::PollFlags;
use ratatui::crossterm::clipboard::CopyToClipboard;
use ratatui::crossterm::execute;

use super::decode::{Decoded, decode, decode_last};
use super::editor::Editor;
use super::inputs::{Edited, Input, Inputs};
use super::screen::size;
use super::suspension::stop_job;
use super::terminal::Tty;
use super::{Key, Mouse};
use ipath_target::signals::{Asked, Signals};

/// The time to wait for the rest of an incomplete escape sequence.
const REST: Duration = Duration::from_millis(25);

/// Keys and signals as inputs.
pub(super) struct Keyboard<'s> {
    tty: Tty<'s>,
    bytes: Bytes,
}

impl<'s> Keyboard<'s> {
    pub(super) fn of(tty: Tty<'s>) -> Self {
        Self {
            tty,
            bytes: Bytes::default(),
        }
    }
}

impl Inputs for Keyboard<'_> {
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Input>> {
        let signals = self.tty.signals();
        let until = Instant::now() + timeout;
        loop {
            match signals.next() {
                Some(Asked::End) => return Ok(Some(Input::Stop)),
                Some(Asked::Suspend) => {
                    self.tty.suspend()?;
                    return Ok(Some(Input::Continued));
                }
                Some(Asked::Resize) => {
                    if let Ok(size) = size() {
                        return Ok(Some(Input::Resize(size.width, size.height)));
                    }
                    continue;
                }
                Some(Asked::Child) => return Ok(Some(Input::Child)),
                None => {}
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.bytes.next(self.tty.outlet().file(), signals, left)? {
                Next::Key(key) => return Ok(Some(Input::Key(key))),
                Next::Mouse(mouse) => return Ok(Some(Input::Mouse(mouse))),
                Next::Gone => return Ok(Some(Input::Stop)),
                Next::Nothing if left.is_zero() => return Ok(None),
                Next::Nothing => {}
            }
        }
    }

    fn copy(&mut self, text: &str) -> io::Result<()> {
        execute!(
            self.tty.outlet().clone(),
            CopyToClipboard::to_clipboard_from(text)
        )
    }

    fn edit(
        &mut self,
        file: &str,
        line: u32,
        deadline: Option<Instant>,
        is_over: &mut dyn FnMut() -> bool,
    ) -> io::Result<Edited> {
        let signals = self.tty.signals();
        self.tty.leave();
        let edited = Editor::start(file, line, signals.before()).and_then(|editor| {
            let edited = signals.beside_keys(|| editor.accompany(&self.tty, deadline, is_over));
            if let Ok(Edited::Left) = edited {
                let has_ended = editor.hang_up(signals);
                self.tty.mend(!has_ended);
            }
            edited
        });
        if !matches!(edited, Ok(Edited::Left)) {
            self.tty.enter_again()?;
        }
        edited
    }

    fn suspend(&mut self) {
        stop_job();
    }
}

/// Bytes that have been read but not yet decoded.
#[derive(Default)]
struct Bytes(VecDeque<u8>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    Key(Key),
    Mouse(Mouse),
    /// The terminal is gone.
    Gone,
    /// A signal arrived, or the time is over.
    Nothing,
}

impl Bytes {
    /// Waits for a key, the mouse or a signal, at most for `time`.
    fn next(&mut self, terminal: &File, signals: &Signals, time: Duration) -> io::Result<Next> {
        let mut time = time;
        loop {
            let begun = self.0.make_contiguous();
            match decode(begun) {
                Decoded::Key(key, n) => {
                    self.0.drain(..n);
                    return Ok(Next::Key(key));
                }
                Decoded::Mouse(mouse, n) => {
                    self.0.drain(..n);
                    return Ok(Next::Mouse(mouse));
                }
                Decoded::Nothing(n) => {
                    self.0.drain(..n);
                    // A signal may have arrived, too.
                    if self.0.is_empty() {
                        return Ok(Next::Nothing);
                    }
                    continue;
                }
                Decoded::Part if !begun.is_empty() => time = REST,
                Decoded::Part => {}
            }
            let [ready] = signals.wait([(terminal.as_fd(), PollFlags::POLLIN)], Some(time))?;
            if ready.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
                return Ok(Next::Gone);
            }
            if ready.contains(PollFlags::POLLIN) {
                let mut buffer = [0; 256];
                match (&mut &*terminal).read(&mut buffer) {
                    Ok(0) => return Ok(Next::Gone),
                    Ok(n) => self.0.extend(&buffer[..n]),
                    // Another process that reads from this terminal was faster.
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(Next::Nothing),
                    Err(e) if e.kind() == io::ErrorKind::Interrupted => return Ok(Next::Nothing),
                    Err(_) => return Ok(Next::Gone),
                }
                continue;
            }
            let rest = self.0.make_contiguous();
            if rest.is_empty() {
                return Ok(Next::Nothing);
            }
            let (key, n) = decode_last(rest);
            self.0.drain(..n);
            if let Some(key) = key {
                return Ok(Next::Key(key));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn keys_come_one_by_one_and_a_lone_escape_is_one() {
        let signals = Signals::hold().unwrap();
        let (read, write) = nix::unistd::pipe().unwrap();
        let (terminal, mut bytes) = (File::from(read), Bytes::default());
        nix::unistd::write(&write, b"a\x1b[Bq\x1b").unwrap();
        let mut next = |time| bytes.next(&terminal, &signals, time).unwrap();
        assert_eq!(next(LONG), Next::Key(Key::Char('a')));
        assert_eq!(next(LONG), Next::Key(Key::Down));
        assert_eq!(next(LONG), Next::Key(Key::Char('q')));
        assert_eq!(next(LONG), Next::Key(Key::Esc));
        assert_eq!(next(Duration::ZERO), Next::Nothing);
    }

    #[test]
    fn a_terminal_that_is_gone_ends_the_wait() {
        let signals = Signals::hold().unwrap();
        let pty = nix::pty::openpty(None, None).unwrap();
        nix::unistd::write(&pty.master, b"x\n").unwrap();
        let (terminal, mut bytes) = (File::from(pty.slave), Bytes::default());
        let mut next = || bytes.next(&terminal, &signals, LONG).unwrap();
        assert_eq!(next(), Next::Key(Key::Char('x')));
        assert_eq!(next(), Next::Key(Key::Enter));
        drop(pty.master);
        assert_eq!(next(), Next::Gone);
    }
}
