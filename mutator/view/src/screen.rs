//! A terminal's screen. It has a size even if the terminal reports none.

use std::io::{self, Write};

use ratatui::backend::{Backend, ClearType, CrosstermBackend, WindowSize};
use ratatui::buffer::Cell;
use ratatui::crossterm::terminal;
use ratatui::layout::{Position, Size};

/// The size assumed for a terminal that reports none, such as a serial line or a pseudoterminal
/// created by a program.
pub(super) const USUAL: Size = Size {
    width: 80,
    height: 24,
};

/// The size of the controlling terminal, or [`USUAL`] if it reports none.
pub(super) fn size() -> io::Result<Size> {
    let (width, height) = terminal::size()?;
    Ok(if width == 0 || height == 0 {
        USUAL
    } else {
        Size { width, height }
    })
}

/// ratatui's backend with this size.
pub(super) struct Screen<W: Write>(CrosstermBackend<W>);

impl<W: Write> Screen<W> {
    /// Creates a screen that writes to `out`.
    pub(super) const fn new(out: W) -> Self {
        Self(CrosstermBackend::new(out))
    }
}

impl<W: Write> Backend for Screen<W> {
    type Error = io::Error;

    fn draw<'a, I>(&mut self, content: I) -> io::Result<()>
    where
        I: Iterator<Item = (u16, u16, &'a Cell)>,
    {
        self.0.draw(content)
    }

    fn hide_cursor(&mut self) -> io::Result<()> {
        self.0.hide_cursor()
    }

    fn show_cursor(&mut self) -> io::Result<()> {
        self.0.show_cursor()
    }

    fn get_cursor_position(&mut self) -> io::Result<Position> {
        self.0.get_cursor_position()
    }

    fn set_cursor_position<P: Into<Position>>(&mut self, position: P) -> io::Result<()> {
        self.0.set_cursor_position(position)
    }

    fn clear(&mut self) -> io::Result<()> {
        self.0.clear()
    }

    fn clear_region(&mut self, what: ClearType) -> io::Result<()> {
        self.0.clear_region(what)
    }

    fn size(&self) -> io::Result<Size> {
        size()
    }

    fn window_size(&mut self) -> io::Result<WindowSize> {
        let columns_rows = size()?;
        Ok(WindowSize {
            columns_rows,
            ..self.0.window_size()?
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Backend::flush(&mut self.0)
    }
}
