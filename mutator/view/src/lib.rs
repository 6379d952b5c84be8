//! The live view: the measurements of a session in a terminal while the program runs.
//!
//! [`State`] decides everything and knows no terminal; `draw` reads it; [`View`] joins both to a
//! terminal and to a [`Source`].

mod around;
mod callees;
mod change;
mod choice;
mod column;
mod columns;
mod decode;
mod draw;
mod editor;
mod fuzzy;
mod inputs;
mod inside;
mod key;
mod keyboard;
mod layout;
mod line;
mod names;
pub mod outlet;
mod screen;
mod source;
mod state;
mod suspension;
mod terminal;
#[cfg(test)]
mod tests;
mod tree;
mod watch;

pub use callees::Callees;
pub use choice::{Choices, Choosable, Chosen, Finder};
pub use key::Key;
pub use names::Names;
pub use source::{Sample, Source};
pub use state::{Action, Event, Mouse, State};

use crate::outlet::Outlet;
use ipath_base::error::io_text;
use ipath_target::signals::Signals;
use ratatui::Terminal;
use screen::Screen;

/// The columns and lines of the terminal. A default if the terminal reports none.
pub fn size() -> (u16, u16) {
    let size = screen::size().unwrap_or(screen::USUAL);
    (size.width, size.height)
}
use std::fmt;
use std::io::{self, BufWriter};
use std::time::{Duration, Instant};

/// The size of the buffer for a screen, in bytes.
const A_PICTURE: usize = 64 << 10;

/// The view cannot be shown.
#[derive(Debug)]
pub enum ViewError {
    /// The terminal cannot be used.
    Terminal(io::Error),
}

impl fmt::Display for ViewError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Terminal(cause) => write!(f, "the terminal cannot be used: {}", io_text(cause)),
        }
    }
}

impl std::error::Error for ViewError {}

impl From<io::Error> for ViewError {
    fn from(cause: io::Error) -> Self {
        Self::Terminal(cause)
    }
}

/// The live view in the controlling terminal. Dropping it restores the terminal.
pub struct View<'s> {
    tty: terminal::Tty<'s>,
    terminal: Terminal<Screen<BufWriter<Outlet<'s>>>>,
}

impl<'s> View<'s> {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// This process has no controlling terminal, or the terminal cannot be used.
    pub fn open(signals: &'s Signals) -> Result<Self, ViewError> {
        let tty = terminal::Tty::enter(signals)?;
        // A screen is written in many short pieces.
        let outlet = BufWriter::with_capacity(A_PICTURE, tty.outlet().clone());
        let terminal = Terminal::new(Screen::new(outlet))?;
        Ok(Self { tty, terminal })
    }

    /// Shows `source`, with a new sample every `interval`. Returns when the user quits, `deadline`
    /// passes, the source or the terminal ends, or a signal asks this process to end.
    ///
    /// # Errors
    /// The terminal exists but cannot be used.
    pub fn watch(
        &mut self,
        source: &mut dyn Source,
        interval: Duration,
        deadline: Option<Instant>,
    ) -> Result<(), ViewError> {
        self.tty.outlet().end_at(deadline);
        let mut keyboard = keyboard::Keyboard::of(self.tty.clone());
        let shown = watch::watch(
            &mut self.terminal,
            &mut keyboard,
            source,
            interval,
            deadline,
        );
        match shown {
            // The terminal is gone.
            Err(_) if self.tty.outlet().is_shut() => Ok(()),
            shown => Ok(shown?),
        }
    }
}

impl View<'_> {
    /// Lets the user choose functions to measure. If the terminal is gone, nothing is chosen.
    ///
    /// # Errors
    /// The terminal exists but cannot be used.
    pub fn choose(&mut self, finder: &mut dyn Finder) -> Result<Chosen, ViewError> {
        let mut keyboard = keyboard::Keyboard::of(self.tty.clone());
        match choice::choose(&mut self.terminal, &mut keyboard, finder, false, None) {
            Err(_) if self.tty.outlet().is_shut() => Ok(Chosen::Nothing),
            chosen => Ok(chosen?),
        }
    }

    /// True if the terminal is gone or no longer shows output.
    pub fn is_deserted(&self) -> bool {
        let outlet = self.tty.outlet();
        outlet.is_shut() || outlet.is_deserted().unwrap_or(true)
    }
}

impl Drop for View<'_> {
    fn drop(&mut self) {
        self.tty.leave();
        // If the cursor cannot be restored, ratatui's terminal would report it on standard error,
        // and panic if that is gone too.
        self.tty.outlet().shut();
    }
}
