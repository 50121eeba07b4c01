//! Python applications, and the routes to them and to upstreams.
//!
//! Values alone.

use std::path::PathBuf;

use super::Interface;

/// A Python application: `module:attribute`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct App {
    /// Dotted module name.
    pub module: String,
    /// Attribute path within the module; `app` parts separated by dots.
    pub attribute: String,
    /// Call the attribute once to get the application (`module:create()` or `--factory`).
    pub factory: bool,
    /// Folder put first on `sys.path`.
    pub app_dir: PathBuf,
    /// SCRIPT_NAME: the URL prefix that the application is mounted under, without a trailing slash.
    pub root_path: String,
    /// Environment variables that are set before the import.
    pub env: Vec<(String, String)>,
    /// Its interface, as far as it is known.
    pub interface: Interface,
}

/// `[[route]]`: requests that go to an application or an upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Route {
    /// A host without port, in lower case; `*.` before it: all beneath; `None`: any.
    pub host: Option<String>,
    /// Prefix of the path, with a leading slash and without a trailing one; empty for all paths.
    pub path: String,
    /// Index of the pool among `Config::pools`, unless a rule names another one of the same application.
    pub pool: usize,
}

impl App {
    /// `module:attribute`, without the parentheses of a factory.
    pub fn name(&self) -> String {
        match self.attribute.as_str() {
            "" => self.module.clone(),
            attribute => format!("{}:{attribute}", self.module),
        }
    }
}

impl Route {
    /// Whether it takes every request.
    pub fn takes_all(&self) -> bool {
        self.host.is_none() && self.path.is_empty()
    }

    /// What logs and counters call it: `/ws`, `api.example.org/`.
    pub fn name(&self) -> String {
        let path = match self.path.as_str() {
            "" => "/",
            path => path,
        };
        format!("{}{path}", self.host.as_deref().unwrap_or_default())
    }
}
