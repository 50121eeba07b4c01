//! Curves as pictures: SVG for pages and files, characters for terminals.
//!
//! Takes points, gives text. A [`Line`] may have a band (from the least to the greatest of several
//! repetitions), and a [`Scale`] may mark places such as the knee of a search. Points that are not finite,
//! and those that a logarithmic axis has no place for, are gaps.

mod axis;
mod cells;
mod svg;

pub use axis::Axis;
use axis::Range;
pub use cells::text_curve;
pub use svg::curve;
pub(super) use svg::{BAD, COLOURS_LEN, Frame, Look, Trace, drawn};

/// A line of a picture.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// In the order of their x.
    pub points: Vec<(f64, f64)>,
    /// The least and the greatest y for each of `points`.
    pub low_high: Option<Vec<(f64, f64)>>,
}

/// How numbers become places, and what is marked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// Places on the x axis.
    pub marks: Vec<Mark>,
}

/// A marked place.
#[derive(Clone, Debug, PartialEq)]
pub struct Mark {
    /// Where.
    pub x: f64,
    /// What is there: `the knee`.
    pub name: String,
}

impl Scale {
    /// These axes, and nothing marked.
    pub fn of(x: Axis, y: Axis) -> Scale {
        Scale {
            x,
            y,
            marks: Vec::new(),
        }
    }

    /// With a marked place more.
    pub fn marked(mut self, x: f64, name: &str) -> Scale {
        let name = name.to_owned();
        self.marks.push(Mark { x, name });
        self
    }

    /// Both axes for these lines; `None`: there is nothing to draw.
    fn ranges(&self, lines: &[&Line]) -> Option<(Range, Range)> {
        let points = || lines.iter().flat_map(|line| line.points.iter().copied());
        let seen = || points().filter(|(x, y)| self.x.has(*x) && self.y.has(*y));
        seen().next()?;
        let bands = lines.iter().filter_map(|line| line.low_high.as_ref());
        let ends = bands.flatten().flat_map(|(low, high)| [*low, *high]);
        let marks = self.marks.iter().map(|mark| mark.x);
        let x = Range::along(self.x, seen().map(|(x, _)| x).chain(marks));
        let y = Range::upwards(self.y, seen().map(|(_, y)| y).chain(ends));
        Some((x, y))
    }
}
