//! Which content codings a client wants for a file, the most wanted first.
//!
//! Takes a head and the configured order, gives a small value that can be compared; pure.

use http::{AcceptEncoding, HeadView};

use config::typed::Coding;

/// As many as there are codings.
const LEN_MAX: usize = 3;

/// Codings in the order in which a client wants them, as far as it prefers them to the plain file. The
/// first of them that there is, is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct EncodingPreference {
    order: [Option<Coding>; LEN_MAX],
}

impl EncodingPreference {
    /// Ranks `offered` (different ones, the preferred first) by the client's weights, equal weights by the order
    /// given: RFC 9110 section 12.5.3.
    pub(super) fn read(head: HeadView<'_>, offered: &[Coding]) -> EncodingPreference {
        let accept = AcceptEncoding::read(head);
        // What the client says of none, `identity`, bounds all others from below.
        let plain = accept.weight("identity");
        let mut ranked = [(None, 0); LEN_MAX];
        let mut len = 0;
        for coding in offered.iter().take(LEN_MAX) {
            let weight = accept.weight(coding.name());
            // The plain file is always the last resort, even for a client that refuses it: a 406 would help no
            // client.
            if weight > 0 && weight >= plain {
                ranked[len] = (Some(*coding), weight);
                len += 1;
            }
        }
        // A stable sort: among equal weights our own order stays.
        ranked[..len].sort_by_key(|(_, weight)| std::cmp::Reverse(*weight));
        EncodingPreference {
            order: ranked.map(|(coding, _)| coding),
        }
    }

    /// The codings, the most wanted first.
    pub(super) fn iter(&self) -> impl Iterator<Item = Coding> {
        self.order.into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::with_head;

    const OFFERED: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    #[track_caller]
    fn check(field: Option<&str>, expect: &str) {
        let field = field.map_or(String::new(), |value| {
            format!("Accept-Encoding: {value}\r\n")
        });
        let text = format!("GET / HTTP/1.1\r\nHost: a\r\n{field}\r\n");
        with_head(&text, |head| check_head(head, expect));
    }

    fn check_head(head: HeadView<'_>, expect: &str) {
        let names: Vec<_> = EncodingPreference::read(head, &OFFERED)
            .iter()
            .map(Coding::name)
            .collect();
        assert_eq!(names.join(" "), expect);
        // What the parser itself would choose of each offer is the first of ours that is in it.
        for offer in 0..8 {
            let is_in = |place: usize| offer >> place & 1 == 1;
            let offered: Vec<_> = (0..3).filter(|n| is_in(*n)).map(|n| OFFERED[n]).collect();
            let theirs = AcceptEncoding::read(head).choose(offered.iter().map(|one| one.name()));
            let ours = EncodingPreference::read(head, &OFFERED)
                .iter()
                .find(|coding| offered.contains(coding));
            assert_eq!(theirs.map(|place| offered[place]), ours, "{offered:?}");
        }
    }

    #[test]
    fn ranks_by_weight_and_then_by_our_order() {
        check(None, "");
        check(Some(""), "");
        check(Some("gzip, deflate, br, zstd"), "br zstd gzip");
        check(Some("gzip"), "gzip");
        check(Some("gzip;q=1, br;q=0.5"), "gzip br");
        check(Some("br;q=0.001, zstd;q=0.9, gzip;q=0.9"), "zstd gzip br");
        check(Some("*"), "br zstd gzip");
        check(Some("*;q=0.5, gzip"), "gzip br zstd");
        check(Some("br;q=0, *"), "zstd gzip");
        check(Some("gzip, *;q=0"), "gzip");
        check(Some("identity"), "");
        check(Some("identity;q=0"), "");
        check(Some("identity, gzip"), "gzip");
        check(Some("identity, gzip;q=0.9"), "");
        check(Some("identity;q=0.5, gzip;q=0.5, br;q=0.4"), "gzip");
        check(Some("identity;q=0, br;q=0"), "");
        check(Some("deflate, compress"), "");
        check(Some("GZIP, x-gzip;q=0"), "gzip");
    }
}
