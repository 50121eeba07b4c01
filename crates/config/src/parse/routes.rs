//! Routes to applications and upstreams: which one, and which requests are for it.

use serde::Deserialize;

use super::pools::{host_of, pool_name};
use super::{Hint, app, one_of, url_of};
use crate::builder::AppName;
use crate::tables::{Contradiction, Structure, keys};
use crate::typed::Interface;

keys! {
    app_name: one(app_of) -> AppName, "an application (as `chat:app`)";
    path: one(url_of) -> String, "the beginning of a URL path (as `/ws`)";
    host: one(host_of) -> String, "a host's name (as `shop.example`, or `*.example.com`)";
    pool: one(pool_name) -> String, "a pool's name (as `chat`)";
    upstream: one(pool_name) -> String, "an upstream's name (as `api`)";
    interface: one(interface_of) -> Interface, "one of `auto`, `asgi`, `asgi2`, `wsgi`";
}

/// `[[route]]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RouteTable {
    #[serde(default, deserialize_with = "app_name")]
    pub app: Option<AppName>,
    #[serde(default, deserialize_with = "upstream")]
    pub upstream: Option<String>,
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

impl Structure for RouteTable {
    fn contradiction(&self) -> Option<Contradiction> {
        let found = |key, cause: &str, hint: &str| {
            let (cause, hint) = (cause.to_owned(), hint.to_owned());
            Some(Contradiction { key, cause, hint })
        };
        match (&self.app, &self.upstream) {
            (None, None) => {
                let hint = "name what answers: `app = \"chat:app\"` or `upstream = \"api\"`";
                return found("route", "a route to nothing", hint);
            }
            (Some(_), Some(_)) => {
                let hint = "one of `app` and `upstream`, and another `[[route]]` for the other";
                return found("upstream", "the route has an application already", hint);
            }
            (Some(_), None) => return None,
            (None, Some(_)) => {}
        }
        let of_apps = [
            ("pool", self.pool.is_some()),
            ("interface", self.interface != Interface::Auto),
            ("root_path", !self.root_path.is_empty()),
        ];
        let (key, _) = of_apps.into_iter().find(|(_, is_written)| *is_written)?;
        let hint = "leave it out: it is about applications, and the route has an upstream";
        found(key, "not a key of a route to an upstream", hint)
    }
}

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
