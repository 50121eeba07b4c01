//! Routes to applications: which application, and which requests are for it.

use serde::Deserialize;

use super::pools::{host_of, pool_name};
use super::{Hint, app, one_of, url_of};
use crate::builder::AppName;
use crate::tables::{Structure, keys};
use crate::typed::Interface;

keys! {
    app_name: one(app_of) -> AppName, "an application (as `chat:app`)";
    path: one(url_of) -> String, "the beginning of a URL path (as `/ws`)";
    host: one(host_of) -> String, "a host's name (as `shop.example`, or `*.example.com`)";
    pool: one(pool_name) -> String, "a pool's name (as `chat`)";
    interface: one(interface_of) -> Interface, "one of `auto`, `asgi`, `asgi2`, `wsgi`";
}

/// `[[route]]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteTable {
    #[serde(deserialize_with = "app_name")]
    pub app: AppName,
    /// Without a slash at its end; empty for all paths.
    #[serde(default, deserialize_with = "path")]
    pub path: String,
    #[serde(default, deserialize_with = "host")]
    pub host: Option<String>,
    #[serde(default, deserialize_with = "interface")]
    pub interface: Interface,
    #[serde(default, deserialize_with = "path")]
    pub root_path: String,
    #[serde(default, deserialize_with = "pool")]
    pub pool: Option<String>,
}

impl Structure for RouteTable {}

fn app_of(text: &str) -> Result<AppName, Hint> {
    app(text)?.ok_or(None)
}

fn interface_of(text: &str) -> Result<Interface, Hint> {
    let interfaces = [
        ("auto", Interface::Auto),
        ("asgi", Interface::Asgi),
        ("asgi2", Interface::Asgi2),
        ("wsgi", Interface::Wsgi),
    ];
    one_of(text, interfaces)
}
