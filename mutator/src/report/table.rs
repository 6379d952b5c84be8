//! Columns of numbers, aligned to the right, with stacks below the rows.

use std::io::{self, Write};

/// One line of numbers and the remark after it.
pub(super) struct Row {
    pub(super) cells: Vec<String>,
    pub(super) remark: String,
}

enum Line {
    Row(Row),
    Frame { name: String, place: String },
    Text(String),
}

/// Lines that are written together, so that all are aligned alike.
pub(super) struct Table {
    headings: Vec<String>,
    lines: Vec<Line>,
}

/// Frames stand deeper than the numbers they explain.
const FRAME: &str = "        ";
/// A name longer than this does not move the places of all other frames.
const LONGEST: usize = 60;

impl Table {
    pub(super) fn new(headings: &[&str]) -> Self {
        Self {
            headings: headings.iter().map(|h| (*h).to_owned()).collect(),
            lines: Vec::new(),
        }
    }

    pub(super) fn row(&mut self, row: Row) {
        self.lines.push(Line::Row(row));
    }

    pub(super) fn frame(&mut self, name: String, place: String) {
        self.lines.push(Line::Frame { name, place });
    }

    pub(super) fn text(&mut self, text: String) {
        self.lines.push(Line::Text(text));
    }

    pub(super) fn write(&self, out: &mut impl Write) -> io::Result<()> {
        let mut widths: Vec<usize> = self.headings.iter().map(|h| width(h)).collect();
        let mut names = 0;
        for line in &self.lines {
            match line {
                Line::Row(row) => {
                    for (widest, cell) in widths.iter_mut().zip(&row.cells) {
                        *widest = (*widest).max(width(cell));
                    }
                }
                Line::Frame { name, .. } => names = names.max(width(name).min(LONGEST)),
                Line::Text(_) => {}
            }
        }
        write_row(out, &widths, &self.headings, "")?;
        for line in &self.lines {
            match line {
                Line::Row(row) => write_row(out, &widths, &row.cells, &row.remark)?,
                Line::Frame { name, place } => {
                    let gap = names.saturating_sub(width(name));
                    let text = format!("{FRAME}{name}{:gap$}  {place}", "");
                    writeln!(out, "{}", text.trim_end())?;
                }
                Line::Text(text) => writeln!(out, "{FRAME}{text}")?,
            }
        }
        Ok(())
    }
}

fn write_row(
    out: &mut impl Write,
    widths: &[usize],
    cells: &[String],
    remark: &str,
) -> io::Result<()> {
    let mut text = String::new();
    for (&widest, cell) in widths.iter().zip(cells) {
        let gap = widest.saturating_sub(width(cell));
        text.push_str(&format!("  {:gap$}{cell}", ""));
    }
    if !remark.is_empty() {
        text.push_str(&format!("  {remark}"));
    }
    writeln!(out, "{}", text.trim_end())
}

fn width(text: &str) -> usize {
    text.chars().count()
}
