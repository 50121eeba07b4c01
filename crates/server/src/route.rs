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
    passes_trace: bool,
}

/// Methods that files and the server's own pages have.
const READING: &str = "GET, HEAD";
/// Methods that are passed to the application; any other is, too, but a list has an end.
pub(crate) const ALL_METHODS: &str = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

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
            passes_trace: config.trace_requests,
        }
    }

    /// Whether TRACE requests of a path are answered (RFC 9110 section 9.3.8): by the application, where it is
    /// asked to.
    pub(crate) fn takes_trace(&self, path: &[u8]) -> bool {
        self.passes_trace && self.find(path) == Target::Pool
    }

    /// The methods of a path, for the field Allow.
    pub(crate) fn allowed(&self, path: &[u8]) -> &'static str {
        match self.find(path) {
            Target::Files { .. } | Target::Status => READING,
            Target::Pool | Target::Server => ALL_METHODS,
            Target::Nothing => "",
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
    fn trace_is_the_applications_where_it_is_asked_to() {
        let config = |trace_requests| Config {
            statics: vec![StaticMount {
                url: "/static".to_owned(),
                dir: "/".into(),
                index: "index.html".to_owned(),
                fallback: None,
            }],
            status_path: Some("/-/status".to_owned()),
            trace_requests,
            ..Config::default()
        };
        for (path, has_app, allow) in [
            ("/", true, ALL_METHODS),
            ("/", false, ""),
            ("/static/a", true, READING),
            ("/-/status", true, READING),
        ] {
            let asks = |trace| Router::new(&config(trace), has_app);
            let takes = |trace| asks(trace).takes_trace(path.as_bytes());
            assert_eq!(
                (takes(false), takes(true)),
                (false, allow == ALL_METHODS),
                "{path}"
            );
            assert_eq!(asks(true).allowed(path.as_bytes()), allow, "{path}");
        }
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
