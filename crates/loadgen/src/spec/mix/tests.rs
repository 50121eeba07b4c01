//! Mixes of requests: what becomes bytes, and which line is wrong.

use std::io;

use super::*;
use crate::spec::Recording;

/// One file, `order.json`.
struct Folder;

impl Files for Folder {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        match path.to_str() {
            Some("order.json") => Ok(b"{}".to_vec()),
            _ => Err(io::Error::from_raw_os_error(2)),
        }
    }

    fn recording(&self, _: &Path) -> Result<Recording, Fault> {
        Err(Fault::new("no recording"))
    }
}

fn read(text: &str) -> Result<Vec<Request>, Vec<Fault>> {
    let common = CommonParts {
        host: "h",
        fields: vec![("Accept".to_owned(), "*/*".to_owned())],
    };
    kinds("mix.toml", text.as_bytes().to_vec(), &common, &Folder)
}

#[track_caller]
fn check_fault(text: &str, expect: &[&str]) {
    let faults = read(text).unwrap_err();
    let said: Vec<String> = faults
        .into_iter()
        .map(|fault| match fault.hint {
            Some(hint) => format!("{} > {hint}", fault.text),
            None => fault.text,
        })
        .collect();
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
body_file = 'order.json'
expect_status = 201
expect_length = '1K'
expect_body = 'same'

[[request]]
method = 'HEAD'
target = '/'
weight = 0
";
    let found = read(text).unwrap();
    let bytes: Vec<String> = found
        .iter()
        .map(|kind| String::from_utf8(kind.bytes.to_vec()).unwrap())
        .collect();
    assert_eq!(
        bytes,
        [
            "GET / HTTP/1.1\r\nHost: h\r\nAccept: */*\r\n\r\n",
            "POST /orders?x HTTP/1.1\r\nHost: h\r\nContent-Type: application/json\r\naccept: a/b\r\nContent-Length: 2\r\n\r\n{}",
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
            "mix.toml:6: request: `/a b` is no request target",
            "mix.toml:12: `body_file`: the request has a body already",
            "mix.toml:13: `headers`: expected a list as `[\"Accept: text/html\"]`",
            "mix.toml:13: `headers`: expected a list as `[\"Accept: text/html\"]`",
            "mix.toml:10: `target`: is missing",
            "mix.toml:18: `body_file`: `missing` cannot be read: no such file or directory",
            "mix.toml:19: `expect_status`: expected statuses as `200,304`, `2xx` or `200-204`, found `99`",
            "mix.toml:15: request: CONNECT is not sent > it makes a tunnel of the connection",
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
    let faults = read("a = \n").unwrap_err();
    assert!(
        faults[0].text.starts_with("mix.toml:1: not TOML: "),
        "{}",
        faults[0].text
    );
    let common = CommonParts {
        host: "h",
        fields: Vec::new(),
    };
    let faults = kinds("mix.toml", vec![0xff], &common, &Folder).unwrap_err();
    assert_eq!(faults[0].text, "mix.toml: not TOML: the text is not UTF-8");
}
