//! Pages that are merged by delivery, room and patience, and how urgent calls are heard.

mod pages {
    use super::super::*;
    use crate::config::meant::LogOverflow;

    fn pages() -> Arc<Pages> {
        Arc::new(Pages::new(Room::new(1 << 20, LogOverflow::Drop)))
    }

    fn write(pen: &Pen, delivered: u64) {
        let mut record = Record::default();
        record.phases.sent = Stamp(delivered);
        pen.write(&record);
    }

    fn gathered(sheaf: &mut Sheaf, pages: &Pages, now: u64) -> Vec<u64> {
        let mut seen = Vec::new();
        sheaf.gather(pages, Stamp(now));
        let used = sheaf.each(|record| {
            seen.push(record.phases.sent.0);
            true
        });
        pages.room.settle(used, 0);
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
        let mut sheaf = Sheaf::default();
        assert_eq!(gathered(&mut sheaf, &pages, 8), [1, 2, 3, 4, 8]);
        assert!(!sheaf.is_empty());
        write(&one, 12);
        write(&other, 10);
        write(&pages.pen(Patience::Now), 11);
        assert_eq!(gathered(&mut sheaf, &pages, 20), [9, 10, 11, 12]);
        assert!(sheaf.is_empty());
        assert_eq!(pages.room.waiting_bytes(), 0);
    }

    #[test]
    fn calls_before_a_small_room_is_full() {
        let pages = Arc::new(Pages::new(Room::new(64 << 10, LogOverflow::Drop)));
        let pens = [pages.pen(Patience::Now), pages.pen(Patience::Now)];
        let hour = std::time::Duration::from_secs(3600);
        write(&pens[0], 1);
        for delivered in 2.. {
            write(&pens[delivered as usize % 2], delivered);
            if pages.room.waiting_bytes() >= 32 << 10 {
                break;
            }
        }
        assert_eq!(pages.bell.wait(hour, hour), Ring::Urgent);
        assert_eq!(pages.room.take_dropped(), 0);
    }

    #[test]
    fn stops_when_it_is_told_and_goes_on_later() {
        let pages = pages();
        let pen = pages.pen(Patience::Now);
        for delivered in 1..=3 {
            write(&pen, delivered);
        }
        let mut sheaf = Sheaf::default();
        sheaf.gather(&pages, Stamp(9));
        let mut seen = Vec::new();
        sheaf.each(|record| {
            seen.push(record.phases.sent.0);
            false
        });
        assert_eq!(seen, [1]);
        assert_eq!(gathered(&mut sheaf, &pages, 9), [2, 3]);
    }
}

mod room {
    use super::super::*;
    use std::sync::Arc;
    use std::thread;

    #[test]
    fn counts_what_finds_no_room() {
        let room = Room::new(100, LogOverflow::Drop);
        room.add_record(100);
        assert!(!room.enter(Patience::Now) && !room.enter(Patience::Now));
        room.settle(100, 99);
        assert!(room.enter(Patience::Now));
        room.settle(0, 100);
        assert!(!room.enter(Patience::Now));
        assert_eq!((room.take_dropped(), room.take_dropped()), (3, 0));
    }

    #[test]
    fn says_once_that_it_is_half_full() {
        let room = Room::new(100, LogOverflow::Drop);
        assert!(!room.add_record(49) && room.add_record(1) && !room.add_record(1));
        room.settle(51, 0);
        assert!(room.add_record(200));
    }

    #[test]
    fn whoever_waits_goes_on_when_there_is_room() {
        let room = Arc::new(Room::new(100, LogOverflow::Wait));
        room.add_record(100);
        let entering = {
            let room = Arc::clone(&room);
            thread::spawn(move || room.enter(Patience::Now))
        };
        while *room.waiting.lock().unwrap() == 0 {
            thread::yield_now();
        }
        room.settle(100, 0);
        assert!(entering.join().unwrap());
        assert_eq!(room.take_dropped(), 0);
    }

    #[test]
    fn nobody_waits_for_a_closed_room() {
        let room = Room::new(100, LogOverflow::Wait);
        room.add_record(100);
        room.close();
        assert!(!room.enter(Patience::Now));
        assert_eq!(room.take_dropped(), 1);
    }

    #[test]
    fn whoever_waits_later_enters_a_full_room_and_is_told_to_wait() {
        let room = Room::new(100, LogOverflow::Wait);
        room.add_record(100);
        assert!(room.enter(Patience::Later) && room.is_awaited());
        room.settle(100, 0);
        assert!(!room.is_awaited());
        room.wait_if_awaited();
        assert_eq!(room.take_dropped(), 0);
    }
}

mod calls {
    use super::super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn what_is_urgent_is_not_left_to_age() {
        let bell = Bell::new();
        bell.ring(Ring::Urgent);
        bell.ring(Ring::Waiting);
        assert_eq!(bell.wait(LONG, LONG), Ring::Urgent);
        assert_eq!(bell.wait(LONG, Duration::ZERO), Ring::Quiet);
    }

    #[test]
    fn what_waits_is_left_to_age() {
        let bell = Bell::new();
        bell.ring(Ring::Waiting);
        assert_eq!(bell.wait(Duration::ZERO, LONG), Ring::Waiting);
    }

    #[test]
    fn the_end_stays_the_end() {
        let bell = Bell::new();
        bell.ring(Ring::Stop);
        bell.ring(Ring::Urgent);
        assert_eq!(bell.wait(LONG, LONG), Ring::Stop);
        assert_eq!(bell.wait(LONG, LONG), Ring::Stop);
    }
}
