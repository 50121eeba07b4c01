//! What is made of the last requests when somebody asks: a report, a simulation. Each takes seconds of a processor, so
//! there is one at a time, on a thread of its own, which gives way to all others.

use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ipc::history::CopyFault;
use telemetry::history::{HeldHistory, HistoryFault};

/// What is to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Analysis {
    /// What `milepost report --json` says.
    Report,
    /// What `milepost whatif --json` says.
    Whatif,
}

/// Makes it: a JSON text, or why there is none.
pub type Analyst = fn(Analysis, HeldHistory) -> Result<String, String>;

/// One at a time.
pub(crate) struct Analyses {
    analyst: Analyst,
    is_busy: Arc<AtomicBool>,
}

/// Why there is no answer.
pub(crate) enum AnalysisFault {
    /// There is one under way.
    Busy,
    /// What the requests do not allow, for the reader.
    Refused(String),
}

impl Analyses {
    pub(crate) fn new(analyst: Analyst) -> Analyses {
        Analyses {
            analyst,
            is_busy: Arc::default(),
        }
    }

    /// Of the requests of the last so many seconds.
    pub(crate) async fn make(
        &self,
        analysis: Analysis,
        file: File,
        secs: u64,
    ) -> Result<String, AnalysisFault> {
        if self.is_busy.swap(true, Ordering::Relaxed) {
            return Err(AnalysisFault::Busy);
        }
        let busy = Busy(Arc::clone(&self.is_busy));
        let analyst = self.analyst;
        let made = tokio::task::spawn_blocking(move || {
            let _busy = busy;
            // The kernel takes it for this thread alone, and for those that it starts.
            let _ = rustix::process::nice(19);
            let held = ipc::history::requests(&file, secs).map_err(|fault| told(&fault))?;
            analyst(analysis, held)
        });
        let made = made.await;
        let lost = |_| Err("it has ended before it was done".to_owned());
        made.unwrap_or_else(lost).map_err(AnalysisFault::Refused)
    }
}

/// Until it is made, whether its client is still there or not.
struct Busy(Arc<AtomicBool>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// For clients.
pub(crate) fn told(fault: &CopyFault) -> String {
    match fault {
        CopyFault::Read(error) => format!("the history cannot be read: {error}"),
        CopyFault::History(HistoryFault::Changing) => {
            "the history does not come to rest: try again".to_owned()
        }
        CopyFault::History(_) => "the history is of another version".to_owned(),
    }
}
