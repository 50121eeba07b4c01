//! What `top` shows, and how keys and answers change it.
//!
//! Takes results of questions and keys, with the moment at which they come; gives what is to be drawn. Knows no terminal
//! and no clock.

use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use telemetry::{Nanos, Stamp};

use super::history::{Continuity, History};
use super::overview::{Listed, ListingRow, Overview};
use super::sample::Sample;
use super::stack::{PanelStep, StackPanel};

/// Without an answer for so long, the server counts as one that does not answer.
const SILENCE_MAX: Nanos = Nanos::from_ms(3_500);
/// A server that was started anew is mentioned for so long.
const RESTART_SHOWN: Nanos = Nanos::from_secs(10);
/// Characters of a filter.
const FILTER_MAX: usize = 60;

/// What came of a question.
pub(super) enum Answer {
    Sample(Box<Sample>),
    /// Why there was none.
    Fault(String),
    /// The stack of the request with this id, or why there is none.
    Stack(String, String),
}

/// What comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum NextStep {
    GoOn,
    /// The server is to be asked for the stack of the request with this id.
    AskStack(String),
    Quit,
}

/// What keys are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Watch,
    /// Letters belong to the filter.
    EditFilter,
    Help,
}

/// Whether answers come.
enum Link {
    /// When the latest one came.
    Answering(Stamp),
    /// When the latest one came, and why there is none now.
    Lost(Stamp, String),
}

/// The state of the screen.
pub(super) struct View {
    history: History,
    latest: Overview,
    /// What is shown in the place of the latest.
    paused: Option<Overview>,
    link: Link,
    restarted_at: Option<Stamp>,
    pub(super) mode: Mode,
    pub(super) listed: Listed,
    /// Columns that listings are sorted by, where others were chosen than their own.
    sorted_by: [Option<usize>; Listed::ALL.len()],
    pub(super) filter: String,
    /// Id of the chosen row.
    selected: Option<String>,
    /// What is shown over all of it.
    pub(super) stack: Option<StackPanel>,
}

impl View {
    pub(super) fn new(now: Stamp) -> View {
        View {
            history: History::default(),
            latest: Overview::default(),
            paused: None,
            link: Link::Answering(now),
            restarted_at: None,
            mode: Mode::Watch,
            listed: Listed::Routes,
            sorted_by: [None; Listed::ALL.len()],
            filter: String::new(),
            selected: None,
            stack: None,
        }
    }

    /// A question was answered, or not.
    pub(super) fn take(&mut self, answer: Answer, now: Stamp) {
        match answer {
            Answer::Sample(sample) => {
                self.link = Link::Answering(now);
                if self.history.push(sample, now) == Continuity::Restarted {
                    self.restarted_at = Some(now);
                }
                self.latest = Overview::of(&self.history);
            }
            Answer::Fault(cause) => {
                let since = match self.link {
                    Link::Answering(since) | Link::Lost(since, _) => since,
                };
                self.link = Link::Lost(since, cause);
            }
            Answer::Stack(id, text) => {
                if let Some(panel) = &mut self.stack {
                    panel.take(&id, &text);
                }
            }
        }
    }

    /// A key was pressed.
    pub(super) fn key(&mut self, key: KeyEvent) -> NextStep {
        if key.kind == KeyEventKind::Release {
            return NextStep::GoOn;
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            // A terminal in raw mode makes no signal of it.
            return match key.code {
                KeyCode::Char('c') => NextStep::Quit,
                _ => NextStep::GoOn,
            };
        }
        if self.stack.is_some() {
            return self.stack_key(key.code);
        }
        match self.mode {
            Mode::Watch => return self.watch_key(key.code),
            Mode::EditFilter => self.edit_key(key.code),
            Mode::Help => match key.code {
                KeyCode::Char('q') => return NextStep::Quit,
                _ => self.mode = Mode::Watch,
            },
        }
        NextStep::GoOn
    }

    fn stack_key(&mut self, key: KeyCode) -> NextStep {
        let Some(panel) = &mut self.stack else {
            return NextStep::GoOn;
        };
        if key == KeyCode::Char('q') {
            return NextStep::Quit;
        }
        match panel.key(key) {
            PanelStep::Stay => NextStep::GoOn,
            PanelStep::Ask => NextStep::AskStack(panel.id.clone()),
            PanelStep::Close => {
                self.stack = None;
                NextStep::GoOn
            }
        }
    }

    /// Opens the stack of the chosen request; without a choice, that of the first.
    fn open_stack(&mut self) -> NextStep {
        if self.listed != Listed::Running {
            return NextStep::GoOn;
        }
        self.select(|row| row);
        let Some(id) = self.selected.clone() else {
            return NextStep::GoOn;
        };
        self.stack = Some(StackPanel::new(id.clone()));
        NextStep::AskStack(id)
    }

    fn watch_key(&mut self, key: KeyCode) -> NextStep {
        match key {
            KeyCode::Char('q') => return NextStep::Quit,
            KeyCode::Char('p' | ' ') => {
                self.paused = match self.paused.take() {
                    Some(_) => None,
                    None => Some(self.latest.clone()),
                };
            }
            KeyCode::Char('s') => self.sort_by_next(),
            KeyCode::Char('/') => self.mode = Mode::EditFilter,
            KeyCode::Char('?' | 'h') => self.mode = Mode::Help,
            KeyCode::Enter => return self.open_stack(),
            KeyCode::Tab | KeyCode::Right => self.list(1),
            KeyCode::BackTab | KeyCode::Left => self.list(Listed::ALL.len() - 1),
            KeyCode::Up => self.select(|row| row.saturating_sub(1)),
            KeyCode::Down => self.select(|row| row.saturating_add(1)),
            KeyCode::PageUp => self.select(|row| row.saturating_sub(10)),
            KeyCode::PageDown => self.select(|row| row.saturating_add(10)),
            KeyCode::Home => self.select(|_| 0),
            KeyCode::End => self.select(|_| usize::MAX),
            KeyCode::Esc => {
                self.filter.clear();
                self.selected = None;
            }
            _ => {}
        }
        NextStep::GoOn
    }

    fn edit_key(&mut self, key: KeyCode) {
        match key {
            KeyCode::Enter => self.mode = Mode::Watch,
            KeyCode::Esc => {
                self.filter.clear();
                self.mode = Mode::Watch;
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_MAX => {
                self.filter.push(letter);
            }
            _ => {}
        }
    }

    fn list(&mut self, step: usize) {
        self.listed = self.listed.plus(step);
        self.selected = None;
    }

    fn sort_by_next(&mut self) {
        let columns = self.overview().listing(self.listed).headings.len();
        let next = (self.sorted_by() + 1).checked_rem(columns);
        self.sorted_by[self.listed as usize] = next;
    }

    /// Chooses a row by the place of the one that is chosen now; the first time, the first one.
    fn select(&mut self, to: impl Fn(usize) -> usize) {
        let rows = self.rows();
        let row = match self.selected_row(&rows) {
            Some(row) => to(row),
            None => 0,
        };
        let row = rows.get(row.min(rows.len().saturating_sub(1)));
        self.selected = row.map(|row| row.id.clone());
    }

    /// What is shown: the latest, or what was the latest when it was paused.
    pub(super) fn overview(&self) -> &Overview {
        self.paused.as_ref().unwrap_or(&self.latest)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused.is_some()
    }

    /// The column that the listing is sorted by.
    pub(super) fn sorted_by(&self) -> usize {
        let own = self.overview().listing(self.listed).sorted_by;
        self.sorted_by[self.listed as usize].unwrap_or(own)
    }

    /// The rows of the listing that the filter lets through, the greatest first; names from A to Z.
    pub(super) fn rows(&self) -> Vec<&ListingRow> {
        let wanted = self.filter.to_lowercase();
        let listing = self.overview().listing(self.listed);
        let rows = listing.rows.iter();
        let mut rows: Vec<&ListingRow> = rows
            .filter(|row| name(row).to_lowercase().contains(&wanted))
            .collect();
        sort(&mut rows, self.sorted_by());
        rows
    }

    /// The place of the chosen row.
    pub(super) fn selected_row(&self, rows: &[&ListingRow]) -> Option<usize> {
        let selected = self.selected.as_deref()?;
        rows.iter().position(|row| row.id == selected)
    }

    /// What is the matter with the server, if anything.
    pub(super) fn trouble(&self, now: Stamp) -> Option<String> {
        let since = |since: Stamp| now.since(since).0 / 1_000_000_000;
        match &self.link {
            Link::Lost(at, cause) => Some(format!(
                "no server; waiting for it (no answer for {} s: {cause})",
                since(*at)
            )),
            Link::Answering(at) if now.since(*at) > SILENCE_MAX => Some(format!(
                "the server does not answer; waiting for it ({} s)",
                since(*at)
            )),
            Link::Answering(_) => {
                let restarted_at = self.restarted_at?;
                let is_recent = now.since(restarted_at) < RESTART_SHOWN;
                is_recent.then(|| "the server was started anew: all figures begin anew".to_owned())
            }
        }
    }
}

/// The greatest first; rows that are equal, and the first column, by name.
pub(super) fn sort(rows: &mut [&ListingRow], column: usize) {
    let key = |row: &ListingRow| row.keys.get(column).copied().unwrap_or(0.0);
    rows.sort_by(|one, other| {
        let by_key = match column {
            0 => std::cmp::Ordering::Equal,
            _ => key(other).total_cmp(&key(one)),
        };
        by_key.then_with(|| name(one).cmp(name(other)))
    });
}

fn name(row: &ListingRow) -> &str {
    row.cells.first().map_or("", String::as_str)
}

#[cfg(test)]
mod tests {
    use supervisor::control::status::RunningRequest;

    use super::super::history::tests::sample;
    use super::*;

    fn at(secs: u64) -> Stamp {
        Stamp(1).plus(Nanos::from_secs(secs))
    }

    fn seen(view: &mut View, routes: &[(&str, &[u64])], secs: u64) {
        view.take(Answer::Sample(sample(routes)), at(secs));
    }

    fn press(view: &mut View, keys: &[KeyCode]) -> NextStep {
        let steps = keys.iter().map(|key| view.key(KeyEvent::from(*key)));
        steps.last().unwrap()
    }

    fn letters(text: &str) -> Vec<KeyCode> {
        text.chars().map(KeyCode::Char).collect()
    }

    fn names(view: &View) -> Vec<&str> {
        view.rows().into_iter().map(name).collect()
    }

    /// `/often` has most requests, `/slow` takes most time, `/bad` fails.
    fn watching() -> View {
        let mut view = View::new(at(0));
        seen(&mut view, &[], 0);
        let routes: [(&str, &[u64]); 3] =
            [("/bad", &[503]), ("/often", &[1, 1, 1]), ("/slow", &[2000])];
        seen(&mut view, &routes, 1);
        view
    }

    #[test]
    fn sorts_by_one_column_after_the_other() {
        let mut view = watching();
        assert_eq!(names(&view), ["/slow", "/bad", "/often"]);
        press(&mut view, &letters("s"));
        assert_eq!(names(&view), ["/bad", "/often", "/slow"], "by failures");
        press(&mut view, &letters("s"));
        assert_eq!(names(&view), ["/bad", "/often", "/slow"], "by name");
        press(&mut view, &letters("s"));
        assert_eq!(names(&view), ["/often", "/bad", "/slow"], "by requests");
    }

    #[test]
    fn filters_by_name() {
        let mut view = watching();
        press(&mut view, &letters("/q"));
        assert_eq!((view.mode, names(&view).len()), (Mode::EditFilter, 0));
        press(&mut view, &[KeyCode::Backspace]);
        press(&mut view, &letters("SLO"));
        press(&mut view, &[KeyCode::Enter]);
        assert_eq!((view.mode, names(&view)), (Mode::Watch, vec!["/slow"]));
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!(names(&view).len(), 3);
        press(&mut view, &letters("/x"));
        press(&mut view, &[KeyCode::Esc]);
        assert_eq!((view.mode, names(&view).len()), (Mode::Watch, 3));
    }

    #[test]
    fn shows_the_same_while_paused_and_the_latest_after_that() {
        let mut view = watching();
        press(&mut view, &letters("p"));
        assert!(view.is_paused());
        seen(
            &mut view,
            &[("/bad", &[503]), ("/often", &[1; 9]), ("/slow", &[2000])],
            2,
        );
        assert_eq!(view.overview().requests, "5.0");
        press(&mut view, &letters("s"));
        assert_eq!(names(&view), ["/bad", "/often", "/slow"], "keys work");
        press(&mut view, &letters("p"));
        assert_eq!(view.overview().requests, "6.0");
        assert_eq!(view.overview().requests_series, [5, 6]);
    }

    #[test]
    fn keeps_a_chosen_row_wherever_it_moves() {
        let mut view = watching();
        let selected = |view: &View| view.selected_row(&view.rows());
        assert_eq!(selected(&view), None);
        press(&mut view, &[KeyCode::Down]);
        assert_eq!(selected(&view), Some(0));
        press(&mut view, &[KeyCode::Down]);
        assert_eq!(selected(&view), Some(1));
        press(&mut view, &letters("s"));
        assert_eq!(selected(&view), Some(0), "`/bad` is the first by failures");
        press(&mut view, &[KeyCode::End, KeyCode::Down]);
        assert_eq!(selected(&view), Some(2));
        press(&mut view, &[KeyCode::Tab, KeyCode::Tab]);
        assert_eq!((view.listed, selected(&view)), (Listed::Pools, None));
        press(&mut view, &[KeyCode::Down, KeyCode::PageUp]);
        assert_eq!(selected(&view), None, "there are no pools");
        press(&mut view, &[KeyCode::Left, KeyCode::Left, KeyCode::Left]);
        assert_eq!(view.listed, Listed::Disks);
    }

    fn running(requests: &[(&str, u64)]) -> Answer {
        let mut sample = sample(&[]);
        let requests = requests.iter().map(|(id, ran_ms)| RunningRequest {
            id: (*id).to_owned(),
            method: "GET".to_owned(),
            path: "/same".to_owned(),
            ran_ms: *ran_ms,
            ..RunningRequest::default()
        });
        sample.running = requests.collect();
        Answer::Sample(sample)
    }

    #[test]
    fn opens_the_stack_of_the_chosen_request() {
        let mut view = View::new(at(0));
        view.take(running(&[("b2", 9_000), ("a1", 20)]), at(0));
        assert_eq!(press(&mut view, &[KeyCode::Enter]), NextStep::GoOn);
        assert!(view.stack.is_none(), "routes have none");
        let ask = |id: &str| NextStep::AskStack(id.to_owned());
        let opened = press(&mut view, &[KeyCode::Tab, KeyCode::Enter]);
        assert_eq!(opened, ask("b2"), "the first, which is the oldest");
        let shown = |view: &View| view.stack.as_ref().unwrap().visible(80, 9);
        view.take(Answer::Stack("b2".to_owned(), "in app".to_owned()), at(1));
        assert_eq!(shown(&view), ["in app"]);
        // It stays open while the list changes below it, and its keys are its own.
        view.take(
            running(&[("c3", 99_000), ("b2", 10_000), ("a1", 1_020)]),
            at(1),
        );
        assert_eq!(press(&mut view, &letters("r")), ask("b2"));
        assert_eq!(
            press(&mut view, &[KeyCode::Tab, KeyCode::Esc]),
            NextStep::GoOn
        );
        assert_eq!((view.stack.is_none(), view.listed), (true, Listed::Running));
        // Of three rows of one name, the one that was chosen before.
        assert_eq!(view.selected_row(&view.rows()), Some(1));
        assert_eq!(
            press(&mut view, &[KeyCode::Down, KeyCode::Enter]),
            ask("a1")
        );
        view.take(Answer::Stack("b2".to_owned(), "late".to_owned()), at(2));
        assert_ne!(shown(&view), ["late"]);
        assert_eq!(press(&mut view, &letters("q")), NextStep::Quit);
    }

    #[test]
    fn opens_nothing_where_nothing_runs() {
        let mut view = View::new(at(0));
        view.take(running(&[]), at(0));
        let keys = [KeyCode::Tab, KeyCode::Down, KeyCode::Enter];
        assert_eq!(press(&mut view, &keys), NextStep::GoOn);
        assert!(view.stack.is_none());
    }

    #[test]
    fn ends_by_q_and_control_c_alone() {
        let mut view = watching();
        assert_eq!(press(&mut view, &letters("x?x?")), NextStep::GoOn);
        assert_eq!(press(&mut view, &letters("q")), NextStep::Quit);
        let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        view.mode = Mode::EditFilter;
        assert_eq!(press(&mut view, &letters("q")), NextStep::GoOn);
        assert_eq!(view.key(control_c), NextStep::Quit);
    }

    #[test]
    fn waits_for_a_server_that_is_gone_and_goes_on() {
        let mut view = watching();
        assert_eq!(view.trouble(at(2)), None);
        assert!(view.trouble(at(6)).unwrap().contains("does not answer"));
        view.take(Answer::Fault("nobody listens there".to_owned()), at(7));
        view.take(Answer::Fault("nobody listens there".to_owned()), at(8));
        let expect = "no server; waiting for it (no answer for 7 s: nobody listens there)";
        assert_eq!(view.trouble(at(8)).as_deref(), Some(expect));
        assert_eq!(names(&view).len(), 3, "what was seen last stays");
        seen(&mut view, &[("/a", &[1])], 9);
        assert!(view.trouble(at(9)).unwrap().contains("started anew"));
        assert!(names(&view).is_empty());
        assert_eq!(view.overview().requests, present::NONE);
        seen(&mut view, &[("/a", &[1, 2])], 10);
        assert_eq!(
            (view.overview().requests.as_str(), names(&view)),
            ("1.0", vec!["/a"])
        );
        seen(&mut view, &[("/a", &[1, 2])], 20);
        assert_eq!(view.trouble(at(20)), None);
    }
}
