//! Tables with right-aligned numbers, and stacks below the rows.

use std::io::{self, Write};
use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::display_name;
use crate::folding::{self, Fold, Item};
use crate::profile::Label;

/// A line of a stack: a function and its place.
#[derive(Debug)]
pub struct Frame {
    /// The demangled name of the function.
    pub(super) name: String,
    /// Appended to the name, which may be shortened: `+0x1f`, ` (inlined)`.
    pub(super) suffix: String,
    /// The source position (`app.c:12`), or the module. May be empty.
    pub(super) place: String,
    /// The reason to fold the frame with its neighbors. `None` if it is shown.
    pub(super) fold: Option<Fold>,
    /// True if the function is the program's own.
    pub(super) is_own: bool,
    /// The loops of the function around the call, innermost first.
    pub(super) loops: Vec<String>,
}

/// Appended to the name of a function that is inlined into the next.
pub(super) const INLINED: &str = " (inlined)";

impl Frame {
    /// The line of a frame whose call is `offset` bytes after the start of its function, if known.
    pub(super) fn of(label: Label, offset: Option<u64>) -> Self {
        let suffix = match (label.inlined, offset) {
            (true, _) => INLINED.to_owned(),
            (false, Some(offset)) => format!("+{offset:#x}"),
            (false, None) => String::new(),
        };
        Self {
            fold: label.fold,
            is_own: label.is_own,
            loops: label.loops,
            name: label.name,
            suffix,
            place: label.place,
        }
    }

    /// The unshortened line without the place.
    pub(super) fn whole(&self) -> String {
        format!("{}{}", self.name, self.suffix)
    }

    /// True if the frame's place is a line of a source file.
    pub(super) fn has_line(&self) -> bool {
        let line = self.place.rsplit_once(':').map(|(_, line)| line);
        line.is_some_and(|line| line.parse::<u32>().is_ok())
    }

    /// The place of the frame's call: ` at app.c:12`, or the suffix of the name if the line is not
    /// known.
    pub(super) fn site(&self) -> String {
        if self.has_line() {
            format!(" at {}", self.place)
        } else {
            self.suffix.clone()
        }
    }
}

/// A line of a table. A table may have a million lines.
#[derive(Debug)]
enum Line {
    Rows(Box<Rows>),
    /// Shared, because a frame occurs on many paths.
    Frame(Rc<Frame>),
    Text(String),
}

/// Rows that belong together, with a common remark, which may be empty.
#[derive(Debug)]
struct Rows {
    /// The cells of each row. There is at least one row.
    rows: Vec<Vec<String>>,
    remark: String,
}

/// A table whose lines are written together, with common column widths.
#[derive(Debug)]
pub struct Table {
    headings: Vec<String>,
    lines: Vec<Line>,
    /// The heading of the remarks. May be empty.
    remarks: &'static str,
    /// The most terminal columns of a frame's name.
    longest: usize,
}

/// The indentation of frames, which is deeper than that of the numbers they explain.
const FRAME: &str = "        ";
/// A remark that would exceed this column has a line of its own after the rows.
const EDGE: usize = 100;
/// The default for the most terminal columns of a name, without its suffix.
pub(super) const LONGEST: usize = 60;

impl Table {
    /// Creates an empty table with these headings.
    pub fn new(headings: &[impl AsRef<str>]) -> Self {
        Self {
            headings: headings.iter().map(|h| h.as_ref().to_owned()).collect(),
            lines: Vec::new(),
            remarks: "",
            longest: LONGEST,
        }
    }

    /// Sets the heading of the remarks.
    pub(crate) fn with_remarks(self, remarks: &'static str) -> Self {
        Self { remarks, ..self }
    }

    /// Limits names to `longest` columns.
    pub(super) fn with_names(self, longest: usize) -> Self {
        Self { longest, ..self }
    }

    /// Adds a row with a remark.
    pub fn row(&mut self, cells: Vec<String>, remark: String) {
        self.rows(vec![cells], remark);
    }

    /// Adds rows that belong together, with a common remark.
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
            loops: Vec::new(),
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
                Item::Frame(index) => {
                    let frame = &frames[index];
                    self.lines
                        .extend(frame.loops.iter().cloned().map(Line::Text));
                    self.shared(Rc::clone(frame));
                }
                Item::Runtime(text) | Item::Wrappers(text) => self.text(text),
            }
        }
    }

    /// Adds a line of a stack, which may be shared with other lines.
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
    /// Returns the errors of `out`.
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
        let headings = aligned(&widths, &self.headings);
        match self.remarks {
            "" => writeln!(out, "{headings}")?,
            remarks => writeln!(out, "{headings}  {remarks}")?,
        }
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
    /// The displayed names of all frames, by their whole names.
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
    // A remark is in the column after a complete row.
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

/// The cells as a line, each right-aligned in its width after two spaces. Missing cells are empty.
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
