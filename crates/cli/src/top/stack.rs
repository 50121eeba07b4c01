//! The stack of a running request, over the whole screen.
//!
//! Takes what the server has answered, and keys; gives the lines that have room. The innermost call is at the end, which is
//! what is shown first. Knows no terminal.

use std::cell::Cell;

use crossterm::event::KeyCode;
use present::{harmless, width};
use supervisor::control::messages::Outcome;

/// Lines of a stack that has not come yet.
const AWAITED: &str = "the server is asked for the stack";
/// A page of a screen whose height is not known here.
const PAGE_LINES: usize = 10;

/// The request that was chosen, and what is known of it.
pub(super) struct StackPanel {
    /// Its id.
    pub(super) id: String,
    lines: Vec<String>,
    /// How many lines the end of the text is below the end of the screen, at most as many as there are.
    below: Cell<usize>,
}

/// What a key has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PanelStep {
    Stay,
    Close,
    /// The server is to be asked again.
    Ask,
}

impl StackPanel {
    pub(super) fn new(id: String) -> StackPanel {
        StackPanel {
            id,
            lines: vec![AWAITED.to_owned()],
            below: Cell::new(0),
        }
    }

    /// The server has answered for the request with this id, or could not be asked.
    pub(super) fn take(&mut self, id: &str, text: &str) {
        // That of a request that was chosen before comes too late.
        if id == self.id {
            self.lines = text
                .lines()
                .map(|line| harmless(line, usize::MAX))
                .collect();
        }
    }

    pub(super) fn key(&mut self, key: KeyCode) -> PanelStep {
        let below = self.below.get();
        self.below.set(match key {
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => return PanelStep::Close,
            KeyCode::Char('r') => return PanelStep::Ask,
            KeyCode::Up => below.saturating_add(1),
            KeyCode::Down => below.saturating_sub(1),
            KeyCode::PageUp => below.saturating_add(PAGE_LINES),
            KeyCode::PageDown => below.saturating_sub(PAGE_LINES),
            KeyCode::Home => usize::MAX,
            KeyCode::End => 0,
            _ => below,
        });
        PanelStep::Stay
    }

    /// The lines that have room in so many columns and rows.
    pub(super) fn visible(&self, columns: usize, rows: usize) -> Vec<String> {
        let lines = self.lines.iter().flat_map(|line| pieces(line, columns));
        let lines: Vec<String> = lines.collect();
        let below_max = lines.len().saturating_sub(rows);
        // Kept: the next key moves from what is shown.
        let below = self.below.get().min(below_max);
        self.below.set(below);
        let first = below_max - below;
        lines.into_iter().skip(first).take(rows).collect()
    }
}

/// What an answer to the question for a stack says.
pub(super) fn text_of(line: &[u8]) -> String {
    match Outcome::read(line) {
        Some(Outcome::Done(Some(text))) => text,
        Some(Outcome::Refused(_, failure)) => match failure.hint {
            _ if failure.message.contains("unknown variant `stack`") => {
                "the server is of another version, which gives no stacks".to_owned()
            }
            Some(hint) => format!("{}\nhint: {hint}", failure.message),
            None => failure.message,
        },
        _ => "the server has sent no stack".to_owned(),
    }
}

/// A line in parts that each have room in so many columns.
fn pieces(line: &str, columns: usize) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut used = 0;
    for character in line.chars() {
        let wide = width(character.encode_utf8(&mut [0; 4]));
        if used + wide > columns && used > 0 {
            pieces.push(String::new());
            used = 0;
        }
        used += wide;
        if let Some(piece) = pieces.last_mut() {
            piece.push(character);
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use config::failure::Failure;
    use supervisor::control::messages::CommandKind;

    use super::*;

    fn panel(text: &str) -> StackPanel {
        let mut panel = StackPanel::new("8f".to_owned());
        panel.take("8f", text);
        panel
    }

    #[test]
    fn shows_the_end_first_and_scrolls_within_the_text() {
        let mut panel = panel("a\nb\nc\nd\ne");
        let mut check = |keys: &[KeyCode], expect: [&str; 2]| {
            for key in keys {
                assert_eq!(panel.key(*key), PanelStep::Stay);
            }
            assert_eq!(panel.visible(80, 2), expect, "{keys:?}");
        };
        check(&[], ["d", "e"]);
        check(&[KeyCode::Up], ["c", "d"]);
        check(&[KeyCode::Home], ["a", "b"]);
        check(&[KeyCode::Up], ["a", "b"]);
        check(&[KeyCode::Down], ["b", "c"]);
        check(&[KeyCode::PageUp], ["a", "b"]);
        check(&[KeyCode::PageDown], ["d", "e"]);
        check(&[KeyCode::Home], ["a", "b"]);
        check(&[KeyCode::End, KeyCode::Down], ["d", "e"]);
    }

    #[test]
    fn breaks_long_lines_and_obeys_no_text() {
        let panel = panel("ab\x1b[2Jcd\n\n日本語");
        let expect = ["ab\\x1", "b[2Jc", "d", "", "日本", "語"];
        assert_eq!(panel.visible(5, 9), expect);
        assert_eq!(pieces("日", 1), ["日"]);
    }

    #[test]
    fn keeps_its_text_from_answers_for_other_requests() {
        let mut panel = StackPanel::new("8f".to_owned());
        panel.take("90", "of another");
        assert_eq!(panel.visible(80, 9), [AWAITED]);
        panel.take("8f", "its own");
        assert_eq!(panel.visible(80, 9), ["its own"]);
        assert_eq!(panel.key(KeyCode::Char('r')), PanelStep::Ask);
        assert_eq!(panel.key(KeyCode::Esc), PanelStep::Close);
    }

    #[test]
    fn says_what_the_server_answers() {
        let check = |outcome: Outcome, expect: &str| {
            assert_eq!(text_of(outcome.line().as_bytes()), expect);
        };
        check(
            Outcome::Done(Some("GET /\nStack".to_owned())),
            "GET /\nStack",
        );
        let refused = |failure| Outcome::Refused(CommandKind::No, failure);
        check(refused(Failure::new("it has ended")), "it has ended");
        let failure = Failure::new("no stack").with_hint("wait");
        check(refused(failure), "no stack\nhint: wait");
        check(
            refused(Failure::new("unknown variant `stack`, expected")),
            "the server is of another version, which gives no stacks",
        );
        check(Outcome::Done(None), "the server has sent no stack");
        assert_eq!(text_of(b"HTTP"), "the server has sent no stack");
    }
}
