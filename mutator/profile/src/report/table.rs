//! Columns of numbers, aligned to the right, with stacks below the rows.

use std::io::{self, Write};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::display_name;
use crate::folding::{self, Fold, Item};
use crate::profile::Label;

/// A line of a stack: a function, and where it is.
#[derive(Debug)]
pub struct Frame {
    pub(super) name: String,
    /// Follows the name, which may be shortened: `+0x1f`, ` (inlined)`.
    pub(super) suffix: String,
    pub(super) place: String,
    /// The reason to fold it with its neighbours.
    pub(super) fold: Option<Fold>,
    /// True if it is the program's own function.
    pub(super) is_own: bool,
}

/// Follows the name of a function that is inlined into the next.
pub(super) const INLINED: &str = " (inlined)";

impl Frame {
    /// The line of a frame that calls at this offset.
    pub(super) fn of(label: Label, offset: Option<u64>) -> Self {
        let suffix = match (label.inlined, offset) {
            (true, _) => INLINED.to_owned(),
            (false, Some(offset)) => format!("+{offset:#x}"),
            (false, None) => String::new(),
        };
        Self {
            fold: label.fold,
            is_own: label.is_own,
            name: label.name,
            suffix,
            place: label.place,
        }
    }

    /// Everything but the place, unshortened.
    pub(super) fn whole(&self) -> String {
        format!("{}{}", self.name, self.suffix)
    }

    /// True if its place is a line of a source file.
    pub(super) fn has_line(&self) -> bool {
        let line = self.place.rsplit_once(':').map(|(_, line)| line);
        line.is_some_and(|line| line.parse::<u32>().is_ok())
    }

    /// The place of its call: ` at app.c:12`, or an offset if the line is not known.
    pub(super) fn site(&self) -> String {
        if self.has_line() {
            format!(" at {}", self.place)
        } else {
            self.suffix.clone()
        }
    }
}

/// There may be a million.
#[derive(Debug)]
enum Line {
    Rows(Box<Rows>),
    /// Stands on many paths.
    Frame(Rc<Frame>),
    Text(String),
}

#[derive(Debug)]
struct Rows {
    /// One at least.
    rows: Vec<Vec<String>>,
    remark: String,
}

/// Lines that are written together, so that all are aligned alike.
#[derive(Debug)]
pub struct Table {
    headings: Vec<String>,
    lines: Vec<Line>,
    /// Columns of a frame's name.
    longest: usize,
}

/// Frames stand deeper than the numbers they explain.
const FRAME: &str = "        ";
/// A remark that would go beyond this column has a line of its own, after the rows.
const EDGE: usize = 100;
/// Columns of a name, without its suffix.
pub(super) const LONGEST: usize = 60;

impl Table {
    /// A table with these columns.
    pub fn new(headings: &[impl AsRef<str>]) -> Self {
        Self {
            headings: headings.iter().map(|h| h.as_ref().to_owned()).collect(),
            lines: Vec::new(),
            longest: LONGEST,
        }
    }

    /// Limits names to `longest` columns.
    pub(super) fn with_names(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// Adds a row, with a remark.
    pub fn row(&mut self, cells: Vec<String>, remark: String) {
        self.rows(vec![cells], remark);
    }

    /// Adds rows that belong together, with a remark on all of them.
    pub(super) fn rows(&mut self, rows: Vec<Vec<String>>, remark: String) {
        let rows = Box::new(Rows { rows, remark });
        self.lines.push(Line::Rows(rows));
    }

    /// Adds the function at the end of a path, with its place.
    pub fn function(&mut self, name: String, place: String) {
        self.shared(Rc::new(Frame {
            name,
            suffix: String::new(),
            place,
            fold: None,
            is_own: true,
        }));
    }

    /// Adds the lines of a stack, the innermost first. Frames of runtimes are folded.
    pub fn stack(&mut self, labels: Vec<Label>) {
        let frames = labels.into_iter().map(|label| Frame::of(label, None));
        self.folded(frames.map(Rc::new).collect(), true);
    }

    /// Adds lines of a stack, folded if `to_be_folded`.
    pub(super) fn folded(&mut self, frames: Vec<Rc<Frame>>, to_be_folded: bool) {
        let folds = frames.iter().map(|f| f.fold.filter(|_| to_be_folded));
        for item in folding::fold(folds) {
            match item {
                Item::Frame(index) => self.shared(Rc::clone(&frames[index])),
                Item::Runtime(text) | Item::Wrappers(text) => self.text(text),
            }
        }
    }

    /// Adds a line of a stack that stands elsewhere, too.
    pub(super) fn shared(&mut self, frame: Rc<Frame>) {
        self.lines.push(Line::Frame(frame));
    }

    /// Adds a line of text.
    pub fn text(&mut self, text: String) {
        self.lines.push(Line::Text(text));
    }

    /// Writes all lines.
    ///
    /// # Errors
    /// What `out` gives.
    pub fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut widths: Vec<usize> = self.headings.iter().map(|h| width(h)).collect();
        let short = self.short_names();
        let shown = |frame: &Frame| match short.get(frame.name.as_str()) {
            Some(name) => format!("{name}{}", frame.suffix),
            None => frame.whole(),
        };
        let mut names = 0;
        for line in &self.lines {
            match line {
                Line::Rows(rows) => {
                    for row in &rows.rows {
                        for (widest, cell) in widths.iter_mut().zip(row) {
                            *widest = (*widest).max(width(cell));
                        }
                    }
                }
                Line::Frame(frame) => names = names.max(width(&shown(frame))),
                Line::Text(_) => {}
            }
        }
        writeln!(out, "{}", aligned(&widths, &self.headings))?;
        for line in &self.lines {
            match line {
                Line::Rows(rows) => write_rows(out, &widths, rows)?,
                Line::Frame(frame) => {
                    let (name, place) = (shown(frame), &frame.place);
                    let gap = names.saturating_sub(width(&name));
                    let text = format!("{FRAME}{name}{:gap$}  {place}", "");
                    writeln!(out, "{}", text.trim_end())?;
                }
                Line::Text(text) => writeln!(out, "{FRAME}{text}")?,
            }
        }
        Ok(())
    }
}

impl Table {
    /// The names of all frames as they are shown.
    fn short_names(&self) -> FxHashMap<&str, String> {
        let frames = self.lines.iter().filter_map(|line| match line {
            Line::Frame(frame) => Some(frame.name.as_str()),
            _ => None,
        });
        let mut names: Vec<&str> = frames.collect();
        names.sort_unstable();
        names.dedup();
        let short = display_name::fit_all(&names, self.longest);
        names.into_iter().zip(short).collect()
    }
}

fn write_rows(
    out: &mut impl Write,
    widths: &[usize],
    Rows { rows, remark }: &Rows,
) -> io::Result<()> {
    // A remark stands where the row would end if it had all its cells.
    let room = EDGE.saturating_sub(widths.iter().map(|w| w + 2).sum());
    let mut remark = Some(remark.as_str()).filter(|remark| !remark.is_empty());
    let mut beside = remark.take_if(|remark| width(remark) + 2 <= room);
    for row in rows {
        let line = aligned(widths, row);
        match beside.take() {
            Some(remark) => writeln!(out, "{line}  {remark}")?,
            None => writeln!(out, "{}", line.trim_end())?,
        }
    }
    remark.map_or(Ok(()), |remark| writeln!(out, "{FRAME}{remark}"))
}

pub(super) fn aligned(widths: &[usize], cells: &[String]) -> String {
    let mut text = String::new();
    for (i, &widest) in widths.iter().enumerate() {
        let cell = cells.get(i).map_or("", String::as_str);
        let gap = widest.saturating_sub(width(cell));
        text.push_str(&format!("  {:gap$}{cell}", ""));
    }
    text
}

fn width(text: &str) -> usize {
    text.chars().count()
}
