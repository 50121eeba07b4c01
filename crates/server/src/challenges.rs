//! Challenges of certificate authorities that this process is to answer: which ones, and the response over HTTP.
//!
//! Taken from the supervisor, and replaced as a whole. Where there are none, which is nearly always, a request costs one
//! relaxed load.

use files::{Part, Reply, ReplyBody};
use http::FieldLines;

use crate::sync::{Arc, AtomicBool, Mutex, Ordering, lock};
use ipc::Challenges;

/// RFC 8555 section 8.3.
const PREFIX: &[u8] = b"/.well-known/acme-challenge/";

/// The challenges of this moment.
#[derive(Debug, Default)]
pub(crate) struct ChallengeAnswers {
    has_http: AtomicBool,
    now: Mutex<Arc<Challenges>>,
}

impl ChallengeAnswers {
    /// From now on these, and no others.
    pub(crate) fn replace(&self, challenges: Challenges) {
        let has_http = !challenges.http.is_empty();
        *lock(&self.now) = Arc::new(challenges);
        // After the table: a driver that sees it finds what it is about.
        self.has_http.store(has_http, Ordering::Release);
    }

    /// The response to a request for this path, if an authority asks; any other request is the site's own, below the
    /// same prefix too, because another client of ACME may use it.
    pub(crate) fn reply(&self, path: &[u8]) -> Option<Reply> {
        if !self.has_http.load(Ordering::Acquire) {
            return None;
        }
        let token = std::str::from_utf8(path.strip_prefix(PREFIX)?).ok()?;
        let challenges = Arc::clone(&lock(&self.now));
        let authorization = challenges.http.get(token)?;
        let mut fields = FieldLines::new();
        fields.push(b"Content-Type", b"application/octet-stream");
        fields.push_decimal(b"Content-Length", authorization.len() as u64);
        Some(Reply {
            status: 200,
            fields: fields.freeze(),
            body: ReplyBody::One(Part::Memory(authorization.clone().into())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(answers: &ChallengeAnswers, path: &str) -> Option<Vec<u8>> {
        let reply = answers.reply(path.as_bytes())?;
        assert_eq!(reply.status, 200);
        match reply.body {
            ReplyBody::One(Part::Memory(bytes)) => Some(bytes.to_vec()),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_the_challenges_of_this_moment_alone() {
        let answers = ChallengeAnswers::default();
        let path = "/.well-known/acme-challenge/token";
        assert_eq!(body(&answers, path), None);
        let mut challenges = Challenges::default();
        let authorization = "token.thumbprint".to_owned();
        challenges.http.insert("token".to_owned(), authorization);
        answers.replace(challenges);
        assert_eq!(body(&answers, path).unwrap(), b"token.thumbprint");
        for other in [
            "/.well-known/acme-challenge/",
            "/.well-known/acme-challenge/other",
            "/token",
            "/",
        ] {
            assert_eq!(body(&answers, other), None, "{other}");
        }
        answers.replace(Challenges::default());
        assert_eq!(body(&answers, path), None);
    }
}
