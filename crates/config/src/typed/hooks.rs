//! Functions of the application's own that are called when something happens to a process.

/// When a function is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookMoment {
    /// In each serving process: right after its fork with `preload`, otherwise before its import.
    PostFork,
    /// In each serving process, once the application is imported and before the first request.
    WorkerReady,
    /// In each serving process, after its last request.
    WorkerExit,
    /// In the first new process of a reload, once the application is imported.
    OnReload,
}

impl HookMoment {
    /// All, in the order of a process's life.
    pub const ALL: [HookMoment; 4] = [
        HookMoment::PostFork,
        HookMoment::OnReload,
        HookMoment::WorkerReady,
        HookMoment::WorkerExit,
    ];

    /// Its key in `[hooks]`.
    pub fn name(self) -> &'static str {
        match self {
            HookMoment::PostFork => "post_fork",
            HookMoment::WorkerReady => "worker_ready",
            HookMoment::WorkerExit => "worker_exit",
            HookMoment::OnReload => "on_reload",
        }
    }
}

/// One function and its moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// When it is called.
    pub moment: HookMoment,
    /// The module that it is in.
    pub module: String,
    /// Its name in the module, with dots where it is an attribute of an attribute.
    pub function: String,
}

impl Hook {
    /// `hooks.post_fork`
    pub fn key(&self) -> String {
        format!("hooks.{}", self.moment.name())
    }

    /// `module:function`
    pub fn target(&self) -> String {
        format!("{}:{}", self.module, self.function)
    }
}
