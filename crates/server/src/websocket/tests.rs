//! What a channel keeps, what it sends, and how it ends.

use super::*;
use crate::response::Gathered;
use crate::tests::memory;

fn channel() -> WebSocketChannel {
    let inbox = Arc::new(LoopInbox::new().unwrap());
    WebSocketChannel::new(Arc::default(), memory(), None, None, inbox, 7, None)
}

#[test]
fn a_connection_gives_its_place_back_once() {
    let stats: &'static EventLoopStats = Box::leak(Box::default());
    let take = || WebSocketPermit::take(stats, Some(2));
    let with = |permit| {
        let inbox = Arc::new(LoopInbox::new().unwrap());
        WebSocketChannel::new(Arc::default(), memory(), None, None, inbox, 7, permit)
    };
    let (one, two) = (with(take()), with(take()));
    assert!(take().is_none() && take().is_none());
    assert!(WebSocketPermit::take(stats, None).is_some());
    assert_eq!(
        (stats.websockets.count(), stats.websockets_refused.count()),
        (2, 2)
    );
    // Its close frame may wait for room; the driver says when it is over.
    one.close(1000, "").unwrap();
    assert_eq!(stats.websockets.count(), 2);
    one.leave();
    one.lost();
    assert_eq!(stats.websockets.count(), 1);
    two.lost();
    drop((one, two));
    assert_eq!(stats.websockets.count(), 0);
    // No driver has ever seen it.
    drop(with(take()));
    assert_eq!(stats.websockets.count(), 0);
}

fn unsent(channel: &WebSocketChannel) -> Vec<u8> {
    let Some(mut parts) = channel.stream.pending().take_some() else {
        return Vec::new();
    };
    let mut bytes = vec![0; 1 << 10];
    let gathered = parts.gather(&mut bytes).unwrap();
    let Gathered::Bytes(len) = gathered else {
        panic!("no frame is in a file");
    };
    channel.stream.put_back(Parts::default(), &channel.memory);
    bytes.truncate(len);
    bytes
}

fn text(payload: &[u8]) -> Option<WebSocketInput> {
    Some(WebSocketInput::Message(IncomingMessage {
        kind: MessageKind::Text,
        payload: payload.to_vec(),
    }))
}

fn disconnect(code: u16, reason: &str) -> Option<WebSocketInput> {
    Some(WebSocketInput::Disconnect(Disconnect {
        code,
        reason: reason.to_owned(),
    }))
}

#[test]
fn messages_come_before_the_end() {
    let channel = channel();
    assert_eq!(channel.receive(), None);
    let is_awaited =
        ["a", "b"].map(|text| channel.push_message(MessageKind::Text, text.as_bytes().to_vec()));
    // The application waits for the first one alone.
    assert_eq!(is_awaited, [true, false]);
    channel.client_closed(Some(1001), "gone");
    assert!(!channel.push_message(MessageKind::Text, b"too late".to_vec()));
    assert_eq!(channel.receive(), text(b"a"));
    assert_eq!(channel.receive(), text(b"b"));
    for _ in 0..2 {
        assert_eq!(channel.receive(), disconnect(1001, "gone"));
    }
    assert_eq!(channel.closing(), Closing::Closed { code: Some(1001) });
    // The close frame that answers it.
    assert_eq!(unsent(&channel), b"\x88\x02\x03\xe9");
}

#[test]
fn the_driver_reads_no_more_beyond_the_bound() {
    let channel = channel();
    let _ = channel.push_message(MessageKind::Binary, vec![0; UNREAD_BYTES_MAX]);
    assert!(channel.takes_more());
    let _ = channel.push_message(MessageKind::Binary, vec![0; 1]);
    assert!(!channel.takes_more());
    assert!(channel.receive().is_some());
    assert!(channel.takes_more());
    for _ in 0..UNREAD_LEN_MAX {
        let _ = channel.push_message(MessageKind::Text, Vec::new());
    }
    assert!(!channel.takes_more());
}

#[test]
fn the_driver_reads_on_behind_an_end_that_finds_messages_untaken() {
    let channel = channel();
    for _ in 0..UNREAD_LEN_MAX {
        let _ = channel.push_message(MessageKind::Text, Vec::new());
    }
    assert!(!channel.takes_more());
    channel.close(4000, "").unwrap();
    assert!(channel.takes_more());
    channel.client_closed(Some(4000), "");
    assert_eq!(channel.closing(), Closing::Closed { code: Some(4000) });
}

#[test]
fn pings_are_not_answered_without_bound() {
    let channel = channel();
    while channel.takes_more() {
        channel.push_control(Opcode::Pong, &[0; 125]);
    }
    let unsent_bytes = channel.stream.pending().unsent_bytes();
    assert!((UNSENT_BYTES_MAX..=UNSENT_BYTES_MAX + 127).contains(&unsent_bytes));
}

#[test]
fn a_driver_that_stops_for_bytes_in_the_hands_of_the_loop_leaves_a_mark() {
    let channel = channel();
    assert!(channel.stream.pending().take_turn(UNSENT_BYTES_MAX + 1));
    assert!(!channel.takes_more());
    assert!(channel.state().is_sending_awaited);
    channel.stream.put_back(Parts::default(), &channel.memory);
    assert!(channel.takes_more());
    assert!(!channel.state().is_sending_awaited);
}

#[test]
fn nothing_follows_a_close_frame_but_pongs() {
    let channel = channel();
    assert_eq!(channel.close(1000, "done"), Ok(()));
    assert_eq!(
        channel.send(MessageKind::Text, &&b"a"[..], None),
        Err(SendFault::Closed)
    );
    assert_eq!(channel.close(1000, ""), Err(SendFault::Closed));
    channel.push_control(Opcode::Ping, b"");
    channel.push_control(Opcode::Pong, b"p");
    assert_eq!(unsent(&channel), b"\x88\x06\x03\xe8done\x8a\x01p");
    // The application has asked for the end, and hears of it at once.
    assert_eq!(channel.receive(), disconnect(1000, "done"));
    channel.client_closed(Some(1000), "");
    assert_eq!(channel.facts().1, 1000);
}

#[test]
fn the_first_end_is_the_one_that_is_reported() {
    let channel = channel();
    channel.close_by_server(1011, 1006, "silent");
    channel.lost();
    assert_eq!(channel.receive(), disconnect(1006, "silent"));
    assert!(channel.has_room(), "a `send()` that waits ends");
    assert!(unsent(&channel).is_empty(), "nothing is sent to nobody");
}

#[test]
fn a_code_that_no_frame_may_carry_sends_nothing() {
    let channel = channel();
    let closed = channel.close(1005, "");
    assert_eq!(closed, Err(SendFault::Code(InvalidCloseCode(1005))));
    assert_eq!(channel.closing(), Closing::Open);
    assert!(unsent(&channel).is_empty());
}

#[test]
fn messages_leave_as_whole_frames_in_their_order() {
    let channel = channel();
    for payload in [&b"one"[..], b"", b"three"] {
        let sent = channel.send(MessageKind::Binary, &payload, None);
        assert_eq!(sent, Ok(MessageSent::Out));
    }
    assert_eq!(unsent(&channel), b"\x82\x03one\x82\x00\x82\x05three");
    let (counts, code) = channel.facts();
    assert_eq!((counts.sent, counts.received, code), (3, 0, 0));
}

#[test]
fn the_first_message_of_a_turn_leaves_at_once_and_others_with_the_flush() {
    let channel = channel();
    let send = |turn| channel.send(MessageKind::Text, &&b"m"[..], turn).unwrap();
    assert_eq!(send(Some(1)), MessageSent::Out);
    let sent = [1, 1, 1].map(|turn| send(Some(turn)));
    let (out, kept) = (MessageSent::Out, MessageSent::Kept);
    assert_eq!(sent, [kept, out, out], "one flush is for all of them");
    channel.flush();
    assert_eq!(send(Some(2)), out);
    assert_eq!(send(Some(2)), kept);
    // One of its own application is not kept, and the driver that it wakes finds all of them.
    assert_eq!(send(None), out);
    assert_eq!(send(Some(2)), out, "the flush is still to come");
    assert_eq!(unsent(&channel), b"\x81\x01m".repeat(8));
}
