//! Comments and documentation are plain English: sentences that begin with a noun or a verb, in the
//! words of the field, on lines of at most 100 columns.
//!
//! A place that these patterns find is not always wrong, so a few are allowed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use regex::Regex;

/// The maximum number of places per 100 lines of prose.
const MAX_PLACES: f64 = 1.0;

/// The maximum number of columns of a line of prose.
const MAX_COLUMNS: usize = 100;

/// Folders without prose of this project.
const OTHERS: [&str; 7] = [
    ".git",
    "target",
    "corpus",
    "goldens",
    "node_modules",
    "proptest-regressions",
    "__pycache__",
];

/// How a comment must not begin.
const OPENING: &str =
    r"^(What|Whether|Which|Where|Who|Those|That of|That which|The same|As for|Nobody|Nothing)\b";

/// Phrases to replace, whatever their case.
const PHRASES: [&str; 10] = [
    r"\bto be had\b|\bcan be had\b|\bcannot be had\b|\bis had\b",
    r"\bamid\b|\banew\b|\bby now\b|\blikewise\b|\bat will\b|\bas ever\b|\bat one blow\b",
    r"\bnobody's\b|\bnobody\b|\bwho(?:ever)? (?:asks|looks|follows|traces|watches)\b",
    r"\btells? of\b|\bis told\b|\bare told\b|\btold apart\b|\btells apart\b",
    r"\bcomes? to\b(?: [^\d\s]|\n|$)|\bcame to\b",
    r"\b(?:has|have|had) (?:it|them|one|all|each|that|what|those|nothing)\b",
    r"\bhave (?:\w+ ){1,3}be\b|\bhas (?:\w+ ){1,3}be\b",
    r", that of \b|\bthose of\b.*\bthose of\b|\bthat which\b|\bthose which\b",
    r"\bwhat (?:is|are|was|has|have|it|they|a|an|the|one|comes|came|goes|stands|takes)\b",
    r"\bas far as\b|\binsofar\b|\bin the place of\b|\bin vain\b|\bbut for\b",
];

/// A line of prose in a file.
struct Line {
    path: PathBuf,
    number: usize,
    /// The whole line.
    whole: String,
    /// The line without the mark of a comment.
    text: String,
    /// True if it is the first line of a comment.
    begins: bool,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The kind of prose in a file.
enum Kind {
    /// Comments that match this pattern.
    Comments(&'static Regex),
    Markdown,
}

static SLASHES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*//[/!]?\s?(.*)$").expect("a pattern"));
static HASHES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"^\s*#(?:[^!]\s?|$)(.*)$").expect("a pattern"));

/// The kind of prose in a file, by its name; `None` if it has none.
fn kind(path: &Path) -> Option<Kind> {
    match path.extension()?.to_str()? {
        "rs" | "c" | "S" | "h" | "cc" | "cpp" | "go" => Some(Kind::Comments(&SLASHES)),
        "py" | "sh" | "toml" | "yml" => Some(Kind::Comments(&HASHES)),
        "md" => Some(Kind::Markdown),
        _ => None,
    }
}

/// Adds the lines of prose in a file's text.
fn lines_of(path: &Path, text: &str, lines: &mut Vec<Line>) {
    let Some(kind) = kind(path) else {
        return;
    };
    let mut last = None;
    let mut is_code = false;
    for (number, whole) in (1..).zip(text.lines()) {
        let text = match &kind {
            Kind::Comments(mark) => {
                let found = mark.captures(whole);
                found.map(|found| found[1].trim().to_owned())
            }
            Kind::Markdown if whole.trim_start().starts_with("```") => {
                is_code = !is_code;
                None
            }
            // Tables and indented code.
            Kind::Markdown if is_code || whole.starts_with(['|']) || whole.starts_with("    ") => {
                None
            }
            Kind::Markdown => Some(whole.trim().to_owned()),
        };
        let Some(text) = text.filter(|text| !text.is_empty()) else {
            continue;
        };
        lines.push(Line {
            path: path.to_owned(),
            number,
            whole: whole.to_owned(),
            text,
            begins: matches!(kind, Kind::Comments(_)) && last != Some(number - 1),
        });
        last = Some(number);
    }
}

/// All lines of prose in the repository, by path and number.
fn prose() -> Vec<Line> {
    let mut lines = Vec::new();
    let mut folders = vec![root()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the repository") {
            let path = entry.expect("an entry").path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if path.is_symlink() || OTHERS.contains(&&*name) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if let Ok(text) = fs::read_to_string(&path) {
                lines_of(&path, &text, &mut lines);
            }
        }
    }
    lines.sort_by(|a, b| (&a.path, a.number).cmp(&(&b.path, b.number)));
    assert!(lines.len() > 10_000, "only {} lines of prose", lines.len());
    lines
}

fn shown(line: &Line) -> String {
    let path = line.path.strip_prefix(root()).unwrap_or(&line.path);
    format!("{}:{}: {}", path.display(), line.number, line.text)
}

#[test]
fn prose_begins_with_nouns_and_verbs() {
    let opening = Regex::new(OPENING).expect("a pattern");
    let phrases = PHRASES.map(|phrase| Regex::new(&format!("(?i){phrase}")).expect("a pattern"));
    let lines = prose();
    let mut places = Vec::new();
    for line in &lines {
        let found = phrases.iter().filter(|phrase| phrase.is_match(&line.text));
        let found = found.count() + usize::from(line.begins && opening.is_match(&line.text));
        places.extend((0..found).map(|_| shown(line)));
    }
    let share = 100.0 * places.len() as f64 / lines.len() as f64;
    println!("{}", places.join("\n"));
    assert!(
        share <= MAX_PLACES,
        "{} places in {} lines of prose: {share:.2} per 100",
        places.len(),
        lines.len()
    );
}

#[test]
fn prose_wraps_at_100_columns() {
    // An address of the web, a link, or a row of a table cannot be broken.
    let is_wide = |line: &&Line| {
        line.whole.chars().count() > MAX_COLUMNS
            && !line.text.contains("://")
            && !line.text.contains("](")
            && !line.text.contains(" | ")
            && line.text.contains(' ')
    };
    let lines = prose();
    let wide: Vec<String> = lines.iter().filter(is_wide).map(shown).collect();
    assert!(wide.is_empty(), "{}\n{}", wide.join("\n"), wide.len());
}
