//! Logs that grow, as they grow.
//!
//! Takes inputs, gives two tallies: of everything, and of what came since the last look. A file that was
//! renamed or removed is read on for a while, because its writer may not have noticed yet, and the new file
//! of the name beside it. One that was emptied in place is read from its start again: it is shorter than
//! what was read of it, or what was read last is not there any more. Pipes and compressed files are read
//! once, on threads of their own. Asks the disk and never waits for it to change: the caller sleeps.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::Fault;
use crate::lines::Lines;
use crate::piped::Piped;
use crate::source::{self, Input, Packing, looked_at, unpacked};
use crate::tally::{Plan, Tally};

/// How long a file that lost its name is read on.
const FADING: Duration = Duration::from_secs(10);
/// Reads of one input in one turn, so that a large one does not hold up the view.
const READS_A_TURN: usize = 64;
/// Bytes before the place in a file by which it is known again: a few lines, because their ends alone may
/// be the same.
const TRACE_BYTES_MAX: usize = 1_024;

/// Follows inputs.
#[derive(Debug)]
pub struct Follow {
    plan: Plan,
    tails: Vec<Tail>,
    counts: Counts,
    faults: Vec<Fault>,
    has_caught_up: bool,
}

/// Where lines are counted.
#[derive(Debug)]
struct Counts {
    total: Tally,
    /// `None` until what was there at the start is read.
    interval: Option<Tally>,
}

/// An input, and how many lines it has had.
#[derive(Debug)]
struct Tail {
    name: String,
    lines_len: u64,
    kind: TailKind,
}

#[derive(Debug)]
enum TailKind {
    File(FileTail),
    Once(OnceTail),
}

impl Follow {
    /// Opens the inputs. Those that cannot be opened are faults, except a file that does not exist yet.
    pub fn open(inputs: &[Input], plan: &Plan) -> Follow {
        let mut faults = Vec::new();
        let mut tails = Vec::new();
        for input in inputs {
            match Tail::open(input) {
                Ok(tail) => tails.push(tail),
                Err(error) => faults.push(Fault {
                    name: input.name(),
                    cause: source::cause(&error),
                }),
            }
        }
        Follow {
            plan: plan.clone(),
            tails,
            counts: Counts {
                total: Tally::new(plan),
                interval: None,
            },
            faults,
            has_caught_up: false,
        }
    }

    /// Reads what is there now; whether there may be more at once.
    pub fn turn(&mut self, now: Instant) -> bool {
        let mut has_more = false;
        for tail in &mut self.tails {
            match tail.turn(&mut self.counts, now) {
                Ok(more) => has_more |= more,
                Err(error) => self.faults.push(Fault {
                    name: tail.name.clone(),
                    cause: source::cause(&error),
                }),
            }
        }
        // What was in the files before belongs to no interval: it came at another time.
        if !has_more && !self.has_caught_up {
            self.has_caught_up = true;
            self.counts.interval = Some(Tally::new(&self.plan));
        }
        has_more
    }

    /// Everything until now, and what came since the last call of this; `None` while what was there at the
    /// start is still being read.
    pub fn view(&mut self) -> (&Tally, Option<Tally>) {
        let interval = self.counts.interval.take();
        if self.has_caught_up {
            self.counts.interval = Some(Tally::new(&self.plan));
        }
        (&self.counts.total, interval)
    }

    /// What could not be read, once.
    pub fn take_faults(&mut self) -> Vec<Fault> {
        std::mem::take(&mut self.faults)
    }

    /// Whether nothing can come any more.
    pub fn has_ended(&self) -> bool {
        self.tails
            .iter()
            .all(|tail| matches!(&tail.kind, TailKind::Once(once) if once.has_ended))
    }
}

impl Tail {
    fn open(input: &Input) -> io::Result<Tail> {
        Ok(Tail {
            name: input.name(),
            lines_len: 0,
            kind: TailKind::open(input)?,
        })
    }

    fn turn(&mut self, counts: &mut Counts, now: Instant) -> io::Result<bool> {
        counts.begin(&self.name, self.lines_len);
        let result = match &mut self.kind {
            TailKind::File(tail) => tail.read(counts, now),
            TailKind::Once(tail) => tail.read(counts),
        };
        self.lines_len = counts.total.line_number();
        result
    }
}

impl TailKind {
    fn open(input: &Input) -> io::Result<TailKind> {
        let Input::File(path) = input else {
            return OnceTail::start(io::stdin());
        };
        let current = match File::open(path) {
            // A pipe is never replaced by another one, and cannot be opened twice: it is read to its end, by a thread
            // of its own because it may block.
            Ok(file) if !file.metadata()?.is_file() => return OnceTail::start(file),
            Ok(mut file) => {
                let (packing, _) = looked_at(&file)?;
                file.seek(SeekFrom::Start(0))?;
                // A packed file is an old one: nothing is appended to it any more.
                if packing != Packing::Plain {
                    return OnceTail::start(file);
                }
                Some(Open::of(file)?)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        Ok(TailKind::File(FileTail {
            path: path.clone(),
            current,
            fading: Vec::new(),
        }))
    }
}

impl Counts {
    /// Reads once and counts.
    fn read(&mut self, lines: &mut Lines, reader: &mut dyn Read) -> io::Result<usize> {
        let Counts { total, interval } = self;
        lines.turn(reader, &mut |line| {
            total.line(line);
            if let Some(interval) = interval {
                interval.line(line);
            }
        })
    }

    fn begin(&mut self, name: &str, line: u64) {
        self.total.begin(name, line);
        if let Some(interval) = &mut self.interval {
            interval.begin(name, line);
        }
    }
}

/// A pipe, or a compressed file.
#[derive(Debug)]
struct OnceTail {
    piped: Piped,
    lines: Lines,
    has_ended: bool,
}

impl OnceTail {
    fn start(reader: impl Read + Send + 'static) -> io::Result<TailKind> {
        let piped = Piped::start_with(move || {
            let (packing, whole) = looked_at(reader)?;
            unpacked(packing, whole)
        })?;
        Ok(TailKind::Once(OnceTail {
            piped,
            lines: Lines::default(),
            has_ended: false,
        }))
    }

    fn read(&mut self, counts: &mut Counts) -> io::Result<bool> {
        let result = self.read_some(counts);
        // What is broken once is told once: its thread is gone.
        self.has_ended |= result.is_err();
        result
    }

    fn read_some(&mut self, counts: &mut Counts) -> io::Result<bool> {
        for _ in 0..READS_A_TURN {
            // A read of a pipe may wait for ever, and the other inputs and the display with it.
            if self.has_ended || !self.piped.is_ready()? {
                return Ok(false);
            }
            if counts.read(&mut self.lines, &mut self.piped)? == 0 {
                self.has_ended = true;
                if self.lines.has_unended() {
                    counts.total.cut_off();
                }
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// A file by its name.
#[derive(Debug)]
struct FileTail {
    path: PathBuf,
    current: Option<Open>,
    /// Those that had the name before, and until when they are read.
    fading: Vec<(Open, Instant)>,
}

impl FileTail {
    fn read(&mut self, counts: &mut Counts, now: Instant) -> io::Result<bool> {
        let mut has_more = false;
        self.fading.retain(|(_, until)| *until > now);
        for (open, _) in &mut self.fading {
            has_more |= open.read(counts)?;
        }
        if let Some(open) = &mut self.current {
            has_more |= open.read(counts)?;
        }
        // While there is more of the old file the new one waits: its lines are later.
        if has_more || !self.has_new_file()? {
            return Ok(has_more);
        }
        let Some(file) = opened(&self.path)? else {
            return Ok(false);
        };
        if let Some(old) = self.current.replace(Open::of(file)?) {
            self.fading.push((old, now + FADING));
        }
        Ok(true)
    }

    /// Whether the name belongs to another file now.
    fn has_new_file(&self) -> io::Result<bool> {
        let facts = match std::fs::metadata(&self.path) {
            Ok(facts) => facts,
            // Renamed, and the new one does not exist yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let known = self.current.as_ref().map(|open| open.identity);
        Ok(known != Some((facts.dev(), facts.ino())))
    }
}

fn opened(path: &Path) -> io::Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// An open file and the place in it.
#[derive(Debug)]
struct Open {
    file: File,
    /// Device and inode; neither is given to another file while this one is open.
    identity: (u64, u64),
    position: u64,
    /// The bytes before the position.
    trace: Vec<u8>,
    lines: Lines,
}

impl Open {
    fn of(file: File) -> io::Result<Open> {
        let facts = file.metadata()?;
        Ok(Open {
            file,
            identity: (facts.dev(), facts.ino()),
            position: 0,
            trace: Vec::new(),
            lines: Lines::default(),
        })
    }

    fn read(&mut self, counts: &mut Counts) -> io::Result<bool> {
        // It was truncated and written anew, as `copytruncate` of logrotate does.
        if !self.is_as_it_was()? {
            self.file.seek(SeekFrom::Start(0))?;
            self.position = 0;
            self.lines.forget();
        }
        let mut has_more = true;
        for _ in 0..READS_A_TURN {
            let bytes = counts.read(&mut self.lines, &mut self.file)?;
            self.position += bytes as u64;
            if bytes == 0 {
                has_more = false;
                break;
            }
        }
        self.remember()?;
        Ok(has_more)
    }

    fn is_as_it_was(&self) -> io::Result<bool> {
        let mut found = [0; TRACE_BYTES_MAX];
        let found = &mut found[..self.trace.len()];
        // A file that is as long as before may be another text: programs that copy a log and empty it leave the name
        // and the inode alone. The last bytes before our place tell.
        assert!(
            self.trace.len() as u64 <= self.position,
            "what is remembered was read"
        );
        let from = self.position - self.trace.len() as u64;
        match self.file.read_exact_at(found, from) {
            Ok(()) => Ok(*found == *self.trace),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn remember(&mut self) -> io::Result<()> {
        let bytes = self.position.min(TRACE_BYTES_MAX as u64);
        self.trace.resize(bytes as usize, 0);
        match self
            .file
            .read_exact_at(&mut self.trace, self.position - bytes)
        {
            // Emptied since: the next look finds that out.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            result => result,
        }
    }
}
