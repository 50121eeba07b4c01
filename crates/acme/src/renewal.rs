//! The main loop: for each name in its turn, whatever is due. One name at a time, on one thread.
//!
//! ```text
//!  look ──nothing due──► wait ──► look
//!   │ due
//!   ▼
//!  lock ──taken by another──► look again after a second
//!   ▼
//!  read the folder again ──done by another──► look
//!   ▼
//!  try: staging first where it failed before, then the authority ──► saved, or a record of the failure
//! ```

use std::cell::RefCell;
use std::future::{Future, pending};
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::event::{PollFd, PollFlags, poll};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::account::Accounts;
use crate::challenges::{self, ChallengeTable, ChallengeWatch};
use crate::fault::IssueFault;
use crate::issuance::{Wanted, issue};
use crate::local_authority;
use crate::lock::{LOOK_EVERY, NameLock, TOUCH_EVERY};
use crate::managed::ManagedName;
use crate::order_limit::OrderLimit;
use crate::order_note::OrderNote;
use crate::plan::{Authority, Directory, NAMES_LEN_MAX, Plan};
use crate::renewal_info;
use crate::report::{NameState, Report, distance};
use crate::retry::RetryRecord;
use crate::storage::{Storage, remove};
use os::invariant;

/// A certificate that is due again as soon as it is issued, by a wrong clock or a wrong authority, is left alone for
/// this.
const RENEWED_AGAIN_AFTER: Duration = Duration::from_secs(600);
/// The longest sleep: another machine may have renewed, or a clock may have been set.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// Keeps the names of a plan supplied until `stop` is readable or at its end. Says what happens through `report`.
///
/// Whatever was begun is given up then, and leaves neither locks nor answers behind.
///
/// # Errors
/// The loop cannot be started. Faults of certificates are reported, and tried again.
pub fn run(plan: &Plan, stop: OwnedFd, report: &mut dyn FnMut(Report)) -> io::Result<()> {
    invariant!(
        plan.names.len() <= NAMES_LEN_MAX,
        "{} names are to have certificates",
        plan.names.len()
    );
    invariant!(
        !plan.authority.challenges.is_empty(),
        "no challenge may be used"
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let stopped = watch(stop)?;
    // Two tasks of one thread say something, each within one step.
    let report = &RefCell::new(report);
    runtime.block_on(async {
        let mut renewals = Renewals::new(plan, report);
        tokio::select! {
            _ = stopped => {}
            () = renewals.live() => {}
            () = watch_challenges(Storage::new(&plan.storage), report) => {}
        }
    });
    // Not dropped: that would wait for a lookup of a name, which may hang.
    runtime.shutdown_background();
    Ok(())
}

/// Says which challenges are to be answered, at each change; those of other machines too.
async fn watch_challenges(storage: Storage, report: &Reporter<'_>) {
    let mut watch = ChallengeWatch::new(storage);
    let mut said = ChallengeTable::default();
    loop {
        // A folder that cannot be read has its line when a certificate is due; the next look tries again.
        if let Ok(Some(table)) = watch.look(SystemTime::now())
            && table != said
        {
            said.clone_from(&table);
            (report.borrow_mut())(Report::Challenges(table));
        }
        sleep(challenges::LOOK_EVERY).await;
    }
}

/// Waits, on a thread of its own, until a descriptor is readable or at its end: tokio watches descriptors of others
/// only by a call that is `unsafe`.
fn watch(stop: OwnedFd) -> io::Result<oneshot::Receiver<()>> {
    let (sender, stopped) = oneshot::channel();
    let wait = move || {
        let mut watched = [PollFd::new(&stop, PollFlags::IN)];
        // Interrupted: no signal is handled in this process, so that it ends by them.
        while poll(&mut watched, None).is_err() {}
        // Nobody waits where the loop could not begin.
        let _ = sender.send(());
    };
    thread::Builder::new()
        .name("mp-renewal".to_owned())
        .spawn(wait)?;
    Ok(stopped)
}

type Reporter<'f> = RefCell<&'f mut dyn FnMut(Report)>;

struct Renewals<'r, 'f> {
    storage: Storage,
    authority: Authority,
    accounts: Accounts,
    limit: OrderLimit,
    names: Vec<ManagedName>,
    started: SystemTime,
    report: &'r Reporter<'f>,
    said: Vec<NameState>,
}

impl<'r, 'f> Renewals<'r, 'f> {
    fn new(plan: &Plan, report: &'r Reporter<'f>) -> Self {
        let storage = Storage::new(&plan.storage);
        Self {
            accounts: Accounts::new(&storage, &plan.authority),
            storage,
            authority: plan.authority.clone(),
            limit: OrderLimit::default(),
            names: plan
                .names
                .iter()
                .map(|name| ManagedName::new(name, plan))
                .collect(),
            started: SystemTime::now(),
            report,
            said: Vec::new(),
        }
    }

    /// Never ends by itself.
    async fn live(&mut self) {
        if self.names.is_empty() {
            return pending().await;
        }
        if let Err(error) = self.storage.prepare() {
            self.line(format!("the storage folder cannot be made: {error}"));
        }
        challenges::sweep(&self.storage, SystemTime::now());
        loop {
            let mut next = SystemTime::now() + LOOK_AGAIN;
            for index in 0..self.names.len() {
                if let Some(due) = self.turn(index).await {
                    next = next.min(due);
                }
            }
            self.say_states();
            sleep(
                next.duration_since(SystemTime::now())
                    .unwrap_or(Duration::ZERO),
            )
            .await;
        }
    }

    /// Does what is due for one name; gives when something is due for it again.
    async fn turn(&mut self, index: usize) -> Option<SystemTime> {
        let now = SystemTime::now();
        let name = &mut self.names[index];
        if name.looked_again.is_some_and(|at| at <= now) {
            name.looked_again = None;
        }
        if let Err(error) = name.refresh(&self.storage) {
            self.failed(index, &IssueFault::Storage(error), now);
        } else {
            self.ask(index, now).await;
            if self.is_due(index, now) {
                self.obtain(index).await;
            }
        }
        let now = SystemTime::now();
        let name = &self.names[index];
        let due = [name.due(self.started, now), name.asked(now)];
        due.into_iter().flatten().min()
    }

    fn is_due(&self, index: usize, now: SystemTime) -> bool {
        let due = self.names[index].due(self.started, now);
        due.is_some_and(|due| due <= now)
    }

    /// Asks what the authority suggests, when it is time to.
    async fn ask(&mut self, index: usize, now: SystemTime) {
        let name = &self.names[index];
        let is_time = name.asked(now).is_some_and(|at| at <= now);
        let (Some(directory), Some(held), true) = (&name.directory, &name.held, is_time) else {
            return;
        };
        let before = name.suggestion.and_then(|suggestion| suggestion.window);
        let suggestion = match self.accounts.open(directory).await {
            Ok(account) => renewal_info::ask(&account, held, before, now).await,
            // A certificate that holds needs nothing yet: its renewal will say what is wrong.
            Err(_) => renewal_info::unanswered(before, now),
        };
        self.names[index].suggestion = Some(suggestion);
    }

    /// Takes the lock and, where the need is still there, gets a certificate.
    async fn obtain(&mut self, index: usize) {
        let name = &mut self.names[index];
        let path = self.storage.lock(name.directory.as_ref(), &name.name);
        let taken = NameLock::take(&self.storage, &path, &mut name.seen_lock, Instant::now());
        let mut lock = match taken {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                name.looked_again = Some(SystemTime::now() + LOOK_EVERY);
                return;
            }
            Err(error) => {
                return self.failed(index, &IssueFault::Storage(error), SystemTime::now());
            }
        };
        // Whoever had the lock before may have done it.
        let refreshed = name.refresh(&self.storage);
        if refreshed.is_ok() && !self.is_due(index, SystemTime::now()) {
            return;
        }
        if let Err(error) = refreshed {
            return self.failed(index, &error.into(), SystemTime::now());
        }
        let name = &self.names[index];
        if (name.retry.as_ref()).is_some_and(|record| record.is_under_way) {
            // This process has the lock: whoever had begun is gone.
            return self.failed(index, &IssueFault::Interrupted, SystemTime::now());
        }
        let note = match self.note_order(index) {
            Ok(note) => note,
            Err(error) => return self.failed(index, &error.into(), SystemTime::now()),
        };
        let obtained = touched(&mut lock, self.attempt(index)).await;
        // Only the holder of the lock saves: a late one would put an old certificate over a new one.
        let saved = obtained.and_then(|pem| {
            lock.touch()?;
            self.save(index, &pem)
        });
        if let Some(note) = note {
            note.over();
        }
        match saved {
            Ok(()) => self.succeeded(index),
            Err(fault) => self.failed(index, &fault, SystemTime::now()),
        }
    }

    /// The note that an order to an authority is under way.
    fn note_order(&self, index: usize) -> io::Result<Option<OrderNote>> {
        let name = &self.names[index];
        let Some(directory) = &name.directory else {
            return Ok(None);
        };
        let path = self.storage.retry(directory, &name.name);
        let now = SystemTime::now();
        OrderNote::write(&self.storage, path, name.retry.as_ref(), now).map(Some)
    }

    /// One try.
    async fn attempt(&mut self, index: usize) -> Result<String, IssueFault> {
        let name = &self.names[index];
        let Some(directory) = name.directory.clone() else {
            return Ok(local_authority::issue(
                &self.storage,
                &name.name,
                SystemTime::now(),
            )?);
        };
        let is_first = name.retry.is_none();
        if !is_first && let Some(staging) = self.authority.staging.clone() {
            // What fails there counts against nothing; what is issued there is trusted by nobody and is not kept.
            self.order(index, &staging).await?;
        }
        self.order(index, &directory).await
    }

    async fn order(&mut self, index: usize, directory: &Directory) -> Result<String, IssueFault> {
        match self.order_once(index, directory).await {
            Err(fault) if fault.is_unknown_account() => {
                self.accounts.forget(directory)?;
                self.order_once(index, directory).await
            }
            ordered => ordered,
        }
        .inspect_err(|fault| {
            if matches!(fault, IssueFault::Unreachable(_)) {
                self.accounts.close(directory);
            }
        })
    }

    async fn order_once(
        &mut self,
        index: usize,
        directory: &Directory,
    ) -> Result<String, IssueFault> {
        let account = self.accounts.open(directory).await?;
        sleep(self.limit.place(Instant::now())).await;
        let name = &self.names[index];
        // A first try only, and never at another authority: what it replaces may be what makes an order fail.
        let is_own = name.directory.as_ref() == Some(directory);
        let replaced = name
            .held
            .as_ref()
            .filter(|_| is_own && name.retry.is_none());
        let supports_renewal_info = name.suggestion.is_some_and(|one| one.window.is_some());
        let wanted = Wanted {
            storage: &self.storage,
            name: &name.name,
            kind: name.kind(&self.authority.challenges),
            replaces: replaced
                .filter(|_| supports_renewal_info)
                .and_then(|held| held.identifier()),
        };
        issue(&account, &wanted).await
    }

    fn save(&self, index: usize, pem: &str) -> Result<(), IssueFault> {
        let name = &self.names[index];
        let path = self
            .storage
            .certificate(name.directory.as_ref(), &name.name);
        self.storage.save(&path, pem.as_bytes())?;
        if let Some(directory) = &name.directory {
            remove(&self.storage.retry(directory, &name.name))?;
        }
        Ok(())
    }

    fn succeeded(&mut self, index: usize) {
        let now = SystemTime::now();
        let name = &mut self.names[index];
        name.retry = None;
        name.looked_again = Some(now + RENEWED_AGAIN_AFTER);
        name.said.forget();
        if let Err(error) = name.refresh(&self.storage) {
            return self.failed(index, &IssueFault::Storage(error), now);
        }
        if let Some(held) = &name.held {
            let left = distance(now, held.facts.not_after);
            let line = format!(
                "`{}`: certificate issued by {}, valid for {left}",
                name.name, held.facts.issuer
            );
            self.line(line);
        }
        self.say_states();
    }

    fn failed(&mut self, index: usize, fault: &IssueFault, now: SystemTime) {
        let cause = fault.to_string();
        let name = &mut self.names[index];
        let record = RetryRecord::failed(name.retry.as_ref(), now, cause.clone());
        if let Some(directory) = &name.directory {
            // A folder that takes no files has been named already; the record counts in memory then.
            let text = serde_json::to_vec(&record).unwrap_or_default();
            let _ = self
                .storage
                .save(&self.storage.retry(directory, &name.name), &text);
        }
        name.retry = Some(record);
        // In memory too: a refresh would lose what could not be written.
        let next = name.due(self.started, now);
        name.looked_again = next;
        if name.said.is_news(&cause, now) {
            let until = match &name.held {
                Some(held) if held.validity().holds(now) => format!(
                    "the present certificate holds for {}",
                    distance(now, held.facts.not_after)
                ),
                _ => "there is no valid certificate".to_owned(),
            };
            let again = match next {
                Some(next) => format!("next try in {}", distance(now, next)),
                None => "no further try before the next start".to_owned(),
            };
            let mut line = format!("`{}`: no certificate: {cause}; {until}; {again}", name.name);
            if let Some(hint) = fault.hint() {
                line.push_str(&format!("\nhint: {hint}"));
            }
            self.line(line);
        }
        self.say_states();
    }

    fn line(&mut self, text: String) {
        (self.report.borrow_mut())(Report::Line(text));
    }

    /// Says how all names stand, when that has changed.
    fn say_states(&mut self) {
        let now = SystemTime::now();
        let state = |name: &ManagedName| name.state(self.started, now);
        let states: Vec<NameState> = self.names.iter().map(state).collect();
        if states != self.said {
            self.said = states.clone();
            (self.report.borrow_mut())(Report::States(states));
        }
    }
}

/// Work that goes on only as long as the lock is held.
async fn touched<T>(
    lock: &mut NameLock,
    work: impl Future<Output = Result<T, IssueFault>>,
) -> Result<T, IssueFault> {
    let mut work = pin!(work);
    loop {
        tokio::select! {
            done = &mut work => return done,
            () = sleep(TOUCH_EVERY) => lock.touch()?,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::plan::ChallengeKind;
    use crate::storage::read;

    #[test]
    fn an_order_without_an_end_is_a_failed_try() {
        let dir = tempfile::tempdir().unwrap();
        let storage = Storage::new(dir.path());
        storage.prepare().unwrap();
        let plan = Plan {
            names: vec!["shop.example".to_owned()],
            authority: Authority {
                // Nobody is asked: the try counts, and the next one waits.
                directory: Directory::new("https://127.0.0.1:1/dir"),
                staging: None,
                email: None,
                roots: None,
                challenges: vec![ChallengeKind::Http01],
            },
            storage: dir.path().to_owned(),
        };
        let path = storage.retry(&plan.authority.directory, "shop.example");
        let note = OrderNote::write(&storage, path.clone(), None, SystemTime::now()).unwrap();
        // As in a process that is killed.
        std::mem::forget(note);

        let (stop, stopper) = UnixStream::pair().unwrap();
        let mut stopper = Some(stopper);
        let (mut lines, mut failures) = (Vec::new(), 0);
        run(&plan, stop.into(), &mut |report| match report {
            Report::Line(line) => lines.push(line),
            Report::States(states) => {
                failures = states[0].failures;
                // Its end is the end of the loop.
                drop(stopper.take());
            }
            Report::Challenges(_) => {}
        })
        .unwrap();
        assert_eq!(failures, 1);
        let [line] = lines.as_slice() else {
            panic!("{lines:?}");
        };
        assert!(
            line.contains("ended before the order was decided"),
            "{line}"
        );
        assert!(line.contains("next try in 60 seconds"), "{line}");
        let kept: RetryRecord = serde_json::from_str(&read(&path).unwrap().unwrap()).unwrap();
        assert_eq!((kept.failures, kept.is_under_way), (1, false));
    }
}
