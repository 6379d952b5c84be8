//! Taking over and restoring the terminal.

use std::fmt;
use std::io;
use std::rc::Rc;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{Command, cursor, execute};

use crate::outlet::Outlet;
use ipath_target::signals::Signals;

/// Enables reports of buttons and of the wheel only, in decimal numbers (ctlseqs, "Mouse
/// Tracking").
struct MouseOn;

impl Command for MouseOn {
    fn write_ansi(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_str("\x1b[?1000h\x1b[?1006h")
    }
}

/// Disables the reports that [`MouseOn`] enables.
struct MouseOff;

impl Command for MouseOff {
    fn write_ansi(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_str("\x1b[?1006l\x1b[?1000l")
    }
}

/// The controlling terminal. It is restored when the last copy is dropped, if it still exists.
#[derive(Clone)]
pub(super) struct Tty<'s>(Rc<Taken<'s>>);

struct Taken<'s> {
    outlet: Outlet<'s>,
    signals: &'s Signals,
    /// The terminal's modes before the view.
    before: Termios,
    /// True while the view's modes and screen are in effect.
    is_entered: std::cell::Cell<bool>,
}

impl<'s> Tty<'s> {
    /// Switches to the alternate screen and to unechoed keys.
    pub(super) fn enter(signals: &'s Signals) -> io::Result<Self> {
        let outlet = Outlet::terminal(signals)?;
        let before = tcgetattr(outlet.file())?;
        let tty = Self(Rc::new(Taken {
            outlet,
            signals,
            before,
            is_entered: false.into(),
        }));
        tty.enter_again()?;
        Ok(tty)
    }

    /// The output to the terminal.
    pub(super) fn outlet(&self) -> &Outlet<'s> {
        &self.0.outlet
    }

    pub(super) fn signals(&self) -> &'s Signals {
        self.0.signals
    }

    /// Restores the terminal, stops this process as Ctrl-Z does, and takes over the terminal again
    /// when this process is in the foreground.
    pub(super) fn suspend(&self) -> io::Result<()> {
        self.0.leave();
        self.0.signals.suspend();
        self.enter_again()
    }

    /// Restores the terminal after another program used it, if this job is in the foreground.
    /// `is_on` is true if that program still uses the terminal.
    pub(super) fn mend(&self, is_on: bool) {
        let file = self.0.outlet.file();
        if nix::unistd::tcgetpgrp(file) == Ok(nix::unistd::getpgrp()) {
            // Handled like the view's own screen, so that it is left, too.
            self.0.is_entered.set(is_on);
            let _ = tcsetattr(file, SetArg::TCSANOW, &self.0.before);
        }
    }

    /// Restores the terminal.
    pub(super) fn leave(&self) {
        self.0.leave();
    }

    /// Takes over the terminal again. Waits until this job is in the foreground.
    pub(super) fn enter_again(&self) -> io::Result<()> {
        let taken = &*self.0;
        let mut raw = taken.before.clone();
        cfmakeraw(&mut raw);
        // A background job is stopped here until it is in the foreground.
        taken
            .signals
            .in_turn(|| tcsetattr(taken.outlet.file(), SetArg::TCSANOW, &raw))?;
        taken.is_entered.set(true);
        execute!(
            taken.outlet.clone(),
            EnterAlternateScreen,
            cursor::Hide,
            MouseOn
        )
    }
}

impl Taken<'_> {
    /// Restores the terminal once. A second time would move the cursor back over output printed
    /// since. Errors are ignored: they cannot be reported, and a lost terminal needs nothing.
    fn leave(&self) {
        if self.is_entered.replace(false) {
            let left = execute!(
                self.outlet.clone(),
                MouseOff,
                LeaveAlternateScreen,
                cursor::Show
            );
            drop(left);
            let _ = tcsetattr(self.outlet.file(), SetArg::TCSANOW, &self.before);
        }
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}
