//! `[hooks]`: functions of the application's own, called at moments of a process's life.
//!
//! Takes the configuration and the host that calls them. A fault is a failure like one of the import; whoever calls
//! decides what follows from it.

use config::failure::Failure;
use config::typed::{App, Config, Hook, HookMoment};

use crate::host::AppHost;

/// The hooks of one process.
pub(crate) struct Hooks<'h> {
    /// None where no application is served.
    application: Option<(App, &'h dyn AppHost)>,
    hooks: Vec<Hook>,
}

impl<'h> Hooks<'h> {
    /// Those of a configuration.
    pub(crate) fn new(config: &Config, host: Option<&'h dyn AppHost>) -> Self {
        Self {
            application: config.apps.first().cloned().zip(host),
            hooks: config.hooks.clone(),
        }
    }

    /// None at all.
    pub(crate) fn none() -> Self {
        Self {
            application: None,
            hooks: Vec::new(),
        }
    }

    /// Whether there is one for this moment.
    pub(crate) fn has(&self, moment: HookMoment) -> bool {
        self.application.is_some() && self.hooks.iter().any(|hook| hook.moment == moment)
    }

    /// Imports all of them, so that a wrong name shows before anything is served.
    ///
    /// # Errors
    /// What is wrong with the first that cannot be called.
    pub(crate) fn find(&self) -> Result<(), Failure> {
        let Some((app, host)) = &self.application else {
            return Ok(());
        };
        self.hooks
            .iter()
            .try_for_each(|hook| host.find_hook(app, hook))
    }

    /// Calls those of one moment, in the order given.
    ///
    /// # Errors
    /// The first that cannot be called or that raises; those behind it are not called.
    pub(crate) fn call(&self, moment: HookMoment) -> Result<(), Failure> {
        let Some((app, host)) = &self.application else {
            return Ok(());
        };
        let mut of_moment = self.hooks.iter().filter(|hook| hook.moment == moment);
        of_moment.try_for_each(|hook| host.call_hook(app, hook))
    }
}
