//! Trailer of a request and of its reply: NTS (RFC 8915, section 5) and symmetric-key message
//! authentication codes (RFC 5905, section 7.3; RFC 8573). Checks the former and writes the latter
//! in the caller's buffers; the content of the header is decided elsewhere. It allocates nothing,
//! and no reply becomes longer than its request.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use horolog_nts::mac::{Authentic, KeyTable};
use horolog_nts::{
    AuthenticRequest, BATCH, BatchKeys, CookieKeys, Nonces, TrailerKind, UnsealedReply,
    classify_trailer, nak, open_requests, seal_replies,
};
use horolog_wire::ntp::{HEADER_LEN, Header};

use crate::{IgnoreReason, SocketCounts};

/// Secrets of a server, shared by all of its threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    /// Current symmetric keys; `None` if MACs are not checked.
    pub(crate) keys: Option<Arc<ArcSwap<KeyTable>>>,
    /// Current keys that open and seal cookies; `None` if NTS is off.
    pub(crate) cookies: Option<Arc<ArcSwap<CookieKeys>>>,
}

impl Secrets {
    /// Returns true if any means of authentication is configured.
    pub(crate) fn is_some(&self) -> bool {
        self.keys.is_some() || self.cookies.is_some()
    }

    /// Returns the secrets for one batch, for which they stay constant.
    pub(crate) fn present(&self) -> SecretsSnapshot {
        SecretsSnapshot {
            keys: self.keys.as_ref().map(|keys| keys.load()),
            cookies: self.cookies.as_ref().map(|cookies| cookies.load()),
        }
    }
}

/// Snapshot of [`Secrets`].
#[derive(Debug)]
pub(crate) struct SecretsSnapshot {
    keys: Option<Guard<Arc<KeyTable>>>,
    cookies: Option<Guard<Arc<CookieKeys>>>,
}

/// Credential of a request, which determines the trailer of its reply.
#[derive(Debug)]
pub(crate) enum Credential<'a> {
    /// No credential that is checked; the reply is the header alone.
    None,
    /// MAC of a key that both sides hold.
    Mac(Authentic<'a>),
    /// NTS with a cookie of this server.
    Nts(AuthenticRequest<'a>),
    /// NTS with a cookie of another server or another client. The reply is a kiss that makes an
    /// honest client request new cookies (RFC 8915, section 5.7). The value is the request's unique
    /// identifier.
    Kiss(&'a [u8]),
}

/// Credentials of the requests of a batch; `None` for a request that was not checked.
pub(crate) type Credentials<'a> = [Option<Result<Credential<'a>, IgnoreReason>>; BATCH];

impl SecretsSnapshot {
    /// Checks the trailers of `requests`, each at least as long as a header. Trailers that are not
    /// evaluated (a MAC without a key file, NTS without cookie keys, other extension fields)
    /// authenticate nothing and are otherwise ignored.
    pub(crate) fn check<'a>(
        &'a self,
        requests: &[Option<&'a [u8]>; BATCH],
        room: &mut BatchKeys,
    ) -> Credentials<'a> {
        let mut credentials = [const { None }; BATCH];
        let mut sealed = [None; BATCH];
        for ((request, credential), sealed) in
            requests.iter().zip(&mut credentials).zip(&mut sealed)
        {
            let Some(request) = *request else { continue };
            let rest = &request[HEADER_LEN.min(request.len())..];
            *credential = match (classify_trailer(rest), &self.keys, &self.cookies) {
                (TrailerKind::Mac, Some(keys), _) => {
                    Some(keys.verify(request).map(Credential::Mac).map_err(|_| IgnoreReason::Mac))
                }
                (TrailerKind::Nts, _, Some(_)) => {
                    *sealed = Some(request);
                    None
                }
                _ => Some(Ok(Credential::None)),
            };
        }
        if let (Some(cookies), true) = (&self.cookies, sealed.iter().any(Option::is_some)) {
            open_requests(cookies, &sealed, room, |index, opened| {
                credentials[index] = Some(match opened {
                    Ok(opened) => Ok(Credential::Nts(opened)),
                    Err(refusal) => {
                        refusal.unique_id().map(Credential::Kiss).ok_or(IgnoreReason::Nts)
                    }
                });
            });
        }
        credentials
    }

    /// Writes and seals replies whose headers are final, and returns the length of each; `None` if
    /// there is no reply.
    pub(crate) fn seal<'c>(
        &self,
        replies: impl Iterator<Item = Option<(&'c AuthenticRequest<'c>, &'c Header, &'c mut [u8])>>,
        room: &mut BatchKeys,
        nonces: &mut Nonces,
    ) -> [Option<usize>; BATCH] {
        let Some(cookies) = &self.cookies else { return [None; BATCH] };
        let mut outgoing = [const { None }; BATCH];
        for (slot, reply) in outgoing.iter_mut().zip(replies) {
            *slot = reply.map(|(opened, header, out)| UnsealedReply {
                opened,
                header: bytes_of(header),
                out,
                len: 0,
            });
        }
        if outgoing.iter().any(Option::is_some) {
            seal_replies(cookies, &mut outgoing, room, &mut |bytes| nonces.fill(bytes));
        }
        outgoing.each_ref().map(|reply| reply.as_ref().map(|reply| reply.len))
    }
}

fn bytes_of(header: &Header) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    header.emit(&mut bytes);
    bytes
}

impl Credential<'_> {
    /// Writes the reply with the final `header` to the front of `out` and returns its length; 0 if
    /// there is no room. `out` is at most as long as the request. A reply to be sealed is left to
    /// [`SecretsSnapshot::seal`], which needs all of `out`.
    pub(crate) fn write(&self, header: &Header, out: &mut [u8]) -> usize {
        match self {
            Self::None => header.emit(out),
            Self::Mac(authentic) => {
                let len = header.emit(out);
                authentic.append(out, len)
            }
            Self::Nts(opened) if opened.reply_len(0) > out.len() => 0,
            Self::Nts(_) => out.len(),
            Self::Kiss(unique_id) => nak(unique_id, &bytes_of(header), out),
        }
    }

    /// Counts the credential in `turn`.
    pub(crate) fn count(&self, turn: &mut SocketCounts) {
        match self {
            Self::None => {}
            Self::Mac(_) => turn.mac += 1,
            Self::Nts(_) => turn.nts += 1,
            Self::Kiss(_) => turn.nts_kisses += 1,
        }
    }

    /// Returns true if the reply may carry time rather than only a request to get new cookies.
    pub(crate) const fn is_served(&self) -> bool {
        !matches!(self, Self::Kiss(_))
    }
}

#[cfg(test)]
#[path = "authenticate_tests.rs"]
mod tests;
