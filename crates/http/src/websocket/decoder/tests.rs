//! Parts of frames as they arrive.

use super::*;

fn data(payload: Range<usize>, left: u64, is_end: bool) -> Option<FramePart> {
    Some(FramePart::Data(DataPart {
        kind: MessageKind::Text,
        form: PayloadForm::Plain,
        payload,
        left,
        is_end,
    }))
}

fn check(decoder: &mut FrameDecoder, input: &mut [u8], consumed: usize, part: Option<FramePart>) {
    let step = FrameStep { consumed, part };
    assert_eq!(decoder.decode(input), Ok(step));
}

#[test]
fn gives_payload_as_it_comes_without_its_mask() {
    let mut decoder = FrameDecoder::new(Role::Server, Compression::Off);
    let mut input = *b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    check(&mut decoder, &mut input[..5], 0, None);
    check(&mut decoder, &mut input[..6], 6, data(6..6, 5, false));
    check(&mut decoder, &mut [], 0, None);
    check(&mut decoder, &mut input[6..9], 3, data(0..3, 2, false));
    check(&mut decoder, &mut input[9..], 2, data(0..2, 0, true));
    assert_eq!(&input[6..], b"Hello");
    // A message of two frames, of which the second is empty.
    let mut input = *b"\x01\x83\0\0\0\0Hel\x80\x80\0\0\0\0";
    check(&mut decoder, &mut input, 9, data(6..9, 0, false));
    check(&mut decoder, &mut input[9..], 6, data(6..6, 0, true));
}

#[test]
fn takes_control_frames_whole_and_within_messages() {
    let mut decoder = FrameDecoder::new(Role::Client, Compression::Off);
    let control = |opcode, payload| Some(FramePart::Control { opcode, payload });
    let mut input = *b"\x01\x03Hel\x89\x02hi\x80\x02lo\x88\x00\x81\x01x";
    check(&mut decoder, &mut input[..8], 5, data(2..5, 0, false));
    check(&mut decoder, &mut input[5..8], 0, None);
    check(
        &mut decoder,
        &mut input[5..],
        4,
        control(Opcode::Ping, 2..4),
    );
    check(&mut decoder, &mut input[9..], 4, data(2..4, 0, true));
    check(
        &mut decoder,
        &mut input[13..],
        2,
        control(Opcode::Close, 2..2),
    );
    // Nothing counts behind a close frame.
    check(&mut decoder, &mut input[15..], 3, None);
}

#[test]
fn ignores_everything_behind_a_fault() {
    let mut decoder = FrameDecoder::new(Role::Client, Compression::Off);
    let fault = decoder.decode(&mut [0x83]);
    assert_eq!(fault, Err(WebSocketFault::OpcodeUnknown));
    check(&mut decoder, &mut [0x83, 0x00], 2, None);
}
