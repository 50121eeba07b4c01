//! Python applications.
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

impl App {
    /// `module:attribute`, without the parentheses of a factory.
    pub fn name(&self) -> String {
        match self.attribute.as_str() {
            "" => self.module.clone(),
            attribute => format!("{}:{attribute}", self.module),
        }
    }
}
