//! One order from start to end (RFC 8555 section 7.4):
//!
//! ```text
//!  pending ── answer published, authority asked to check ──► ready ── CSR ──► processing ──► valid ── chain
//!     └────────────────── challenge failed ──► invalid: the authority's reason is the fault
//! ```
//!
//! Takes an account and a name, gives key and chain as one PEM text that was checked. Saves nothing but answers to
//! challenges, which are gone when this ends, however it ends.

use std::time::Duration;

use instant_acme::{
    Account, AuthorizationHandle, AuthorizationStatus, CertificateIdentifier, ChallengeType,
    Identifier, NewOrder, Order, OrderStatus, RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};

use crate::bundle::Held;
use crate::challenges::{Answer, SETTLED_AFTER};
use crate::fault::{IssueFault, short};
use crate::plan::ChallengeKind;
use crate::storage::Storage;

/// An order that is not decided within this is given up.
const DECIDED_WITHIN: Duration = Duration::from_secs(180);
/// How an order is looked at, where the authority does not say when.
const LOOKS: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(DECIDED_WITHIN);
/// Authorizations of an order that is for one name.
const AUTHORIZATIONS_LEN_MAX: usize = 4;

/// What is ordered.
pub(crate) struct Wanted<'w> {
    pub(crate) storage: &'w Storage,
    pub(crate) name: &'w str,
    pub(crate) kind: ChallengeKind,
    /// The certificate that this one takes the place of (RFC 9773 section 5).
    pub(crate) replaces: Option<CertificateIdentifier<'static>>,
}

/// Places an order and sees it through; gives key and chain.
pub(crate) async fn issue(account: &Account, wanted: &Wanted<'_>) -> Result<String, IssueFault> {
    let identifiers = [Identifier::Dns(wanted.name.to_owned())];
    let mut order = NewOrder::new(&identifiers);
    if let Some(replaces) = &wanted.replaces {
        order = order.replaces(replaces.clone());
    }
    let mut order = account.new_order(&order).await?;
    // Until the authority has decided.
    let answers = answer(&mut order, wanted).await?;
    match order.poll_ready(&LOOKS).await {
        Ok(OrderStatus::Ready) => {}
        Ok(_) => return Err(refusal(&mut order, None).await),
        Err(fault) => {
            let fault = IssueFault::from(fault);
            return Err(match &fault {
                IssueFault::Refused(_) => refusal(&mut order, Some(fault)).await,
                _ => fault,
            });
        }
    }
    drop(answers);

    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(vec![wanted.name.to_owned()])?;
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key)?;
    order.finalize_csr(request.der()).await?;
    let chain = order.poll_certificate(&LOOKS).await?;
    let pem = format!("{}{chain}", key.serialize_pem());
    // What would be refused by the processes that serve must not take the place of what they have.
    Held::read_for(&pem, wanted.name).map_err(IssueFault::Answer)?;
    Ok(pem)
}

/// Publishes the answers to all challenges, and has the authority check them.
async fn answer(order: &mut Order, wanted: &Wanted<'_>) -> Result<Vec<Answer>, IssueFault> {
    let kind = match wanted.kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
    };
    let mut answers = Vec::new();
    let mut authorizations = order.authorizations();
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        match authorization.status {
            // The authority remembers that it has checked the name.
            AuthorizationStatus::Valid => continue,
            AuthorizationStatus::Pending => {}
            status => {
                let text = format!("an authorization of a new order is {status:?}");
                return Err(IssueFault::Answer(text.to_lowercase()));
            }
        }
        if answers.len() == AUTHORIZATIONS_LEN_MAX {
            return Err(IssueFault::Answer(
                "an order for one name has many authorizations".to_owned(),
            ));
        }
        let Some(mut challenge) = authorization.challenge(kind.clone()) else {
            let text = format!("the authority offers no {}", wanted.kind.name());
            return Err(IssueFault::Challenge(text));
        };
        let authorization = challenge.key_authorization();
        answers.push(Answer::publish(
            wanted.storage,
            wanted.kind,
            wanted.name,
            &challenge.token,
            authorization.as_str(),
            authorization.digest().as_ref(),
        )?);
        tokio::time::sleep(SETTLED_AFTER).await;
        challenge.set_ready().await?;
    }
    Ok(answers)
}

/// Why the authority does not give a certificate: its challenges say more than its order.
async fn refusal(order: &mut Order, said: Option<IssueFault>) -> IssueFault {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        // As it was when the challenge was published; what the check found came later.
        if authorization.refresh().await.is_err() {
            break;
        }
        if let Some(text) = failed_challenge(&authorization) {
            return IssueFault::Challenge(text);
        }
    }
    said.unwrap_or_else(|| IssueFault::Refused("the order is invalid".to_owned()))
}

fn failed_challenge(authorization: &AuthorizationHandle<'_>) -> Option<String> {
    let failed = authorization.challenges.iter().find_map(|challenge| {
        let problem = challenge.error.as_ref()?;
        let kind = problem.r#type.as_deref().unwrap_or_default();
        let kind = kind.rsplit(':').next().unwrap_or_default();
        let detail = problem.detail.as_deref().unwrap_or_default();
        Some(format!("{detail} ({kind})"))
    })?;
    Some(short(&failed))
}
