//! The inputs from the terminal, and the requests to it.

use super::{Key, Mouse};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType};
use std::io;
use std::time::{Duration, Instant};

/// An input.
pub(super) enum Input {
    Key(Key),
    Mouse(Mouse),
    /// The terminal has this new size, in columns and lines.
    Resize(u16, u16),
    /// This process was stopped and continued. Others may have written to the terminal in between.
    Continued,
    /// A child changed its state: the target may have ended.
    Child,
    /// The view has to end.
    Stop,
}

/// A source of inputs.
pub(super) trait Inputs {
    /// The next input. `None` if there is none within `timeout`.
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Input>>;

    /// Stops this process and its job, as Ctrl-Z does.
    fn suspend(&mut self);

    /// Copies a text to the terminal's clipboard, if it has one.
    fn copy(&mut self, text: &str) -> io::Result<()>;

    /// Shows a line of a file in the user's editor. Returns when the editor ends or the view has to
    /// end: at `deadline`, on a signal, or because `is_over` returns true.
    ///
    /// # Errors
    /// The editor cannot be started or has failed, or the terminal fails.
    fn edit(
        &mut self,
        file: &str,
        line: u32,
        deadline: Option<Instant>,
        is_over: &mut dyn FnMut() -> bool,
    ) -> io::Result<Edited>;
}

/// The outcome of running an editor.
pub(super) enum Edited {
    /// The user has ended the editor.
    Done,
    /// The view has to end and does not wait for the user's editor.
    Left,
}

/// Clears the screen and forces a full redraw. `Terminal::clear` is not used, because it asks the
/// terminal for its cursor position and consumes typed keys while waiting for the answer.
pub(super) fn wipe<B: Backend>(terminal: &mut Terminal<B>) -> io::Result<()>
where
    B::Error: Send + Sync + 'static,
{
    let cleared = terminal.backend_mut().clear_region(ClearType::All);
    cleared.map_err(io::Error::other)?;
    terminal.swap_buffers();
    Ok(())
}
