//! Predictions for `milepost tune`, from the log of a run that it has made itself.
//!
//! Takes the path of the log, gives times with other numbers of processes and threads, or at another rate.

use std::path::Path;

use ::whatif::prediction::{Answer, Threads, Variant, answer, answers};
use report::Input;

use super::log_facts::{Present, of_log};
use super::reading::{RunOf, Untimed, read};
use super::routes::Routes;
use super::{command, flags, scaled};
use crate::message::Message;

/// What a log tells of other servers under the same load.
pub(crate) struct LogModel(Present);

impl LogModel {
    /// Of a log that the server wrote.
    ///
    /// # Errors
    /// Nothing can be predicted from it.
    pub(crate) fn of(log: &Path, threads: Option<usize>) -> Result<LogModel, Vec<Message>> {
        let mut words = vec!["whatif".to_owned(), log.display().to_string()];
        words.extend(threads.map(|threads| format!("--threads-now={threads}")));
        let matches = command().get_matches_from(words);
        let options = flags::options(&matches)?;
        let one = |message: Message| vec![message];
        let inputs = [Input::File(log.to_owned())];
        let routes = Routes::new(&[], &[]);
        let read = read(&inputs, None, routes, Untimed::Left, RunOf::Here).map_err(one)?;
        match read.fault("the log of the run", Untimed::Left) {
            Some(fault) => Err(one(fault)),
            None => Ok(LogModel(of_log(&options, &read))),
        }
    }

    /// Whether an event loop runs most of the requests.
    pub(crate) fn is_on_loop(&self) -> bool {
        self.0.is_on_loop()
    }

    /// The pool with most of the requests.
    pub(crate) fn pool(&self) -> &str {
        &self.0.variant.pools[0].name
    }

    /// Whether the simulation repeats the waits of the log.
    pub(crate) fn holds(&self) -> bool {
        let calibration = self.0.calibration.as_ref();
        calibration.is_none_or(|calibration| calibration.holds)
    }

    /// With other numbers of processes and of threads in each.
    pub(crate) fn answers(&self, sizes: &[(usize, usize)]) -> Vec<Answer> {
        let basis = &self.0.basis;
        let variants: Vec<Variant> = sizes.iter().map(|size| self.variant(*size)).collect();
        answers(basis, &basis.requests, &variants)
    }

    /// At so many times the rate.
    pub(crate) fn at_rate(&self, size: (usize, usize), factor: f64) -> Answer {
        let mut variant = self.variant(size);
        variant.rate = factor;
        let basis = &self.0.basis;
        answer(basis, &scaled(&basis.requests, factor), &variant)
    }

    fn variant(&self, (processes, threads): (usize, usize)) -> Variant {
        let mut variant = self.0.variant.clone();
        variant.processes = processes;
        if !self.is_on_loop() {
            variant.pools[0].threads = Threads::fixed(threads);
        }
        variant
    }
}
