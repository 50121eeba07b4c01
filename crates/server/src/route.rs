//! Routes: which handler a path belongs to.
//!
//! Pure: takes a raw path, gives a target. The status path first, then the longest static prefix, then
//! the application.

use crate::config::meant::Config;

/// Where a request goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Target {
    /// A folder of files. `rest_from`: where in the path its prefix ends.
    Files { mount: usize, rest_from: usize },
    /// The pool that runs the application.
    Pool,
    /// The counters as JSON.
    Status,
    /// `OPTIONS *`: the server as a whole is meant (RFC 9110 section 9.3.7).
    Server,
    /// Nothing is configured for it.
    Nothing,
}

/// The routes of one process.
pub(crate) struct Router {
    status_path: Option<String>,
    /// Prefix and mount, the longest prefix first.
    prefixes: Vec<(String, usize)>,
    has_app: bool,
}

impl Router {
    /// Index, in the log's names, of the route of a refused request.
    pub(crate) const NONE: u16 = 0;
    const STATUS: u16 = 1;
    /// Index of the application's route.
    pub(crate) const APP: u16 = 2;
    /// Index of the route of replies of rules.
    pub(crate) const RULES: u16 = 3;
    /// Index of the first mount's route; the others follow.
    pub(crate) const FILES: u16 = 4;

    pub(crate) fn new(config: &Config, has_app: bool) -> Self {
        let urls = config.statics.iter().map(|mount| mount.url.clone());
        let mut prefixes: Vec<(String, usize)> = urls.zip(0..).collect();
        prefixes.sort_by_key(|(url, _)| std::cmp::Reverse(url.len()));
        Self {
            status_path: config.status_path.clone(),
            prefixes,
            has_app,
        }
    }

    /// Names of all routes, by the index that `index` gives.
    pub(crate) fn names(config: &Config) -> Vec<String> {
        config.route_names()
    }

    pub(crate) fn index(target: Target) -> u16 {
        match target {
            Target::Nothing | Target::Server => Self::NONE,
            Target::Status => Self::STATUS,
            Target::Pool => Self::APP,
            Target::Files { mount, .. } => {
                Self::FILES + u16::try_from(mount).expect("fewer than 65,000 mounts are checked")
            }
        }
    }

    pub(crate) fn find(&self, path: &[u8]) -> Target {
        if path == b"*" {
            return Target::Server;
        }
        if self
            .status_path
            .as_ref()
            .is_some_and(|status| status.as_bytes() == path)
        {
            return Target::Status;
        }
        let found = self.prefixes.iter().find(|(url, _)| {
            path.strip_prefix(url.as_bytes())
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        });
        match found {
            Some((url, mount)) => Target::Files {
                mount: *mount,
                rest_from: url.len(),
            },
            None if self.has_app => Target::Pool,
            None => Target::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::meant::StaticMount;

    fn check(path: &str, expect: Target) {
        let mount = |url: &str| StaticMount {
            url: url.to_owned(),
            dir: "/".into(),
            index: "index.html".to_owned(),
            fallback: None,
        };
        let config = Config {
            statics: vec![mount("/static"), mount("/static/big")],
            status_path: Some("/-/status".to_owned()),
            ..Config::default()
        };
        assert_eq!(
            Router::new(&config, true).find(path.as_bytes()),
            expect,
            "{path}"
        );
    }

    #[test]
    fn takes_the_longest_prefix_at_a_segment() {
        check(
            "/static",
            Target::Files {
                mount: 0,
                rest_from: 7,
            },
        );
        check(
            "/static/a.css",
            Target::Files {
                mount: 0,
                rest_from: 7,
            },
        );
        check(
            "/static/big/a",
            Target::Files {
                mount: 1,
                rest_from: 11,
            },
        );
        check(
            "/static/bigger",
            Target::Files {
                mount: 0,
                rest_from: 7,
            },
        );
        check("/statics", Target::Pool);
        check("/", Target::Pool);
        check("*", Target::Server);
        check("/-/status", Target::Status);
        check("/-/status/x", Target::Pool);
    }
}
