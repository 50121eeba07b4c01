//! Pools and their rules: their tables, and what is wrong with them.

use telemetry::Nanos;

use super::super::typed::SlowPool;
use super::*;

const FULL: &str = "
[[pool]]
name = 'reports'
threads = '1:8'
queue_len_max = 50
queue_target = '20ms'
queue_timeout = 10
overload_timeout = '1s'
health_reserve = 1
request_timeout = '60s'
disconnect_cancel = '3s'
";

fn pools(toml: &str) -> Vec<PoolConfig> {
    good(toml, &[], &[]).config.pools
}

fn notes(toml: &str) -> String {
    good(toml, &[], &[]).notes.join("\n")
}

#[test]
fn flat_settings_are_those_of_the_first_pool_and_the_defaults_of_others() {
    let toml = format!(
        "threads = '2:6'\nqueue_timeout = '7s'\nhealth_reserve = '1:4'\n\
         [[pool]]\nname = 'small'\nqueue_target = '1ms'\n{FULL}"
    );
    insta::assert_snapshot!(listed(&pools(&toml)), @r#"
    PoolConfig { name: "default", runs: App(0), threads_min: 2, threads_max: 6, queue_len_max: 1024, queue_target: Nanos(5000000), queue_timeout: Nanos(7000000000), overload_timeout: None, reserve_threads: 1, reserve_len: 4, request_timeout: None, disconnect_cancel: None }
    PoolConfig { name: "small", runs: App(0), threads_min: 2, threads_max: 6, queue_len_max: 1024, queue_target: Nanos(1000000), queue_timeout: Nanos(7000000000), overload_timeout: None, reserve_threads: 0, reserve_len: 0, request_timeout: None, disconnect_cancel: None }
    PoolConfig { name: "reports", runs: App(0), threads_min: 1, threads_max: 8, queue_len_max: 50, queue_target: Nanos(20000000), queue_timeout: Nanos(10000000000), overload_timeout: Some(Nanos(1000000000)), reserve_threads: 1, reserve_len: 1, request_timeout: Some(Nanos(60000000000)), disconnect_cancel: Some(Nanos(3000000000)) }
    "#);
}

#[test]
fn keeps_no_thread_for_health_checks_that_never_come() {
    let check = |rule: &str, expect: (usize, usize)| {
        let toml = format!(
            "health_reserve = '1:4'\npool = [{{ name = 'reports', threads = '1:2' }}]\n\
             pool_rule = [{{ pool = 'default', path = '/health', class = 'health' }}, {rule}]"
        );
        let found = good(&toml, &[], &[]);
        let reports = &found.config.pools[1];
        assert_eq!((reports.reserve_threads, reports.reserve_len), expect);
        assert_eq!(found.notes, Vec::<String>::new());
    };
    check("{ pool = 'reports', path = '/reports/**' }", (0, 0));
    check(
        "{ pool = 'reports', path = '/reports/health', class = 'health' }",
        (1, 4),
    );
}

#[test]
fn reads_rules_with_all_that_they_may_name() {
    let toml = "
        [[pool]]
        name = 'reports'
        [[pool_rule]]
        pool = 'reports'
        path = '/a?c'
        [[pool_rule]]
        pool = 'default'
        method = ['GET', 'POST']
        [[pool_rule]]
        pool = 'reports'
        path = '/reports/**'
        method = 'GET'
        host = '*.Example.com'
        header = 'X-Batch: yes'
        from = ['10.0.0.0/8', '::1']
        class = 'low'
        [[pool_rule]]
        pool = 'default'
        header = 'x-batch'
        class = 'health'
    ";
    insta::assert_snapshot!(listed(&good(toml, &[], &[]).config.pool_rules), @r#"
    PoolRule { methods: [], path: Some("/a?c"), host: None, header: None, from: [], pool: 1, class: Normal }
    PoolRule { methods: ["GET", "POST"], path: None, host: None, header: None, from: [], pool: 0, class: Normal }
    PoolRule { methods: ["GET"], path: Some("/reports/**"), host: Some("*.example.com"), header: Some(("x-batch", Some("yes"))), from: [(10.0.0.0, 8), (::1, 128)], pool: 1, class: Low }
    PoolRule { methods: [], path: None, host: None, header: Some(("x-batch", None)), from: [], pool: 0, class: Health }
    "#);
}

#[test]
fn reads_what_is_about_slow_requests() {
    let flags = [
        ("slow_pool", "slow"),
        ("slow_after", "250ms"),
        ("slow_request", "5s"),
    ];
    let loaded = good("[[pool]]\nname = 'slow'", &[], &flags);
    let after = Nanos::from_ms(250);
    assert_eq!(loaded.config.slow_pool, Some(SlowPool { pool: 1, after }));
    assert_eq!(loaded.config.slow_request, Some(Nanos::from_secs(5)));
    assert_eq!(loaded.notes, Vec::<String>::new());
    let off = good("slow_pool = 'off'\nslow_request = 'off'", &[], &[]).config;
    assert_eq!((off.slow_pool, off.slow_request), (None, None));
}

#[test]
fn other_pools_inherit_the_overload_timeout_up_to_their_queue_timeout() {
    let found = pools(
        "overload_timeout = '200ms'\n\
         [[pool]]\nname = 'a'\nqueue_timeout = '4ms'\n\
         [[pool]]\nname = 'b'\noverload_timeout = 'auto'",
    );
    let timeouts = found.iter().map(|pool| pool.overload_timeout);
    let expect = [Some(Nanos::from_ms(200)), Some(Nanos::from_ms(4)), None];
    assert!(timeouts.eq(expect), "{found:?}");
    assert_eq!(found[1].queue_target, Nanos::from_ms(4));
}

#[test]
fn says_what_is_wrong_with_a_pool() {
    said! { r#"
    pool = 'reports threads=1:8'
        m.toml:2: `pool`: expected a table, found `a TOML string` > as in | [[pool]] | name = "reports" | threads = "1:8"
    pool = [{ threads = 2 }]
        m.toml:2: `pool`: `name` is missing > as in | [[pool]] | name = "reports" | threads = "1:8"
    pool = [{ name = 'my/pool' }]
        m.toml:2: `pool.name`: expected a pool's name (as `reports`), found `my/pool` > a name begins with a letter and has at most 32 letters, digits and `-_.`
    pool = [{ name = 'a', thread = 2 }]
        m.toml:2: `pool.thread`: unknown key > did you mean `threads`?
    pool = [{ name = 'a', threads = '8:2' }]
        m.toml:2: `pool.threads`: expected MIN:MAX or one number, from 1 to 4096, found `8:2` > the smaller number comes first: `2:8`
    pool = [{ name = 'a', threads = 0 }]
        m.toml:2: `pool.threads`: expected MIN:MAX or one number, from 1 to 4096, found `0`
    pool = [{ name = 'a', queue_len_max = 0, queue_target = '1us' }]
        m.toml:2: `pool.queue_len_max`: expected a count from 1 to 1000000, found `0`
        m.toml:2: `pool.queue_target`: expected a duration from 100us to 1h (as `5ms`), found `1us`
    pool = [{ name = 'a', health_reserve = 'x', reserve = 1 }]
        m.toml:2: `pool.health_reserve`: expected THREADS or THREADS:PLACES (as `1`, `1:8`), found `x`
        m.toml:2: `pool.reserve`: unknown key > the keys are `name`, `threads`, `queue_len_max`, `queue_target`, `queue_timeout`, `overload_timeout`, `health_reserve`, `request_timeout`, `disconnect_cancel`
    pool = [{ name = 'a', request_timeout = 0 }]
        m.toml:2: `pool.request_timeout`: expected a duration from 1ms to 24h (as `60s`), or `off`, found `0` > write `off` for none
    pool = [{ name = 'a', request_timeout = 'soon' }]
        m.toml:2: `pool.request_timeout`: expected a duration from 1ms to 24h (as `60s`), or `off`, found `soon`
    "# }
    said! { r"
    --health-reserve=off => expected THREADS or THREADS:PLACES (as `1`, `1:8`), found `off` > write `0` for none
    --queue-target=10us => expected a duration from 100us to 1h (as `30s`, `250ms`, `2m`, or seconds), found `10us`
    --request-timeout=0 => expected a duration from 1ms to 24h (as `30s`, `2m`), or `off`, found `0` > write `off` for none
    --slow-pool=a b => expected a pool's name, or `off`, found `a b` > a name begins with a letter and has at most 32 letters, digits and `-_.`
    " }
}

#[test]
fn says_what_is_wrong_with_a_rule() {
    said! { r#"
    pool_rule = [{ pool = 'default' }]
        m.toml:2: `pool_rule.pool`: the rule names no requests > add `path = "/slow/**"`, or `method`, `host`, `header` or `from`
    pool_rule = [{ pool = 'default', class = 'low' }]
        m.toml:2: `pool_rule.pool`: the rule names no requests > add `path = "/slow/**"`, or `method`, `host`, `header` or `from`
    pool_rule = [{ path = '/a' }]
        m.toml:2: `pool_rule`: `pool` is missing > as in | [[pool_rule]] | pool = "reports" | path = "/reports/**"
    pool_rule = [{ pool = 'default', path = 'a' }]
        m.toml:2: `pool_rule.path`: expected a path or a glob (as `/reports/**`), found `a` > a path begins with a slash: `/a`
    pool_rule = [{ pool = 'default', path = '*.pdf' }]
        m.toml:2: `pool_rule.path`: expected a path or a glob (as `/reports/**`), found `*.pdf` > a path begins with a slash: `/**/*.pdf`
    pool_rule = [{ pool = 'default', path = '/a?b=c' }]
        m.toml:2: `pool_rule.path`: expected a path or a glob (as `/reports/**`), found `/a?b=c` > only the path counts: leave out the query
    pool_rule = [{ pool = 'default', path = '/ä' }]
        m.toml:2: `pool_rule.path`: expected a path or a glob (as `/reports/**`), found `/ä` > paths are compared as sent: write spaces and letters beyond ASCII as escapes (`%20`)
    pool_rule = [{ pool = 'default', path = '/a[' }]
        m.toml:2: `pool_rule.path`: expected a path or a glob (as `/reports/**`), found `/a[` > `/a[` is not a glob: unclosed character class; missing ']'
    pool_rule = [{ pool = 'default', method = 'get' }]
        m.toml:2: `pool_rule.method`: expected methods (as `["GET", "HEAD"]`), found `get` > methods are in upper case: `GET`
    pool_rule = [{ pool = 'default', method = ['GET', ''] }]
        m.toml:2: `pool_rule.method`: expected methods (as `["GET", "HEAD"]`), found ``
    pool_rule = [{ pool = 'default', method = [] }]
        m.toml:2: `pool_rule.method`: expected methods (as `["GET", "HEAD"]`), found `[]`
    pool_rule = [{ pool = 'default', host = 'http://a/b' }]
        m.toml:2: `pool_rule.host`: expected a host's name (as `shop.example`, or `*.example.com`), found `http://a/b` > the host alone: `a`
    pool_rule = [{ pool = 'default', host = 'a:80' }]
        m.toml:2: `pool_rule.host`: expected a host's name (as `shop.example`, or `*.example.com`), found `a:80` > the host without a port: `a`
    pool_rule = [{ pool = 'default', host = 'a.*' }]
        m.toml:2: `pool_rule.host`: expected a host's name (as `shop.example`, or `*.example.com`), found `a.*` > `*.` at the beginning stands for all beneath a host, as `*.example.com`
    pool_rule = [{ pool = 'default', header = 'a:' }]
        m.toml:2: `pool_rule.header`: expected a header's name, or `NAME: VALUE`, found `a:` > for any value: `a`
    pool_rule = [{ pool = 'default', header = 'host:a' }]
        m.toml:2: `pool_rule.header`: expected a header's name, or `NAME: VALUE`, found `host:a` > hosts have a key of their own: `host`
    pool_rule = [{ pool = 'default', header = 'a b' }]
        m.toml:2: `pool_rule.header`: expected a header's name, or `NAME: VALUE`, found `a b`
    pool_rule = [{ pool = 'default', from = '10.1.0.0/8' }]
        m.toml:2: `pool_rule.from`: expected addresses or networks (as `["10.0.0.0/8"]`), found `10.1.0.0/8` > the network is `10.0.0.0/8`, this address alone `10.1.0.0`
    pool_rule = [{ pool = 'default', from = 'unix:/run/x' }]
        m.toml:2: `pool_rule.from`: expected addresses or networks (as `["10.0.0.0/8"]`), found `unix:/run/x` > clients on unix sockets have no address, and fit no `from`
    pool_rule = [{ pool = 'default', from = ['::1', 'me'] }]
        m.toml:2: `pool_rule.from`: expected addresses or networks (as `["10.0.0.0/8"]`), found `me`
    pool_rule = [{ pool = 'default', path = '/', class = 'lo' }]
        m.toml:2: `pool_rule.class`: expected one of `health`, `high`, `normal`, `low`, found `lo` > did you mean `low`?
    "# }
}

#[test]
fn says_what_does_not_hold_together() {
    said! { r#"
    pool_rule = [{ pool = 'reports', path = '/a' }]
        m.toml:2: `pool_rule`: no pool `reports` > make it: `[[pool]]`, `name = "reports"`
    pool = [{ name = 'reports' }]
    pool_rule = [{ pool = 'report', path = '/a' }]
        m.toml:3: `pool_rule`: no pool `report` > did you mean `reports`?
    pool = [{ name = 'a' }, { name = 'a', threads = 2 }]
        m.toml:2: `pool`: there are two pools `a` > give each pool its own name
    pool = [{ name = 'default', threads = 2 }]
        m.toml:2: `pool`: the pool `default` is there always > its bounds are settings of their own, as `threads` and `queue_timeout`
    overload_timeout = '40s'
        m.toml:2: `overload_timeout`: overload_timeout (40s) is longer than queue_timeout (30s) > under overload requests wait for a shorter time, or for the same
    queue_timeout = '2ms'
        m.toml:2: `queue_timeout`: queue_target (5ms) is longer than queue_timeout (2ms) > nobody waits for so long: raise the second or lower the first
    health_reserve = '4:1'
        m.toml:2: `health_reserve`: health_reserve takes 4 of 4 threads > at most 3 threads, or more threads
    pool = [{ name = 'a', threads = 1, health_reserve = 1 }]
        m.toml:2: `pool`: health_reserve takes 1 of 1 threads > more threads, or no reserve
    pool = [{ name = 'a', queue_len_max = 9, health_reserve = '1:9' }]
        m.toml:2: `pool`: health_reserve takes 9 of 9 places in the queue > fewer places, or a longer queue
    slow_pool = 'slow'
        m.toml:2: `slow_pool`: no pool `slow` > make it: `[[pool]]`, `name = "slow"`
    slow_pool = 'default'
        m.toml:2: `slow_pool`: slow_pool is `default`, where all others are > slow requests leave the others alone in a pool of their own: `[[pool]]`, `name = "slow"`
    pool_rule = [{ pool = 'default', path = '/a', class = 'low' },
      { pool = 'default', path = '/a' }]
        m.toml:3: `pool_rule`: a rule that never counts: one before it takes the same requests > leave out one of them
    "# }
}

#[test]
fn notes_what_has_no_effect() {
    let used = "health_reserve = 1\npool_rule = [{ pool = 'default', path = '/health', class = 'health' }]";
    assert_eq!(notes(used), "");
    let vain = "slow_after = '2s'\nhealth_reserve = 1\npool = [{ name = 'a' }]";
    insta::assert_snapshot!(notes(vain), @r"
    slow_after has no effect: slow_pool is off
    pool `a` gets no requests: no pool_rule and no route names it
    the reserve of pool `default` stays empty: no pool_rule gives it requests with class=health
    ");
}
