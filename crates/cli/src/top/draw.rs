//! A view on a screen of any size.
//!
//! Takes a view and the moment, fills a buffer of ratatui. Every distinction can be seen without colour: colours only
//! repeat what the text says.

use present::{thousands, width};
use ratatui::Frame;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Text};
use ratatui::widgets::{Paragraph, RenderDirection, Sparkline, Widget, Wrap};
use telemetry::Stamp;

use super::health::HostLine;
use super::overview::{Listed, Listing, ListingRow, Overview};
use super::stack::StackPanel;
use super::view::{self, Mode, View};

/// On a smaller screen nothing can be read.
const COLUMNS_MIN: u16 = 60;
const ROWS_MIN: u16 = 16;
/// A terminal with fewer rows gets the phases of an exchange without their parts.
const ROWS_OF_ALL_PHASES: u16 = 30;
/// Rows of pools above the listing; the listing of pools has all.
const POOLS_MAX: usize = 3;
const WARNINGS_MAX: usize = 3;
/// A terminal with fewer rows gets the line of the host only where it says that something is wrong.
const ROWS_OF_HOST: u16 = 20;
/// Columns left of a sparkline.
const FIGURES_WIDTH: u16 = 40;
/// Room between columns of a table.
const GAP: usize = 2;

const HELP: &str = "\
Figures are those of the last second; routes those of the last minute.
A sparkline has one column for each second, the latest at its right end.

receive   from the first byte of a request until it is complete
queue     until a thread of the pool takes it
run       until the application has given its response
  gil     the part of run in which its thread waited for the interpreter (GIL)
  cpu     the part of run in which its thread used a processor
send      until the kernel has taken the last byte
SHARE     of the time of all requests
host      share of the time in which programs waited (pressure), of processor
          time that the hypervisor took (steal), of periods with a used-up quota
          (throttled); connections lost before a program accepted them (drops)
OLDEST    the longest wait in the queue now; TARGET is what the pool aims at

Tab, arrows left and right    next table, previous table
arrows up and down            choose a row
Enter                         the stack of the running request that is chosen
s                             sort by the next column
/                             show only names with these letters; Esc shows all
p, space                      pause, go on
q, Ctrl-C                     quit";

const KEYS: &str = "q quit  p pause  s sort  / filter  Tab next table  ? help";

const STACK_KEYS: &str = "Esc back  r ask again  arrows, Home, End scroll  q quit";

/// How things are set apart from each other.
#[derive(Clone, Copy)]
pub(super) enum Palette {
    Coloured,
    /// By bold and reversed text alone.
    Plain,
}

impl Palette {
    fn title(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    fn heading(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match self {
            Palette::Coloured => style.fg(Color::Cyan),
            Palette::Plain => style,
        }
    }

    fn alarming(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match self {
            Palette::Coloured => style.fg(Color::Red),
            Palette::Plain => style,
        }
    }

    fn series(self) -> Style {
        match self {
            Palette::Coloured => Style::new().fg(Color::Green),
            Palette::Plain => Style::new(),
        }
    }

    fn selected(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }
}

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame, view: &View, now: Stamp, palette: Palette) {
    let area = frame.area();
    let buffer = frame.buffer_mut();
    if area.width < COLUMNS_MIN || area.height < ROWS_MIN {
        let text = format!(
            "terminal too small: {} x {}, at least {COLUMNS_MIN} x {ROWS_MIN}; q quits",
            area.width, area.height
        );
        Paragraph::new(text)
            .wrap(Wrap { trim: true })
            .render(area, buffer);
        return;
    }
    let mut rows = RowWriter {
        buffer,
        area,
        next: area.y,
        palette,
    };
    let overview = view.overview();
    rows.line(&overview.title, palette.title());
    if let Some(panel) = &view.stack {
        rows.stack(panel);
        rows.at_the_end(STACK_KEYS);
        return;
    }
    if let Some(trouble) = view.trouble(now) {
        rows.line(&trouble, palette.alarming());
    }
    if view.mode == Mode::Help {
        rows.text(HELP);
        rows.at_the_end("any key goes back");
        return;
    }
    rows.load(overview);
    rows.pools(overview);
    rows.listing(view);
    rows.at_the_end(&footer(view));
}

fn footer(view: &View) -> String {
    match (view.mode, view.is_paused()) {
        (Mode::EditFilter, _) => {
            format!("filter: {}_   Enter keeps it, Esc shows all", view.filter)
        }
        (_, is_paused) if !view.filter.is_empty() => {
            let paused = if is_paused {
                "PAUSED; p goes on   "
            } else {
                ""
            };
            format!("{paused}filter: {}; Esc shows all   {KEYS}", view.filter)
        }
        (_, true) => format!("PAUSED; p goes on   {KEYS}"),
        _ if view.listed == Listed::Running => format!("Enter stack  {KEYS}"),
        (_, false) => KEYS.to_owned(),
    }
}

/// Writes one row after the other.
struct RowWriter<'a> {
    buffer: &'a mut Buffer,
    area: Rect,
    next: u16,
    palette: Palette,
}

impl RowWriter<'_> {
    /// The next row, while there is one above the last, which is the footer's.
    fn row(&mut self) -> Option<Rect> {
        let is_there = self.next + 1 < self.area.bottom();
        let row = Rect::new(self.area.x, self.next, self.area.width, 1);
        self.next += u16::from(is_there);
        is_there.then_some(row)
    }

    fn left(&self) -> usize {
        usize::from(self.area.bottom().saturating_sub(self.next + 1))
    }

    fn line(&mut self, text: &str, style: Style) {
        if let Some(row) = self.row() {
            self.buffer.set_style(row, style);
            Line::raw(text).render(row, self.buffer);
        }
    }

    fn text(&mut self, text: &str) {
        let height = self.left() as u16;
        let area = Rect::new(self.area.x, self.next, self.area.width, height);
        Paragraph::new(Text::raw(text))
            .wrap(Wrap { trim: false })
            .render(area, self.buffer);
        self.next += height;
    }

    fn stack(&mut self, panel: &StackPanel) {
        let columns = usize::from(self.area.width);
        for line in panel.visible(columns, self.left()) {
            self.line(&line, Style::new());
        }
    }

    fn at_the_end(&mut self, text: &str) {
        let row = Rect::new(self.area.x, self.area.bottom() - 1, self.area.width, 1);
        self.buffer.set_style(row, self.palette.heading());
        Line::raw(text).render(row, self.buffer);
    }

    fn load(&mut self, overview: &Overview) {
        for warning in overview.warnings.iter().take(WARNINGS_MAX) {
            self.line(warning, self.palette.alarming());
        }
        self.with_series(
            &format!("{:>12} requests/s", overview.requests),
            &overview.requests_series,
        );
        self.line(&overview.facts, Style::new());
        self.host(&overview.host);
        let headings = phase_row("PHASE", "P50", "P99", "SHARE");
        self.line(
            &format!("{headings}P99 OF EACH SECOND"),
            self.palette.heading(),
        );
        let is_tall = self.area.height >= ROWS_OF_ALL_PHASES;
        for phase in overview
            .phases
            .iter()
            .filter(|phase| is_tall || phase.is_essential)
        {
            let figures = phase_row(phase.name, &phase.p50, &phase.p99, &phase.share);
            self.with_series(&figures, &phase.p99_series);
        }
    }

    fn host(&mut self, host: &HostLine) {
        let is_shown = host.is_alarming || self.area.height >= ROWS_OF_HOST;
        if host.text.is_empty() || !is_shown {
            return;
        }
        let style = match host.is_alarming {
            true => self.palette.alarming(),
            false => Style::new(),
        };
        self.line(&host.text, style);
    }

    /// Figures, and a sparkline of what they were, the latest at the right.
    fn with_series(&mut self, figures: &str, series: &[u64]) {
        let Some(row) = self.row() else {
            return;
        };
        let [left, right] = [
            Rect {
                width: FIGURES_WIDTH,
                ..row
            },
            Rect {
                x: row.x + FIGURES_WIDTH,
                width: row.width - FIGURES_WIDTH,
                ..row
            },
        ];
        Line::raw(figures).render(left, self.buffer);
        let latest_first = series.iter().rev().copied();
        Sparkline::default()
            .data(latest_first.take(usize::from(right.width)))
            .direction(RenderDirection::RightToLeft)
            .style(self.palette.series())
            .render(right, self.buffer);
    }

    fn pools(&mut self, overview: &Overview) {
        let mut pools: Vec<&ListingRow> = overview.pools.rows.iter().collect();
        if pools.is_empty() {
            return;
        }
        view::sort(&mut pools, overview.pools.sorted_by);
        let (shown, others) = pools.split_at(pools.len().min(POOLS_MAX));
        self.table(&overview.pools, shown, None, None);
        if !others.is_empty() {
            self.line(&format!("and {} more", others.len()), Style::new());
        }
    }

    /// The tables that can be chosen, and the rows of the one that is.
    fn listing(&mut self, view: &View) {
        let names = tabs(view.listed, usize::from(self.area.width));
        let more = match view.overview().listing(view.listed).more {
            0 => String::new(),
            more => format!("   and {} more", thousands(more)),
        };
        self.line(&format!("{names}{more}"), self.palette.heading());
        let rows = view.rows();
        let selected = view.selected_row(&rows);
        // The headings take one row. What is chosen is never below the last one.
        let room = self.left().saturating_sub(1).max(1);
        let skipped = selected.map_or(0, |row| (row + 1).saturating_sub(room));
        let shown = rows.get(skipped..).unwrap_or_default();
        let shown = &shown[..shown.len().min(room)];
        let listing = view.overview().listing(view.listed);
        if rows.is_empty() {
            self.line(
                match (listing.rows.is_empty(), view.listed) {
                    (true, Listed::Upstreams) => "this server has no upstream servers",
                    (true, _) => "nothing yet",
                    (false, _) => "no name has these letters",
                },
                Style::new(),
            );
            return;
        }
        let selected = selected.map(|row| row - skipped);
        self.table(listing, shown, Some(view.sorted_by()), selected);
    }

    /// Columns as wide as they need, the first at the left, the others at the right of theirs. Columns that have no room
    /// are left out.
    fn table(
        &mut self,
        listing: &Listing,
        rows: &[&ListingRow],
        sorted_by: Option<usize>,
        selected: Option<usize>,
    ) {
        let headings = listing
            .headings
            .iter()
            .enumerate()
            .map(|(column, heading)| match sorted_by == Some(column) {
                true => format!("{heading}▼"),
                false => (*heading).to_owned(),
            });
        let headings: Vec<String> = headings.collect();
        let widths: Vec<usize> = headings
            .iter()
            .enumerate()
            .map(|(column, heading)| {
                let cells = rows.iter().filter_map(|row| row.cells.get(column));
                let cells = cells.map(|cell| width(cell));
                cells.chain([width(heading)]).max().unwrap_or(0)
            })
            .collect();
        let columns = usize::from(self.area.width);
        self.line(
            &table_row(&headings, &widths, columns),
            self.palette.heading(),
        );
        for (index, row) in rows.iter().enumerate() {
            let style = match (selected == Some(index), row.is_alarming) {
                (true, _) => self.palette.selected(),
                (false, true) => self.palette.alarming(),
                (false, false) => Style::new(),
            };
            self.line(&table_row(&row.cells, &widths, columns), style);
        }
    }
}

/// Names of the tables, the chosen one in brackets. Where they have no room, the chosen one comes first, so that it can
/// always be seen.
fn tabs(chosen: Listed, columns: usize) -> String {
    let name = |listed: Listed| match listed == chosen {
        true => format!("[{}]", listed.title()),
        false => format!(" {} ", listed.title()),
    };
    let all = Listed::ALL.map(name).join(" ");
    match width(&all) <= columns {
        true => all,
        false => {
            let from_chosen = (0..Listed::ALL.len()).map(|step| name(chosen.plus(step)));
            from_chosen.collect::<Vec<_>>().join(" ")
        }
    }
}

fn phase_row(name: &str, p50: &str, p99: &str, share: &str) -> String {
    format!("{name:<9}{p50:>9}{p99:>10}{share:>9}   ")
}

fn table_row(cells: &[String], widths: &[usize], columns: usize) -> String {
    // The name gives way to the figures, down to a part of it.
    let others: usize = widths.iter().skip(1).map(|width| width + GAP).sum();
    let name_width = widths.first().copied().unwrap_or(0);
    let name_width = name_width.min(columns.saturating_sub(others).max(12));
    let mut text = String::new();
    let mut used = 0;
    for (column, (cell, own_width)) in cells.iter().zip(widths).enumerate() {
        if column == 0 {
            let name = present::harmless(cell, name_width);
            text.push_str(&name);
            text.push_str(&" ".repeat(name_width.saturating_sub(width(&name))));
            used = name_width;
            continue;
        }
        used += GAP + own_width;
        if used > columns {
            break;
        }
        text.push_str(&" ".repeat(GAP + own_width.saturating_sub(width(cell))));
        text.push_str(cell);
    }
    text
}

#[cfg(test)]
mod tests;
