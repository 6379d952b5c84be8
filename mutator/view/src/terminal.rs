//! Taking the terminal over, and giving it back.

use std::fmt;
use std::io;
use std::rc::Rc;

use nix::sys::termios::{SetArg, Termios, cfmakeraw, tcgetattr, tcsetattr};
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};
use ratatui::crossterm::{Command, cursor, execute};

use crate::outlet::Outlet;
use ipath_target::signals::Signals;

/// Has the terminal tell of buttons and of the wheel, in decimal numbers, and of nothing else (ctlseqs, "Mouse Tracking").
struct MouseOn;

impl Command for MouseOn {
    fn write_ansi(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_str("\x1b[?1000h\x1b[?1006h")
    }
}

/// Has it tell no more.
struct MouseOff;

impl Command for MouseOff {
    fn write_ansi(&self, f: &mut impl fmt::Write) -> fmt::Result {
        f.write_str("\x1b[?1006l\x1b[?1000l")
    }
}

/// The terminal that controls this process. It is as it was when the last copy is dropped, if it is
/// still there.
#[derive(Clone)]
pub(super) struct Tty<'s>(Rc<Taken<'s>>);

struct Taken<'s> {
    outlet: Outlet<'s>,
    signals: &'s Signals,
    before: Termios,
    is_entered: std::cell::Cell<bool>,
}

impl<'s> Tty<'s> {
    /// Switches to the alternate screen and to keys without echo.
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

    pub(super) fn outlet(&self) -> &Outlet<'s> {
        &self.0.outlet
    }

    pub(super) fn signals(&self) -> &'s Signals {
        self.0.signals
    }

    /// Gives the terminal back, stops this process as Ctrl-Z does, and takes the terminal again once
    /// it is this process's turn there.
    pub(super) fn suspend(&self) -> io::Result<()> {
        self.0.leave();
        self.0.signals.suspend();
        self.enter_again()
    }

    /// Sets the terminal right after a program that was left with it, where it is this job's; whether that `is_on` it still.
    pub(super) fn mend(&self, is_on: bool) {
        let file = self.0.outlet.file();
        if nix::unistd::tcgetpgrp(file) == Ok(nix::unistd::getpgrp()) {
            // As if it were the view's: its screen goes as well.
            self.0.is_entered.set(is_on);
            let _ = tcsetattr(file, SetArg::TCSANOW, &self.0.before);
        }
    }

    /// Gives the terminal back.
    pub(super) fn leave(&self) {
        self.0.leave();
    }

    /// Takes the terminal again.
    pub(super) fn enter_again(&self) -> io::Result<()> {
        let taken = &*self.0;
        let mut raw = taken.before.clone();
        cfmakeraw(&mut raw);
        // A job in the background is stopped here until it is brought to the front.
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
    /// Gives the terminal back, once: a second time would put the cursor back onto what has been
    /// printed since. Errors have nowhere to go, and a terminal that is gone needs nothing.
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
