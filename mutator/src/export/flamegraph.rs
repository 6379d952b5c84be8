//! A flame graph as SVG: each rectangle is a name on its path, as wide as what all paths through it cost.

use super::ExportError;
use super::model::{Model, Naming, widths};
use super::tree::Tree;
use crate::profile::{Metric, Profile, printable, program};
use crate::report::human::quantity;
use std::io::Write;

const WIDTH: f64 = 1200.0;
const ROW: usize = 17;
/// Height of what stands above the rectangles.
const HEAD: usize = 48;
/// Rectangles narrower than this are left out, with all above them.
const LEAST: f64 = 0.1;
/// Width of a character of the text in a rectangle.
const LETTER: f64 = 6.6;

/// Writes a flame graph by one metric. With `baseline`, widths are those of `profile` and colours say what has changed: red is
/// more than in the baseline, blue is less.
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
    let mut model = Model::of(profile, naming);
    let mut tree = Tree::new(2);
    for (path, width) in profile.paths.iter().zip(widths(profile, metric)?) {
        tree.add(&model.stack(path), &[width.into(), 0]);
    }
    if let Some(baseline) = baseline {
        baseline.metric(metric)?;
        let old = Model::of(baseline, naming);
        let names = model.adopt(&old);
        for (path, width) in baseline.paths.iter().zip(widths(baseline, metric)?) {
            let stack: Vec<_> = old.stack(path).iter().map(|&name| names[name]).collect();
            tree.add(&stack, &[0, width.into()]);
        }
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
                "{total} of {}, before {}: red is more, blue is less",
                printable(&self.metric.name),
                self.shown(self.tree.total(1))
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
        let (new, old) = (node.all[0], node.all[1]);
        let share = 100.0 * new as f64 / self.tree.total(0).max(1) as f64;
        let mut said = format!("{name}: {}, {share:.2} %", self.shown(new));
        if self.is_difference {
            said.push_str(&format!(", before {}", self.shown(old)));
        }
        let colour = match self.is_difference {
            true => self.change(new, old),
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
    fn change(&self, new: i128, old: i128) -> String {
        let whole = self.tree.total(0).max(self.tree.total(1)).max(1) as f64;
        let part = (new.saturating_sub(old) as f64 / whole).clamp(-1.0, 1.0);
        let other = 245 - (part.abs().sqrt() * 190.0) as u8;
        match part {
            part if part > 0.0 => format!("rgb(245,{other},{other})"),
            part if part < 0.0 => format!("rgb({other},{other},245)"),
            _ => "rgb(240,240,240)".to_owned(),
        }
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
