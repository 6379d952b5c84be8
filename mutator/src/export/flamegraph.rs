//! A flame graph as SVG: each rectangle is a name on its path, as wide as what all paths through it cost.

use super::ExportError;
use super::model::{Model, Naming, widths};
use super::tree::Tree;
use crate::diff::{Comparison, Diff};
use crate::profile::{COUNT, Metric, Profile, printable, program};
use crate::report::human::quantity;
use std::cmp::Ordering;
use std::io::Write;

const WIDTH: f64 = 1200.0;
const ROW: usize = 17;
/// Height of what stands above the rectangles.
const HEAD: usize = 48;
/// Rectangles narrower than this are left out, with all above them.
const LEAST: f64 = 0.1;
/// Width of a character of the text in a rectangle.
const LETTER: f64 = 6.6;

/// The number of weights of a node.
///
/// * `NOW`: its width.
/// * `BEFORE`: the cost of as many calls in the baseline.
/// * `MORE`: the significant part of the difference.
/// * `NEW`: the width of paths that are missing from the baseline.
const KINDS: usize = 4;
const NOW: usize = 0;
const BEFORE: usize = 1;
const MORE: usize = 2;
const NEW: usize = 3;

/// Writes a flame graph by one metric. Widths are those of `profile`. With `baseline`, colours show the
/// change of the cost per call, path by path, by the test of `ipath diff`. Totals are not compared:
/// runs differ in length.
///
/// # Errors
/// One of the profiles does not have the metric, it is negative somewhere, or `out` fails.
pub fn to_flamegraph(
    profile: &Profile,
    baseline: Option<&Profile>,
    metric: &str,
    sites: bool,
    out: &mut impl Write,
) -> Result<(), ExportError> {
    let naming = Naming::by_line(sites);
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
            Comparison::New => [now, 0, 0, now],
            Comparison::Chance => [now, now, 0, 0],
            Comparison::Changed(ratio) => {
                let before = (width as f64 / ratio) as i128;
                [now, before, now - before, 0]
            }
        };
        tree.add(&model.stack(path), &weights);
    }
    tree.sum();
    Picture {
        model: &model,
        tree: &tree,
        metric: kind,
        is_difference: baseline.is_some(),
    }
    .draw(out)
}

/// A node as it is drawn.
struct Rectangle {
    node: usize,
    left: f64,
    width: f64,
    depth: usize,
}

struct Picture<'m> {
    model: &'m Model<'m>,
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
        let what = match self.is_difference {
            true => format!(
                "{total} of {}: {} is red if more than before, blue if less, grey within chance, yellow if new",
                printable(&self.metric.name),
                match self.metric.name.as_str() {
                    COUNT => "the number of calls",
                    _ => "the cost of a call",
                }
            ),
            false => format!("{total} of {}", printable(&self.metric.name)),
        };
        writeln!(
            out,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg xmlns=\"http://www.w3.org/2000/svg\" version=\"1.1\" \
             width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"monospace\" font-size=\"11\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#fdfdf8\"/>\n\
             <text x=\"10\" y=\"19\" font-size=\"14\">{}</text>\n<text x=\"10\" y=\"37\">{}</text>",
            escaped(&name),
            escaped(&what)
        )?;
        for rectangle in &rectangles {
            self.draw_one(rectangle, height, out)?;
        }
        Ok(writeln!(out, "</svg>")?)
    }

    /// The nodes that are wide enough, each after its parent.
    fn lay_out(&self) -> Vec<Rectangle> {
        let total = self.tree.total(0).max(1) as f64;
        let room = WIDTH - 20.0;
        let wide = |node: usize| self.tree.nodes[node].all[0] as f64 / total * room;
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
        add(&self.tree.roots, 10.0, 0, &mut rectangles);
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
        if self.is_difference {
            said.push_str(&change_of(&node.all));
        }
        let colour = match self.is_difference {
            true => self.change(&node.all),
            false => warm(name),
        };
        let (left, width) = (rectangle.left, rectangle.width);
        let top = height - 10 - (rectangle.depth + 1) * ROW;
        write!(
            out,
            "<g><title>{}</title><rect x=\"{left:.2}\" y=\"{top}\" width=\"{width:.2}\" height=\"{}\" fill=\"{colour}\" \
             data-value=\"{new}\" data-own=\"{}\"/>",
            escaped(&said),
            ROW - 1,
            node.own[0]
        )?;
        let letters = ((width - 4.0) / LETTER) as usize;
        if letters >= 3 {
            let text: String = match name.chars().count() > letters {
                true => name.chars().take(letters - 2).chain("..".chars()).collect(),
                false => name.clone(),
            };
            let (x, y) = (left + 2.0, top + 12);
            write!(
                out,
                "<text x=\"{x:.2}\" y=\"{y}\">{}</text>",
                escaped(&text)
            )?;
        }
        Ok(writeln!(out, "</g>")?)
    }

    fn shown(&self, value: i128) -> String {
        quantity(value, &self.metric.unit)
    }

    /// The deeper, the larger the part of the whole by which it has changed.
    fn change(&self, all: &[i128]) -> String {
        let whole = self.tree.total(NOW).max(self.tree.total(BEFORE)).max(1) as f64;
        let depth = |part: f64| 245 - (part.abs().min(1.0).sqrt() * 190.0) as u8;
        let part = all[MORE] as f64 / whole;
        match all[MORE].cmp(&0) {
            Ordering::Greater => format!("rgb(245,{0},{0})", depth(part)),
            Ordering::Less => format!("rgb({0},{0},245)", depth(part)),
            Ordering::Equal if 2 * all[NEW] > all[NOW] => "rgb(245,235,130)".to_owned(),
            Ordering::Equal => "rgb(240,240,240)".to_owned(),
        }
    }
}

/// The change at a node as text for its title.
fn change_of(all: &[i128]) -> String {
    let percent = 100.0 * all[MORE] as f64 / (all[BEFORE] as f64).max(1.0);
    match all[MORE] {
        0 if 2 * all[NEW] > all[NOW] => ", new".to_owned(),
        0 => ", as before within chance".to_owned(),
        _ => format!(", {percent:+.1} % a call"),
    }
}

/// A warm colour, the same for the same name.
fn warm(name: &str) -> String {
    // FNV-1a, of which nothing depends but the picture.
    let hash = name.bytes().fold(0x811c_9dc5u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let (a, b) = (hash % 50, hash / 64 % 130);
    format!("rgb({},{},{})", 205 + a, 80 + b, 40 + a / 2)
}

/// Text of XML 1.0, which has no control characters at all; these are escaped already.
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
