//! Targets: every address of a name, and what may be said about each kind of URL.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use super::*;
use crate::spec::{LoadSpec, Recording};

/// Names with their addresses; nothing else is known.
struct Names(HashMap<&'static str, Vec<&'static str>>);

impl Files for Names {
    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Err(io::ErrorKind::NotFound.into())
    }

    fn recording(&self, _: &Path) -> Result<Recording, Fault> {
        Err(Fault::new("no recording"))
    }

    fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        let found = self.0.get(host).ok_or(io::Error::other("unknown name"))?;
        let addresses = found
            .iter()
            .map(|ip| SocketAddr::new(ip.parse().unwrap(), port));
        Ok(addresses.collect())
    }
}

fn read(keys: &[(&str, &str)]) -> (Option<Target>, Vec<IpAddr>, String) {
    let names = Names(HashMap::from([
        ("localhost", vec!["::1", "127.0.0.1"]),
        ("six", vec!["fd00::1"]),
        ("half", vec!["10.0.0.1", "93.184.215.14"]),
        ("mapped", vec!["::ffff:8.8.8.8"]),
        ("public", vec!["93.184.215.14"]),
        ("nowhere", vec![]),
    ]));
    let mut written = LoadSpec::default();
    for (name, text) in keys {
        assert!(written.put(name, text), "{name}");
    }
    let mut reading = SpecReader::of(&written);
    let target = target(&mut reading, &names);
    let sources = sources(&mut reading, target.as_ref());
    let faults = reading.faults.into_iter().map(|fault| match fault.hint {
        Some(hint) => format!("{} > {hint}", fault.text),
        None => fault.text,
    });
    (target, sources, faults.collect::<Vec<_>>().join("\n"))
}

#[track_caller]
fn check_address(keys: &[(&str, &str)], address: &str, host: &str) {
    let (target, _, faults) = read(keys);
    assert_eq!(faults, "", "{keys:?}");
    let target = target.unwrap();
    let expect = match address.parse() {
        Ok(address) => Address::Ip(address),
        Err(_) => Address::Unix(address.into()),
    };
    assert_eq!(
        (target.address, target.host.as_str()),
        (expect, host),
        "{keys:?}"
    );
}

#[track_caller]
fn check_fault(keys: &[(&str, &str)], expect: &str) {
    let (_, _, faults) = read(keys);
    assert_eq!(faults, expect, "{keys:?}");
}

#[test]
fn finds_where_to_connect_to() {
    check_address(
        &[("url", "http://localhost:8000/")],
        "127.0.0.1:8000",
        "localhost:8000",
    );
    check_address(&[("url", "http://six/")], "[fd00::1]:80", "six");
    check_address(&[("url", "http://[::1]:81/")], "[::1]:81", "[::1]:81");
    check_address(&[("url", "http://a.b/c"), ("unix", "/s")], "/s", "a.b");
    let mine = [("url", "http://public/"), ("i_own_this_target", "true")];
    check_address(&mine, "93.184.215.14:80", "public");
}

#[test]
fn refuses_a_target_of_others() {
    let hint = "a load may take a server away from others: `--i-own-this-target` if it is yours";
    for (url, said) in [
        ("http://8.8.8.8/", "`8.8.8.8`: is"),
        ("http://[2606:4700::1111]/", "`2606:4700::1111`: is"),
        (
            "http://public/",
            "`public`: leads to 93.184.215.14, which is",
        ),
        ("http://half/", "`half`: leads to 93.184.215.14, which is"),
        (
            "http://mapped/",
            "`mapped`: leads to ::ffff:8.8.8.8, which is",
        ),
        (
            "https://public/",
            "`public`: leads to 93.184.215.14, which is",
        ),
    ] {
        let expect = format!("{said} neither loopback nor a private or test address > {hint}");
        check_fault(&[("url", url)], &expect);
    }
}

#[test]
fn says_that_a_host_cannot_be_connected_to() {
    let hint = "see /etc/hosts and /etc/resolv.conf, or write the address";
    check_fault(
        &[("url", "http://unknown/")],
        &format!("`unknown`: no address is known: unknown name > {hint}"),
    );
    check_fault(
        &[("url", "http://nowhere/")],
        "`nowhere`: no address is known",
    );
    for (url, ip) in [("http://0.0.0.0:1/", "0.0.0.0"), ("http://[::]/", "::")] {
        let text = format!("`{ip}`: is where servers listen, and nowhere to connect to");
        check_fault(&[("url", url)], &format!("{text} > ask 127.0.0.1 or [::1]"));
    }
    check_fault(
        &[],
        "`URL`: is missing > `milepost bench http://127.0.0.1:8000/`",
    );
    check_fault(
        &[("url", "http://localhost/"), ("unix", "")],
        "`--unix`: expected a path, found ``",
    );
}

#[test]
fn says_whose_certificates_are_trusted() {
    let found = read(&[("url", "https://localhost/"), ("cacert", "ca.pem")])
        .0
        .unwrap();
    let Scheme::Https(checked) = found.scheme else {
        panic!("without TLS");
    };
    assert_eq!(
        (checked.server_name.as_str(), checked.resumes),
        ("localhost", true)
    );
    assert!(matches!(checked.trust, TlsTrust::Authority(path) if path == Path::new("ca.pem")));
    check_fault(
        &[("url", "https://localhost/")],
        "https: it is not said whose certificates are trusted > `--cacert FILE` with the authority's certificate (the system's: /etc/ssl/certs/ca-certificates.crt), or `--insecure`",
    );
    check_fault(
        &[
            ("url", "https://localhost/"),
            ("cacert", "a"),
            ("insecure", "true"),
        ],
        "`--cacert` and `--insecure`: exclude each other > leave `--insecure` out to have the certificate checked",
    );
    for (name, text) in [
        ("cacert", "a"),
        ("insecure", "true"),
        ("no_resumption", "true"),
        ("server_name", "a"),
    ] {
        check_fault(
            &[("url", "http://localhost/"), (name, text)],
            &format!(
                "`--{}`: only an https target speaks TLS > begin the URL with `https://`, or leave it out",
                name.replace('_', "-")
            ),
        );
    }
}

#[test]
fn takes_the_name_that_tls_asks_for() {
    for (url, name, expect) in [
        ("https://127.0.0.1/", None, "127.0.0.1"),
        ("https://[::1]/", None, "::1"),
        ("https://127.0.0.1/", Some("shop.example"), "shop.example"),
    ] {
        let keys = [
            ("url", url),
            ("insecure", "true"),
            ("no_resumption", "true"),
        ];
        let name = name.map(|name| ("server_name", name));
        let keys: Vec<_> = keys.into_iter().chain(name).collect();
        let Some(Scheme::Https(tls)) = read(&keys).0.map(|target| target.scheme) else {
            panic!("{url}: without TLS");
        };
        assert_eq!(
            (tls.server_name.as_str(), tls.resumes),
            (expect, false),
            "{url}"
        );
        assert!(matches!(tls.trust, TlsTrust::Anybody));
    }
}

#[test]
fn takes_ranges_of_sources() {
    let sources = |text: &str| {
        let (_, sources, faults) = read(&[("url", "http://localhost/"), ("source", text)]);
        let sources: Vec<String> = sources.iter().map(IpAddr::to_string).collect();
        (sources.join(" "), faults)
    };
    for (text, expect) in [
        ("127.0.0.2", "127.0.0.2"),
        (
            "127.0.0.2-127.0.0.4, 127.0.1.1",
            "127.0.0.2 127.0.0.3 127.0.0.4 127.0.1.1",
        ),
        ("127.0.0.255-127.0.1.0", "127.0.0.255 127.0.1.0"),
    ] {
        assert_eq!(sources(text), (expect.to_owned(), String::new()), "{text}");
    }
    for text in [
        "",
        "127.0.0.4-127.0.0.2",
        "localhost",
        "127.0.0.2-::1",
        "127.0.0.0-127.1.0.0",
        "1.2.3",
    ] {
        let expect = format!(
            "`--source`: expected addresses as `127.0.0.2-127.0.0.9,127.0.1.1`, at most 65536, found `{text}`"
        );
        assert_eq!(sources(text), (String::new(), expect), "{text}");
    }
    check_fault(
        &[
            ("url", "http://a/"),
            ("unix", "/s"),
            ("source", "127.0.0.2"),
        ],
        "`--source`: a unix socket has no local addresses > leave `--source` out",
    );
    check_fault(
        &[("url", "http://six/"), ("source", "127.0.0.2")],
        "`--source`: the target is [fd00::1]:80: not both IPv4 or both IPv6 > write the URL with an address of the same kind",
    );
}

#[track_caller]
fn check_safe(addresses: &[&str], expect: bool) {
    for text in addresses {
        assert_eq!(is_safe(text.parse().unwrap()), expect, "{text}");
    }
}

#[test]
fn allows_every_range_to_its_ends() {
    check_safe(
        &[
            "127.0.0.1",
            "127.255.255.255",
            "10.0.0.0",
            "10.255.255.255",
            "172.16.0.0",
            "172.31.255.255",
            "192.168.0.0",
            "192.168.255.255",
            "169.254.0.1",
            "169.254.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "192.0.2.0",
            "192.0.2.255",
            "198.51.100.0",
            "198.51.100.255",
            "203.0.113.0",
            "203.0.113.255",
            "198.18.0.0",
            "198.19.255.255",
            "::1",
            "fe80::1",
            "febf:ffff::1",
            "fc00::1",
            "fdff:ffff::1",
            "2001:db8::1",
            "2001:db8:ffff::1",
            "::ffff:127.0.0.1",
            "::ffff:192.168.1.1",
        ],
        true,
    );
}

#[test]
fn refuses_what_lies_beside_every_range() {
    check_safe(
        &[
            "126.255.255.255",
            "128.0.0.0",
            "9.255.255.255",
            "11.0.0.0",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "169.253.255.255",
            "169.255.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "192.0.1.255",
            "192.0.3.0",
            "198.51.99.255",
            "198.51.101.0",
            "203.0.112.255",
            "203.0.114.0",
            "198.17.255.255",
            "198.20.0.0",
            "::",
            "::2",
            "fe7f:ffff::1",
            "fec0::1",
            "fbff:ffff::1",
            "fe00::1",
            "2001:db7:ffff::1",
            "2001:db9::1",
            "8.8.8.8",
            "2606:4700::1111",
            "::ffff:8.8.8.8",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "0.0.0.0",
            "255.255.255.255",
        ],
        false,
    );
}
