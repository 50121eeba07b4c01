//! A reset in place of any call: the client has the beginning of its reply, nobody else notices, and nothing
//! is left behind.

use server::transport::faults::{Plan, Temper};

use super::cases::After;
use super::dice::with_seeds;
use super::tested::{Fortune, Tested};
use super::visit::{End, Visit};

/// Calls that are disturbed before the reset, or not.
const DISTURBED: u64 = 12;

#[test]
fn a_reset_at_any_step_breaks_one_reply_off_by_the_driver_alone() {
    a_reset_at_any_step_breaks_one_reply_off(0);
}

#[test]
fn a_reset_at_any_step_breaks_one_reply_off_by_a_writer() {
    a_reset_at_any_step_breaks_one_reply_off(1);
}

fn a_reset_at_any_step_breaks_one_reply_off(writers: usize) {
    let tested = Tested::open(writers);
    let before = tested.holding();
    with_seeds(2, |seed| {
        for index in 0..tested.cases.len() {
            let temper = match seed {
                0 => Temper::Plain,
                _ => Temper::Mixed(DISTURBED),
            };
            reset_at_every_step(&tested, &[index], Plan::new(temper, seed), seed);
        }
        tested.assert_holds(&before);
    });
    tested.stop();
}

#[test]
fn a_reset_at_any_byte_of_a_small_reply_breaks_it_off() {
    let tested = Tested::open(1);
    let before = tested.holding();
    let plan = Plan::new(Temper::Bytewise(u64::MAX), 0);
    let steps = reset_at_every_step(&tested, &[0], plan, 0);
    assert_eq!(
        steps,
        tested.expected[0].len() as u64,
        "a call for each byte"
    );
    tested.assert_holds(&before);
    tested.stop();
}

#[test]
fn a_reset_within_pipelined_replies_spares_those_before_it() {
    for writers in [0, 1] {
        let tested = Tested::open(writers);
        let before = tested.holding();
        with_seeds(1, |seed| {
            for index in 0..tested.cases.len() {
                let plan = Plan::new(Temper::Mixed(DISTURBED), seed);
                let row = match tested.cases[index].after {
                    After::Next => vec![0, index, index, 0],
                    _ => vec![0, index],
                };
                reset_at_every_step(&tested, &row, plan, seed);
            }
        });
        tested.assert_holds(&before);
        tested.stop();
    }
}

/// Resets at step 0, 1 … until the replies need no more steps; gives their number.
fn reset_at_every_step(tested: &Tested, row: &[usize], plan: Plan, seed: u64) -> u64 {
    let mut step = 0;
    while reset_at(tested, row, plan.reset_at(step), step, seed) == Fortune::Reset {
        check_next(tested);
        step += 1;
    }
    step
}

fn reset_at(tested: &Tested, row: &[usize], plan: Plan, step: u64, seed: u64) -> Fortune {
    let last = &tested.cases[row[row.len() - 1]];
    let what = format!("{} as the last of {}, {plan:?}", last.name, row.len());
    let requests = tested.requests(row);
    let expected = &requests.expected;
    let mut visit = Visit::begin(&tested.running, plan, seed);
    visit.ask(&requests.bytes);
    let (received, end) = match last.after {
        After::Next => visit.read(expected.len()),
        _ => visit.read(usize::MAX),
    };
    expected.assert_begins_with(&received, &what);
    let fortune = if visit.steps() > step {
        assert!(received.len() < expected.len(), "{what}: a step was left");
        assert_eq!(end, Some(End::Reset), "{what}: looks complete");
        Fortune::Reset
    } else {
        match last.after {
            After::Next => assert_eq!(end, None, "{what}"),
            After::Reset => assert_eq!(end, Some(End::Reset), "{what}"),
            After::End | After::EndAsSign | After::Cut => {
                assert_eq!(end, Some(End::Closed), "{what}");
            }
        }
        if last.after != After::Reset {
            expected.assert_is(&received, &what);
        }
        Fortune::Undisturbed
    };
    tested.note(requests, fortune);
    fortune
}

/// The server serves the next client as if nothing had been.
fn check_next(tested: &Tested) {
    let next = tested.requests(&[0]);
    let mut visit = Visit::begin(&tested.running, Plan::new(Temper::Plain, 0), 0);
    visit.ask(&next.bytes);
    let (received, end) = visit.read(next.expected.len());
    next.expected.assert_is(&received, "the next client");
    assert_eq!(end, None);
    tested.note(next, Fortune::Undisturbed);
}
