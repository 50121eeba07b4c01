//! The tasks of a loop that have not ended, by the keys of their exchanges.
//!
//! The lock is never held while Python code runs: tasks are given as references, and what is asked of all of them takes
//! nothing but their own locks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::request_task::RequestTask;

/// All tasks of a loop.
#[derive(Default)]
pub(super) struct RequestTasks(Mutex<HashMap<u64, Py<RequestTask>>>);

impl RequestTasks {
    pub(super) fn insert(&self, task: Py<RequestTask>) {
        self.tasks().insert(task.get().key(), task);
    }

    /// The task has ended. Dropping what this gives may run Python code.
    pub(super) fn remove(&self, key: u64) -> Option<Py<RequestTask>> {
        self.tasks().remove(&key)
    }

    /// The task of an exchange that is inside.
    pub(super) fn get(&self, py: Python<'_>, key: u64) -> Option<Py<RequestTask>> {
        self.tasks().get(&key).map(|task| task.clone_ref(py))
    }

    /// Those for which `look` finds something, with that.
    pub(super) fn select<T>(
        &self,
        py: Python<'_>,
        look: impl Fn(&RequestTask) -> Option<T>,
    ) -> Vec<(Py<RequestTask>, T)> {
        let tasks = self.tasks();
        let found = tasks.values();
        let found = found.filter_map(|task| Some((task.clone_ref(py), look(task.get())?)));
        found.collect()
    }

    /// No panic leaves it between two states.
    fn tasks(&self) -> MutexGuard<'_, HashMap<u64, Py<RequestTask>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
