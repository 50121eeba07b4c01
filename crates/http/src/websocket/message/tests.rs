//! What is held between two calls, and what is not copied.

use super::*;

fn decoder(deflate: Option<DeflateContext>) -> MessageDecoder {
    MessageDecoder::new(Role::Client, 1000, deflate)
}

#[test]
fn gives_a_whole_message_from_where_it_stands() {
    let mut decoder = decoder(None);
    let mut input = *b"\x81\x05Hello";
    let place = input[2..].as_ptr();
    let mut buffer = Vec::new();
    let received = decoder.decode(&mut input, &mut buffer).unwrap();
    assert_eq!(received.consumed, 7);
    assert!(matches!(received.event, Some(Event::Text(text)) if text.as_ptr() == place));
    // Its header alone, and then its payload, are no reason to copy it.
    decoder.decode(&mut input[..2], &mut buffer).unwrap();
    assert!(!decoder.is_within_message());
    let received = decoder.decode(&mut input[2..], &mut buffer).unwrap();
    assert!(matches!(received.event, Some(Event::Text(text)) if text.as_ptr() == place));
    assert_eq!(buffer.capacity(), 0);
}

#[test]
fn a_new_message_clears_what_the_caller_has_kept() {
    let mut decoder = decoder(None);
    let mut buffer = Vec::new();
    for expect in [&b"abcd"[..], b"xyz"] {
        let mut first = [&[0x02, 2], &expect[..2]].concat();
        let mut last = [&[0x80, expect.len() as u8 - 2], &expect[2..]].concat();
        let received = decoder.decode(&mut first, &mut buffer).unwrap();
        assert_eq!(received.event, None);
        assert!(decoder.is_within_message());
        let received = decoder.decode(&mut last, &mut buffer).unwrap();
        assert_eq!(received.event, Some(Event::Binary(expect)));
        assert!(!decoder.is_within_message());
    }
}

#[test]
fn holds_an_inflater_only_while_it_is_needed() {
    let mut input = *b"\xc1\x07\xf2\x48\xcd\xc9\xc9\x07\x00";
    for (context, is_held) in [
        (DeflateContext::Kept, true),
        (DeflateContext::Dropped, false),
    ] {
        let mut decoder = decoder(Some(context));
        let mut buffer = Vec::new();
        decoder.decode(&mut input[..2], &mut buffer).unwrap();
        assert!(!decoder.inflater.is_allocated());
        decoder.decode(&mut input[2..4], &mut buffer).unwrap();
        assert!(decoder.inflater.is_allocated());
        let received = decoder.decode(&mut input[4..], &mut buffer).unwrap();
        assert_eq!(received.event, Some(Event::Text(b"Hello")));
        assert_eq!(decoder.inflater.is_allocated(), is_held);
        // Neither a fault nor a close frame leaves anything behind.
        decoder.decode(&mut [0x88, 0x00], &mut buffer).unwrap();
        assert!(!decoder.inflater.is_allocated());
    }
}

#[test]
fn an_idle_decoder_is_small() {
    assert!(
        size_of::<MessageDecoder>() <= 96,
        "{}",
        size_of::<MessageDecoder>()
    );
}
