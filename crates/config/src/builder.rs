//! The configuration in the making: settings taken one after the other, later ones over earlier ones.
//!
//! Takes readings, gives a draft whose every field has the right form; whether the fields fit together
//! and fit the machine is `check`'s business. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use telemetry::Nanos;

use super::fault::{ConfigFault, Origin};
use super::options_table::{Setting, SettingKind};
use super::parse::acme::StagingName;
use super::parse::bind::BindText;
use super::parse::clients::RouteRateTable;
use super::parse::files::FallbackTable;
use super::parse::logs::{AccessLogTable, ErrorLogTable};
use super::parse::pools::{NAME_BYTES_MAX, PoolRuleTable, PoolTable};
use super::parse::routes::RouteTable;
use super::parse::rules::ErrorPageTable;
use super::parse::tls::TlsTable;
use super::parse::traces::{OtelVariables, TracesText};
use super::parse::upstreams::{ProxyEntry, UpstreamTable, table_of};
use super::parse::{Hint, did_you_mean, value};
use super::reading::{SettingReading, SettingText, SettingValue};
use super::tables::SettingTable;
use super::typed::{
    AcmeChallenge, CacheRule, Config, ErrorLogForm, FixedReply, Hook, Interface, Level, LogForm,
    PoolConfig, RedirectConfig, Rewrite,
};

/// What has been understood so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub config: Config,
    pub app: Option<AppName>,
    pub app_dir: PathBuf,
    pub chdir: Option<PathBuf>,
    pub root_path: String,
    pub interface: Interface,
    pub routes: Vec<KeyedTable<RouteTable>>,
    pub upstreams: Vec<KeyedTable<UpstreamTable>>,
    /// Upstreams with their routes in short.
    pub proxies: Vec<Placed<ProxyEntry>>,
    pub factory: bool,
    pub hooks: Vec<Placed<Hook>>,
    pub drivers: Option<usize>,
    /// `None`: as many as there are processors.
    pub processes: Option<usize>,
    pub reload: bool,
    pub reload_dirs: Vec<Placed<PathBuf>>,
    pub reload_files: Vec<Placed<PathBuf>>,
    /// Environment variables of the application.
    pub env: Vec<Placed<(String, String)>>,
    /// Of error logs that name none.
    pub error_level: Level,
    pub cpus: Cpus,
    pub traces: TracesText,
    /// What the variables of OpenTelemetry say.
    pub otel: OtelVariables,
    pub domains: Vec<Placed<String>>,
    pub acme: AcmeDraft,
    pub binds: Vec<Placed<BindText>>,
    /// The default certificate; `cert` is missing where there is none.
    pub tls_default: TlsTable,
    pub tls_tables: Vec<KeyedTable<TlsTable>>,
    pub statics: Vec<Placed<StaticEntry>>,
    pub static_index: String,
    pub fallbacks: Vec<Placed<FallbackTable>>,
    pub cache_rules: Vec<Placed<CacheRule>>,
    pub redirects: Vec<Placed<RedirectConfig>>,
    pub replies: Vec<Placed<FixedReply>>,
    pub rewrites: Vec<Placed<Rewrite>>,
    pub error_pages: Vec<Placed<ErrorPageTable>>,
    /// The pool that is always there, but for what follows.
    pub pool: PoolConfig,
    /// Its fewest and most.
    pub threads: (usize, usize),
    /// Its threads and places for health checks.
    pub health_reserve: (usize, usize),
    pub pools: Vec<Placed<PoolTable>>,
    pub pool_rules: Vec<Placed<PoolRuleTable>>,
    /// Empty: none.
    pub slow_pool: String,
    pub slow_after: Nanos,
    pub rate_routes: Vec<Placed<RouteRateTable>>,
    /// `None`: off.
    pub access_logs: Vec<Placed<Option<AccessLogTable>>>,
    pub log_form: Option<LogForm>,
    /// The form of all error logs that name none.
    pub error_log_form: ErrorLogForm,
    /// `None`: off.
    pub error_logs: Vec<Placed<Option<ErrorLogTable>>>,
    /// What is worth saying of flags of other servers.
    pub notes: Vec<String>,
    origins: BTreeMap<&'static str, Origin>,
}

/// A value with its place, for the faults that only show later.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub value: T,
    pub origin: Origin,
}

/// A table with the places of its keys, for the faults that only show later.
#[derive(Clone, Debug)]
pub(super) struct KeyedTable<T> {
    pub value: T,
    table: Origin,
    keys: Vec<(String, Origin)>,
}

/// `module:attribute`, with the parentheses of a factory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AppName {
    pub module: String,
    pub attribute: String,
    pub called: bool,
}

/// Automatic certificates, but for the names.
#[derive(Clone, Debug, Default)]
pub(super) struct AcmeDraft {
    pub email: Option<String>,
    pub agrees_to_terms: bool,
    pub directory: String,
    pub staging: StagingName,
    pub roots: Option<PathBuf>,
    pub challenges: Vec<AcmeChallenge>,
    /// `None`: the usual one.
    pub storage: Option<PathBuf>,
}

/// `/url=dir`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StaticEntry {
    /// Without a trailing slash; empty for the root.
    pub url: String,
    pub dir: PathBuf,
}

/// Which processors drivers are pinned to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Cpus {
    #[default]
    Unpinned,
    /// All that the process may run on, in their order.
    All,
    These(Vec<usize>),
}

impl<T> Placed<T> {
    pub(super) fn new(value: T, origin: &Origin) -> Self {
        Self {
            value,
            origin: origin.clone(),
        }
    }
}

impl<T> KeyedTable<T> {
    pub(super) fn new(value: T, table: &SettingTable) -> Self {
        let keys = table.keys.iter();
        Self {
            value,
            table: table.origin.clone(),
            keys: keys
                .map(|place| (place.key.clone(), place.origin.clone()))
                .collect(),
        }
    }

    /// Of a text that stands for a whole table.
    pub(super) fn whole(value: T, origin: &Origin) -> Self {
        Self {
            value,
            table: origin.clone(),
            keys: Vec::new(),
        }
    }

    /// Where the table begins.
    pub(super) fn table(&self) -> &Origin {
        &self.table
    }

    /// Where the first of some keys stands; the table where it has none of them.
    pub(super) fn origin(&self, keys: &[&str]) -> Origin {
        let place = |key: &&str| self.keys.iter().find(|(own, _)| own == key);
        let found = keys.iter().find_map(place);
        found.map_or(&self.table, |(_, origin)| origin).clone()
    }
}

impl<T: Clone> Placed<T> {
    /// Without their places.
    pub(super) fn values(placed: &[Self]) -> Vec<T> {
        placed.iter().map(|one| one.value.clone()).collect()
    }
}

impl Draft {
    /// Whether an application is served.
    pub(super) fn has_app(&self) -> bool {
        let mut routes = self.routes.iter();
        self.app.is_some() || routes.any(|route| route.value.app.is_some())
    }

    /// Each `--proxy` becomes an upstream and a route; those of one path are one.
    pub(super) fn expand_proxies(&mut self) {
        let mut paths: Vec<(ProxyEntry, Origin)> = Vec::new();
        for Placed { value, origin } in std::mem::take(&mut self.proxies) {
            match paths.iter_mut().find(|(entry, _)| entry.path == value.path) {
                Some((entry, _)) => entry.servers.extend(value.servers),
                None => paths.push((value, origin)),
            }
        }
        for (entry, origin) in paths {
            let pools = self.pools.iter().map(|pool| &pool.value.name);
            let upstreams = self.upstreams.iter().map(|table| &table.value.name);
            let name = free_name(&entry.name(), |name| {
                pools.clone().any(|own| own == name) || upstreams.clone().any(|own| own == name)
            });
            let route = RouteTable {
                path: entry.path,
                upstream: Some(name.clone()),
                ..RouteTable::default()
            };
            self.upstreams.push(table_of(name, entry.servers, &origin));
            self.routes.push(KeyedTable::whole(route, &origin));
        }
    }

    /// Whether a text is a value of the setting, whatever else is written.
    pub(super) fn understands(setting: &'static Setting, text: &str) -> bool {
        let entries = vec![SettingValue::text(text, Origin::Flag(setting.flag()))];
        let mut faults = Vec::new();
        Draft::default().take(&SettingReading { setting, entries }, &mut faults);
        faults.is_empty()
    }

    /// Takes one reading; what does not fit its setting's kind becomes a fault and changes nothing.
    pub(super) fn take(&mut self, reading: &SettingReading, faults: &mut Vec<ConfigFault>) {
        let setting = reading.setting;
        if let Some(first) = reading.entries.first() {
            self.origins.insert(setting.key, first.origin().clone());
        }
        // A source that names a list replaces what the sources before it have put there, and it does so even with
        // an empty list, which has no entry and so no place.
        if let Some(clear) = setting.kind.clear() {
            clear(self);
        }
        for entry in &reading.entries {
            match entry {
                SettingValue::Text(text) => {
                    if let Err(hint) = self.set(setting, text) {
                        // No user could mend the table of settings.
                        let is_default = text.origin == Origin::Whole;
                        assert!(!is_default, "the default of `{}` is refused", setting.key);
                        let fault = ConfigFault::value(
                            text.origin.clone(),
                            &text.text,
                            &setting.expected(),
                        );
                        faults.push(fault.with_hint_maybe(hint));
                    }
                }
                SettingValue::Table(table) => {
                    let kind = setting.kind.table();
                    let (_, add) =
                        kind.expect("the reader makes tables of settings that have them");
                    add(self, table, faults);
                }
            }
        }
    }

    /// Where a setting was written; `Whole` when it has its default.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or_default()
    }

    pub(super) fn is_written(&self, key: &str) -> bool {
        self.origins.get(key).is_some_and(|at| *at != Origin::Whole)
    }

    /// Keys of the settings that variables of others have decided, by the variable.
    pub(super) fn decided_by_others(&self) -> BTreeMap<String, Vec<&'static str>> {
        let mut keys: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
        for (key, origin) in self.origins.iter().filter(|(_, at)| at.is_of_others()) {
            keys.entry(origin.name()).or_default().push(key);
        }
        keys
    }

    /// Where the first of some settings was written: of those that do not fit each other it is the one to blame.
    pub(super) fn first_origin(&self, keys: &[&str]) -> Origin {
        let written = keys.iter().find(|key| self.is_written(key));
        written.map_or(Origin::Whole, |key| self.origin(key))
    }

    fn set(&mut self, setting: &Setting, text: &SettingText) -> Result<(), Hint> {
        let written = text.text.as_str();
        match setting.kind {
            SettingKind::Number {
                unit,
                min,
                max,
                set,
            } => {
                // The unit's own hint comes before the bounds: `500MB` is no number of bytes at all.
                let number = unit.number(written)?;
                let is_good = (min..=max).contains(&number);
                set(self, is_good.then_some(number).ok_or(None)?);
            }
            SettingKind::Switch { set } => set(self, value::switch(written).ok_or(None)?),
            SettingKind::Choice { names, set } => {
                let index = names.iter().position(|name| *name == written);
                let hint = || did_you_mean(written, names.iter().copied());
                set(self, index.ok_or_else(hint)?);
            }
            SettingKind::Text { set, .. } => set(self, written)?,
            SettingKind::List { add, .. } => add(self, text)?,
            // Not made of texts.
            SettingKind::Tables { .. } => return Err(None),
        }
        Ok(())
    }
}

/// A name that begins like this one and that no other has; names have a greatest length.
pub(super) fn free_name(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let numbered = (1_usize..).map(|number| {
        let suffix = if number == 1 {
            String::new()
        } else {
            format!("-{number}")
        };
        let kept = name.len().min(NAME_BYTES_MAX - suffix.len());
        format!("{}{suffix}", &name[..kept])
    });
    let mut free = numbered.skip_while(|name| is_taken(name));
    free.next().expect("there are more numbers than names")
}
