//! What an authority suggests about the renewal of a certificate (ARI, RFC 9773).

use std::time::{Duration, SystemTime};

use instant_acme::{Account, Error};

use crate::bundle::Held;
use crate::schedule::RenewalWindow;

/// RFC 9773 section 4.3.2: between these, whatever an authority asks for.
const ASKED_AGAIN_MIN: Duration = Duration::from_secs(60);
const ASKED_AGAIN_MAX: Duration = Duration::from_secs(86_400);
/// RFC 9773 section 4.3.3 lets a client choose when there is no answer.
const ASKED_AGAIN_AFTER_FAULT: Duration = Duration::from_secs(6 * 3_600);

/// A suggestion, and when to ask for the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Suggestion {
    /// `None`: the authority suggests nothing.
    pub(crate) window: Option<RenewalWindow>,
    pub(crate) asked_again: SystemTime,
}

/// Asks the authority; without an answer, `before` stays.
pub(crate) async fn ask(
    account: &Account,
    held: &Held,
    before: Option<RenewalWindow>,
    now: SystemTime,
) -> Suggestion {
    let Some(identifier) = held.identifier() else {
        return Suggestion {
            window: None,
            asked_again: now + ASKED_AGAIN_MAX,
        };
    };
    match account.renewal_info(&identifier).await {
        Ok((info, wait)) => {
            let window = RenewalWindow {
                start: info.suggested_window.start.into(),
                end: info.suggested_window.end.into(),
            };
            // RFC 9773 section 4.2: a window that ends before it begins is no window.
            let window = (window.start < window.end).then_some(window);
            let wait = wait.clamp(ASKED_AGAIN_MIN, ASKED_AGAIN_MAX);
            Suggestion {
                window,
                asked_again: now + wait,
            }
        }
        Err(Error::Unsupported(_)) => Suggestion {
            window: None,
            asked_again: now + ASKED_AGAIN_MAX,
        },
        Err(_) => unanswered(before, now),
    }
}

/// The authority cannot be reached.
pub(crate) fn unanswered(before: Option<RenewalWindow>, now: SystemTime) -> Suggestion {
    Suggestion {
        window: before,
        asked_again: now + ASKED_AGAIN_AFTER_FAULT,
    }
}
