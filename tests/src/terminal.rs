//! A real terminal: a command in tmux, whose screen a test reads as a user sees it.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The time limit for anything that a test expects.
const LIMIT: Duration = Duration::from_secs(90);

/// A terminal for one command line. It closes when the command ends.
pub struct Terminal {
    server: String,
}

impl Terminal {
    /// Starts a shell command in a terminal of 120 columns and 40 rows.
    ///
    /// # Panics
    /// If tmux is missing.
    pub fn start(command: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let terminal = Self {
            server: format!("ipath-tests-{}-{count}", std::process::id()),
        };
        let size = ["-x", "120", "-y", "40"];
        let session = ["new-session", "-d", "-s", "view"];
        terminal.tmux(&[&session[..], &size, &[command]].concat());
        terminal
    }

    /// The standard output of a tmux command for this terminal, whether or not it succeeds.
    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.server, "-f", "/dev/null"])
            .args(args)
            .output();
        String::from_utf8_lossy(&output.expect("start tmux").stdout).into_owned()
    }

    /// The text on the screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "view"])
    }

    /// Waits until a condition holds for the screen, and returns the screen.
    ///
    /// # Panics
    /// If it does not hold in time.
    pub fn until(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        let end = Instant::now() + LIMIT;
        loop {
            let text = self.screen();
            if holds(&text) {
                return text;
            }
            assert!(Instant::now() < end, "has not shown {what}:\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Waits until the screen shows all the words, and returns the screen.
    ///
    /// # Panics
    /// If it does not in time.
    pub fn shows(&self, words: &[&str]) -> String {
        let has = |text: &str| words.iter().all(|word| text.contains(word));
        self.until(&format!("{words:?}"), has)
    }

    /// Types keys by their tmux names (`Enter`, `C-l`), and other text literally.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "view"], keys].concat());
    }

    /// Resizes the terminal to these numbers of columns and rows.
    pub fn resize(&self, width: u16, height: u16) {
        let (width, height) = (width.to_string(), height.to_string());
        self.tmux(&["resize-window", "-t", "view", "-x", &width, "-y", &height]);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}
