//! Pages that are merged by delivery, budget and patience, and how urgent calls are heard.

mod pages {
    use super::super::*;
    use crate::config::meant::LogOverflow;

    fn pages() -> Arc<Pages> {
        Arc::new(Pages::new(Budget::new(1 << 20, LogOverflow::Drop)))
    }

    fn write(pen: &Pen, delivered: u64) {
        let mut record = Record::default();
        record.phases.sent = Stamp(delivered);
        pen.write(&record);
    }

    fn gathered(batch: &mut MergedBatch, pages: &Pages, now: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        batch.gather(pages, Stamp(now));
        let used = batch.each(|record| {
            seen.push(record.phases.sent.0);
            true
        });
        pages.budget.settle(used, 0);
        seen
    }

    #[test]
    fn merges_pages_by_delivery_and_leaves_what_is_younger() {
        let pages = pages();
        let (one, other) = (pages.pen(Patience::Now), pages.pen(Patience::Now));
        for delivered in [1, 4, 9] {
            write(&one, delivered);
        }
        for delivered in [2, 3, 8] {
            write(&other, delivered);
        }
        let mut batch = MergedBatch::default();
        assert_eq!(gathered(&mut batch, &pages, 8), [1, 2, 3, 4, 8]);
        assert!(!batch.is_empty());
        write(&one, 12);
        write(&other, 10);
        write(&pages.pen(Patience::Now), 11);
        assert_eq!(gathered(&mut batch, &pages, 20), [9, 10, 11, 12]);
        assert!(batch.is_empty());
        assert_eq!(pages.budget.waiting_bytes(), 0);
    }

    #[test]
    fn calls_before_a_small_room_is_full() {
        let pages = Arc::new(Pages::new(Budget::new(64 << 10, LogOverflow::Drop)));
        let pens = [pages.pen(Patience::Now), pages.pen(Patience::Now)];
        let hour = std::time::Duration::from_secs(3600);
        write(&pens[0], 1);
        for delivered in 2.. {
            write(&pens[delivered as usize % 2], delivered);
            if pages.budget.waiting_bytes() >= 32 << 10 {
                break;
            }
        }
        assert_eq!(pages.notifier.wait(hour, hour), Urgency::Urgent);
        assert_eq!(pages.budget.take_dropped(), 0);
    }

    #[test]
    fn stops_when_it_is_told_and_goes_on_later() {
        let pages = pages();
        let pen = pages.pen(Patience::Now);
        for delivered in 1..=3 {
            write(&pen, delivered);
        }
        let mut batch = MergedBatch::default();
        batch.gather(&pages, Stamp(9));
        let mut seen = Vec::new();
        batch.each(|record| {
            seen.push(record.phases.sent.0);
            false
        });
        assert_eq!(seen, [1]);
        assert_eq!(gathered(&mut batch, &pages, 9), [2, 3]);
    }
}

mod budget {
    use super::super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn counts_what_finds_no_room() {
        let budget = Budget::new(100, LogOverflow::Drop);
        budget.add_record(100);
        assert!(!budget.enter(Patience::Now) && !budget.enter(Patience::Now));
        budget.settle(100, 99);
        assert!(budget.enter(Patience::Now));
        budget.settle(0, 100);
        assert!(!budget.enter(Patience::Now));
        assert_eq!((budget.take_dropped(), budget.take_dropped()), (3, 0));
    }

    #[test]
    fn says_once_that_it_is_half_full() {
        let budget = Budget::new(100, LogOverflow::Drop);
        assert!(!budget.add_record(49) && budget.add_record(1) && !budget.add_record(1));
        budget.settle(51, 0);
        assert!(budget.add_record(200));
    }

    #[test]
    fn whoever_waits_goes_on_when_there_is_room() {
        let budget = Arc::new(Budget::new(100, LogOverflow::Wait));
        budget.add_record(100);
        let entering = {
            let budget = Arc::clone(&budget);
            thread::spawn(move || budget.enter(Patience::Now))
        };
        while *budget.waiting.lock().unwrap() == 0 {
            thread::yield_now();
        }
        budget.settle(100, 0);
        assert!(entering.join().unwrap());
        assert_eq!(budget.take_dropped(), 0);
    }

    #[test]
    fn nobody_waits_for_a_closed_room() {
        let budget = Budget::new(100, LogOverflow::Wait);
        budget.add_record(100);
        budget.close();
        assert!(!budget.enter(Patience::Now));
        assert_eq!(budget.take_dropped(), 1);
    }

    #[test]
    fn whoever_waits_later_enters_a_full_room_and_is_told_to_wait() {
        let budget = Budget::new(100, LogOverflow::Wait);
        budget.add_record(100);
        assert!(budget.enter(Patience::Later) && budget.is_awaited());
        budget.settle(100, 0);
        assert!(!budget.is_awaited());
        budget.wait_if_awaited();
        assert_eq!(budget.take_dropped(), 0);
    }
}

mod calls {
    use super::super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_urgent_is_not_left_to_age() {
        let notifier = Notifier::default();
        notifier.notify(Urgency::Urgent);
        notifier.notify(Urgency::Waiting);
        assert_eq!(notifier.wait(LONG, LONG), Urgency::Urgent);
        assert_eq!(notifier.wait(LONG, Duration::ZERO), Urgency::Quiet);
    }

    #[test]
    fn what_waits_is_left_to_age() {
        let notifier = Notifier::default();
        notifier.notify(Urgency::Waiting);
        assert_eq!(notifier.wait(Duration::ZERO, LONG), Urgency::Waiting);
    }

    #[test]
    fn the_end_stays_the_end() {
        let notifier = Notifier::default();
        notifier.notify(Urgency::Stop);
        notifier.notify(Urgency::Urgent);
        assert_eq!(notifier.wait(LONG, LONG), Urgency::Stop);
        assert_eq!(notifier.wait(LONG, LONG), Urgency::Stop);
    }
}
