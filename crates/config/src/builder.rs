//! The configuration in the making: settings taken one after the other, later ones over earlier ones.
//!
//! Takes readings, gives a draft whose every field has the right form; whether the fields fit together
//! and fit the machine is `check`'s business. Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

use telemetry::Nanos;

use super::bind::BindName;
use super::fault::{ConfigFault, Origin};
use super::options_table::{FallbackTable, Hint, PoolTable, RouteRateTable, Setting, SettingKind};
use super::reading::{SettingReading, SettingText, SettingValue};
use super::typed::{
    CacheRule, Config, ErrorLog, ErrorPage, FixedReply, LogFilter, LogForm, LogTarget, PoolRule,
    RedirectConfig, Rewrite,
};
use super::value;

/// What has been understood so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Draft {
    pub config: Config,
    pub app: Option<AppName>,
    pub app_dir: PathBuf,
    pub chdir: Option<PathBuf>,
    pub root_path: String,
    pub factory: bool,
    pub drivers: Option<usize>,
    /// `None`: as many as there are processors.
    pub processes: Option<usize>,
    pub reload: bool,
    pub reload_dirs: Vec<Placed<PathBuf>>,
    pub cpus: Cpus,
    /// With their texts.
    pub binds: Vec<Placed<(BindName, String)>>,
    pub statics: Vec<Placed<StaticEntry>>,
    pub static_index: String,
    pub fallbacks: Vec<Placed<FallbackTable>>,
    pub cache_rules: Vec<Placed<CacheRule>>,
    pub redirects: Vec<Placed<RedirectConfig>>,
    pub replies: Vec<Placed<FixedReply>>,
    pub rewrites: Vec<Placed<Rewrite>>,
    pub error_pages: Vec<Placed<ErrorPage>>,
    pub pools: Vec<Placed<PoolTable>>,
    pub pool_rules: Vec<Placed<RuleEntry>>,
    /// Empty: none.
    pub slow_pool: String,
    pub slow_after: Nanos,
    pub rate_routes: Vec<Placed<RouteRateTable>>,
    pub access_logs: Vec<Placed<Wished<AccessEntry>>>,
    pub log_form: Option<LogForm>,
    pub error_logs: Vec<Placed<Wished<ErrorLog>>>,
    origins: BTreeMap<&'static str, Origin>,
}

/// A value with its place, for the faults that only show later.
#[derive(Clone, Debug)]
pub(super) struct Placed<T> {
    pub value: T,
    pub origin: Origin,
}

/// `module:attribute`, with the parentheses of a factory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AppName {
    pub module: String,
    pub attribute: String,
    pub called: bool,
}

/// `/url=dir`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct StaticEntry {
    /// Without a trailing slash; empty for the root.
    pub url: String,
    pub dir: PathBuf,
}

/// A rule and the name of its pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RuleEntry {
    pub pool: String,
    /// Its index of the pool means nothing yet.
    pub rule: PoolRule,
}

/// One entry of a list that `off` can stand in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wished<T> {
    Off,
    This(T),
}

/// An access log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccessEntry {
    pub target: LogTarget,
    /// `None`: that of all which name none.
    pub form: Option<LogForm>,
    pub filter: LogFilter,
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

impl Draft {
    /// Takes one reading; what does not fit its setting's kind becomes a fault and changes nothing.
    pub(super) fn take(&mut self, reading: &SettingReading, faults: &mut Vec<ConfigFault>) {
        let setting = reading.setting;
        if let Some(first) = reading.entries.first() {
            self.origins.insert(setting.key, first.origin().clone());
        }
        if let Some(clear) = setting.kind.clear() {
            clear(self);
        }
        for entry in &reading.entries {
            match entry {
                SettingValue::Text(text) => {
                    if let Err(hint) = self.set(setting, text) {
                        let fault =
                            ConfigFault::value(text.origin.clone(), &text.text, setting.expected());
                        faults.push(fault.with_hint_maybe(hint));
                    }
                }
                SettingValue::Table(table) => {
                    // The reader makes tables of settings that have them, and of no others.
                    if let Some((_, add)) = setting.kind.table() {
                        add(self, table, faults);
                    }
                }
            }
        }
    }

    /// Where a setting was written; `Whole` when it has its default.
    pub(super) fn origin(&self, key: &str) -> Origin {
        self.origins.get(key).cloned().unwrap_or_default()
    }

    fn set(&mut self, setting: &Setting, text: &SettingText) -> Result<(), Hint> {
        let written = text.text.as_str();
        match setting.kind {
            SettingKind::Count { min, max, set } => {
                set(self, within(value::count(written), min, max)?);
            }
            SettingKind::Size { min, max, set } => {
                let bytes = value::size(written).ok_or_else(|| value::size_hint(written))?;
                set(self, within(Some(bytes), min, max)?);
            }
            SettingKind::PerSecond { max, set } => {
                let bytes = value::per_second(written).ok_or_else(|| value::rate_hint(written))?;
                set(self, within(Some(bytes), 0, max)?);
            }
            SettingKind::Duration { min, max, set } => {
                let span = value::duration(written).ok_or(None)?;
                set(self, within(Some(span), min, max)?);
            }
            SettingKind::Range { max, set } => {
                let (least, most) = value::range(written).ok_or_else(|| range_hint(written))?;
                if least > most {
                    return Err(Some(format!(
                        "the smaller number comes first: `{most}:{least}`"
                    )));
                }
                set(
                    self,
                    within(Some(least), 1, max)?,
                    within(Some(most), 1, max)?,
                );
            }
            SettingKind::Switch { set } => set(self, value::switch(written).ok_or(None)?),
            SettingKind::Choice { names, set } => {
                let index = names.iter().position(|name| *name == written);
                set(self, index.ok_or_else(|| choice_hint(written, names))?);
            }
            SettingKind::Named { set, .. }
            | SettingKind::Text { set, .. }
            | SettingKind::Joined { set, .. } => {
                set(self, written)?;
            }
            SettingKind::List { add, .. } => add(self, text)?,
            // Not made of texts.
            SettingKind::Tables { .. } => return Err(None),
        }
        Ok(())
    }
}

fn within<T: PartialOrd>(value: Option<T>, min: T, max: T) -> Result<T, Option<String>> {
    value
        .filter(|value| (min..=max).contains(value))
        .ok_or(None)
}

fn range_hint(written: &str) -> Option<String> {
    let (least, most) = written.split_once('-')?;
    Some(format!("write `{least}:{most}`"))
}

fn choice_hint(written: &str, names: &[&'static str]) -> Option<String> {
    super::nearest(written, names.iter().copied()).map(|name| format!("did you mean `{name}`?"))
}
