//! Curves as SVG: no script, no font, colours by classes, so that light and dark both work.
//!
//! Hovering tells the exact numbers: an unseen area over each x has them as its title.

use std::fmt::Write as _;

use super::super::text::escaped;
use super::axis::Range;
use super::{Line, Scale};

const WIDTH: f64 = 560.0;
const HEIGHT: f64 = 310.0;
const LEFT: f64 = 74.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 32.0;
const BOTTOM: f64 = 48.0;
/// Colours that there are; a further line has the first one again.
pub(in crate::output) const COLOURS_LEN: usize = 8;
/// The colour of what is bad.
pub(in crate::output) const BAD: usize = usize::MAX;
/// Areas for hovering.
const AREAS_LEN_MAX: usize = 400;
/// Characters of a name.
const NAME_CHARS_MAX: usize = 60;
/// The style of a picture that stands alone; a page has the same in its own.
const STYLE: &str = include_str!("svg.css");

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::output) enum Look {
    Solid,
    /// As a further line of the same thing.
    Dashed,
    /// As what is not certain.
    Dotted,
}

/// A line, its colour by number, and its look.
#[derive(Clone, Debug)]
pub(in crate::output) struct Trace {
    pub(in crate::output) line: Line,
    pub(in crate::output) colour: usize,
    pub(in crate::output) look: Look,
}

/// Where a picture stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::output) enum Frame {
    /// In a file of its own: with style, title and legend.
    Alone,
    /// In a page that has the style and says the rest.
    Page,
}

/// A picture that stands alone, as a file or within a page.
pub fn curve(title: &str, x_label: &str, y_label: &str, lines: &[Line], scale: &Scale) -> String {
    let traces = lines.iter().enumerate().map(|(index, line)| Trace {
        line: line.clone(),
        colour: index,
        look: Look::Solid,
    });
    let traces: Vec<Trace> = traces.collect();
    drawn(Frame::Alone, title, [x_label, y_label], &traces, scale)
}

/// A picture of these traces; `labels` are those of x and y.
pub(in crate::output) fn drawn(
    frame: Frame,
    title: &str,
    labels: [&str; 2],
    traces: &[Trace],
    scale: &Scale,
) -> String {
    let lines: Vec<&Line> = traces.iter().map(|trace| &trace.line).collect();
    let head_height = if frame == Frame::Alone {
        30.0 + 20.0 * legend_rows(traces)
    } else {
        0.0
    };
    let title = escaped(title, 2 * NAME_CHARS_MAX);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"picture\" viewBox=\"0 {:.0} {WIDTH} {:.0}\" role=\"img\" aria-label=\"{title}\">",
        -head_height,
        HEIGHT + head_height,
    );
    if frame == Frame::Alone {
        let _ = write!(
            svg,
            "<style>{STYLE}</style><rect class=\"ground\" y=\"{:.0}\" width=\"{WIDTH}\" height=\"{:.0}\"/>\
             <text class=\"title\" x=\"14\" y=\"{:.0}\">{title}</text>",
            -head_height,
            HEIGHT + head_height,
            22.0 - head_height,
        );
        legend(traces, 44.0 - head_height, &mut svg);
    }
    match scale.ranges(&lines) {
        Some((x, y)) => {
            axes(&x, &y, labels, &mut svg);
            for trace in traces {
                band(trace, &x, &y, &mut svg);
            }
            for trace in traces {
                path(trace, &x, &y, &mut svg);
            }
            marks(scale, &x, &mut svg);
            areas(traces, scale, &x, labels[0], &mut svg);
        }
        None => {
            let _ = write!(
                svg,
                "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\">no values</text>",
                WIDTH / 2.0,
                HEIGHT / 2.0
            );
        }
    }
    svg.push_str("</svg>");
    svg
}

/// The number in the class of its colour.
fn colour(trace: &Trace) -> usize {
    if trace.colour == BAD {
        COLOURS_LEN
    } else {
        trace.colour % COLOURS_LEN
    }
}

fn across(share: f64) -> f64 {
    LEFT + share * (WIDTH - LEFT - RIGHT)
}

fn up(share: f64) -> f64 {
    HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
}

/// Names in rows of two: they are long.
fn legend_rows(traces: &[Trace]) -> f64 {
    (named(traces).count() as f64 / 2.0).ceil()
}

fn named(traces: &[Trace]) -> impl Iterator<Item = &Trace> {
    traces.iter().filter(|trace| !trace.line.name.is_empty())
}

fn legend(traces: &[Trace], top: f64, svg: &mut String) {
    for (index, trace) in named(traces).enumerate() {
        let x = 14.0 + (index % 2) as f64 * (WIDTH / 2.0 - 7.0);
        let y = top + (index / 2) as f64 * 20.0;
        let _ = write!(
            svg,
            "<rect class=\"fill c{}\" x=\"{x:.0}\" y=\"{:.0}\" width=\"11\" height=\"11\" rx=\"2\"/><text x=\"{:.0}\" y=\"{y:.0}\">{}</text>",
            colour(trace),
            y - 10.0,
            x + 17.0,
            escaped(&trace.line.name, 38),
        );
    }
}

fn axes(x: &Range, y: &Range, [x_label, y_label]: [&str; 2], svg: &mut String) {
    let (floor, right) = (up(0.0), across(1.0));
    for (share, text) in y.ticks() {
        let at = up(share);
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{text}</text>",
            LEFT - 7.0,
            at + 4.0,
        );
    }
    for (share, text) in x.ticks() {
        let at = across(share);
        // A label at the very edge would be cut.
        let anchor = if share > 0.97 { "end" } else { "middle" };
        let _ = write!(
            svg,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{floor}\"/><text x=\"{:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{text}</text>",
            if share > 0.97 { right } else { at },
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

fn band(trace: &Trace, x: &Range, y: &Range, svg: &mut String) {
    let Some(band) = &trace.line.low_high else {
        return;
    };
    let corners = trace
        .line
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
            "<path class=\"band fill c{}\" d=\"M{outline}Z\"/>",
            colour(trace)
        );
    }
}

fn path(trace: &Trace, x: &Range, y: &Range, svg: &mut String) {
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
    for (at, value) in &trace.line.points {
        match (x.place(*at), y.place(*value)) {
            (Some(at), Some(height)) => piece.push((across(at), up(height))),
            _ => finished(&mut piece),
        }
    }
    finished(&mut piece);
    let colour = colour(trace);
    let look = match trace.look {
        Look::Solid => "",
        Look::Dashed => " dashed",
        Look::Dotted => " dotted",
    };
    if !path.is_empty() {
        let _ = write!(svg, "<path class=\"line{look} c{colour}\" d=\"{path}\"/>");
    }
    for (at, height) in dots {
        let _ = write!(
            svg,
            "<circle class=\"fill c{colour}\" cx=\"{at:.1}\" cy=\"{height:.1}\" r=\"3\"/>"
        );
    }
}

fn marks(scale: &Scale, x: &Range, svg: &mut String) {
    for mark in &scale.marks {
        let Some(share) = x.place(mark.x) else {
            continue;
        };
        let at = across(share);
        let (anchor, beside) = if share > 0.6 {
            ("end", at - 5.0)
        } else {
            ("start", at + 5.0)
        };
        let _ = write!(
            svg,
            "<line class=\"mark\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{TOP}\" y2=\"{:.0}\"/><text class=\"marked\" x=\"{beside:.1}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{}</text>",
            up(0.0),
            TOP + 12.0,
            escaped(
                &format!("{}: {}", mark.name, scale.x.exact(mark.x)),
                NAME_CHARS_MAX
            ),
        );
    }
}

/// Unseen areas over the whole height that tell what is below them.
fn areas(traces: &[Trace], scale: &Scale, x: &Range, x_label: &str, svg: &mut String) {
    let mut places: Vec<(f64, f64)> = traces
        .iter()
        .flat_map(|trace| &trace.line.points)
        .filter_map(|(at, _)| Some((*at, x.place(*at)?)))
        .collect();
    places.sort_by(|one, other| one.0.total_cmp(&other.0));
    places.dedup_by(|one, other| one.0 == other.0);
    let places: Vec<(f64, f64)> = places
        .iter()
        .copied()
        .step_by(places.len().div_ceil(AREAS_LEN_MAX).max(1))
        .collect();
    for (index, (at, share)) in places.iter().enumerate() {
        let between = |other: Option<&(f64, f64)>, edge: f64| {
            other.map_or(edge, |(_, other)| (share + other) / 2.0)
        };
        let before = index.checked_sub(1).and_then(|index| places.get(index));
        let (left, right) = (
            across(between(before, 0.0)),
            across(between(places.get(index + 1), 1.0)),
        );
        let mut texts: Vec<String> = traces
            .iter()
            .filter_map(|trace| told(trace, scale, *at))
            .collect();
        // A line that goes on in another look is told once.
        texts.dedup();
        if !texts.is_empty() {
            let _ = write!(
                svg,
                "<rect class=\"hot\" x=\"{left:.1}\" y=\"{TOP}\" width=\"{:.1}\" height=\"{:.0}\"><title>{} {}\n{}</title></rect>",
                right - left,
                HEIGHT - TOP - BOTTOM,
                escaped(&scale.x.exact(*at), NAME_CHARS_MAX),
                escaped(x_label, NAME_CHARS_MAX),
                texts.join("\n"),
            );
        }
    }
}

fn told(trace: &Trace, scale: &Scale, at: f64) -> Option<String> {
    let index = trace.line.points.iter().position(|(x, _)| *x == at)?;
    let (_, value) = trace.line.points[index];
    let mut text = format!(
        "{} {}",
        escaped(&trace.line.name, NAME_CHARS_MAX),
        exact(scale, value)?
    );
    let band = trace
        .line
        .low_high
        .as_ref()
        .and_then(|band| band.get(index));
    if let Some((low, high)) = band {
        text += &format!(" ({} to {})", exact(scale, *low)?, exact(scale, *high)?);
    }
    Some(text.trim_start().to_owned())
}

fn exact(scale: &Scale, value: f64) -> Option<String> {
    scale.y.has(value).then(|| scale.y.exact(value))
}
