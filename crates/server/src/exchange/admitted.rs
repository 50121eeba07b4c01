//! Admitted: what a driver keeps of the record of an exchange that a worker has, in less than half of its bytes.
//!
//! A kept connection holds it until its next request, or a look after a while. It is taken where a pool admits the
//! exchange, and becomes a record again where the driver ends that exchange in the place of its worker. What only the
//! run of an exchange adds is not in it.

use telemetry::{AuthFacts, Ending, Nanos, Phases, Queued, Stamp, StreamFacts};

use super::{ExchangeRecord, Id};

/// An `ExchangeRecord` as its pool admits it.
#[derive(Clone, Copy)]
pub(crate) struct AdmittedRecord {
    pub(crate) id: Id,
    arrived: Stamp,
    pub(crate) queued: Stamp,
    before: Nanos,
    pub(crate) stream: StreamFacts,
    auth: AuthFacts,
    request_bytes: u64,
    pool: Option<u16>,
    pub(crate) route: u16,
    driver: u16,
    class: queueing::Class,
    is_https: bool,
    has_user: bool,
    is_forwarded: bool,
}

impl AdmittedRecord {
    pub(crate) fn new(record: &ExchangeRecord) -> Self {
        // Every field is named: a new one has to be kept, or to stand below as one that a run adds.
        let ExchangeRecord {
            id,
            phases,
            pool,
            class,
            queued,
            stream,
            auth,
            route,
            driver,
            is_https,
            has_user,
            is_forwarded,
            request_bytes,
            websocket: _,
            event_loop: _,
            upstream: _,
            status: _,
            head_bytes: _,
            sent_bytes: _,
            ending: _,
            cause: _,
        } = record;
        Self {
            id: *id,
            arrived: phases.arrived,
            queued: phases.queued,
            before: queued.before,
            stream: *stream,
            auth: *auth,
            request_bytes: *request_bytes,
            pool: *pool,
            route: *route,
            driver: *driver,
            class: *class,
            is_https: *is_https,
            has_user: *has_user,
            is_forwarded: *is_forwarded,
        }
    }

    /// The record of an exchange that no worker has begun; it ends as complete until another end is known.
    pub(crate) fn record(&self) -> ExchangeRecord {
        ExchangeRecord {
            id: self.id,
            phases: Phases {
                arrived: self.arrived,
                queued: self.queued,
                ..Phases::default()
            },
            queued: Queued {
                before: self.before,
                ..Queued::default()
            },
            stream: self.stream,
            auth: self.auth,
            request_bytes: self.request_bytes,
            pool: self.pool,
            route: self.route,
            driver: self.driver,
            class: self.class,
            is_https: self.is_https,
            has_user: self.has_user,
            is_forwarded: self.is_forwarded,
            ending: Ending::Complete,
            ..ExchangeRecord::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_the_same_behind_its_pool() {
        let mut record = ExchangeRecord::new(Id::default(), 3, Stamp(5));
        record.phases.queued = Stamp(7);
        record.queued.before = Nanos(11);
        record.stream.number = 13;
        record.auth = AuthFacts::new(
            Stamp(5),
            (Stamp(6_000), Stamp(9_000)),
            Some(2),
            204,
            Default::default(),
        );
        record.request_bytes = 17;
        (record.pool, record.route) = (Some(1), 19);
        (record.is_https, record.has_user, record.is_forwarded) = (true, true, true);
        let again = AdmittedRecord::new(&record).record();
        // A record has no comparison of its own; its text has every field.
        assert_eq!(format!("{again:?}"), format!("{record:?}"));
    }
}
