//! What comes from the terminal, and what it is asked to do.

use super::{Key, Mouse};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType};
use std::io;
use std::time::{Duration, Instant};

/// What comes from the terminal.
pub(super) enum Input {
    Key(Key),
    Mouse(Mouse),
    Resize(u16, u16),
    /// This process was stopped, and others have written to the terminal meanwhile.
    Continued,
    /// What is watched may have ended.
    Child,
    /// The view is to end.
    Stop,
}

/// Where it comes from.
pub(super) trait Inputs {
    /// The next input, or none when `timeout` has passed without any.
    fn next(&mut self, timeout: Duration) -> io::Result<Option<Input>>;

    /// Asks for this process and all of its job to be stopped, as Ctrl-Z does elsewhere.
    fn suspend(&mut self);

    /// Gives a text to the terminal's clipboard, if it has one.
    fn copy(&mut self, text: &str) -> io::Result<()>;

    /// Shows a line of a file in the user's editor until that ends, or the view is to end: by `deadline`, by what comes
    /// from outside, or because all `is_over`.
    fn edit(
        &mut self,
        file: &str,
        line: u32,
        deadline: Option<Instant>,
        is_over: &mut dyn FnMut() -> bool,
    ) -> io::Result<Edited>;
}

/// What has become of an editor.
pub(super) enum Edited {
    /// The user has ended it.
    Done,
    /// The view is to end, and does not wait for it.
    Left,
}

/// Clears the screen and has everything drawn again. `Terminal::clear` asks the terminal where its
/// cursor is, and reads the keys in search of the answer.
pub(super) fn wipe<B: Backend>(terminal: &mut Terminal<B>) -> io::Result<()>
where
    B::Error: Send + Sync + 'static,
{
    let cleared = terminal.backend_mut().clear_region(ClearType::All);
    cleared.map_err(io::Error::other)?;
    terminal.swap_buffers();
    Ok(())
}
