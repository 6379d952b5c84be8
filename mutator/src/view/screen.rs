//! The terminal itself: taking it over, giving it back in every case, and what comes from it.

use super::Key;
use super::watch::{Input, Inputs};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use std::io::{self, Stdout, stdout};
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::time::{Duration, Instant};

type PanicHook = Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The terminal while the view has it.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    previous_hook: PanicHook,
}

impl Screen {
    /// Switches to the alternate screen and to keys without echo.
    pub(super) fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let entered = execute!(stdout(), EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        let terminal = entered.inspect_err(|_| restore())?;
        // A panic's message would go to the alternate screen and vanish with it.
        let previous_hook: PanicHook = panic::take_hook().into();
        let previous = Arc::clone(&previous_hook);
        panic::set_hook(Box::new(move |info| {
            restore();
            previous(info);
        }));
        Ok(Self {
            terminal,
            previous_hook,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore();
        // A panicking thread may not touch the hook.
        if !std::thread::panicking() {
            let previous = Arc::clone(&self.previous_hook);
            panic::set_hook(Box::new(move |info| previous(info)));
        }
    }
}

/// Gives the terminal back. Errors have nowhere to go: a terminal that is gone needs nothing.
fn restore() {
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// The signals that end the view, taken from a descriptor instead of killing the process while
/// the terminal is in its power.
pub(super) struct Signals {
    descriptor: SignalFd,
    mask_before: SigSet,
}

/// How long a signal may go unnoticed while no key is pressed.
const NOTICE: Duration = Duration::from_millis(100);

impl Signals {
    /// Holds the signals back from now on.
    pub(super) fn hold() -> io::Result<Self> {
        let signals: SigSet = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
        ]
        .into_iter()
        .collect();
        let mask_before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let descriptor = SignalFd::with_flags(&signals, flags).inspect_err(|_| {
            // The error is what is reported; setting a mask that was set before cannot fail.
            let _ = mask_before.thread_set_mask();
        })?;
        Ok(Self {
            descriptor,
            mask_before,
        })
    }

    fn has_come(&self) -> io::Result<bool> {
        Ok(self.descriptor.read_signal()?.is_some())
    }
}

impl Drop for Signals {
    fn drop(&mut self) {
        // Setting a mask that was set before cannot fail.
        let _ = self.mask_before.thread_set_mask();
    }
}

impl Inputs for Signals {
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Input>> {
        let until = Instant::now() + timeout;
        loop {
            if self.has_come()? {
                return Ok(Some(Input::Stop));
            }
            let left = until.saturating_duration_since(Instant::now());
            if event::poll(left.min(NOTICE))? {
                match event::read()? {
                    Event::Key(key) => match translate(key) {
                        Some(key) => return Ok(Some(Input::Key(key))),
                        None => continue,
                    },
                    Event::Resize(width, height) => return Ok(Some(Input::Resize(width, height))),
                    _ => continue,
                }
            }
            if left.is_zero() {
                return Ok(None);
            }
        }
    }
}

fn translate(event: KeyEvent) -> Option<Key> {
    if event.kind == KeyEventKind::Release {
        return None;
    }
    Some(match event.code {
        KeyCode::Char(c) if event.modifiers.contains(KeyModifiers::CONTROL) => {
            Key::Ctrl(c.to_ascii_lowercase())
        }
        KeyCode::Char(_) if event.modifiers.contains(KeyModifiers::ALT) => return None,
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::Left => Key::Left,
        KeyCode::Right => Key::Right,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        KeyCode::Home => Key::Home,
        KeyCode::End => Key::End,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Esc,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Delete => Key::Delete,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_translated_and_releases_are_not() {
        let key = |code, modifiers| translate(KeyEvent::new(code, modifiers));
        assert_eq!(
            key(KeyCode::Char('G'), KeyModifiers::SHIFT),
            Some(Key::Char('G'))
        );
        assert_eq!(
            key(KeyCode::Char('C'), KeyModifiers::CONTROL),
            Some(Key::Ctrl('c'))
        );
        assert_eq!(key(KeyCode::Char('x'), KeyModifiers::ALT), None);
        assert_eq!(
            key(KeyCode::PageDown, KeyModifiers::NONE),
            Some(Key::PageDown)
        );
        assert_eq!(key(KeyCode::F(5), KeyModifiers::NONE), None);
        let mut release = KeyEvent::new(KeyCode::Enter, KeyModifiers::NONE);
        release.kind = KeyEventKind::Release;
        assert_eq!(translate(release), None);
    }

    #[test]
    fn a_signal_to_this_thread_stops_the_view_and_the_mask_comes_back() {
        let before = SigSet::thread_get_mask().unwrap();
        let signals = Signals::hold().unwrap();
        assert!(!signals.has_come().unwrap());
        // SAFETY: sends a signal that this thread blocks to this thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        assert!(signals.has_come().unwrap());
        assert!(!signals.has_come().unwrap());
        drop(signals);
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }
}
