//! The applications of a loop: as they were imported, and as they have been started.
//!
//! Values alone.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

use super::scope::Scopes;

/// An application that was imported.
pub(crate) struct AsgiApplication {
    /// Its index among all applications of the process.
    pub(crate) index: usize,
    /// What people call it, as `chat:app`.
    pub(crate) name: String,
    pub(crate) callable: Py<PyAny>,
    /// ASGI 2: it gives a callable.
    pub(crate) is_double: bool,
    /// The URL path that it is mounted at.
    pub(crate) root_path: String,
}

impl AsgiApplication {
    /// The version of ASGI that it is written for.
    pub(super) fn version(&self) -> &'static str {
        match self.is_double {
            true => "2.0",
            false => "3.0",
        }
    }
}

/// An application whose lifespan has begun.
pub(super) struct StartedApplication {
    index: usize,
    pub(super) callable: Py<PyAny>,
    pub(super) is_double: bool,
    /// Each request's task runs in a copy of it.
    pub(super) context: Py<PyAny>,
    scopes: Mutex<Scopes>,
}

/// All of a loop.
pub(super) struct StartedApplications(Vec<StartedApplication>);

impl StartedApplication {
    pub(super) fn new(
        py: Python<'_>,
        application: &AsgiApplication,
        context: Py<PyAny>,
        scopes: Scopes,
    ) -> Self {
        Self {
            index: application.index,
            callable: application.callable.clone_ref(py),
            is_double: application.is_double,
            context,
            scopes: Mutex::new(scopes),
        }
    }

    /// No panic leaves them between two states.
    pub(super) fn scopes(&self) -> MutexGuard<'_, Scopes> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StartedApplications {
    pub(super) fn new(applications: Vec<StartedApplication>) -> Self {
        assert!(!applications.is_empty(), "a loop without an application");
        Self(applications)
    }

    /// The application with this index among all of the process.
    pub(super) fn of(&self, index: usize) -> &StartedApplication {
        let found = self.0.iter().find(|application| application.index == index);
        found.expect("a loop has the pools of its applications alone")
    }
}
