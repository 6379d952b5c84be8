//! A flame graph as SVG. Each rectangle is a name on its path, as wide as the cost of all paths
//! through it.
//!
//! As a picture it is 1200 pixels wide. In a browser, `script.js` fits it to the window and adds
//! zoom and search. The rectangles have positions in percent of the room between the margins, so
//! that fitting changes one width.

use super::ExportError;
use super::model::{Callers, Model, Naming, widths};
use super::shade::Shades;
use super::tree::Tree;
use crate::diff::{Comparison, Diff};
use crate::profile::{COUNT, Metric, Profile, printable, program};
use crate::report::human::quantity;
use std::cmp::Ordering;
use std::io::Write;

/// The width of the image, in pixels.
const WIDTH: f64 = 1200.0;
/// The height of a row of rectangles, in pixels.
const ROW: usize = 17;
/// The height of the part above the rectangles, in pixels.
const HEAD: usize = 66;
/// The distance between the rectangles and the edges of the image, in pixels.
const MARGIN: f64 = 10.0;
/// The width of all rectangles of a row together, in pixels.
const ROOM: f64 = WIDTH - 2.0 * MARGIN;
/// The least width of a rectangle, in pixels. Narrower ones are left out, with all above them.
const LEAST: f64 = 0.1;
/// The width of a character in a rectangle, in pixels.
const LETTER: f64 = 6.6;
const SCRIPT: &str = include_str!("flamegraph/script.js");
const STYLE: &str = "g, #said, #whole { cursor: pointer } text { pointer-events: none } \
    #said, #whole { pointer-events: all; text-decoration: underline } g:hover rect { stroke: #000; stroke-width: .5 }";

/// The number of weights of a node, in the unit of the metric. The constants below are their
/// indexes.
const KINDS: usize = 5;
/// The cost in the profile, which determines the node's width.
const NOW: usize = 0;
/// The cost of as many calls in the baseline.
const BEFORE: usize = 1;
/// The significant part of the difference.
const MORE: usize = 2;
/// The cost of paths that are missing from the baseline.
const NEW: usize = 3;
/// The cost of paths whose function was not measured in the baseline.
const UNMEASURED: usize = 4;

/// Writes a flame graph by one metric. The widths come from `profile`. With `baseline`, colors
/// show the change of the cost per call, path by path, as tested by `ipath diff`. Totals are not
/// compared, because runs differ in length.
///
/// # Errors
/// One of the profiles does not have the metric, the metric is negative on some path or exceeds 64
/// bits, or `out` fails.
pub fn to_flamegraph(
    profile: &Profile,
    baseline: Option<&Profile>,
    metric: &str,
    callers: Callers,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let naming = Naming::by_line(callers);
    let kind = profile.metric(metric)?;
    let model = Model::of(profile, naming);
    let mut tree = Tree::new(KINDS);
    let compared = match baseline {
        Some(baseline) => {
            baseline.metric(metric)?;
            Diff::of(baseline, profile, metric).by_path()
        }
        None => vec![Comparison::Chance; profile.paths.len()],
    };
    for ((path, width), compared) in profile
        .paths
        .iter()
        .zip(widths(profile, metric)?)
        .zip(compared)
    {
        let now = i128::from(width);
        let weights = match compared {
            Comparison::New => [now, 0, 0, now, 0],
            Comparison::Unmeasured => [now, 0, 0, 0, now],
            Comparison::Chance => [now, now, 0, 0, 0],
            Comparison::Changed(ratio) => {
                let before = (width as f64 / ratio) as i128;
                [now, before, now - before, 0, 0]
            }
        };
        tree.add(&model.stack(path), &weights);
    }
    tree.sum();
    Picture {
        model: &model,
        shades: &Shades::of(&model),
        tree: &tree,
        metric: kind,
        is_difference: baseline.is_some(),
    }
    .draw(out)
}

/// A node as drawn, in pixels.
struct Rectangle {
    /// The index in [`Tree::nodes`].
    node: usize,
    /// The distance from the left margin.
    left: f64,
    width: f64,
    /// The number of ancestors.
    depth: usize,
}

struct Picture<'m> {
    model: &'m Model<'m>,
    shades: &'m Shades,
    tree: &'m Tree,
    metric: &'m Metric,
    is_difference: bool,
}

impl Picture<'_> {
    fn draw(&self, out: &mut impl Write) -> Result<(), ExportError> {
        let rectangles = self.lay_out();
        let rows = rectangles.iter().map(|r| r.depth + 1).max().unwrap_or(0);
        let height = HEAD + rows * ROW + 10;
        let target = &self.model.profile.target;
        let name = printable(&program(&target.exe, &target.args).0).into_owned();
        let total = self.shown(self.tree.total(0));
        let what = if self.is_difference {
            format!(
                "{total} of {}: {} is red if more than before, blue if less, grey within chance, yellow if new{}",
                printable(&self.metric.name),
                match self.metric.name.as_str() {
                    COUNT => "the number of calls",
                    _ => "the cost of a call",
                },
                match self.tree.total(UNMEASURED) {
                    0 => "",
                    _ => ", white if not measured before",
                }
            )
        } else {
            format!("{total} of {}", printable(&self.metric.name))
        };
        writeln!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" \
             width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
             <style>{STYLE}</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fdfdf8\"/>\n\
             <text x=\"10\" y=\"19\" font-size=\"14\">{}</text>\n<text x=\"10\" y=\"37\">{}</text>\n\
             <text x=\"100%\" dx=\"-10\" y=\"19\" text-anchor=\"end\" id=\"said\"></text>\n\
             <text x=\"100%\" dx=\"-10\" y=\"37\" text-anchor=\"end\" id=\"whole\" style=\"display: none\">Whole graph</text>",
            escaped(&name),
            escaped(&what)
        )?;
        if !self.is_difference {
            self.draw_legend(out)?;
        }
        writeln!(
            out,
            "<svg id=\"frames\" x=\"{MARGIN}\" width=\"{ROOM}\" height=\"{height}\">"
        )?;
        for rectangle in &rectangles {
            self.draw_one(rectangle, height, out)?;
        }
        let script = escaped(SCRIPT);
        Ok(writeln!(out, "</svg>\n<script>{script}</script>\n</svg>")?)
    }

    /// Draws the modules with their colors, as many as fit.
    fn draw_legend(&self, out: &mut impl Write) -> Result<(), ExportError> {
        let names = self.shades.modules.iter().map(|name| &**name).enumerate();
        let pale = (usize::MAX, "pale: passed through, not measured");
        let mut left = MARGIN;
        for (module, name) in names.chain([pale]) {
            let is_pale = module == usize::MAX;
            let room = 16.0 + LETTER * name.chars().count() as f64;
            let reserved = if is_pale { 0.0 } else { 260.0 };
            if left + room + reserved > WIDTH - MARGIN {
                continue;
            }
            let colour = if is_pale {
                "rgb(232,232,232)".to_owned()
            } else {
                Shades::legend(module)
            };
            let text = left + 13.0;
            writeln!(
                out,
                "<rect x=\"{left:.1}\" y=\"47\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\
                 <text x=\"{text:.1}\" y=\"56\">{}</text>",
                escaped(name)
            )?;
            left += room + 14.0;
        }
        Ok(())
    }

    /// The nodes that are wide enough, parents before children.
    fn lay_out(&self) -> Vec<Rectangle> {
        let total = self.tree.total(0).max(1) as f64;
        let wide = |node: usize| self.tree.nodes[node].all[0] as f64 / total * ROOM;
        let mut rectangles: Vec<Rectangle> = Vec::new();
        let add = |nodes: &[usize], mut left: f64, depth: usize, to: &mut Vec<Rectangle>| {
            let mut nodes = nodes.to_vec();
            nodes.sort_by_key(|&node| &self.model.names[self.tree.nodes[node].name]);
            for node in nodes {
                let width = wide(node);
                if width >= LEAST {
                    to.push(Rectangle {
                        node,
                        left,
                        width,
                        depth,
                    });
                }
                left += width;
            }
        };
        add(&self.tree.roots, 0.0, 0, &mut rectangles);
        let mut next = 0;
        while let Some(one) = rectangles.get(next) {
            let (node, left, depth) = (one.node, one.left, one.depth + 1);
            add(
                &self.tree.nodes[node].children,
                left,
                depth,
                &mut rectangles,
            );
            next += 1;
        }
        rectangles
    }

    fn draw_one(
        &self,
        rectangle: &Rectangle,
        height: usize,
        out: &mut impl Write,
    ) -> Result<(), ExportError> {
        let node = &self.tree.nodes[rectangle.node];
        let name = &self.model.names[node.name];
        let new = node.all[NOW];
        let share = 100.0 * new as f64 / self.tree.total(0).max(1) as f64;
        let mut said = format!("{name}: {}, {share:.2} %", self.shown(new));
        let module = self.shades.module(node.name);
        if let (Some(module), false) = (module, self.is_difference) {
            said.push_str(&format!(", in {}", self.shades.modules[module]));
        }
        if self.is_difference {
            said.push_str(&change_of(&node.all));
        }
        let colour = if self.is_difference {
            self.change(&node.all)
        } else {
            self.shades.colour(node.name, name, node.is_end)
        };
        let percent = |pixels: f64| 100.0 * pixels / ROOM;
        let (left, width) = (percent(rectangle.left), percent(rectangle.width));
        let top = height - 10 - (rectangle.depth + 1) * ROW;
        write!(
            out,
            "<g data-name=\"{}\"><title>{}</title><rect x=\"{left:.4}%\" y=\"{top}\" width=\"{width:.4}%\" height=\"{}\" \
             fill=\"{colour}\" data-value=\"{new}\" data-own=\"{}\"/>",
            escaped(name),
            escaped(&said),
            ROW - 1,
            node.own[0]
        )?;
        let letters = ((rectangle.width - 4.0) / LETTER) as usize;
        if letters >= 3 {
            let text: String = if name.chars().count() > letters {
                name.chars().take(letters - 2).chain("..".chars()).collect()
            } else {
                name.clone()
            };
            let y = top + 12;
            write!(
                out,
                "<text x=\"{left:.4}%\" dx=\"2\" y=\"{y}\">{}</text>",
                escaped(&text)
            )?;
        }
        Ok(writeln!(out, "</g>")?)
    }

    fn shown(&self, value: i128) -> String {
        quantity(value, &self.metric.unit)
    }

    /// The color of a change. It is darker if the change is a larger part of the whole.
    fn change(&self, all: &[i128]) -> String {
        let whole = self.tree.total(NOW).max(self.tree.total(BEFORE)).max(1) as f64;
        let depth = |part: f64| 245 - (part.abs().min(1.0).sqrt() * 190.0) as u8;
        let part = all[MORE] as f64 / whole;
        match all[MORE].cmp(&0) {
            Ordering::Greater => format!("rgb(245,{0},{0})", depth(part)),
            Ordering::Less => format!("rgb({0},{0},245)", depth(part)),
            Ordering::Equal if 2 * all[UNMEASURED] > all[NOW] => "rgb(255,255,255)".to_owned(),
            Ordering::Equal if 2 * all[NEW] > all[NOW] => "rgb(245,235,130)".to_owned(),
            Ordering::Equal => "rgb(240,240,240)".to_owned(),
        }
    }
}

/// The change at a node, as text for its title.
fn change_of(all: &[i128]) -> String {
    let percent = 100.0 * all[MORE] as f64 / (all[BEFORE] as f64).max(1.0);
    match all[MORE] {
        0 if 2 * all[UNMEASURED] > all[NOW] => ", not measured before".to_owned(),
        0 if 2 * all[NEW] > all[NOW] => ", new".to_owned(),
        0 => ", as before within chance".to_owned(),
        _ => format!(", {percent:+.1} % a call"),
    }
}

/// Escapes text for XML 1.0, which forbids most control characters; these have already been
/// escaped.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}
