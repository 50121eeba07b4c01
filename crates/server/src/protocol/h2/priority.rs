//! Priorities (RFC 9218), and in which order streams send: the turn queue.
//!
//! Takes the text of a `priority` field, and the streams that have something to send; gives who is next. Pure.

/// Turns of others before a stream of a lower class has one: nothing starves (RFC 9218 section 10).
const TURNS_BEFORE_LOWER: u32 = 15;

/// How much a response matters among those of its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Priority {
    /// 0 to 7; the lowest goes first.
    pub(super) urgency: u8,
    /// Whether the client can use a part of it.
    pub(super) is_incremental: bool,
}

impl Default for Priority {
    fn default() -> Self {
        Self {
            urgency: 3,
            is_incremental: false,
        }
    }
}

impl Priority {
    /// Reads a field; what cannot be read counts as not said (RFC 9218 section 4).
    pub(super) fn read(field: &[u8]) -> Self {
        Self::default().merged(field)
    }

    /// As a response's own field changes it (RFC 9218 section 8).
    pub(super) fn merged(mut self, field: &[u8]) -> Self {
        for member in field.split(|&byte| byte == b',') {
            match member.trim_ascii() {
                [b'u', b'=', digit @ b'0'..=b'7'] => self.urgency = digit - b'0',
                b"i" | b"i=?1" => self.is_incremental = true,
                b"i=?0" => self.is_incremental = false,
                _ => {}
            }
        }
        self
    }
}

/// Streams that have something to send.
#[derive(Default, Debug)]
pub(super) struct TurnQueue {
    waiting: Vec<WaitingTurn>,
    /// Counts up, to know who has waited for longest.
    count: u64,
    /// Turns in a row that the most urgent class had while others waited.
    turns: u32,
}

#[derive(Clone, Copy, Debug)]
struct WaitingTurn {
    stream: u32,
    priority: Priority,
    since: u64,
}

impl TurnQueue {
    /// A stream waits for its turn.
    pub(super) fn enter(&mut self, stream: u32, priority: Priority) {
        self.count += 1;
        self.waiting.push(WaitingTurn {
            stream,
            priority,
            since: self.count,
        });
    }

    /// A stream waits no longer.
    pub(super) fn leave(&mut self, stream: u32) {
        self.waiting.retain(|waiting| waiting.stream != stream);
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// The stream whose turn it is, which leaves the queue: of the lowest urgency, and there first the lowest stream
    /// whose response is of use only whole, else the one that has waited for longest. One turn in 16 is for another
    /// class.
    pub(super) fn next(&mut self) -> Option<u32> {
        let best = self.best(0)?;
        let urgency = self.waiting[best].priority.urgency;
        let lower = self.best(urgency + 1);
        let is_lowers = lower.is_some() && self.turns >= TURNS_BEFORE_LOWER;
        self.turns = match lower {
            Some(_) if !is_lowers => self.turns + 1,
            _ => 0,
        };
        let next = lower.filter(|_| is_lowers).unwrap_or(best);
        Some(self.waiting.swap_remove(next).stream)
    }

    /// Index of the first one of an urgency of at least so much.
    fn best(&self, urgency_min: u8) -> Option<usize> {
        let key = |waiting: &WaitingTurn| {
            let priority = waiting.priority;
            let order = match priority.is_incremental {
                true => waiting.since,
                false => u64::from(waiting.stream),
            };
            (priority.urgency, priority.is_incremental, order)
        };
        let waiting = self.waiting.iter().enumerate();
        let waiting = waiting.filter(|(_, waiting)| waiting.priority.urgency >= urgency_min);
        let best = waiting.min_by_key(|(_, waiting)| key(waiting));
        best.map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn priority(urgency: u8, is_incremental: bool) -> Priority {
        Priority {
            urgency,
            is_incremental,
        }
    }

    #[test]
    fn fields_are_read_and_faults_in_them_are_not_said() {
        for (field, urgency, is_incremental) in [
            ("", 3, false),
            ("u=0", 0, false),
            ("u=7, i", 7, true),
            ("i, u=5", 5, true),
            ("i=?1", 3, true),
            ("u=1,i=?0", 1, false),
            ("u=8", 3, false),
            ("u=-1", 3, false),
            ("u=12", 3, false),
            ("i=1", 3, false),
            ("x, u=2;y", 3, false),
        ] {
            let found = Priority::read(field.as_bytes());
            assert_eq!(found, priority(urgency, is_incremental), "{field}");
        }
        assert_eq!(priority(1, true).merged(b"u=4"), priority(4, true));
    }

    fn order(waiting: &[(u32, Priority)], turns: usize) -> Vec<u32> {
        let mut queue = TurnQueue::default();
        waiting
            .iter()
            .for_each(|(stream, priority)| queue.enter(*stream, *priority));
        let again = |stream| {
            waiting
                .iter()
                .find(|(known, _)| *known == stream)
                .unwrap()
                .1
        };
        let mut order = Vec::new();
        for _ in 0..turns {
            let next = queue.next().unwrap();
            queue.enter(next, again(next));
            order.push(next);
        }
        order
    }

    #[test]
    fn the_urgent_go_first_and_incremental_ones_take_turns() {
        let (whole, part) = (priority(3, false), priority(3, true));
        assert_eq!(order(&[(5, whole), (3, whole), (1, part)], 4), [3, 3, 3, 3]);
        assert_eq!(
            order(&[(5, part), (3, part), (7, part)], 5),
            [5, 3, 7, 5, 3]
        );
        assert_eq!(order(&[(1, whole), (9, priority(2, true))], 3), [9, 9, 9]);
    }

    #[test]
    fn a_lower_class_has_one_turn_in_sixteen() {
        let all = order(&[(1, priority(0, false)), (3, priority(7, false))], 160);
        assert_eq!(all.iter().filter(|stream| **stream == 3).count(), 10);
    }

    #[test]
    fn streams_that_leave_have_no_turn() {
        let mut queue = TurnQueue::default();
        queue.enter(1, Priority::default());
        queue.enter(3, Priority::default());
        queue.leave(1);
        assert_eq!(
            (queue.next(), queue.next(), queue.len()),
            (Some(3), None, 0)
        );
    }
}
