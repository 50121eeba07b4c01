//! Whatever happens to a log file in whatever order: each line is whole, in one file, in order.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::disk::Disk;
use super::*;

/// What may happen to a log.
#[derive(Clone, Debug)]
enum Event {
    /// Lines of these lengths; only some bytes are offered at first.
    Lines(Vec<usize>, usize),
    /// The disk has this many pages left.
    Fill(u64),
    Free,
    Rotate,
    /// logrotate, `create`.
    Rename,
    /// logrotate, `copytruncate`.
    CopyTruncate,
    /// Another process appends a line.
    Other,
}

fn event() -> impl Strategy<Value = Event> {
    let lines = (proptest::collection::vec(1..3000usize, 1..5), 0..9000usize);
    prop_oneof![
        6 => lines.prop_map(|(lengths, offered)| Event::Lines(lengths, offered)),
        2 => (0..3u64).prop_map(Event::Fill),
        1 => Just(Event::Free),
        2 => Just(Event::Rotate),
        1 => Just(Event::Rename),
        1 => Just(Event::CopyTruncate),
        1 => Just(Event::Other),
    ]
}

/// A writer that does what the contract of a target asks for.
struct Writer {
    file: LogFile,
    lines: VecDeque<String>,
    /// Bytes of the first line that were taken.
    written: usize,
    made: usize,
    torn: usize,
}

impl Writer {
    fn add(&mut self, length: usize) {
        self.made += 1;
        self.lines
            .push_back(format!("{} {}\n", self.made, "x".repeat(length)));
    }

    /// Offers at most `bytes`.
    fn offer(&mut self, mut bytes: usize) {
        while let Some(line) = self.lines.front() {
            if self.written > 0 && !self.file.ends_with_ours() {
                self.written = 0;
                self.torn += 1;
            }
            let rest = &line.as_bytes()[self.written..];
            let rest = &rest[..rest.len().min(bytes)];
            let Ok(taken @ 1..) = self.file.write(&[IoSlice::new(rest)]) else {
                return;
            };
            bytes -= taken;
            self.written += taken;
            if self.written == line.len() {
                self.lines.pop_front();
                self.written = 0;
            }
        }
    }

    fn change(
        &mut self,
        change: impl FnOnce(&mut LogFile, Option<PartialLine<'_>>) -> io::Result<Continuation>,
    ) {
        let partial = self.lines.front().filter(|_| self.written > 0);
        let partial = partial.map(|line| PartialLine {
            line: line.as_bytes(),
            written_bytes: self.written,
        });
        match change(&mut self.file, partial) {
            Err(_) | Ok(Continuation::Continues) => return,
            Ok(Continuation::Completed) => drop(self.lines.pop_front()),
            Ok(Continuation::Retracted) => {}
            Ok(Continuation::Torn) => self.torn += 1,
        }
        self.written = 0;
    }
}

/// Plays the events in a folder, and checks that each line is whole in one file, once, and in order.
fn play(folder: &Path, disk: Option<&Disk>, events: &[Event]) {
    let path = folder.join("a.log");
    let mut writer = Writer {
        file: LogFile::open(&path).unwrap(),
        lines: VecDeque::new(),
        written: 0,
        made: 0,
        torn: 0,
    };
    let mut files = Vec::new();
    for (index, event) in events.iter().enumerate() {
        let old = folder.join(format!("a.log.{index}"));
        match event {
            Event::Lines(lengths, offered) => {
                lengths.iter().for_each(|length| writer.add(*length));
                writer.offer(*offered);
            }
            Event::Fill(pages) => disk.into_iter().for_each(|disk| disk.fill(*pages)),
            Event::Free => disk.into_iter().for_each(Disk::free),
            Event::Rotate => writer.change(|file, partial| {
                let rotated = file.rotate(partial, NOON)?;
                files.extend(rotated.old);
                Ok(rotated.continuation)
            }),
            Event::Rename => {
                std::fs::rename(&path, &old).unwrap();
                files.push(old);
                writer.change(LogFile::reopen);
            }
            Event::CopyTruncate => {
                // A copy on a full disk fails, and nothing is truncated then.
                if std::fs::copy(&path, &old).is_ok() {
                    File::options()
                        .write(true)
                        .open(&path)
                        .unwrap()
                        .set_len(0)
                        .unwrap();
                    files.push(old);
                } else {
                    std::fs::remove_file(&old).unwrap();
                }
            }
            Event::Other => {
                let mut other = File::options().append(true).open(&path).unwrap();
                if let Ok(1) = other.write(b"#\n") {
                    let bytes = other.metadata().unwrap().len() - 1;
                    other.set_len(bytes).unwrap();
                }
            }
        }
    }
    disk.into_iter().for_each(Disk::free);
    // A process that another test is just starting may have the filler open still.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !writer.lines.is_empty() && std::time::Instant::now() < end {
        writer.offer(usize::MAX);
        std::thread::yield_now();
    }
    assert!(writer.lines.is_empty());
    files.push(path);
    check(&files, &writer);
}

fn check(files: &[PathBuf], writer: &Writer) {
    let (mut expect, mut fragments) = (1, 0);
    for file in files {
        for line in text_of(file).split_inclusive('\n') {
            let number = line.split(' ').next().unwrap();
            if line.ends_with("x\n") && number.parse() == Ok(expect) {
                expect += 1;
            } else if line != "#\n" {
                // Whatever else is there is the start of a line that was given up.
                fragments += 1;
            }
        }
    }
    assert_eq!(expect, writer.made + 1, "a line is missing or out of order");
    assert!(fragments <= writer.torn, "{fragments} > {}", writer.torn);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn each_line_is_whole_in_one_file_on_a_good_disk(events in proptest::collection::vec(event(), 1..25)) {
        let dir = tempfile::tempdir().unwrap();
        play(dir.path(), None, &events);
    }
}

#[test]
fn each_line_is_whole_in_one_file_on_a_disk_that_is_full_at_times() {
    let Some(disk) = Disk::new("size=2m") else {
        return;
    };
    let config = ProptestConfig::with_cases(150);
    proptest!(config, |(events in proptest::collection::vec(event(), 1..25))| {
        let folder = tempfile::tempdir_in(disk.0.path()).unwrap();
        disk.free();
        play(folder.path(), Some(&disk), &events);
    });
}
