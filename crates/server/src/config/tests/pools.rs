//! Pools and their rules: their forms in every source, and what is wrong with them.

use measure::Nanos;
use stage::Class;

use super::super::meant::{PoolRule, SlowPool};
use super::*;

const FULL: &str = "reports threads=1:8 queue_len_max=50 queue_target=20ms queue_timeout=10s \
                    overload_timeout=1s reserve=1 request_timeout=60s";

fn pools(toml: &str, environment: &[(&str, &str)], flags: &[(&str, &str)]) -> Vec<Pool> {
    good(toml, environment, flags).config.pools
}

fn all_faults(flags: &[(&str, &str)]) -> Vec<String> {
    faults("app = 'a:b'", &[], flags)
}

fn notes(flags: &[(&str, &str)]) -> Vec<String> {
    good("", &[], flags).notes
}

#[track_caller]
fn check_rule(text: &str, expect: PoolRule) {
    let flags = [("pool", "reports"), ("pool_rule", text)];
    assert_eq!(good("", &[], &flags).config.pool_rules, [expect], "{text}");
}

#[test]
fn flat_settings_are_those_of_the_first_pool_and_the_defaults_of_others() {
    let flags = [
        ("threads", "2:6"),
        ("queue_timeout", "7s"),
        ("queue_reserve", "1:4"),
        ("pool", "small queue_target=1ms"),
        ("pool", FULL),
    ];
    let found = pools("", &[], &flags);
    let names: Vec<&str> = found.iter().map(|pool| pool.name.as_str()).collect();
    assert_eq!(names, ["default", "small", "reports"]);
    let [first, small, full] = &found[..] else {
        panic!("{found:?}");
    };
    assert_eq!((first.threads_min, first.threads_max), (2, 6));
    assert_eq!((first.reserve_threads, first.reserve_len), (1, 4));
    assert_eq!(small.queue_target, Nanos::from_ms(1));
    let same = Pool {
        name: first.name.clone(),
        queue_target: first.queue_target,
        // No rule gives it health checks.
        reserve_threads: first.reserve_threads,
        reserve_len: first.reserve_len,
        ..small.clone()
    };
    assert_eq!(format!("{same:?}"), format!("{first:?}"));
    let expect = Pool {
        name: "reports".to_owned(),
        threads_min: 1,
        threads_max: 8,
        queue_len_max: 50,
        queue_target: Nanos::from_ms(20),
        queue_timeout: Nanos::from_secs(10),
        overload_timeout: Nanos::from_secs(1),
        reserve_threads: 1,
        reserve_len: 1,
        request_timeout: Some(Nanos::from_secs(60)),
    };
    assert_eq!(format!("{full:?}"), format!("{expect:?}"));
}

#[test]
fn keeps_no_thread_for_health_checks_that_never_come() {
    let check = |rule: &str, expect: (usize, usize)| {
        let flags = [
            ("queue_reserve", "1:4"),
            ("pool", "reports threads=1:2"),
            ("pool_rule", "default path=/health class=health"),
            ("pool_rule", rule),
        ];
        let found = good("", &[], &flags);
        let reports = &found.config.pools[1];
        assert_eq!((reports.reserve_threads, reports.reserve_len), expect);
        assert_eq!(found.notes, Vec::<String>::new());
    };
    check("reports path=/reports/**", (0, 0));
    check("reports path=/reports/health class=health", (1, 4));
}

#[test]
fn means_the_same_in_every_source() {
    let expect = format!(
        "{:?}",
        pools("", &[], &[("pool", "a threads=3"), ("pool", FULL)])
    );
    let environment = format!("a threads=3; {FULL}");
    let found = pools("", &[("MILEPOST_POOL", &environment)], &[]);
    assert_eq!(format!("{found:?}"), expect);
    let toml = "[[pool]]\nname = 'a'\nthreads = 3\n\
                [[pool]]\nname = 'reports'\nthreads = '1:8'\nqueue_len_max = 50\nqueue_target = '20ms'\n\
                queue_timeout = 10\noverload_timeout = '1s'\nreserve = 1\nrequest_timeout = '60s'\n";
    assert_eq!(format!("{:?}", pools(toml, &[], &[])), expect);
    let toml = format!("pool = [{{name = 'a', threads = 3}}, '{FULL}']");
    assert_eq!(format!("{:?}", pools(&toml, &[], &[])), expect);
}

#[test]
fn reads_rules_with_all_that_they_may_name() {
    let rule = |path: &str| PoolRule {
        path: Some(path.to_owned()),
        pool: 1,
        ..PoolRule::default()
    };
    check_rule("reports path=/reports/**", rule("/reports/**"));
    check_rule("reports path=/a?c", rule("/a?c"));
    check_rule(
        "default method=GET,POST",
        PoolRule {
            methods: vec!["GET".to_owned(), "POST".to_owned()],
            ..PoolRule::default()
        },
    );
    check_rule(
        "reports path=/reports/** method=GET host=*.Example.com header=\"X-Batch: yes\" \
         from=10.0.0.0/8,::1 class=low",
        PoolRule {
            methods: vec!["GET".to_owned()],
            host: Some("*.example.com".to_owned()),
            header: Some(("x-batch".to_owned(), Some("yes".to_owned()))),
            from: vec![
                ([10, 0, 0, 0].into(), 8),
                (std::net::Ipv6Addr::LOCALHOST.into(), 128),
            ],
            class: Class::Low,
            ..rule("/reports/**")
        },
    );
    check_rule(
        "default header=x-batch class=health",
        PoolRule {
            header: Some(("x-batch".to_owned(), None)),
            class: Class::Health,
            ..PoolRule::default()
        },
    );
}

#[test]
fn reads_rules_from_tables() {
    let toml = "[[pool]]\nname = 'reports'\n\
                [[pool_rule]]\npool = 'reports'\npath = '/reports/**'\nmethod = ['GET', 'POST']\n\
                header = 'x-batch: yes'\nfrom = ['10.0.0.0/8', 'fd00::/8']\nclass = 'high'\n";
    let text = "reports path=/reports/** method=GET,POST header='x-batch: yes' \
                from=10.0.0.0/8,fd00::/8 class=high";
    let found = good(toml, &[], &[]).config.pool_rules;
    check_rule(text, found[0].clone());
    assert_eq!(found.len(), 1);
    let found = faults("app = 'a:b'\n[[pool_rule]]\npath = '/a'\n", &[], &[]);
    assert!(
        found[0].contains("a table without `pool` > `pool = \"...\"` says which one is meant"),
        "{found:?}"
    );
}

#[test]
fn reads_what_is_about_slow_requests_and_about_proxies() {
    let flags = [
        ("pool", "slow"),
        ("slow_pool", "slow"),
        ("slow_after", "250ms"),
        ("slow_request", "5s"),
        ("request_start_from", "10.0.0.0/8"),
        ("request_start_from", "::1"),
    ];
    let loaded = good("", &[], &flags);
    let after = Nanos::from_ms(250);
    assert_eq!(loaded.config.slow_pool, Some(SlowPool { pool: 1, after }));
    assert_eq!(loaded.config.slow_request, Some(Nanos::from_secs(5)));
    assert_eq!(loaded.config.request_start_from.len(), 2);
    assert_eq!(loaded.notes, Vec::<String>::new());
    let off = good("slow_pool = 'off'\nslow_request = 'off'", &[], &[]).config;
    assert_eq!((off.slow_pool, off.slow_request), (None, None));
}

#[test]
fn a_shorter_queue_timeout_takes_the_overload_timeout_along() {
    let found = pools(
        "",
        &[],
        &[("queue_timeout", "200ms"), ("pool", "a queue_timeout=4ms")],
    );
    assert_eq!(found[0].overload_timeout, Nanos::from_ms(200));
    assert_eq!(found[1].overload_timeout, Nanos::from_ms(4));
    assert_eq!(found[1].queue_target, Nanos::from_ms(4));
}

#[test]
fn says_what_is_wrong_with_a_pool() {
    check_fault("pool", "", "a name begins with a letter");
    check_fault(
        "pool",
        "threads=2",
        "the pool's name comes first: `NAME threads=2`",
    );
    check_fault("pool", "my/pool", "a name begins with a letter");
    check_fault(
        "pool",
        "a thread=2",
        "no option `thread`: did you mean `threads`?",
    );
    check_fault(
        "pool",
        "a threads=8:2",
        "the smaller number comes first: `2:8`",
    );
    check_fault(
        "pool",
        "a threads=0",
        "`threads` is MIN:MAX or one number, from 1 to 4096",
    );
    check_fault("pool", "a threads=2 threads=3", "`threads` is there twice");
    check_fault(
        "pool",
        "a queue_len_max=0",
        "`queue_len_max` is a count from 1",
    );
    check_fault(
        "pool",
        "a queue_target=1us",
        "`queue_target` is a duration from 100us to 1h",
    );
    check_fault(
        "pool",
        "a reserve=x",
        "a reserve is THREADS or THREADS:PLACES",
    );
    check_fault("pool", "a request_timeout=0", "write `off` for none");
    check_fault(
        "pool",
        "a request_timeout=soon",
        "`request_timeout` is a duration",
    );
    check_fault("queue_reserve", "off", "> write `0` for none");
    check_fault("queue_target", "10us", "a duration from 100us to 1h");
    check_fault("request_timeout", "0", "> write `off` for none");
    check_fault("slow_pool", "a b", "a pool's name, or `off`");
}

#[test]
fn says_what_is_wrong_with_a_rule() {
    check_fault(
        "pool_rule",
        "default",
        "which requests? `default path=/slow/**`",
    );
    check_fault("pool_rule", "default class=low", "which requests?");
    check_fault(
        "pool_rule",
        "path=/a",
        "the pool comes first: `default path=/a`",
    );
    check_fault("pool_rule", "default path=a", "`path=/a`");
    check_fault("pool_rule", "default path=*.pdf", "`path=/**/*.pdf`");
    check_fault("pool_rule", "default path=/a?b=c", "leave out the query");
    check_fault("pool_rule", "default path=/ä", "as escapes");
    check_fault("pool_rule", "default path=/a[", "`/a[` is not a glob");
    check_fault(
        "pool_rule",
        "default method=get",
        "methods are in upper case: `GET`",
    );
    check_fault(
        "pool_rule",
        "default method=GET,,POST",
        "`method` names methods",
    );
    check_fault(
        "pool_rule",
        "default host=http://a/b",
        "the host alone: `host=a`",
    );
    check_fault("pool_rule", "default host=a:80", "`host=a`");
    check_fault("pool_rule", "default host=a.*", "`*.` at the beginning");
    check_fault(
        "pool_rule",
        "default header=a:",
        "for any value: `header=a`",
    );
    check_fault("pool_rule", "default header=host:a", "`host=`");
    check_fault("pool_rule", "default header='a b'", "`header` is a name");
    check_fault(
        "pool_rule",
        "default from=10.1.0.0/8",
        "the network is `10.0.0.0/8`",
    );
    check_fault("pool_rule", "default from=unix:/run/x", "have no address");
    check_fault(
        "pool_rule",
        "default from=me",
        "`from` names addresses or networks",
    );
    check_fault(
        "pool_rule",
        "default path=/ class=lo",
        "did you mean `low`?",
    );
    check_fault(
        "request_start_from",
        "10.1.0.0/8",
        "the network is `10.0.0.0/8`",
    );
}

#[test]
fn says_what_does_not_hold_together() {
    let check = |flags: &[(&str, &str)], expect: &str| {
        assert_eq!(all_faults(flags), [expect], "{flags:?}");
    };
    check(
        &[("pool_rule", "reports path=/a")],
        "`--pool-rule`: no pool `reports` > make it: `--pool reports`",
    );
    check(
        &[("pool", "reports"), ("pool_rule", "report path=/a")],
        "`--pool-rule`: no pool `report` > did you mean `reports`?",
    );
    check(
        &[("pool", "a"), ("pool", "a threads=2")],
        "`--pool`: there are two pools `a` > give each pool its own name",
    );
    check(
        &[("pool", "default threads=2")],
        "`--pool`: the pool `default` is there always > its bounds are settings of their own, as \
         `threads` and `queue_timeout`",
    );
    check(
        &[("overload_timeout", "40s")],
        "`--overload-timeout`: overload_timeout (40s) is longer than queue_timeout (30s) > under overload \
         requests wait for a shorter time, or for the same",
    );
    check(
        &[("queue_timeout", "2ms")],
        "`--queue-timeout`: queue_target (5ms) is longer than queue_timeout (2ms) > nobody waits for so \
         long: raise the second or lower the first",
    );
    check(
        &[("queue_reserve", "4:1")],
        "`--queue-reserve`: queue_reserve takes 4 of 4 threads > at most 3 threads, or more threads",
    );
    check(
        &[("pool", "a threads=1 reserve=1")],
        "`--pool`: reserve takes 1 of 1 threads > more threads, or no reserve",
    );
    check(
        &[("pool", "a queue_len_max=9 reserve=1:9")],
        "`--pool`: reserve takes 9 of 9 places in the queue > fewer places, or a longer queue",
    );
    check(
        &[("slow_pool", "slow")],
        "`--slow-pool`: no pool `slow` > make it: `--pool slow`",
    );
    check(
        &[("slow_pool", "default")],
        "`--slow-pool`: slow_pool is `default`, where all others are > slow requests leave the others \
         alone in a pool of their own: `--pool slow`",
    );
    check(
        &[
            ("pool_rule", "default path=/a class=low"),
            ("pool_rule", "default path=/a class=high"),
        ],
        "`--pool-rule`: a rule that never counts: one before it takes the same requests > leave out one of \
         them",
    );
}

#[test]
fn notes_what_has_no_effect() {
    assert_eq!(
        notes(&[("pool", "a")]),
        ["pool `a` gets no requests: no pool_rule names it"]
    );
    assert_eq!(
        notes(&[("slow_after", "2s")]),
        ["slow_after has no effect: slow_pool is off"]
    );
    assert_eq!(
        notes(&[("queue_reserve", "1")]),
        [
            "the reserve of pool `default` stays empty: no pool_rule gives it requests with class=health"
        ]
    );
    let used = [
        ("queue_reserve", "1"),
        ("pool_rule", "default path=/health class=health"),
    ];
    assert_eq!(notes(&used), Vec::<String>::new());
}
