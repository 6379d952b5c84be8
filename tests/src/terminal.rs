//! A real terminal: a command in tmux, whose screen can be read as a user sees it.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long is waited for what a test expects.
const LIMIT: Duration = Duration::from_secs(90);

/// A terminal of its own for one command line, which ends with it.
pub struct Terminal {
    server: String,
}

impl Terminal {
    /// Starts a shell command in a terminal of 120 by 40.
    ///
    /// # Panics
    /// Where there is no tmux.
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

    fn tmux(&self, args: &[&str]) -> String {
        let output = Command::new("tmux")
            .args(["-L", &self.server, "-f", "/dev/null"])
            .args(args)
            .output();
        String::from_utf8_lossy(&output.expect("start tmux").stdout).into_owned()
    }

    /// The screen.
    pub fn screen(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-t", "view"])
    }

    /// The screen, as soon as a condition holds for it.
    ///
    /// # Panics
    /// When it does not in time.
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

    /// The screen, as soon as it shows all the words.
    ///
    /// # Panics
    /// When it does not in time.
    pub fn shows(&self, words: &[&str]) -> String {
        let has = |text: &str| words.iter().all(|word| text.contains(word));
        self.until(&format!("{words:?}"), has)
    }

    /// Types keys by tmux's names of them (`Enter`, `C-l`), and other text as it is.
    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys", "-t", "view"], keys].concat());
    }

    /// Gives it another size.
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
