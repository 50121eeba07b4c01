//! Offers and answers, RFC 7692 sections 5 and 7.1.

use super::*;
use DeflateContext::{Dropped, Kept};

fn side(window_bits: u8, context: DeflateContext) -> DeflateSide {
    DeflateSide {
        window_bits,
        context,
    }
}

fn read(values: &[&'static str]) -> Result<Vec<Extension<'static>>, MalformedExtensions> {
    extensions(values.iter().map(|value| value.as_bytes()))
}

/// The value of the answer to this offer by the default policy with a window of 15 bits.
fn check(offer: &'static str, expect: Option<&str>) {
    let policy = DeflateOptions {
        window_bits: 15,
        ..DeflateOptions::default()
    };
    let offers = read(&[offer]).unwrap_or_else(|_| panic!("{offer} is malformed"));
    let agreement = policy.choose(&offers);
    let value = agreement.as_ref().map(DeflateAgreement::value);
    assert_eq!(value.as_deref(), expect, "{offer}");
}

#[test]
fn accepts_the_first_valid_offer() {
    let plain = Some("permessage-deflate");
    for offer in [
        "permessage-deflate",
        "permessage-deflate; client_max_window_bits",
        "permessage-deflate;client_max_window_bits=8",
        "permessage-deflate; server_max_window_bits=15",
        "permessage-deflate; server_max_window_bits=\"15\"",
        " ,, permessage-deflate ,",
        "x-webkit-deflate-frame, permessage-deflate",
        "permessage-deflate; unknown, permessage-deflate",
        "bar; a=\"x, permessage-deflate; y\\\"\"; b = c, permessage-deflate",
    ] {
        check(offer, plain);
    }
    for (offer, expect) in [
        (
            "permessage-deflate; server_no_context_takeover",
            "permessage-deflate; server_no_context_takeover",
        ),
        (
            "permessage-deflate; client_no_context_takeover; server_max_window_bits=9",
            "permessage-deflate; client_no_context_takeover; server_max_window_bits=9",
        ),
        (
            "permessage-deflate; server_max_window_bits=8, permessage-deflate; server_max_window_bits=10",
            "permessage-deflate; server_max_window_bits=10",
        ),
    ] {
        check(offer, Some(expect));
    }
}

#[test]
fn declines_invalid_offers() {
    for params in [
        "unknown",
        "server_no_context_takeover=1",
        "client_no_context_takeover=\"\"",
        "server_no_context_takeover; server_no_context_takeover",
        "client_no_context_takeover; client_no_context_takeover",
        "server_max_window_bits",
        "server_max_window_bits=8",
        "server_max_window_bits=7",
        "server_max_window_bits=16",
        "server_max_window_bits=010",
        "server_max_window_bits=\"+9\"",
        "server_max_window_bits=\"\\9\"",
        "server_max_window_bits=10; server_max_window_bits=10",
        "client_max_window_bits=7",
        "client_max_window_bits=16",
        "client_max_window_bits=1x",
        "client_max_window_bits; client_max_window_bits=9",
        "Server_No_Context_Takeover",
    ] {
        let offer = format!("permessage-deflate; {params}");
        let offers = extensions([offer.as_bytes()].into_iter()).ok().unwrap();
        assert_eq!(DeflateOptions::default().choose(&offers), None, "{params}");
    }
    for other in ["", "permessage-bzip2", "permessage-deflate2"] {
        check(other, None);
    }
}

#[test]
fn refuses_what_is_no_list_of_extensions() {
    for malformed in [
        ";",
        "a;",
        "a; =b",
        "a; b=",
        "a b",
        "a; b c",
        "a; b=\"c",
        "a; b=\"c\\\"",
        "a; b=\"c\" d",
        "\"a\"",
        "a=b",
        "a; b=c=d",
        "a\u{e9}",
        "a/b",
    ] {
        assert!(read(&[malformed]).is_err(), "{malformed}");
        assert!(read(&["permessage-deflate", malformed]).is_err());
    }
    assert!(read(&["", " , \t,"]).is_ok_and(|list| list.is_empty()));
}

#[test]
fn the_policy_limits_what_is_accepted() {
    let offers = read(&["permessage-deflate; server_max_window_bits=14"])
        .ok()
        .unwrap();
    let policy = DeflateOptions {
        window_bits: 12,
        server_context: Dropped,
        client_context: Dropped,
    };
    let agreement = policy.choose(&offers).unwrap();
    assert_eq!(agreement.server, side(12, Dropped));
    assert_eq!(agreement.client, side(15, Dropped));
    let value = "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                 server_max_window_bits=12";
    assert_eq!(agreement.value(), value);
}

#[test]
fn the_client_checks_the_answer_against_its_offer() {
    let offer = DeflateOptions::default();
    assert_eq!(offer.offer(), "permessage-deflate; client_max_window_bits");
    let check = |offer: DeflateOptions, answer: &'static str, expect| {
        let answers = read(&[answer]).ok().unwrap();
        assert_eq!(offer.check(&answers[0]), expect, "{answer}");
    };
    let agreed = |server, client| Some(DeflateAgreement { server, client });
    for (answer, expect) in [
        ("permessage-deflate", agreed(side(15, Kept), side(12, Kept))),
        (
            "permessage-deflate; server_max_window_bits=8; client_max_window_bits=9",
            agreed(side(8, Kept), side(9, Kept)),
        ),
        (
            "permessage-deflate; client_max_window_bits=15; client_no_context_takeover",
            agreed(side(15, Kept), side(12, Dropped)),
        ),
        (
            "permessage-deflate; server_no_context_takeover",
            agreed(side(15, Dropped), side(12, Kept)),
        ),
        ("permessage-deflate; client_max_window_bits", None),
        ("permessage-deflate; client_max_window_bits=8", None),
        ("permessage-deflate; server_max_window_bits", None),
        ("permessage-deflate; unknown=1", None),
        ("permessage-bzip2", None),
    ] {
        check(offer, answer, expect);
    }
    let dropping = DeflateOptions {
        server_context: Dropped,
        client_context: Dropped,
        ..offer
    };
    let value = "permessage-deflate; server_no_context_takeover; client_no_context_takeover; \
                 client_max_window_bits";
    assert_eq!(dropping.offer(), value);
    check(dropping, "permessage-deflate", None);
    check(
        dropping,
        "permessage-deflate; server_no_context_takeover",
        agreed(side(15, Dropped), side(12, Dropped)),
    );
}

#[test]
fn what_is_offered_is_accepted_and_agreed_on_alike() {
    for (server_context, client_context) in [
        (Kept, Kept),
        (Kept, Dropped),
        (Dropped, Kept),
        (Dropped, Dropped),
    ] {
        for window_bits in 9..=15 {
            let offer = DeflateOptions {
                window_bits: 15,
                server_context,
                client_context,
            };
            let policy = DeflateOptions {
                window_bits,
                ..DeflateOptions::default()
            };
            let value = offer.offer();
            let offers = extensions([value.as_bytes()].into_iter()).ok().unwrap();
            let chosen = policy.choose(&offers).unwrap();
            let value = chosen.value();
            let answer = extensions([value.as_bytes()].into_iter()).ok().unwrap();
            assert_eq!(offer.check(&answer[0]), Some(chosen));
        }
    }
}
