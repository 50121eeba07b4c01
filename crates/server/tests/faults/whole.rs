//! Without resets a client gets every byte, whatever each call takes.

use config::typed::Rate;
use server::transport::faults::{Plan, Temper};

use super::cases::After;
use super::dice::{Dice, with_seeds};
use super::tested::{Fortune, Tested};
use super::visit::{End, Visit};

/// Replies in a row on one connection.
const ROW_LEN_MAX: usize = 6;
/// A reply of so few bytes may leave byte by byte.
const SMALL_BYTES: usize = 1_500;

#[test]
fn every_reply_arrives_whole_by_the_driver_alone() {
    every_reply_arrives_whole(0);
}

#[test]
fn every_reply_arrives_whole_by_a_writer() {
    every_reply_arrives_whole(1);
}

fn every_reply_arrives_whole(writers: usize) {
    let tested = Tested::open(writers);
    let before = tested.holding();
    with_seeds(3, |seed| {
        for (index, expected) in tested.expected.iter().enumerate() {
            let bytewise = if expected.len() < SMALL_BYTES {
                u64::MAX
            } else {
                400
            };
            for temper in [Temper::Mixed(u64::MAX), Temper::Bytewise(bytewise)] {
                let steps = check_whole(&tested, &[index], Plan::new(temper, seed), seed);
                if temper == Temper::Bytewise(u64::MAX) {
                    assert!(steps >= expected.len() as u64, "a call for each byte");
                }
            }
        }
    });
    tested.assert_holds(&before);
    tested.stop();
}

#[test]
fn pipelined_replies_arrive_whole_and_in_order() {
    for writers in [0, 1] {
        rows_arrive_whole(Tested::open(writers));
    }
}

#[test]
fn replies_of_limited_bandwidth_arrive_whole_and_in_order() {
    rows_arrive_whole(Tested::open_with(|config| {
        config.rates.connection = Some(Rate::BytesPerSec(100 << 20));
    }));
}

fn rows_arrive_whole(tested: Tested) {
    let before = tested.holding();
    with_seeds(40, |seed| {
        let mut dice = Dice::new(seed);
        let row = random_row(&tested, &mut dice);
        let temper = match dice.below(4) {
            0 => Temper::Bytewise(500),
            _ => Temper::Mixed(u64::MAX),
        };
        check_whole(&tested, &row, Plan::new(temper, seed), seed);
    });
    tested.assert_holds(&before);
    tested.stop();
}

#[test]
fn replies_that_have_begun_arrive_whole_while_the_house_stops() {
    for writers in [0, 1] {
        with_seeds(2, |seed| {
            let tested = Tested::open_with(|config| {
                config.file_serving.writers = writers;
                // They all wait at once: more than half of it.
                config.delivery.replies_memory_bytes_max = 1_600_000;
            });
            let mut visits = Vec::new();
            for index in
                (0..tested.cases.len()).filter(|index| tested.cases[*index].after == After::Next)
            {
                let requests = tested.requests(&[index]);
                let plan = Plan::new(Temper::Mixed(u64::MAX), seed);
                let mut visit = Visit::begin(&tested.running, plan, seed);
                visit.ask(&requests.bytes);
                // Its head is made by now.
                let (first, _) = visit.read(1);
                visits.push((requests, visit, first));
            }
            tested.stop_while(|tested| {
                for (requests, mut visit, mut received) in visits {
                    let (rest, end) = visit.read_to_end();
                    received.extend(rest);
                    let what = requests.name();
                    requests.expected.assert_is(&received, &what);
                    assert_eq!(end, End::Closed, "{what}");
                    tested.note(requests, Fortune::Undisturbed);
                }
            });
        });
    }
}

#[test]
fn small_replies_arrive_whole_wherever_the_first_call_ends() {
    let tested = Tested::open(1);
    let before = tested.holding();
    for (index, expected) in tested.expected.iter().enumerate() {
        if expected.len() > SMALL_BYTES {
            continue;
        }
        for bytes in 1..expected.len() {
            check_whole(&tested, &[index], Plan::new(Temper::First(bytes), 0), 2);
        }
    }
    tested.assert_holds(&before);
    tested.stop();
}

/// Cases up to one that ends the connection.
fn random_row(tested: &Tested, dice: &mut Dice) -> Vec<usize> {
    let mut row = Vec::new();
    for _ in 0..=dice.below(ROW_LEN_MAX) {
        let index = dice.below(tested.cases.len());
        row.push(index);
        if tested.cases[index].after != After::Next {
            break;
        }
    }
    row
}

/// Asks for the replies of a row, reads them and checks what follows; gives the calls that it took.
fn check_whole(tested: &Tested, row: &[usize], plan: Plan, seed: u64) -> u64 {
    let last = &tested.cases[row[row.len() - 1]];
    let what = format!("{} as the last of {}, {plan:?}", last.name, row.len());
    let requests = tested.requests(row);
    let mut visit = Visit::begin(&tested.running, plan, seed);
    visit.ask(&requests.bytes);
    if last.after == After::Next {
        let (received, end) = visit.read(requests.expected.len());
        assert_eq!(end, None, "{what}: ended after {} bytes", received.len());
        requests.expected.assert_is(&received, &what);
        check_more(tested, &mut visit, &what);
    } else {
        let (received, end) = visit.read_to_end();
        if last.after == After::Reset {
            requests.expected.assert_begins_with(&received, &what);
            assert_eq!(end, End::Reset, "{what}: looks complete");
        } else {
            requests.expected.assert_is(&received, &what);
            assert_eq!(end, End::Closed, "{what}");
        }
    }
    tested.note(requests, Fortune::Undisturbed);
    visit.steps()
}

/// The connection goes on, and ends in order when the client wants no more.
fn check_more(tested: &Tested, visit: &mut Visit, what: &str) {
    let one_more = tested.requests(&[0]);
    visit.ask(&one_more.bytes);
    visit.half_close();
    let (received, end) = visit.read_to_end();
    one_more.expected.assert_is(&received, what);
    assert_eq!(end, End::Closed, "{what}");
    tested.note(one_more, Fortune::Undisturbed);
}
