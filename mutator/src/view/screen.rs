//! The terminal itself: taking it over, giving it back in every case, and what comes from it.

use super::Key;
use super::watch::{Input, Inputs};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{cursor, execute};
use std::fs::File;
use std::io::{self, IsTerminal, Stdout, stdin, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{self, PanicHookInfo};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

type PanicHook = Arc<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// The terminal while the view has it.
pub(super) struct Screen {
    pub(super) terminal: Terminal<CrosstermBackend<Stdout>>,
    previous_hook: PanicHook,
    is_restored: Arc<AtomicBool>,
}

impl Screen {
    /// Switches to the alternate screen and to keys without echo.
    pub(super) fn enter() -> io::Result<Self> {
        enable_raw_mode()?;
        let is_restored = Arc::new(AtomicBool::new(false));
        let entered = execute!(stdout(), EnterAlternateScreen, cursor::Hide)
            .and_then(|()| Terminal::new(CrosstermBackend::new(stdout())));
        let terminal = entered.inspect_err(|_| restore(&is_restored))?;
        // A panic's message would go to the alternate screen and vanish with it.
        let previous_hook: PanicHook = panic::take_hook().into();
        let (previous, once) = (Arc::clone(&previous_hook), Arc::clone(&is_restored));
        panic::set_hook(Box::new(move |info| {
            restore(&once);
            previous(info);
        }));
        Ok(Self {
            terminal,
            previous_hook,
            is_restored,
        })
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        restore(&self.is_restored);
        // A panicking thread may not touch the hook.
        if !std::thread::panicking() {
            let previous = Arc::clone(&self.previous_hook);
            panic::set_hook(Box::new(move |info| previous(info)));
        }
    }
}

/// Gives the terminal back, once: a second time would put the cursor back onto what has been
/// printed since. Errors have nowhere to go, and a terminal that is gone needs nothing.
fn restore(is_restored: &AtomicBool) {
    if is_restored.swap(true, Ordering::Relaxed) {
        return;
    }
    let _ = execute!(stdout(), LeaveAlternateScreen, cursor::Show);
    let _ = disable_raw_mode();
}

/// Keys, and the signals that end the view: these are taken from a descriptor, instead of killing
/// the process while the terminal is in its power.
pub(super) struct Keyboard {
    signals: SignalFd,
    mask_before: SigSet,
    /// Where the keys come from; crossterm reads them, this is for seeing a hang-up.
    terminal: OwnedFd,
}

/// How long a change of the terminal's size may go unnoticed while nothing else happens.
const NOTICE: Duration = Duration::from_millis(100);

/// How long to wait for the rest of an escape sequence that has come in part.
const REST: Duration = Duration::from_millis(10);

impl Keyboard {
    /// Finds the terminal and holds the signals back from now on.
    pub(super) fn open() -> io::Result<Self> {
        let terminal = if stdin().is_terminal() {
            nix::unistd::dup(stdin())?
        } else {
            File::open("/dev/tty")?.into()
        };
        let signals: SigSet = [
            Signal::SIGINT,
            Signal::SIGTERM,
            Signal::SIGHUP,
            Signal::SIGQUIT,
        ]
        .into_iter()
        .collect();
        let flags = SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC;
        let descriptor = SignalFd::with_flags(&signals, flags)?;
        let mask_before = signals.thread_swap_mask(SigmaskHow::SIG_BLOCK)?;
        Ok(Self {
            signals: descriptor,
            mask_before,
            terminal,
        })
    }

    /// Waits for a key or a signal; says whether there may be a key, or that it is over.
    fn wait(&self, time: Duration) -> io::Result<Wake> {
        let mut ready = [
            PollFd::new(self.signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.terminal.as_fd(), PollFlags::POLLIN),
        ];
        // Rounded up: a wait of nothing just before the time is over would spin.
        let time =
            PollTimeout::try_from(time + Duration::from_micros(999)).unwrap_or(PollTimeout::MAX);
        match poll(&mut ready, time) {
            Ok(_) => {}
            // SIGWINCH, which is crossterm's.
            Err(Errno::EINTR) => return Ok(Wake::Other),
            Err(errno) => return Err(errno.into()),
        }
        let [signal, key] = ready.map(|fd| fd.revents().unwrap_or(PollFlags::empty()));
        if !signal.is_empty() {
            return Ok(Wake::Stop);
        }
        // A terminal that is gone reads as empty for ever, which crossterm 0.29 does not survive:
        // it tries again and again and never returns.
        if key.intersects(PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL) {
            return Ok(Wake::Stop);
        }
        Ok(if key.is_empty() {
            Wake::Other
        } else {
            Wake::Key
        })
    }
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wake {
    Stop,
    Key,
    Other,
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        // What has come is what ended the view: it must not kill the process behind it.
        while let Ok(Some(_)) = self.signals.read_signal() {}
        // Setting a mask that was set before cannot fail.
        let _ = self.mask_before.thread_set_mask();
    }
}

impl Inputs for Keyboard {
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Input>> {
        let until = Instant::now() + timeout;
        let mut wake = self.wait(Duration::ZERO)?;
        loop {
            if wake == Wake::Stop {
                return Ok(Some(Input::Stop));
            }
            if event::poll(Duration::ZERO)? {
                match event::read()? {
                    Event::Key(key) => {
                        if let Some(key) = translate(key) {
                            return Ok(Some(Input::Key(key)));
                        }
                    }
                    Event::Resize(width, height) => return Ok(Some(Input::Resize(width, height))),
                    _ => {}
                }
                wake = self.wait(Duration::ZERO)?;
                continue;
            }
            if wake == Wake::Key {
                std::thread::sleep(REST);
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            wake = self.wait(left.min(NOTICE))?;
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

    /// A keyboard at the other end of a new pseudo-terminal.
    fn keyboard() -> (nix::pty::OpenptyResult, Keyboard) {
        let pty = nix::pty::openpty(None, None).unwrap();
        let signals: SigSet = [Signal::SIGTERM].into_iter().collect();
        let keyboard = Keyboard {
            signals: SignalFd::with_flags(&signals, SfdFlags::SFD_NONBLOCK).unwrap(),
            mask_before: signals.thread_swap_mask(SigmaskHow::SIG_BLOCK).unwrap(),
            terminal: pty.slave.try_clone().unwrap(),
        };
        (pty, keyboard)
    }

    #[test]
    fn a_signal_ends_the_wait_and_neither_it_nor_the_mask_is_left_behind() {
        let before = SigSet::thread_get_mask().unwrap();
        let (_pty, keyboard) = keyboard();
        assert_eq!(keyboard.wait(Duration::ZERO).unwrap(), Wake::Other);
        // SAFETY: sends a signal that this thread blocks to this thread.
        unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGTERM) };
        assert_eq!(keyboard.wait(Duration::from_secs(60)).unwrap(), Wake::Stop);
        // Had the signal been left pending, this would end the test's process.
        drop(keyboard);
        assert_eq!(SigSet::thread_get_mask().unwrap(), before);
    }

    #[test]
    fn a_terminal_that_is_gone_ends_the_wait() {
        let (pty, keyboard) = keyboard();
        nix::unistd::write(&pty.master, b"x\n").unwrap();
        assert_eq!(keyboard.wait(Duration::from_secs(60)).unwrap(), Wake::Key);
        drop(pty.master);
        assert_eq!(keyboard.wait(Duration::from_secs(60)).unwrap(), Wake::Stop);
    }
}
