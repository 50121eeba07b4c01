//! Files: from the cache, by openers and by writers.

use std::io::{Read, Write};

use server::config::meant::StaticMount;

use super::support::*;

#[test]
fn serves_files_and_hides_what_is_outside() {
    let (mut config, dir) = config();
    std::fs::create_dir(dir.path().join("files")).unwrap();
    std::fs::write(dir.path().join("files/small.txt"), "small").unwrap();
    std::fs::write(dir.path().join("files/large.bin"), vec![9; 3 << 20]).unwrap();
    std::fs::write(dir.path().join("secret"), "secret").unwrap();
    config.statics = vec![StaticMount {
        url: "/f".to_owned(),
        dir: dir.path().join("files"),
        index: "index.html".to_owned(),
        fallback: None,
    }];
    config.status_path = Some("/-/status".to_owned());
    let running = run(config, dir, None);
    assert!(text(&running.get("/f/small.txt")).ends_with("\r\n\r\nsmall"));
    let (_, body, _) = split_reply(&running.get("/f/large.bin"));
    assert!(body.len() == 3 << 20 && body.iter().all(|byte| *byte == 9));
    for path in ["/f/../secret", "/f/%2e%2e/secret", "/nothing", "/f/nothing"] {
        let reply = text(&running.get(path));
        assert!(
            reply.starts_with("HTTP/1.1 404 ") && !reply.contains("secret"),
            "{path}: {reply}"
        );
    }
    let status = text(&running.get("/-/status"));
    assert!(
        status.contains("\"accepted\":7") && status.contains("\"route\":\"/f\""),
        "{status}"
    );
    let (ended, lines) = running.stop();
    assert_eq!((ended.exchanges, lines.len()), (7, 7));
}

fn folder_house(change: impl FnOnce(&mut server::config::meant::Config)) -> Running {
    let (mut config, dir) = config();
    std::fs::create_dir(dir.path().join("files")).unwrap();
    config.statics = vec![StaticMount {
        url: "/f".to_owned(),
        dir: dir.path().join("files"),
        index: "index.html".to_owned(),
        fallback: None,
    }];
    change(&mut config);
    run(config, dir, None)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
}

#[test]
fn writers_and_drivers_send_the_same_bytes() {
    let large = pattern(5_000_001);
    for (writers, openers) in [(0, 0), (1, 1), (3, 2)] {
        let running = folder_house(|config| {
            config.file_serving.writers = writers;
            config.file_serving.openers = openers;
        });
        std::fs::write(running.dir.path().join("files/large.bin"), &large).unwrap();
        let (_, body, rest) = split_reply(&running.get("/f/large.bin"));
        assert!(body == large && rest.is_empty());
        let pipelined = b"GET /f/large.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=100-4000099\r\n\r\n\
              HEAD /f/large.bin HTTP/1.1\r\nHost: a\r\n\r\n\
              GET /f/large.bin HTTP/1.1\r\nHost: a\r\nRange: bytes=-5\r\nConnection: close\r\n\r\n";
        let (head, body, rest) = split_reply(&running.ask(pipelined));
        assert!(head.starts_with("HTTP/1.1 206 ") && body == large[100..4_000_100]);
        let end = rest
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .unwrap()
            + 4;
        let (head, body, rest) = split_reply(&rest[end..]);
        assert!(head.starts_with("HTTP/1.1 206 ") && rest.is_empty());
        assert_eq!(body, large[5_000_001 - 5..]);
        running.stop();
    }
}

#[test]
fn a_file_that_is_cut_or_rewritten_while_it_is_sent_ends_its_connection_only() {
    const BYTES: usize = 64 << 20;
    let running = folder_house(|_| {});
    let path = running.dir.path().join("files/large.bin");
    for change in ["cut", "rewritten", "replaced"] {
        std::fs::write(&path, vec![b'a'; BYTES]).unwrap();
        let mut stream = running.connect();
        let request = b"GET /f/large.bin HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
        stream.write_all(request).unwrap();
        let mut first = vec![0; 1000];
        stream.read_exact(&mut first).unwrap();
        match change {
            "cut" => std::fs::write(&path, b"short").unwrap(),
            "rewritten" => {
                use std::os::unix::fs::FileExt;
                let file = std::fs::File::options().write(true).open(&path).unwrap();
                file.write_all_at(&vec![b'b'; BYTES], 0).unwrap();
            }
            _ => {
                let other = running.dir.path().join("files/other.bin");
                std::fs::write(&other, vec![b'c'; BYTES]).unwrap();
                std::fs::rename(&other, &path).unwrap();
            }
        }
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        if change == "replaced" {
            // The old file is still there for those who have it open.
            assert!(ended.is_ok() && rest.ends_with(b"aaaa") && !rest.contains(&b'c'));
            assert!(rest.len() > BYTES - 1000);
        } else {
            assert!(rest.len() < BYTES, "{change}: looks complete");
        }
        std::fs::write(running.dir.path().join("files/small.txt"), "small").unwrap();
        assert!(text(&running.get("/f/small.txt")).ends_with("small"));
    }
    let (_, lines) = running.stop();
    let cut = lines
        .iter()
        .filter(|line| line.contains("end=cut") && line.contains("changed while it was sent"));
    assert_eq!(cut.count(), 2, "{lines:?}");
}
