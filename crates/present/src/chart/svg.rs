//! A chart as SVG: no font, colours by classes, so that light and dark both work.
//!
//! Hovering tells the exact numbers: an unseen area over each x has them as its title.

use std::fmt::Write as _;

use super::axis::Range;
use super::{BAD, COLOURS_LEN, Chart, Line, Look};
use crate::text::escaped;

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 250.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 30.0;
const BOTTOM: f64 = 48.0;
/// The width of a digit, as it is at most.
const LETTER: f64 = 7.0;
/// Areas for hovering.
const AREAS_LEN_MAX: usize = 400;
/// Characters of a name.
const NAME_CHARS_MAX: usize = 60;
/// The height of a title above a chart that is a file, and of a row of its legend.
const FILE_TOP: f64 = 26.0;
const LEGEND_ROW: f64 = 20.0;
const LEGEND_COLUMNS: usize = 3;
/// The style of charts, which a page has in its own.
pub(crate) const STYLE: &str = include_str!("../chart.css");

impl Chart {
    /// A chart in a page that has the style and says title and legend.
    pub fn svg(&self) -> String {
        let mut svg = format!(
            "<svg class=\"chart\" viewBox=\"0 0 {WIDTH} {HEIGHT:.0}\" role=\"img\" aria-label=\"{}\">",
            escaped(&self.title, 2 * NAME_CHARS_MAX),
        );
        match self.ranges() {
            Some((x, y)) => {
                axes(&x, &y, [&self.x_label, &self.y_label], &mut svg);
                // Each covers what comes before it: bars are below lines, and areas that react are above all.
                self.bars(&x, &y, &mut svg);
                let coloured = || {
                    let lines = self.lines.iter().enumerate();
                    lines.map(|(place, line)| (line, colour_class(line.colour.unwrap_or(place))))
                };
                coloured().for_each(|(line, colour)| band(line, &colour, &x, &y, &mut svg));
                coloured().for_each(|(line, colour)| path(line, &colour, &x, &y, &mut svg));
                self.marks(&x, &mut svg);
                self.bar_areas(&x, &mut svg);
                self.areas(&x, &mut svg);
            }
            None => {
                let (x, y) = (WIDTH / 2.0, HEIGHT / 2.0);
                let _ = write!(
                    svg,
                    "<text x=\"{x:.0}\" y=\"{y:.0}\" text-anchor=\"middle\">{}</text>",
                    self.empty_text.unwrap_or("no values"),
                );
            }
        }
        svg.push_str("</svg>");
        svg
    }

    /// The chart as a file of its own: with its style, its title and its legend.
    pub fn file(&self) -> String {
        let legend = self.legend();
        let rows = legend.len().div_ceil(LEGEND_COLUMNS);
        let height = FILE_TOP + HEIGHT + LEGEND_ROW * (rows as f64 + 0.5);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {WIDTH} {height}\"><style>{STYLE}</style>\
             <rect width=\"100%\" height=\"100%\" style=\"fill: var(--p-ground)\"/>\
             <text class=\"marked\" x=\"14\" y=\"22\">{}</text>",
            escaped(&self.title, 2 * NAME_CHARS_MAX),
        );
        let placed =
            format!("<svg class=\"chart\" y=\"{FILE_TOP}\" width=\"{WIDTH}\" height=\"{HEIGHT}\"");
        svg += &self.svg().replacen("<svg class=\"chart\"", &placed, 1);
        for (place, (colour, name)) in legend.into_iter().enumerate() {
            let x = 14.0 + (place % LEGEND_COLUMNS) as f64 * (WIDTH / LEGEND_COLUMNS as f64);
            let y = FILE_TOP + HEIGHT + LEGEND_ROW * (place / LEGEND_COLUMNS) as f64;
            let _ = write!(
                svg,
                "<rect class=\"fill {}\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"12\" height=\"12\"/><text x=\"{:.0}\" y=\"{:.0}\">{}</text>",
                colour_class(colour),
                x + 18.0,
                y + 11.0,
                escaped(name, NAME_CHARS_MAX),
            );
        }
        svg + "</svg>\n"
    }

    fn bars(&self, x: &Range, y: &Range, svg: &mut String) {
        for bar in &self.bars {
            let places = [x.place(bar.left), x.place(bar.right), y.place(bar.high)];
            let [Some(left), Some(right), Some(high)] = places else {
                continue;
            };
            // On a logarithmic axis nothing has no place: such a bar stands on the floor.
            let low = y.place(bar.low).unwrap_or(0.0);
            let wide = across(right) - across(left);
            // A gap tells bars apart; of hundreds in a chart it would leave nothing.
            let gap = if wide > 4.0 { 0.6 } else { 0.0 };
            let _ = write!(
                svg,
                "<rect class=\"bar fill {}\" x=\"{:.1}\" y=\"{:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>",
                colour_class(bar.colour),
                across(left),
                up(high),
                (wide - gap).max(0.6),
                up(low) - up(high),
            );
        }
    }
}

/// The class of a colour by its number.
pub(crate) fn colour_class(colour: usize) -> String {
    match colour {
        BAD => format!("c{COLOURS_LEN}"),
        colour => format!("c{}", colour % COLOURS_LEN),
    }
}

fn across(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn up(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

fn axes(x: &Range, y: &Range, [x_label, y_label]: [&str; 2], svg: &mut String) {
    let (floor, right) = (up(0.0), across(1.0));
    for (share, text) in y.ticks() {
        // The text hangs a little lower than its line, so that the line goes through its middle.
        let at = up(share);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 7.0,
            at + 4.0,
        );
    }
    let (mut taken_to, mut texts_len) = (f64::NEG_INFINITY, 0);
    for (share, text) in x.ticks() {
        let at = across(share);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{floor}\"/>",
        );
        // A label at the very edge would be cut on the right, and touch that of the other axis on the left.
        let wide = LETTER * text.chars().count() as f64;
        let (anchor, begins) = match share {
            share if share > 0.97 => ("end", at - wide),
            share if share < 0.03 => ("start", at),
            _ => ("middle", at - wide / 2.0),
        };
        // Two texts side by side would be read as one.
        if begins < taken_to {
            continue;
        }
        taken_to = begins + wide + LETTER / 2.0;
        // Every second one is left out on a phone, where letters are larger beside the chart.
        let class = if texts_len % 2 == 1 {
            " class=\"odd\""
        } else {
            ""
        };
        texts_len += 1;
        let _ = write!(
            svg,
            "<text{class} x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{text}</text>",
            floor + 20.0,
        );
    }
    let _ = write!(
        svg,
        "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{floor}\" y2=\"{floor}\"/>\
         <text class=\"label\" x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>\
         <text class=\"label\" x=\"14\" y=\"15\">{}</text>",
        (LEFT + right) / 2.0,
        HEIGHT - 8.0,
        escaped(x_label, NAME_CHARS_MAX),
        escaped(y_label, NAME_CHARS_MAX),
    );
}

fn band(line: &Line, colour: &str, x: &Range, y: &Range, svg: &mut String) {
    let Some(band) = &line.low_high else {
        return;
    };
    let corners = line
        .points
        .iter()
        .zip(band)
        .filter_map(|((at, _), (low, high))| {
            Some((
                across(x.place(*at)?),
                up(y.place(*low)?),
                up(y.place(*high)?),
            ))
        });
    let corners: Vec<(f64, f64, f64)> = corners.collect();
    // There along the upper ends and back along the lower ones, so that the area is closed.
    let tops = corners
        .iter()
        .map(|(at, _, high)| format!("{at:.1} {high:.1}"));
    let floors = corners
        .iter()
        .rev()
        .map(|(at, low, _)| format!("{at:.1} {low:.1}"));
    let outline = tops.chain(floors).collect::<Vec<_>>().join("L");
    if corners.len() > 1 {
        let _ = write!(
            svg,
            "<path class=\"band fill {colour}\" d=\"M{outline}Z\"/>"
        );
    }
}

fn path(line: &Line, colour: &str, x: &Range, y: &Range, svg: &mut String) {
    let (mut path, mut dots) = (String::new(), Vec::new());
    let mut piece: Vec<(f64, f64)> = Vec::new();
    let mut finished = |piece: &mut Vec<(f64, f64)>| {
        if let [(at, height)] = piece[..] {
            // A point without neighbours would not be seen.
            dots.push((at, height));
        }
        for (index, (at, height)) in piece.drain(..).enumerate() {
            let pen = if index == 0 { 'M' } else { 'L' };
            let _ = write!(path, "{pen}{at:.1} {height:.1}");
        }
    };
    for (at, value) in &line.points {
        match (x.place(*at), y.place(*value)) {
            (Some(at), Some(height)) => piece.push((across(at), up(height))),
            _ => finished(&mut piece),
        }
    }
    finished(&mut piece);
    let look = match line.look {
        Look::Solid => "",
        Look::Dashed => " dashed",
        Look::Dotted => " dotted",
    };
    if !path.is_empty() {
        let _ = write!(svg, "<path class=\"line{look} {colour}\" d=\"{path}\"/>");
    }
    for (at, height) in dots {
        let _ = write!(
            svg,
            "<circle class=\"fill {colour}\" cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3\"/>"
        );
    }
}

/// An unseen area over the whole height; its text is escaped.
fn hot(left: f64, right: f64, text: &str, svg: &mut String) {
    let _ = write!(
        svg,
        "<rect class=\"hot\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.0}\"><title>{text}</title></rect>",
        right - left,
        HEIGHT - TOP - BOTTOM,
    );
}

impl Chart {
    fn marks(&self, x: &Range, svg: &mut String) {
        let mut texts = String::new();
        for (index, mark) in self.scale.marks.iter().enumerate() {
            let Some(share) = x.place(mark.x) else {
                continue;
            };
            let (at, floor) = (across(share), up(0.0));
            let (anchor, beside) = match share > 0.6 {
                true => ("end", at - 5.0),
                false => ("start", at + 5.0),
            };
            let text = format!("{}: {}", mark.name, self.scale.x.exact(mark.x));
            let text = escaped(text, NAME_CHARS_MAX);
            let _ = write!(
                svg,
                "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{floor:.0}\"/>",
            );
            // Each a row lower than the one before: marks may lie close together.
            let row = TOP + 12.0 + 20.0 * (index % 6) as f64;
            let _ = write!(
                texts,
                "<text class=\"marked\" x=\"{beside:.1}\" y=\"{row:.0}\" text-anchor=\"{anchor}\">{text}</text>",
            );
        }
        // Above all lines, or the next mark would cross the text of this one.
        svg.push_str(&texts);
    }

    /// Of bars above each other the last one tells of all.
    fn bar_areas(&self, x: &Range, svg: &mut String) {
        for same in self.bars.chunk_by(|one, other| one.left == other.left) {
            let Some(last) = same.last() else { continue };
            if let (Some(left), Some(right)) = (x.place(last.left), x.place(last.right)) {
                let texts = last.text.lines();
                let texts: Vec<String> = texts.map(|text| escaped(text, NAME_CHARS_MAX)).collect();
                hot(across(left), across(right), &texts.join("\n"), svg);
            }
        }
    }

    /// Unseen areas over the whole height that tell what is below them.
    fn areas(&self, x: &Range, svg: &mut String) {
        let points = self.lines.iter().flat_map(|line| &line.points);
        let mut places: Vec<(f64, f64)> = points
            .filter_map(|(at, _)| Some((*at, x.place(*at)?)))
            .collect();
        places.sort_by(|one, other| one.0.total_cmp(&other.0));
        // Lines of several runs share their seconds: one area tells of all of them.
        places.dedup_by(|one, other| one.0 == other.0);
        // A percentile curve of many runs has thousands of places; areas of a fraction of a pixel only make the file large.
        let step = places.len().div_ceil(AREAS_LEN_MAX).max(1);
        let places: Vec<(f64, f64)> = places.into_iter().step_by(step).collect();
        for (index, (at, share)) in places.iter().enumerate() {
            // Each area reaches half way to its neighbours, so that the pointer is always in one of them.
            let between = |other: Option<&(f64, f64)>, edge: f64| {
                other.map_or(edge, |(_, other)| (share + other) / 2.0)
            };
            let before = index.checked_sub(1).and_then(|index| places.get(index));
            let left = across(between(before, 0.0));
            let right = across(between(places.get(index + 1), 1.0));
            let mut texts: Vec<String> = self
                .lines
                .iter()
                .filter_map(|line| self.told(line, *at))
                .collect();
            // A line that goes on in another look is told once.
            texts.dedup();
            if !texts.is_empty() {
                let at = escaped(self.scale.x.exact(*at), NAME_CHARS_MAX);
                let label = escaped(&self.x_label, NAME_CHARS_MAX);
                let text = format!("{at} {label}\n{}", texts.join("\n"));
                hot(left, right, &text, svg);
            }
        }
    }

    /// A line's value at one of its points.
    fn told(&self, line: &Line, at: f64) -> Option<String> {
        let y = self.scale.y;
        let exact = |value: f64| y.has(value).then(|| y.exact(value));
        // Exactly the same x: the place was taken from one of these points.
        let index = line.points.iter().position(|(x, _)| *x == at)?;
        let (_, value) = line.points[index];
        let name = escaped(&line.name, NAME_CHARS_MAX);
        let mut text = format!("{name} {}", exact(value)?);
        if let Some((low, high)) = line.low_high.as_ref().and_then(|band| band.get(index)) {
            text += &format!(" ({} to {})", exact(*low)?, exact(*high)?);
        }
        Some(text.trim_start().to_owned())
    }
}
