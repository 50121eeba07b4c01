//! Curves as characters: braille dots for one line, a sign of its own for each of several.

use std::fmt::Write as _;

use super::axis::Range;
use super::{Chart, Line};
use crate::text::{WIDTH_MAX, broken, harmless, width};

/// Characters of the drawing area.
const COLUMNS: usize = 72;
const ROWS: usize = 16;
/// Characters of the numbers on the left.
const LEFT: usize = 10;
const _: () = assert!(
    LEFT + 2 + COLUMNS <= WIDTH_MAX,
    "a picture is as wide as a terminal at most"
);
/// Signs of several lines; a further line has the first one again.
const SIGNS: [char; 8] = ['o', 'x', '+', '*', '#', '@', '%', '='];
/// What a band is filled with, and what stands at a mark.
const BAND: char = '░';
const MARK: char = '┊';

impl Chart {
    /// A picture of characters, at most 100 columns wide, with its axes and, of several lines, a legend. Bars are left
    /// out.
    pub fn text(&self) -> String {
        let mut out = String::new();
        for line in broken(&harmless(&self.title, 200), LEFT + COLUMNS + 2) {
            let _ = writeln!(out, "{line}");
        }
        let Some((x, y)) = self.ranges() else {
            out.push_str("no values\n");
            return out;
        };
        let mut area = Area::new(&x, &y);
        // What is drawn later covers what was drawn before: lines must not end at a band or a mark.
        for line in &self.lines {
            area.band(line);
        }
        for mark in &self.scale.marks {
            area.mark(mark.x);
        }
        match &self.lines[..] {
            [line] => area.dots(line),
            lines => lines
                .iter()
                .zip(SIGNS.iter().cycle())
                .for_each(|(line, sign)| area.signs(line, *sign)),
        }
        let _ = writeln!(out, "{}", harmless(&self.y_label, LEFT + COLUMNS));
        area.write(&mut out);
        below(&x, &self.x_label, &mut out);
        self.signs(&mut out);
        out
    }

    /// The meaning of each sign.
    fn signs(&self, out: &mut String) {
        let mut entries: Vec<(char, String)> = Vec::new();
        if self.lines.len() > 1 {
            let named = self.lines.iter().zip(SIGNS.iter().cycle());
            entries.extend(named.map(|(line, sign)| (*sign, line.name.clone())));
        }
        if self.lines.iter().any(|line| line.low_high.is_some()) {
            entries.push((BAND, "from the least to the greatest".to_owned()));
        }
        for mark in &self.scale.marks {
            let text = format!("{}: {}", mark.name, self.scale.x.exact(mark.x));
            entries.push((MARK, text));
        }
        for (sign, text) in entries {
            let text = harmless(&text, COLUMNS - 10);
            let _ = writeln!(out, "{} {sign} {text}", " ".repeat(LEFT));
        }
    }
}

/// What is drawn, row by row from the top.
struct Area<'a> {
    x: &'a Range,
    y: &'a Range,
    cells: Vec<Vec<char>>,
    /// Two by four dots in each cell.
    dots: Vec<Vec<u8>>,
}

impl<'a> Area<'a> {
    fn new(x: &'a Range, y: &'a Range) -> Area<'a> {
        Area {
            x,
            y,
            cells: vec![vec![' '; COLUMNS]; ROWS],
            dots: vec![vec![0; COLUMNS]; ROWS],
        }
    }

    /// Column and row of a point on a grid of so many.
    fn spot(&self, (x, y): (f64, f64), columns: usize, rows: usize) -> Option<(usize, usize)> {
        // One less than there are: the ends of the axes are the middles of the outer cells.
        let at = (self.x.place(x)? * (columns - 1) as f64).round() as usize;
        let up = (self.y.place(y)? * (rows - 1) as f64).round() as usize;
        assert!(at < columns && up < rows, "a place is on its axis");
        Some((at, rows - 1 - up))
    }

    fn band(&mut self, line: &Line) {
        let Some(band) = &line.low_high else { return };
        let ends = line.points.iter().zip(band).map(|((x, _), (low, high))| {
            let low = self.spot((*x, *low), COLUMNS, ROWS)?;
            let high = self.spot((*x, *high), COLUMNS, ROWS)?;
            Some((low, high))
        });
        let ends: Vec<_> = ends.collect();
        for pair in ends.windows(2) {
            let [Some((low, high)), Some((next_low, next_high))] = *pair else {
                continue;
            };
            // Between two points the band is filled column by column: a gap on either side leaves it open.
            let tops = between(high, next_high);
            for ((column, bottom), (_, top)) in between(low, next_low).zip(tops) {
                for row in top..=bottom {
                    self.cells[row][column] = BAND;
                }
            }
        }
    }

    fn mark(&mut self, x: f64) {
        if let Some(share) = self.x.place(x) {
            let column = (share * (COLUMNS - 1) as f64).round() as usize;
            for row in &mut self.cells {
                row[column] = MARK;
            }
        }
    }

    fn signs(&mut self, line: &Line, sign: char) {
        for spot in self.joined(line, COLUMNS, ROWS) {
            self.cells[spot.1][spot.0] = sign;
        }
    }

    fn dots(&mut self, line: &Line) {
        // Bits of the dots of U+2800, from the left column's top: Unicode 15, section 21.1.
        const BITS: [[u8; 2]; 4] = [[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]];
        for (column, row) in self.joined(line, 2 * COLUMNS, 4 * ROWS) {
            self.dots[row / 4][column / 2] |= BITS[row % 4][column % 2];
        }
    }

    /// All places that a line passes on a grid of so many.
    fn joined(&self, line: &Line, columns: usize, rows: usize) -> Vec<(usize, usize)> {
        let spots: Vec<_> = line
            .points
            .iter()
            .map(|point| self.spot(*point, columns, rows))
            .collect();
        // Points without neighbours are places as well, or a single one would not be seen.
        let mut passed: Vec<(usize, usize)> = spots.iter().copied().flatten().collect();
        for pair in spots.windows(2) {
            if let [Some(from), Some(to)] = *pair {
                passed.extend(straight(from, to));
            }
        }
        passed
    }

    fn write(&self, out: &mut String) {
        let mut labels = vec![String::new(); ROWS];
        for (share, text) in self.y.ticks() {
            // Two numbers of one row: the later one stands, which is the greater.
            labels[ROWS - 1 - (share * (ROWS - 1) as f64).round() as usize] = text;
        }
        for ((cells, dots), label) in self.cells.iter().zip(&self.dots).zip(&labels) {
            // Dots cover the cell below them: no sign of Unicode shows both.
            let drawn = cells.iter().zip(dots).map(|(cell, dots)| match dots {
                0 => *cell,
                dots => char::from_u32(0x2800 + u32::from(*dots)).unwrap_or(*cell),
            });
            let tick = if label.is_empty() { '│' } else { '┤' };
            let missing = " ".repeat(LEFT.saturating_sub(width(label)));
            let line = format!("{missing}{label} {tick}{}", drawn.collect::<String>());
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
}

/// Each column from one spot to another one that is not left of it, with the row there.
fn between(from: (usize, usize), to: (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
    let (length, rise) = (to.0.saturating_sub(from.0), to.1 as f64 - from.1 as f64);
    (0..=length).map(move |step| {
        let share = step as f64 / length.max(1) as f64;
        (
            from.0 + step,
            (from.1 as f64 + rise * share).round() as usize,
        )
    })
}

/// All places on the straight way from one to another.
fn straight(from: (usize, usize), to: (usize, usize)) -> impl Iterator<Item = (usize, usize)> {
    let (run, rise) = (to.0 as f64 - from.0 as f64, to.1 as f64 - from.1 as f64);
    // As many steps as the longer side has places: no place on the way is left out.
    let steps = run.abs().max(rise.abs());
    (0..=steps as usize).map(move |step| {
        let share = step as f64 / steps.max(1.0);
        let at = |begin: usize, whole: f64| (begin as f64 + whole * share).round() as usize;
        (at(from.0, run), at(from.1, rise))
    })
}

fn below(x: &Range, x_label: &str, out: &mut String) {
    let (mut rule, mut texts) = (vec!['─'; COLUMNS], String::new());
    for (share, text) in x.ticks() {
        let column = (share * (COLUMNS - 1) as f64).round() as usize;
        rule[column] = '┬';
        let begin = (column + LEFT + 2).saturating_sub(width(&text) / 2);
        let used = width(&texts);
        // The last one is moved to the left where it would stand out; what would touch another is left out.
        let begin = begin.min(LEFT + 2 + COLUMNS - width(&text).min(COLUMNS));
        if begin > used {
            let _ = write!(texts, "{}{text}", " ".repeat(begin - used));
        }
    }
    let _ = writeln!(
        out,
        "{} └{}",
        " ".repeat(LEFT),
        rule.into_iter().collect::<String>()
    );
    let _ = writeln!(out, "{texts}");
    let label = harmless(x_label, COLUMNS);
    let middle = LEFT + 2 + (COLUMNS - width(&label).min(COLUMNS)) / 2;
    let _ = writeln!(
        out,
        "{}",
        format!("{}{label}", " ".repeat(middle)).trim_end()
    );
}
