//! One page: a file that opens without a network, light or dark, on a phone or a desk.
//!
//! Takes texts, tables and charts in their order, gives HTML with its style within. A few lines of script show at once,
//! and on touch, what browsers show of a title after a while; without them everything is there as well.

use std::fmt::Write as _;

use crate::chart::{Chart, colour_class};
use crate::table::Table;
use crate::text::{coded, escaped};

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");
const TEXT_CHARS_MAX: usize = 600;

/// A page that is being written.
#[derive(Clone, Debug)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// An empty page with a headline.
    pub fn new(title: &str) -> Page {
        Page {
            title: escaped(title, TEXT_CHARS_MAX),
            body: String::new(),
        }
    }

    /// A heading.
    pub fn heading(&mut self, text: &str) -> &mut Page {
        self.put("h2", text)
    }

    /// A paragraph.
    pub fn paragraph(&mut self, text: &str) -> &mut Page {
        self.put("p", text)
    }

    /// A remark of class `invalid`, `doubtful` or `note`: `label` is finished HTML, and what `text` has in backticks is
    /// code.
    pub fn remark(&mut self, class: &str, label: &str, text: &str) -> &mut Page {
        let text = coded(&escaped(text, TEXT_CHARS_MAX));
        self.html(&format!("<p class=\"remark {class}\">{label} {text}</p>\n"))
    }

    /// What the page says first, line by line; what the lines have in backticks is code.
    pub fn verdict(&mut self, lines: &[String]) -> &mut Page {
        if lines.is_empty() {
            return self;
        }
        let lines = lines
            .iter()
            .map(|line| coded(&escaped(line, TEXT_CHARS_MAX)));
        let lines = lines.collect::<Vec<_>>().join("<br>");
        self.html(&format!("<p class=\"remark note\">{lines}</p>\n"))
    }

    /// Numbers that matter most, each with its name.
    pub fn cards<'a>(&mut self, cards: impl IntoIterator<Item = (String, &'a str)>) -> &mut Page {
        let cards = cards.into_iter().map(|(value, name)| {
            let value = escaped(value, TEXT_CHARS_MAX);
            format!("<div class=card><b>{value}</b><span>{name}</span></div>")
        });
        let cards: String = cards.collect();
        self.html(&format!("<div class=cards>{cards}</div>\n"))
    }

    /// A table.
    pub fn table(&mut self, table: &Table) -> &mut Page {
        self.html(&table.to_html())
    }

    /// Charts side by side.
    pub fn charts<'a>(&mut self, charts: impl IntoIterator<Item = &'a Chart>) -> &mut Page {
        self.html("<div class=charts>\n");
        for chart in charts {
            self.figure(&[("", chart)], "");
        }
        self.html("</div>\n")
    }

    /// A chart, or several to choose from by their names; `id` is its own on the page. Title and legend are those of
    /// the first one.
    pub fn figure(&mut self, panes: &[(&str, &Chart)], id: &str) -> &mut Page {
        // A choice of nothing is left out.
        let Some((_, first)) = panes.first() else {
            return self;
        };
        let _ = write!(
            self.body,
            "<figure><figcaption><h3>{}</h3><span>{}</span>",
            escaped(&first.title, TEXT_CHARS_MAX),
            escaped(&first.hint, TEXT_CHARS_MAX)
        );
        // One line alone is named by the title.
        let legend = first.legend();
        if legend.len() > 1 {
            for (colour, name) in legend {
                self.body += &format!("<span>{}</span>", Page::key(colour, name));
            }
        }
        self.html("</figcaption>");
        if let [(_, only)] = panes {
            return self.html(&only.svg()).html("</figure>\n");
        }
        assert!(
            !id.is_empty(),
            "buttons of a choice have a name of their own"
        );
        self.html("<div class=tabs>");
        for (index, (name, _)) in panes.iter().enumerate() {
            // Buttons of one name exclude each other; the style shows the pane of the one that is chosen, without script.
            let checked = if index == 0 { " checked" } else { "" };
            let _ = write!(
                self.body,
                "<input type=radio name={id} id={id}{index}{checked}><label for={id}{index}>{name}</label>"
            );
        }
        for (_, chart) in panes {
            let _ = write!(self.body, "<div class=pane>{}</div>", chart.svg());
        }
        self.html("</div></figure>\n")
    }

    /// A name in its colour, as HTML.
    pub fn key(colour: usize, name: &str) -> String {
        let class = colour_class(colour);
        format!("<i class=\"key {class}\"></i>{}", escaped(name, 80))
    }

    /// Parts of a whole side by side, as HTML: each with its colour, its name and its share of 0 to 1.
    pub fn parts<'a>(parts: impl IntoIterator<Item = (usize, &'a str, f64)>) -> String {
        // Less than a tenth of a per cent is less than a pixel.
        let seen = parts.into_iter().filter(|(_, _, share)| *share >= 0.001);
        let bars = seen.map(|(colour, name, share)| {
            let (class, share) = (colour_class(colour), 100.0 * share.min(1.0));
            format!(
                "<i class={class} style=\"width:{share:.1}%\" title=\"{name} {share:.1} %\"></i>"
            )
        });
        let bars: String = bars.collect();
        format!("<div class=way>{bars}</div>")
    }

    /// Further detail, closed until somebody opens it; `summary` is finished HTML.
    pub fn details(&mut self, summary: &str, write: impl FnOnce(&mut Page)) -> &mut Page {
        let _ = write!(self.body, "<details><summary>{summary}</summary>");
        write(self);
        self.html("</details>\n")
    }

    /// Finished HTML.
    pub fn html(&mut self, html: &str) -> &mut Page {
        self.body.push_str(html);
        self
    }

    /// An element of text from anywhere; what it has in backticks is code.
    fn put(&mut self, element: &str, text: &str) -> &mut Page {
        let text = coded(&escaped(text, TEXT_CHARS_MAX));
        let _ = writeln!(self.body, "<{element}>{text}</{element}>");
        self
    }

    /// The style of pages and of the colours of their charts, for a page that is not written with this type.
    pub fn style() -> String {
        [STYLE, crate::chart::STYLE].concat()
    }

    /// The whole file.
    pub fn finish(&self) -> String {
        let (title, body, chart) = (&self.title, &self.body, crate::chart::STYLE);
        format!(
            "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
             <meta name=viewport content=\"width=device-width, initial-scale=1\">\n\
             <title>{title}</title>\n<style>\n{STYLE}{chart}</style>\n<main>\n<h1>{title}</h1>\n\
             {body}</main>\n<script>\n{SCRIPT}</script>\n"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Line;

    const FOREIGN: &str = "\"'></title><script>alert(1)</script>";

    #[test]
    fn needs_no_network_and_runs_no_foreign_text() {
        let mut table = Table::default();
        table
            .text(FOREIGN, 50, [FOREIGN])
            .numbers("n", [FOREIGN.to_owned()]);
        let chart = Chart {
            title: FOREIGN.to_owned(),
            hint: FOREIGN.to_owned(),
            x_label: FOREIGN.to_owned(),
            lines: vec![Line {
                name: FOREIGN.to_owned(),
                points: vec![(1.0, 2.0)],
                ..Line::default()
            }],
            keys: vec![(1, FOREIGN.to_owned() + "2")],
            ..Chart::default()
        };
        let mut page = Page::new(FOREIGN);
        page.heading(FOREIGN)
            .paragraph(FOREIGN)
            .verdict(&[FOREIGN.to_owned(), FOREIGN.to_owned()])
            .remark("invalid", "<b>INVALID</b>", &format!("`--cpus` {FOREIGN}"))
            .table(&table)
            .html(&crate::facts([("name", FOREIGN.to_owned())]))
            .charts([&chart])
            .figure(&[("a", &chart), ("b", &chart)], "x");
        let text = page.finish();
        assert_eq!(text.matches("<script>").count(), 1, "its own: {text}");
        assert_eq!(text.matches("</script>").count(), 1, "its own");
        assert!(text.contains("<code>--cpus</code>"));
        for loaded in ["src=", "href=", "url(", "@import", "fetch("] {
            assert!(!text.contains(loaded), "{loaded}");
        }
    }
}
