//! Do upstreams hold together? Names once each, servers once each, and settings that can have an effect.

use telemetry::Nanos;

use super::Check;
use super::pools::filled;
use crate::builder::{Draft, KeyedTable};
use crate::parse::pools::PoolTable;
use crate::parse::upstreams::{BalanceName, UpstreamTable};
use crate::typed::{
    Balance, ClientIdentity, Config, HealthCheck, PoolConfig, PoolRuns, ServerAddress,
    UPSTREAM_SERVERS_MAX, Upstream, UpstreamServer, UpstreamTls,
};

/// Name of the cookie of an upstream with `sticky` that names none.
const STICKY_COOKIE: &str = "milepost-server";

impl Check<'_> {
    /// All upstreams, each with a pool of its name.
    pub(super) fn upstreams(&mut self, draft: &Draft, config: &mut Config) {
        for table in &draft.upstreams {
            self.upstream_name(table, config);
            let (pool, index) = (config.pools.len(), config.upstreams.len());
            let queue = queue(&table.value, index, &config.pools[0]);
            self.pool_bounds(&queue, &|keys| table.origin(keys));
            config.pools.push(queue);
            let upstream = self.upstream(table, pool);
            config.upstreams.push(upstream);
        }
    }

    fn upstream_name(&mut self, table: &KeyedTable<UpstreamTable>, config: &Config) {
        let name = table.value.name.as_str();
        let origin = table.origin(&["name"]);
        if config.upstreams.iter().any(|other| other.name == name) {
            let text = format!("there are two upstreams `{name}`");
            self.statement(&origin, text, "give each upstream its own name");
        } else if config.pools.iter().any(|pool| pool.name == name) {
            let text = format!("there is a pool `{name}`");
            let hint = "an upstream has a queue of its name: give it another one";
            self.statement(&origin, text, hint);
        }
    }

    fn upstream(&mut self, table: &KeyedTable<UpstreamTable>, pool: usize) -> Upstream {
        let (value, default) = (&table.value, Upstream::default());
        let slots_max = value.slots_max.unwrap_or(default.slots_max);
        if value
            .slots_max
            .is_some_and(|max| value.slots.is_some_and(|slots| slots > max))
        {
            let text = "slots is larger than slots_max";
            let origin = table.origin(&["slots"]);
            self.statement(&origin, text, "`slots` alone is enough: nothing is learnt");
        }
        Upstream {
            name: value.name.clone(),
            pool,
            servers: self.upstream_servers(table),
            protocol: value.protocol,
            tls: self.upstream_tls(table),
            balance: balance(value),
            slots_max,
            connect_timeout: value.connect_timeout.unwrap_or(default.connect_timeout),
            response_timeout: value.response_timeout.unwrap_or(default.response_timeout),
            idle_timeout: value.idle_timeout.unwrap_or(default.idle_timeout),
            idle_max: value
                .idle_max
                .map_or(default.idle_max, |count| count as usize),
            streams_requests: value.stream_requests,
            tunnel_idle: value.tunnel_idle.unwrap_or(default.tunnel_idle),
            tunnels_max: value
                .tunnels_max
                .map_or(default.tunnels_max, |count| count as usize),
            retries: value.retries.unwrap_or(default.retries),
            retry_budget: value.retry_budget.unwrap_or(default.retry_budget),
            retry_status: value.retry_status.clone(),
            slow_start: value.slow_start.unwrap_or(default.slow_start),
            eject_after: value.eject_after.unwrap_or(default.eject_after),
            eject_time: value.eject_time.unwrap_or(default.eject_time),
            check: health_check(value),
            resolve_every: value.resolve_every.unwrap_or(default.resolve_every),
            sends_proxy_header: value.send_proxy,
            trusts_reports: value.trust_reports.unwrap_or(default.trusts_reports),
            says_proxy_status: value.proxy_status,
        }
    }

    fn upstream_servers(&mut self, table: &KeyedTable<UpstreamTable>) -> Vec<UpstreamServer> {
        let value = &table.value;
        let origin = table.origin(&["servers"]);
        let plain = value.servers.iter().map(|server| (server.clone(), &origin));
        let tables = value.server.iter().map(|placed| {
            let server = UpstreamServer {
                slots: placed.value.slots,
                weight: placed.value.weight.unwrap_or(1),
                is_backup: placed.value.backup,
                ..placed.value.url.clone()
            };
            (server, &placed.origin)
        });
        let mut servers: Vec<UpstreamServer> = Vec::new();
        for (mut server, origin) in plain.chain(tables) {
            server.slots = server.slots.or(value.slots);
            if let ServerAddress::Unix(path) = &mut server.address {
                // The working folder of a later reload may be another one.
                *path = self.absolute(path);
            }
            if servers.iter().any(|other| other.address == server.address) {
                let text = format!("`{}` is there twice", server.address);
                self.statement(
                    origin,
                    text,
                    "name each server once; `weight` gives one of them more",
                );
            }
            servers.push(server);
        }
        if servers.iter().all(|server| server.is_backup) {
            let hint = "a backup stands in for others: leave out `backup` at one of them at least";
            self.statement(table.table(), "all servers are backups", hint);
        }
        if servers.len() > UPSTREAM_SERVERS_MAX {
            let (len, max) = (servers.len(), UPSTREAM_SERVERS_MAX);
            let text = format!("{len} servers: more than {max}");
            let hint = "a group has at most so many addresses, those of names included";
            self.statement(&origin, text, hint);
        }
        servers
    }

    fn upstream_tls(&mut self, table: &KeyedTable<UpstreamTable>) -> UpstreamTls {
        let value = &table.value;
        let all = value.servers.iter();
        let mut all = all.chain(value.server.iter().map(|server| &server.value.url));
        let written = [
            ("tls_ca", value.tls_ca.is_some()),
            ("tls_name", value.tls_name.is_some()),
            ("tls_verify", value.tls_verify.is_some()),
            ("tls_cert", value.tls_cert.is_some()),
            ("tls_key", value.tls_key.is_some()),
        ];
        let written = written.into_iter().find(|(_, is_written)| *is_written);
        if let Some((key, _)) = written
            && !all.any(|server| server.has_tls)
        {
            let text = format!("{key} has no effect: no server has TLS");
            self.statement(
                &table.origin(&[key]),
                text,
                "write `https://` in the server's URL",
            );
        }
        if value.tls_verify == Some(false) {
            let name = &value.name;
            self.note(format!(
                "upstream `{name}` takes any certificate (tls_verify): who is on the way can read and change all of it"
            ));
        }
        for (key, file) in [
            ("tls_ca", &value.tls_ca),
            ("tls_cert", &value.tls_cert),
            ("tls_key", &value.tls_key),
        ] {
            if let Some(file) = file {
                self.file(&table.origin(&[key]), file);
            }
        }
        let client = value.tls_cert.as_ref().map(|cert| ClientIdentity {
            cert: self.absolute(cert),
            key: self.absolute(value.tls_key.as_ref().unwrap_or(cert)),
        });
        UpstreamTls {
            ca: value.tls_ca.as_ref().map(|file| self.absolute(file)),
            name: value.tls_name.clone(),
            is_verified: value.tls_verify.unwrap_or(true),
            client,
        }
    }
}

/// The queue in front of an upstream. Its servers are elsewhere, so that it has one place of a thread and no more.
fn queue(table: &UpstreamTable, upstream: usize, first: &PoolConfig) -> PoolConfig {
    let entry = PoolTable {
        name: table.name.clone(),
        threads: Some((1, 1)),
        queue_len_max: table.queue_len_max,
        queue_timeout: table.queue_timeout,
        request_timeout: table.request_timeout,
        ..PoolTable::default()
    };
    PoolConfig {
        runs: PoolRuns::Upstream(upstream),
        ..filled(&entry, first, (0, 0))
    }
}

fn balance(table: &UpstreamTable) -> Balance {
    match table.balance {
        BalanceName::Queue => Balance::Queue,
        BalanceName::LeastConnections => Balance::LeastConnections,
        BalanceName::TwoChoices => Balance::TwoChoices,
        BalanceName::PeakEwma => Balance::PeakEwma,
        BalanceName::Prequal => Balance::Prequal,
        BalanceName::RoundRobin => Balance::RoundRobin,
        BalanceName::Random => Balance::Random,
        BalanceName::First => Balance::First,
        BalanceName::Hash => {
            let key = table.hash_by.clone();
            Balance::Hash(key.expect("a table that goes by nothing is refused"))
        }
        BalanceName::Sticky => {
            let cookie = table.sticky_cookie.clone();
            let cookie = cookie.unwrap_or_else(|| STICKY_COOKIE.to_owned());
            Balance::Sticky { cookie }
        }
    }
}

fn health_check(table: &UpstreamTable) -> Option<HealthCheck> {
    Some(HealthCheck {
        path: table.check.clone()?,
        interval: table.check_interval.unwrap_or(Nanos::from_secs(2)),
        rise: table.check_rise.unwrap_or(2),
        fall: table.check_fall.unwrap_or(3),
        timeout: table.check_timeout.unwrap_or(Nanos::from_secs(2)),
    })
}
