//! The tables that others published and that scenarios are measured beside.
//!
//! Figures are theirs, on their machines, copied as they were printed: no number here is ours, and none is
//! computed from another one but where a note says so. A scenario names one by its name; the heads of its
//! columns are then heads of the scenario's table.

/// A table as it was published.
#[derive(Clone, Copy, Debug)]
pub struct Original {
    /// What scenarios call it.
    pub name: &'static str,
    /// Whose it is, when and on what it was measured.
    pub source: &'static str,
    /// Heads of its columns.
    pub head: &'static [&'static str],
    /// Its rows, each as long as the head.
    pub rows: &'static [&'static [&'static str]],
    /// What has to be known to read it.
    pub notes: &'static [&'static str],
}

/// All of them.
pub const ORIGINALS: [Original; 8] = [
    DRIVERS,
    SHORT_LIVED,
    BUCKETS,
    SIX_REQUESTS,
    AT_ONCE,
    A_DAY,
    LOG_WRITER,
    ALLOCATORS,
];

/// The one of that name.
pub fn original(name: &str) -> Option<&'static Original> {
    ORIGINALS.iter().find(|each| each.name == name)
}

const DRIVERS: Original = Original {
    name: "drivers",
    source: "NaviServer, driver threads on one port (SO_REUSEPORT), 2016, 8 cores, weighttp, keep-alive",
    head: &["clients", "1 driver", "2 drivers", "10 drivers"],
    rows: &[
        &["10", "41,623", "40,106", "37,657"],
        &["20", "50,567", "50,164", "49,492"],
        &["50", "57,238", "56,798", "59,156"],
        &["100", "61,866", "62,722", "59,718"],
        &["130", "62,726", "62,804", "59,635"],
        &["170", "58,295", "61,654", "61,821"],
        &["200", "57,505", "61,142", "61,841"],
        &["250", "56,398", "61,390", "61,789"],
    ],
    notes: &["The original's cells are averages of several runs of 100,000 requests."],
};

const SHORT_LIVED: Original = Original {
    name: "short-lived",
    source: "nginx on DragonFly BSD, 2017, 24 hardware threads, 30,000 connections with one request each",
    head: &["object", "setting", "tps", "average", "stdev", "p99"],
    rows: &[
        &[
            "1 KB",
            "baseline (32 workers)",
            "215,907",
            "33.11",
            "41.76",
            "192.36",
        ],
        &[
            "1 KB",
            "one network thread and one bound worker per CPU",
            "210,659",
            "58.01",
            "5.20",
            "68.73",
        ],
        &[
            "1 KB",
            "the same, accepted sockets per event limited",
            "217,599",
            "32.00",
            "2.35",
            "35.59",
        ],
        &["8 KB", "baseline", "182,719", "42.62", "58.70", "250.51"],
        &["8 KB", "limited", "186,324", "37.41", "4.81", "48.69"],
        &["16 KB", "baseline", "138,626", "72.01", "65.78", "304.78"],
        &["16 KB", "limited", "138,778", "60.90", "11.80", "92.07"],
    ],
    notes: &[
        "Times are in ms. The original's latency begins with the first write of the request: connecting is not in it, and neither is it in ours.",
    ],
};

const BUCKETS: Original = Original {
    name: "buckets",
    source: "Apache httpd, prefork children in buckets, 2013, a three-tier PHP workload",
    head: &["setting", "hardware threads", "throughput", "utilisation"],
    rows: &[
        &["one Listen, accept not serialised", "32 and 64", "–", "–"],
        &["two Listens, accept serialised", "32", "–", "70 %"],
        &["two Listens, accept serialised", "64", "–", "60 %"],
        &[
            "4 buckets by SO_REUSEPORT, a mutex each",
            "32",
            "+22 %",
            "–",
        ],
        &[
            "4 buckets by SO_REUSEPORT, a mutex each",
            "64",
            "+60 %",
            "–",
        ],
        &[
            "one bucket for each Listen (no SO_REUSEPORT)",
            "–",
            "+10 %",
            "–",
        ],
    ],
    notes: &[
        "With one Listen many of the original's children stood in state D under load. ListenBacklog 105384, MaxClients 1024, StartServers 64, spare servers 8 to 16.",
    ],
};

const SIX_REQUESTS: Original = Original {
    name: "six-requests",
    source: "NaviServer, two connection threads and six requests, 2012",
    head: &[
        "request",
        "waiting",
        "threads",
        "idle",
        "from queue",
        "queue s",
        "run s",
        "total s",
    ],
    rows: &[
        &["1", "0", "2", "1", "no", "0.000110", "0.637781", "0.637891"],
        &["2", "3", "2", "0", "no", "0.000090", "0.245030", "0.245120"],
        &["3", "2", "2", "0", "no", "0.000088", "0.432421", "0.432509"],
        &[
            "4", "1", "2", "0", "yes", "0.244246", "0.249208", "0.493454",
        ],
        &[
            "5", "0", "2", "0", "yes", "0.431545", "3.713331", "4.144876",
        ],
        &[
            "6", "0", "2", "0", "yes", "0.480382", "3.799818", "4.280200",
        ],
    ],
    notes: &[
        "`waiting` and `idle` are those at the end of a request. A seventh request must have come before the end of the sixth in the original, or a thread would have been idle.",
    ],
};

const AT_ONCE: Original = Original {
    name: "at-once",
    source: "Sagittarius Scheme, select and ten threads, 2016, a page of 200 bytes, as many curl processes",
    head: &["at once", "s"],
    rows: &[&["10", "0.040"], &["100", "0.293"], &["1000", "2.764"]],
    notes: &[
        "The original started a process for each request, which is most of its time: a thousand of them are three seconds of processor time by themselves.",
    ],
};

const A_DAY: Original = Original {
    name: "a-day",
    source: "NaviServer, one day of a real site, 2012, threads 5 to 10, synchronous logs",
    head: &["state", "", "receive", "queue", "run", "total"],
    rows: &[
        &["the day", "avg", "0", "0.0547", "0.2656", "0.3203"],
        &["the day", "stdev", "0", "0.7481", "0.9740", "1.4681"],
        &["the day", "max", "0", "21.9594", "16.6905", "29.1668"],
        &["the day", "median", "0", "0.0001", "0.0329", "0.0330"],
    ],
    notes: &[
        "Times are in seconds. What remained long after improvements were replies of 727 bytes to far-away clients, written by the connection thread itself.",
    ],
};

const LOG_WRITER: Original = Original {
    name: "log-writer",
    source: "NaviServer, one day of a real site, 2012, queue times in seconds",
    head: &["state", "avg of queue", "stdev of queue", "max of queue"],
    rows: &[
        &["synchronous logs", "0.0547", "0.7481", "21.9594"],
        &[
            "more files through writers, TCP_DEFER_ACCEPT",
            "0.0046",
            "0.0934",
            "4.6041",
        ],
        &[
            "and an asynchronous log writer",
            "0.0009",
            "0.0211",
            "0.9772",
        ],
    ],
    notes: &[],
};

const ALLOCATORS: Original = Original {
    name: "allocators",
    source: "NaviServer, the same site with three allocators, 2012",
    head: &["allocator", "threads", "requests", "queued", "rss MB"],
    rows: &[
        &["zippy", "2", "10,307", "2,704", "425"],
        &["jemalloc", "5 to 10", "10,021", "114", "530"],
        &["tcmalloc", "5 to 10", "8,389", "366", "466"],
    ],
    notes: &[
        "The threads differ between the original's rows, so their queues say little of the allocators.",
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_is_as_long_as_its_head() {
        for each in ORIGINALS {
            assert!(!each.rows.is_empty(), "{}", each.name);
            for row in each.rows {
                assert_eq!(row.len(), each.head.len(), "{}: {row:?}", each.name);
            }
        }
    }

    #[test]
    fn no_two_have_one_name() {
        let mut names: Vec<_> = ORIGINALS.iter().map(|each| each.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ORIGINALS.len());
        assert!(original("drivers").is_some());
        assert!(original("Drivers").is_none());
    }

    #[test]
    fn totals_are_the_sums_of_their_parts() {
        for row in SIX_REQUESTS.rows {
            let number = |column: usize| row[column].parse::<f64>().unwrap();
            let apart = (number(5) + number(6) - number(7)).abs();
            assert!(apart < 2e-6, "{row:?}: {apart}");
        }
        let of = |row: usize, column: usize| A_DAY.rows[row][column].parse::<f64>().unwrap();
        assert!((of(0, 3) + of(0, 4) - of(0, 5)).abs() < 1e-9);
    }

    #[test]
    fn what_the_sources_say_of_their_figures_follows_from_them() {
        let number = |text: &str| text.replace(',', "").parse::<f64>().unwrap();
        // Few clients: 4 and 10 % less with 2 and 10 drivers; many: 56 k become 61 k.
        let few = DRIVERS.rows[0];
        assert_eq!((number(few[2]) / number(few[1]) * 100.0).round(), 96.0);
        assert_eq!((number(few[3]) / number(few[1]) * 100.0).round(), 90.0);
        let many = DRIVERS.rows[7];
        assert_eq!((many[1], many[2]), ("56,398", "61,390"));
        // p99 fell by 69 to 81 %, stdev by 82 to 94.
        for (before, after, p99, stdev) in
            [(0, 2, 81.0, 94.0), (3, 4, 81.0, 92.0), (5, 6, 70.0, 82.0)]
        {
            let fell = |column: usize| {
                let of = |row: usize| number(SHORT_LIVED.rows[row][column]);
                ((1.0 - of(after) / of(before)) * 100.0).round()
            };
            assert_eq!((fell(5), fell(4)), (p99, stdev), "row {before}");
        }
    }
}
