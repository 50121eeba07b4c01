//! One chart, of lines and of bars, as SVG for pages.
//!
//! Takes points, gives text. A [`Line`] may have a band (from the least to the greatest of several repetitions), and a
//! [`Scale`] may mark places such as the knee of a search. Points that are not finite, and those that a logarithmic
//! axis has no place for, are gaps.

mod axis;
mod svg;

pub use axis::Axis;
use axis::Range;
pub(crate) use svg::{STYLE, colour_class};

/// Colours that there are; a further line has the first one again.
const COLOURS_LEN: usize = 8;
/// The colour of what is bad.
pub const BAD: usize = usize::MAX;

/// A picture with its axes.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chart {
    /// Above it.
    pub title: String,
    /// Beside the title on a page: what cannot be seen.
    pub hint: String,
    /// What stands to the right, with its unit.
    pub x_label: String,
    /// What stands upwards, with its unit.
    pub y_label: String,
    /// Axes and marks.
    pub scale: Scale,
    /// Drawn over the bars.
    pub lines: Vec<Line>,
    /// In any order.
    pub bars: Vec<Bar>,
    /// Colours of bars and their meanings, for the legend.
    pub keys: Vec<(usize, String)>,
    /// What stands in its place while there is nothing to draw; without it, `no values`.
    pub empty_text: Option<&'static str>,
}

/// A line of a chart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Line {
    /// For the legend.
    pub name: String,
    /// In the order of their x.
    pub points: Vec<(f64, f64)>,
    /// The least and the greatest y for each of `points`.
    pub low_high: Option<Vec<(f64, f64)>>,
    /// Its number among the colours, or [`BAD`]; `None`: by its place among the lines.
    pub colour: Option<usize>,
    /// How it is drawn.
    pub look: Look,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Look {
    /// As it is.
    #[default]
    Solid,
    /// As a further line of the same thing.
    Dashed,
    /// As what is not certain.
    Dotted,
}

/// An area from `left` to `right` and from `low` to `high`.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// On the x axis.
    pub left: f64,
    /// On the x axis.
    pub right: f64,
    /// On the y axis.
    pub low: f64,
    /// On the y axis.
    pub high: f64,
    /// As of a line.
    pub colour: usize,
    /// What it is, in lines, with its exact numbers; of bars above each other the last one tells of all.
    pub text: String,
}

/// How numbers become places, and what is marked.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scale {
    /// To the right.
    pub x: Axis,
    /// Upwards.
    pub y: Axis,
    /// What the x axis holds at least, so that several charts have the same.
    pub x_ends: Option<(f64, f64)>,
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
            ..Scale::default()
        }
    }

    /// With a marked place more.
    pub fn marked(mut self, x: f64, name: &str) -> Scale {
        let name = name.to_owned();
        self.marks.push(Mark { x, name });
        self
    }
}

impl Chart {
    /// A chart of these lines.
    pub fn of(title: &str, labels: [&str; 2], scale: Scale, lines: Vec<Line>) -> Chart {
        let [x_label, y_label] = labels.map(str::to_owned);
        Chart {
            title: title.to_owned(),
            x_label,
            y_label,
            scale,
            lines,
            ..Chart::default()
        }
    }

    /// Whether there is anything to draw.
    pub fn is_empty(&self) -> bool {
        self.ranges().is_none()
    }

    /// Both axes; `None`: there is nothing to draw.
    fn ranges(&self) -> Option<(Range, Range)> {
        for line in &self.lines {
            let band_len = line.low_high.as_ref().map(Vec::len);
            let is_whole = band_len.is_none_or(|len| len == line.points.len());
            assert!(is_whole, "a band has two ends at each point");
        }
        let (scale, bars) = (&self.scale, &self.bars);
        // Two corners of each bar suffice: the axis must hold its ends and its height.
        let corners = bars
            .iter()
            .flat_map(|bar| [(bar.left, bar.low), (bar.right, bar.high)]);
        let points = self
            .lines
            .iter()
            .flat_map(|line| line.points.iter().copied());
        let all: Vec<(f64, f64)> = points.chain(corners).collect();
        let seen = || {
            let has_place = |(x, y): &&(f64, f64)| scale.x.has(*x) && scale.y.has(*y);
            all.iter().filter(has_place)
        };
        // Before the axes are made: an axis of nothing would show numbers that nobody measured.
        seen().next()?;
        let bands = self.lines.iter().filter_map(|line| line.low_high.as_ref());
        let bands = bands.flatten().flat_map(|(low, high)| [*low, *high]);
        let marks = scale.marks.iter().map(|mark| mark.x);
        let ends = scale.x_ends.iter().flat_map(|(low, high)| [*low, *high]);
        // A mark outside the points is seen: the knee of a search may lie beyond its last try.
        let x = seen().map(|(x, _)| *x).chain(marks).chain(ends);
        let y = Range::upwards(scale.y, seen().map(|(_, y)| *y).chain(bands));
        Some((Range::along(scale.x, x), y))
    }

    /// Colours and names, each name once.
    pub(crate) fn legend(&self) -> Vec<(usize, &str)> {
        let lines = self.lines.iter().enumerate();
        let lines = lines.map(|(place, line)| (line.colour.unwrap_or(place), line.name.as_str()));
        let bars = self
            .keys
            .iter()
            .map(|(colour, name)| (*colour, name.as_str()));
        let mut named: Vec<(usize, &str)> = Vec::new();
        for (colour, name) in lines.chain(bars).filter(|(_, name)| !name.is_empty()) {
            // A line that goes on in another look has the same name, and is one entry.
            if named.iter().all(|(_, known)| *known != name) {
                named.push((colour, name));
            }
        }
        named
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Two lines of a sweep, the first with a band.
    fn sweep() -> Chart {
        let height = |clients: f64| 60_000.0 * clients / (clients + 40.0);
        let points: Vec<(f64, f64)> = (1..=25)
            .map(|step| f64::from(step) * 10.0)
            .map(|x| (x, height(x)))
            .collect();
        let milepost = Line {
            name: "milepost".to_owned(),
            low_high: Some(points.iter().map(|(_, y)| (0.92 * y, 1.05 * y)).collect()),
            points: points.clone(),
            ..Line::default()
        };
        let other = Line {
            name: "<other>".to_owned(),
            points: points.iter().map(|(x, y)| (*x, 0.7 * y)).collect(),
            ..Line::default()
        };
        let lines = vec![milepost, other];
        let scale = Scale::of(Axis::Linear, Axis::Linear).marked(150.0, "the knee");
        Chart::of("Requests a second", ["clients", "requests/s"], scale, lines)
    }

    #[test]
    fn draws_sweeps_as_agreed() {
        let svg = sweep().svg();
        for part in ["the knee: 150", "&lt;other&gt;"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn a_file_has_what_a_page_says_around_a_chart() {
        let file = sweep().file();
        for part in [
            "xmlns=",
            ".c0 {",
            ">Requests a second</text>",
            ">milepost</text>",
        ] {
            assert!(file.contains(part), "{part}: {file}");
        }
        let count = |part| file.matches(part).count();
        assert_eq!((count("<svg"), count("</svg>")), (2, 2));
        // Both names of the legend, below the chart.
        assert_eq!(count("width=\"12\" height=\"12\""), 2);
    }

    #[test]
    fn a_chart_without_values_says_so() {
        let gaps = vec![(1.0, 0.0), (f64::NAN, 1.0)];
        for points in [vec![], gaps] {
            let line = Line {
                points,
                ..Line::default()
            };
            let scale = Scale::of(Axis::Linear, Axis::Durations);
            let mut chart = Chart::of("t", ["x", "y"], scale, vec![line]);
            assert!(chart.svg().contains(">no values<") && chart.is_empty());
            chart.empty_text = Some("all below 1 µs");
            assert!(chart.svg().contains(">all below 1 µs<"));
        }
    }

    #[test]
    fn a_bar_says_its_numbers() {
        let mut chart = Chart::of(
            "t",
            ["time", "y"],
            Scale::of(Axis::Clock, Axis::Linear),
            vec![],
        );
        chart.bars.push(Bar {
            left: 971_186_136.0,
            right: 971_186_140.0,
            low: 0.0,
            high: 5.0,
            colour: BAD,
            text: "5xx <5>".to_owned(),
        });
        let svg = chart.svg();
        assert!(svg.contains("class=\"bar fill c8\""), "{svg}");
        assert!(svg.contains("<title>5xx &lt;5&gt;</title>"), "{svg}");
    }

    #[test]
    fn texts_below_an_axis_do_not_overlap() {
        let line = Line {
            points: vec![(971_186_136.0, 1.0), (971_186_141.9, 1.0)],
            ..Line::default()
        };
        let scale = Scale::of(Axis::Clock, Axis::Linear);
        let svg = Chart::of("t", ["time", "y"], scale, vec![line]).svg();
        let shown = (36..42).filter(|second| svg.contains(&format!(">13:55:{second}</text>")));
        assert_eq!(shown.collect::<Vec<_>>(), [36, 38, 39, 40, 41]);
    }

    fn any_number() -> impl Strategy<Value = f64> {
        prop_oneof![
            0.0..1e9,
            any::<f64>(),
            Just(0.0),
            Just(f64::MAX),
            Just(f64::MIN_POSITIVE)
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, max_shrink_iters: 100, ..ProptestConfig::default() })]

        #[test]
        fn draws_any_curve(
            points in prop::collection::vec((any_number(), any_number()), 0..40),
            band in any::<bool>(),
            mark in any_number(),
            name in ".{0,300}",
        ) {
            let low_high = band.then(|| points.clone());
            let bars = points.iter().map(|(x, y)| Bar {
                left: *x,
                right: x + 1.0,
                low: 0.0,
                high: *y,
                colour: 1,
                text: name.clone(),
            });
            let bars: Vec<Bar> = bars.collect();
            let line = Line { name: name.clone(), points, low_high, ..Line::default() };
            for axis in [Axis::Linear, Axis::Durations, Axis::Nines, Axis::Clock] {
                let scale = Scale::of(axis, axis).marked(mark, &name);
                for lines in [vec![line.clone()], vec![line.clone(), line.clone()]] {
                    let mut chart = Chart::of(&name, [&name, &name], scale.clone(), lines);
                    chart.bars = bars.clone();
                    let svg = chart.svg();
                    prop_assert!(!svg.contains("NaN") && !svg.contains("inf\""), "{svg}");
                }
            }
        }
    }
}
