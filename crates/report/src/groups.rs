//! Requests by what they have in common.
//!
//! Takes lines, gives one [`Group`] for each path, route, status, hour, ... in the order in which they came. Their
//! number is bounded: later groups are counted together.

use std::collections::HashMap;

use telemetry::{Line, push_folded};

use crate::filter::local_ns;
use crate::recorded::path;
use crate::tally::Group;

/// Most groups: 50 KB each.
pub const GROUPS_LEN_MAX: usize = 500;
/// Bytes kept of a group's name.
const NAME_BYTES_MAX: usize = 256;

/// What requests are grouped by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The method and the folded path: `GET /orders/*`.
    Path,
    /// The route's name.
    Route,
    /// The status code.
    Status,
    /// The hour of arrival, on the log's own clock.
    Hour,
    /// The pool's name.
    Pool,
    /// The upstream server that was tried last.
    Upstream,
    /// The method.
    Method,
    /// The client's address.
    Client,
    /// The address of the connection's other end: a proxy's, where one names the client.
    Peer,
}

impl By {
    /// All of them, by their names.
    pub const ALL: [(By, &'static str); 9] = [
        (By::Path, "path"),
        (By::Route, "route"),
        (By::Status, "status"),
        (By::Hour, "hour"),
        (By::Pool, "pool"),
        (By::Upstream, "upstream"),
        (By::Method, "method"),
        (By::Client, "client"),
        (By::Peer, "peer"),
    ];

    /// The one of this name.
    pub fn named(name: &str) -> Option<By> {
        By::ALL
            .iter()
            .find(|(_, known)| *known == name)
            .map(|(by, _)| *by)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        By::ALL
            .iter()
            .find(|(by, _)| *by == self)
            .map_or("", |(_, name)| name)
    }
}

/// The groups of one reading.
#[derive(Clone, Debug)]
pub(crate) struct Groups {
    by: By,
    places: HashMap<Vec<u8>, usize>,
    groups: Vec<(Vec<u8>, Group)>,
    others: Option<Box<Group>>,
    key: Vec<u8>,
    /// The place of the last line: most lines are like the one before.
    last: usize,
}

impl Groups {
    pub(crate) fn new(by: By) -> Groups {
        Groups {
            by,
            places: HashMap::new(),
            groups: Vec::new(),
            others: None,
            key: Vec::new(),
            last: 0,
        }
    }

    #[inline]
    pub(crate) fn group_of(&mut self, line: &Line<'_>) -> &mut Group {
        self.write_key(line);
        // Lines of the same group often follow one another: this saves the look-up in the map.
        let place = match self.groups.get(self.last) {
            Some((key, _)) if *key == self.key => Some(self.last),
            _ => self.places.get(&self.key).copied(),
        };
        match place.or_else(|| self.open()) {
            Some(place) => {
                self.last = place;
                &mut self.groups[place].1
            }
            None => self.others.get_or_insert_default(),
        }
    }

    pub(crate) fn by(&self) -> By {
        self.by
    }

    /// Names and groups: statuses and hours in their order, paths by their time, all else by the number of requests.
    pub(crate) fn sorted(&self) -> Vec<(String, &Group)> {
        let mut sorted: Vec<_> = self.groups.iter().collect();
        match self.by {
            By::Status | By::Hour => sorted.sort_by(|one, two| one.0.cmp(&two.0)),
            By::Path => sorted.sort_by(|one, two| {
                let (one_ns, two_ns) = (one.1.total().sum_secs(), two.1.total().sum_secs());
                let by_time = two_ns.total_cmp(&one_ns);
                by_time
                    .then(two.1.len.cmp(&one.1.len))
                    .then(one.0.cmp(&two.0))
            }),
            _ => sorted.sort_by(|one, two| two.1.len.cmp(&one.1.len).then(one.0.cmp(&two.0))),
        }
        sorted
            .iter()
            .map(|(key, group)| (self.name_of(key), group))
            .collect()
    }

    /// What came when all places were taken.
    pub(crate) fn others(&self) -> Option<&Group> {
        self.others.as_deref()
    }

    fn write_key(&mut self, line: &Line<'_>) {
        self.key.clear();
        let text = match self.by {
            By::Path => return push_folded(line.method, &path(line), &mut self.key),
            By::Route => line.route,
            By::Pool => line.pool,
            By::Upstream => line.upstream.server,
            By::Method => line.method,
            By::Client => line.client,
            // Lines that name one address name the peer as well as the client.
            By::Peer if line.peer.is_empty() => line.client,
            By::Peer => line.peer,
            By::Status => {
                self.key
                    .extend_from_slice(&line.status.unwrap_or(0).to_be_bytes());
                return;
            }
            By::Hour => {
                let local_ns = line
                    .wall_ns
                    .map(|wall_ns| local_ns(wall_ns, line.utc_offset_secs));
                let hour = local_ns.map_or(u64::MAX, |ns| ns / 3_600_000_000_000);
                self.key.extend_from_slice(&hour.to_be_bytes());
                return;
            }
        };
        let text = line.plain(text);
        self.key
            .extend_from_slice(&text[..text.len().min(NAME_BYTES_MAX)]);
    }

    #[cold]
    fn open(&mut self) -> Option<usize> {
        if self.groups.len() == GROUPS_LEN_MAX {
            return None;
        }
        let place = self.groups.len();
        assert_eq!(place, self.places.len(), "each group has its place");
        self.groups.push((self.key.clone(), Group::default()));
        self.places.insert(self.key.clone(), place);
        Some(place)
    }

    fn name_of(&self, key: &[u8]) -> String {
        match (self.by, key) {
            (By::Status, &[high, low]) => match u16::from_be_bytes([high, low]) {
                0 => "none".to_owned(),
                code => code.to_string(),
            },
            (By::Hour, key) => {
                let hour = key
                    .first_chunk()
                    .map_or(u64::MAX, |bytes| u64::from_be_bytes(*bytes));
                if hour == u64::MAX {
                    "no time".to_owned()
                } else {
                    present::hour_text(hour)
                }
            }
            (_, b"") => "-".to_owned(),
            (_, text) => String::from_utf8_lossy(text).into_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_what_has_no_place_together() {
        let mut groups = Groups::new(By::Peer);
        for number in 0..GROUPS_LEN_MAX as u32 + 7 {
            let peer = number.to_string();
            let line = Line {
                peer: peer.as_bytes(),
                ..Line::default()
            };
            groups.group_of(&line).len += 1;
            groups.group_of(&line).len += 1;
        }
        assert_eq!(groups.sorted().len(), GROUPS_LEN_MAX);
        assert_eq!(groups.others().unwrap().len, 14);
    }

    #[test]
    fn orders_hours_by_time_and_routes_by_number() {
        let mut hours = Groups::new(By::Hour);
        let mut routes = Groups::new(By::Route);
        for (hour, route) in [(7, &b"/b"[..]), (5, b"/a"), (7, b"/a"), (6, b"")] {
            let line = Line {
                wall_ns: Some(hour * 3_600_000_000_000 + 5),
                utc_offset_secs: 3_600,
                route,
                ..Line::default()
            };
            hours.group_of(&line).len += 1;
            routes.group_of(&line).len += 1;
        }
        let names = |groups: &Groups| {
            groups
                .sorted()
                .into_iter()
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            names(&hours),
            ["1970-01-01 06:00", "1970-01-01 07:00", "1970-01-01 08:00"]
        );
        assert_eq!(names(&routes), ["/a", "-", "/b"]);
    }
}
