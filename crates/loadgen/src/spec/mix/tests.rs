//! Mixes of requests: what becomes bytes, and which line is wrong.

use super::super::tests::Folder;
use super::*;
use crate::plan::ExpectBody;
use crate::tests::fault_text;

fn read(bytes: &[u8]) -> Result<Vec<Request>, Vec<Fault>> {
    let common = RequestParts {
        method: "GET",
        target: "/",
        host: "h",
        fields: &[("Accept".to_owned(), "*/*".to_owned())],
        body: None,
    };
    kinds("mix.toml", bytes, &common, &Folder)
}

#[track_caller]
fn check_fault(text: &str, expect: &[&str]) {
    let faults = read(text.as_bytes()).unwrap_err();
    let said: Vec<String> = faults.into_iter().map(fault_text).collect();
    assert_eq!(said, expect, "{text}");
}

#[test]
fn makes_requests_of_tables() {
    let text = "\
[[request]]
target = '/'
weight = 9

[[request]]
target = '/orders?x'
headers = ['Content-Type: application/json', 'accept: a/b']
body_file = 'body'
expect_status = 201
expect_length = '1K'
expect_body = 'same'

[[request]]
method = 'HEAD'
target = '/'
weight = 0
";
    let found = read(text.as_bytes()).unwrap();
    let bytes: Vec<String> = found
        .iter()
        .map(|kind| String::from_utf8(kind.bytes.to_vec()).unwrap())
        .collect();
    assert_eq!(
        bytes,
        [
            "GET / HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
            "POST /orders?x HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\naccept: a/b\r\nContent-Length: 3\r\n\r\nabc",
            "HEAD / HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
        ]
    );
    let weights: Vec<u32> = found.iter().map(|kind| kind.weight).collect();
    assert_eq!(weights, [9, 1, 0]);
    assert!(found[0].expect.is_none());
    let expect = found[1].expect.clone().unwrap();
    assert_eq!(
        (expect.statuses, expect.body_bytes),
        (vec![201], Some(1024))
    );
    assert_eq!(expect.body, ExpectBody::SameAsFirst);
}

#[test]
fn says_all_faults_with_their_lines() {
    let text = "\
colour = 1
[[request]]
target = '/'
wieght = 9

[[request]]
target = '/a b'
weight = -1
headers = ['no', 'a: b']

[[request]]
body = 'x'
body_file = 'y'
headers = ['no', 5]

[[request]]
method = 'CONNECT'
target = '/'
body_file = 'missing'
expect_status = 99
";
    check_fault(
        text,
        &[
            "mix.toml:1: `colour`: unknown; the file has `[[request]]` tables only",
            "mix.toml:4: `wieght`: unknown key > did you mean `weight`?",
            "mix.toml:8: `weight`: expected a count from 0 to 1000000, found `-1`",
            "mix.toml:9: `headers`: expected a header as `Name: value`, found `no`",
            "mix.toml:6: request: `/a b` is no request target",
            "mix.toml:11: `target`: is missing",
            "mix.toml:14: `headers`: expected a list as `[\"Accept: text/html\"]`",
            "mix.toml:12: `body` and `body_file`: exclude each other > a request has one body: keep one of them",
            "mix.toml:19: `body_file`: `missing` cannot be read: no such file or directory > it has to be a file that this user may read",
            "mix.toml:20: `expect_status`: expected statuses as `200,304`, `2xx` or `200-204`, found `99`",
            "mix.toml:16: request: CONNECT is not sent > it makes a tunnel of the connection",
        ],
    );
}

#[test]
fn refuses_what_is_no_mix() {
    check_fault("", &["mix.toml: there is no `[[request]]` in it"]);
    check_fault(
        "request = 5",
        &["mix.toml:1: `request`: expected `[[request]]` tables"],
    );
    check_fault(
        "[[request]]\ntarget = '/'\nweight = 0",
        &["mix.toml: every weight is 0: nothing would be sent"],
    );
    check_fault(
        "[[request]]\ntarget = true",
        &["mix.toml:2: `target`: expected a text or a number"],
    );
    let faults = read(b"a = \n").unwrap_err();
    assert!(
        faults[0].text.starts_with("mix.toml:1: not TOML: "),
        "{}",
        faults[0].text
    );
    let faults = read(b"\xff").unwrap_err();
    assert_eq!(faults[0].text, "mix.toml: not TOML: the text is not UTF-8");
}
