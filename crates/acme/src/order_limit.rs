//! Our own limit of orders: so many in so long a time, whatever goes wrong around it. Pure: `now` is an argument.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use os::invariant;

/// Orders within [`SPAN`]. Let's Encrypt takes 300 new orders of an account in three hours; a loop that runs wild
/// stays far below the rate at which others would notice.
const ORDERS_MAX: usize = 10;
const SPAN: Duration = Duration::from_secs(10);

/// The last orders of this process.
#[derive(Debug, Default)]
pub(crate) struct OrderLimit {
    placed: VecDeque<Instant>,
}

impl OrderLimit {
    /// Notes an order; gives the time to wait before it.
    pub(crate) fn place(&mut self, now: Instant) -> Duration {
        let at = match self.placed.len() {
            ORDERS_MAX => self
                .placed
                .pop_front()
                .map_or(now, |oldest| now.max(oldest + SPAN)),
            _ => now,
        };
        self.placed.push_back(at);
        invariant!(
            self.placed.len() <= ORDERS_MAX,
            "{} orders are remembered",
            self.placed.len()
        );
        at.saturating_duration_since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_orders_pass_and_the_next_waits() {
        let now = Instant::now();
        let mut limit = OrderLimit::default();
        for _ in 0..ORDERS_MAX {
            assert_eq!(limit.place(now), Duration::ZERO);
        }
        assert_eq!(limit.place(now), SPAN);
        // That one counts from when it is placed.
        let later = now + SPAN;
        for _ in 1..ORDERS_MAX {
            assert_eq!(limit.place(later), Duration::ZERO);
        }
        assert_eq!(limit.place(later), SPAN);
    }
}
