//! What nobody should send: each has its status, and none leads out of the folder or leaves anything open.

use super::*;

/// Requests that name nothing, whatever is there.
const ODD_TARGETS: [&str; 20] = [
    "/s/..",
    "/s/../secret",
    "/s/../../../../../../etc/passwd",
    "/s/sub/../../secret",
    "/s/%2e%2e/secret",
    "/s/%2E%2E/%2e%2e/etc/passwd",
    "/s/.%2e/secret",
    "/s/..%2fsecret",
    "/s/%2e%2e%2fsecret",
    "/s/..%5csecret",
    "/s/..%c0%afsecret",
    "/s/%252e%252e/secret",
    "/s/sub%2fa.txt",
    "/s/sub%2Fa.txt",
    "/s/%2fetc%2fpasswd",
    "/s//etc/passwd",
    "/s/a.txt%00",
    "/s/%00",
    "/s/a.txt%00.html",
    "/s/a.txt/",
];

/// With everything switched on that could find something.
fn generous() -> House {
    let house = House::configured(|config| config.file_serving.listing = true);
    house.write("a.txt", "0123456789");
    house.write("sub/a.txt", "hello");
    house.write("../secret", "secret");
    house.write("../beside/secret", "secret");
    symlink("../secret", house.path("link")).unwrap();
    symlink("../beside", house.path("link-folder")).unwrap();
    symlink("/etc/passwd", house.path("link-absolute")).unwrap();
    symlink("/proc/self/root", house.path("link-magic")).unwrap();
    symlink("link-loop", house.path("link-loop")).unwrap();
    house
}

#[test]
fn nothing_leads_out_of_the_folder() {
    let mut house = generous();
    let links = [
        "/s/link",
        "/s/link-folder",
        "/s/link-folder/",
        "/s/link-folder/secret",
        "/s/link-absolute",
        "/s/link-magic/etc/passwd",
        "/s/link-loop",
    ];
    for target in ODD_TARGETS.iter().chain(&links) {
        for method in ["GET", "HEAD"] {
            assert_eq!(house.ask(method, target, "").status, 404, "{target}");
        }
    }
    let page = house.body("/s/");
    assert!(
        page.contains("<bdi>sub</bdi>") && !page.contains("<bdi>link"),
        "{page}"
    );
}

#[test]
fn every_odd_range_has_its_status() {
    let mut house = generous();
    let list = |len: u32, spec: fn(u32) -> String| (0..len).map(spec).collect::<Vec<_>>().join(",");
    for (range, status, body) in [
        ("0-4,2-6".to_owned(), 206, Some("0123456")),
        ("0-9,0-9,0-9".to_owned(), 206, Some("0123456789")),
        ("0-,0-,-10".to_owned(), 206, Some("0123456789")),
        ("4-2".to_owned(), 200, Some("0123456789")),
        ("0-1,4-2".to_owned(), 200, Some("0123456789")),
        ("-0".to_owned(), 416, None),
        ("10-".to_owned(), 416, None),
        ("99999999999999999999999-".to_owned(), 416, None),
        (
            "0-99999999999999999999999".to_owned(),
            206,
            Some("0123456789"),
        ),
        (
            "-99999999999999999999999".to_owned(),
            206,
            Some("0123456789"),
        ),
        ("8-9,0-1".to_owned(), 206, None),
        (list(1000, |_| "0-".to_owned()), 200, Some("0123456789")),
        (list(1000, |n| format!("{n}-{n}")), 200, Some("0123456789")),
        (list(32, |_| "0-9".to_owned()), 206, Some("0123456789")),
        (",".repeat(1000), 200, Some("0123456789")),
        ("0-0,".to_owned(), 206, Some("0")),
        ("x".to_owned(), 200, Some("0123456789")),
    ] {
        let got = house.ask("GET", "/s/a.txt", &format!("Range: bytes={range}\r\n"));
        assert_eq!(got.status, status, "{range}");
        if let Some(body) = body {
            assert_eq!(got.text(), body, "{range}");
        }
    }
    // No more bytes than the file has, whatever is asked for.
    let thirds = list(32, |n| format!("{}-{}", n % 3, n % 3 + 5));
    let got = house.ask("GET", "/s/a.txt", &format!("Range: bytes={thirds}\r\n"));
    assert_eq!((got.status, got.text()), (206, "01234567"));
}

#[test]
fn odd_fields_are_ignored_or_refused_and_never_wrong() {
    let mut house = generous();
    house.write("a.txt.gz", "gzip!");
    for (fields, status, text) in [
        ("Accept-Encoding: gzip;q=nonsense\r\n", 200, "0123456789"),
        ("Accept-Encoding: ;;,,=\r\n", 200, "0123456789"),
        (
            "Accept-Encoding: gzip;q=0\r\nAccept-Encoding: gzip\r\n",
            200,
            "0123456789",
        ),
        ("If-None-Match: nonsense\r\n", 200, "0123456789"),
        ("If-Modified-Since: nonsense\r\n", 200, "0123456789"),
        (
            "If-Range: nonsense\r\nRange: bytes=0-1\r\n",
            200,
            "0123456789",
        ),
        (
            "Accept-Encoding: gzip\r\nRange: bytes=4-2\r\n",
            200,
            "gzip!",
        ),
        (
            "Accept-Encoding: gzip\r\nRange: bytes=1-2,2-3\r\n",
            206,
            "zip",
        ),
        ("Accept-Encoding: gzip\r\nRange: bytes=5-\r\n", 416, ""),
        ("If-Match: nonsense\r\n", 412, "412 Precondition Failed\n"),
    ] {
        let got = house.ask("GET", "/s/a.txt", fields);
        assert_eq!((got.status, got.text()), (status, text), "{fields}");
    }
}

/// The descriptors of this process that lead into `dir`: other tests have theirs.
fn open_beneath(dir: &Path) -> usize {
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .filter(|target| target.starts_with(dir))
        .count()
}

#[test]
fn ten_thousand_of_them_leave_nothing_open() {
    let mut house = generous();
    house.write("large.bin", [7; 5000]);
    drop(house.reply("GET", "/s/large.bin", ""));
    let dir = fs::canonicalize(house.dir.path()).unwrap();
    let before = open_beneath(&dir);
    assert_eq!(before, 2, "the folder and the large file");
    let mut asked = 0;
    while asked < 10_000 {
        for target in ODD_TARGETS
            .iter()
            .chain(&["/s/", "/s/sub/", "/s/link", "/s/link-folder/"])
        {
            drop(house.reply("GET", target, ""));
            asked += 1;
        }
        for range in ["4-2", "0-1,3-4", "9999-", "0-4,2-6"] {
            let fields = format!("Range: bytes={range}\r\n");
            drop(house.reply("GET", "/s/large.bin", &fields));
            asked += 1;
        }
    }
    assert_eq!(open_beneath(&dir), before);
}
