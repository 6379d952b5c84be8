//! Which caller makes `normalise` expensive? Two threads count words in generated text; both
//! prepare each word with `normalise`, one for whole paragraphs at a time.
//!
//! ```text
//! cargo build --release -p ipath-examples
//! target/release/wordcount &
//! ipath attach $! -f wordcount::normalise
//! ```
//!
//! What you see: `normalise` is reached through a closure, a trait object and a recursion; the
//! path through `Paragraphs::count` has few calls and most of the time.
//!
//! `wordcount [SECONDS]` runs for 10 seconds by default.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The letters and spaces of a text, in lower case. The function to profile.
#[inline(never)]
fn normalise(text: &str) -> String {
    text.chars()
        .filter(|c| c.is_alphabetic() || *c == ' ')
        .flat_map(char::to_lowercase)
        .collect()
}

trait Counter {
    fn count(&mut self, text: &str);
    fn distinct(&self) -> usize;
}

#[derive(Default)]
struct Words(HashMap<String, usize>);

impl Counter for Words {
    #[inline(never)]
    fn count(&mut self, text: &str) {
        text.split(' ')
            .map(normalise)
            .for_each(|word| *self.0.entry(word).or_default() += 1);
    }

    fn distinct(&self) -> usize {
        self.0.len()
    }
}

#[derive(Default)]
struct Paragraphs(HashMap<String, usize>);

impl Counter for Paragraphs {
    #[inline(never)]
    fn count(&mut self, text: &str) {
        *self.0.entry(normalise(text)).or_default() += 1;
    }

    fn distinct(&self) -> usize {
        self.0.len()
    }
}

/// The length in bytes of the longest normalised word, found by halving the list; 0 for an empty
/// list.
#[inline(never)]
fn longest(words: &[&str]) -> usize {
    match words {
        [] => 0,
        [word] => normalise(word).len(),
        _ => {
            let (left, right) = words.split_at(words.len() / 2);
            longest(left).max(longest(right))
        }
    }
}

fn text(seed: u64) -> String {
    const PARTS: [&str; 8] = [
        "Call", "path", "Profile", "of", "a", "Running", "Program,", "exactly.",
    ];
    let mut state = seed % 5_000 + 1;
    let mut word = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        PARTS[(state >> 40) as usize % PARTS.len()]
    };
    (0..400).map(|_| word()).collect::<Vec<_>>().join(" ")
}

fn work(mut counter: Box<dyn Counter + Send>, until: Instant) -> (u64, usize) {
    let mut texts = 0;
    let mut letters = 0;
    while Instant::now() < until {
        let text = text(texts);
        counter.count(&text);
        if texts % 16 == 0 {
            letters += longest(&text.split(' ').collect::<Vec<_>>());
        }
        texts += 1;
    }
    (texts, counter.distinct() + letters % 2)
}

fn main() {
    let seconds = std::env::args()
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(10.0);
    let until = Instant::now() + Duration::from_secs_f64(seconds);
    let counters: [Box<dyn Counter + Send>; 2] =
        [Box::<Words>::default(), Box::<Paragraphs>::default()];
    let threads = counters.map(|counter| std::thread::spawn(move || work(counter, until)));
    for thread in threads {
        match thread.join() {
            Ok((texts, distinct)) => println!("{texts} texts, {distinct} entries"),
            Err(_) => std::process::exit(1),
        }
    }
}
