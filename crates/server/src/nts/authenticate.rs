//! Authentication of requests and replies: NTS (RFC 8915, section 5) and symmetric-key MACs (RFC
//! 5905, section 7.3; RFC 8573). Checks the trailer of a request and writes that of its reply in
//! the caller's buffers. It allocates nothing, and no reply becomes longer than its request.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use horolog_nts::mac::{AuthenticMac, KeyTable};
use horolog_nts::{
    AuthenticRequest, BATCH, BatchKeyBuffer, CookieKeys, NonceStream, UnsealedReply, open_requests,
    seal_replies, write_nak,
};
use horolog_wire::ntp::extension::{TrailerKind, classify_trailer};
use horolog_wire::ntp::{HEADER_LEN, Header};

use crate::reply::decide::IgnoreReason;
use crate::sockets::counters::SocketEngineCounts;

/// Secrets of a server, shared by all of its threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    /// Current symmetric keys; `None` if MACs are not checked.
    pub(crate) keys: Option<Arc<ArcSwap<KeyTable>>>,
    /// Current keys that open and seal cookies; `None` if NTS is off.
    pub(crate) cookies: Option<Arc<ArcSwap<CookieKeys>>>,
}

impl Secrets {
    /// Returns true if MACs are checked or NTS is on.
    pub(crate) fn is_configured(&self) -> bool {
        self.keys.is_some() || self.cookies.is_some()
    }

    /// Returns the present secrets, which stay constant for one batch.
    pub(crate) fn snapshot(&self) -> BatchSecrets {
        BatchSecrets {
            keys: self.keys.as_ref().map(|keys| keys.load()),
            cookies: self.cookies.as_ref().map(|cookies| cookies.load()),
        }
    }
}

/// Secrets that stay constant for one batch.
#[derive(Debug)]
pub(crate) struct BatchSecrets {
    keys: Option<Guard<Arc<KeyTable>>>,
    cookies: Option<Guard<Arc<CookieKeys>>>,
}

/// Authentication of a request, which determines the trailer of its reply.
#[derive(Debug)]
pub(crate) enum RequestAuthentication<'a> {
    /// Not authenticated; the reply is a header without trailer.
    None,
    /// Authenticated by the MAC of a symmetric key.
    Mac(AuthenticMac<'a>),
    /// Authenticated by NTS with a cookie of this server.
    Nts(AuthenticRequest<'a>),
    /// NTS request that cannot be authenticated, such as one with a cookie of another server. The
    /// reply is an NTS NAK, a kiss that makes a genuine client get new cookies (RFC 8915, section
    /// 5.7). The value is the unique identifier of the request.
    Kiss(&'a [u8]),
}

/// Results for the requests of a batch, by index; `None` for a request that was not checked.
pub(crate) type BatchAuthenticationResults<'a> =
    [Option<Result<RequestAuthentication<'a>, IgnoreReason>>; BATCH];

impl BatchSecrets {
    /// Authenticates `requests`, each at least as long as a header. Trailers that cannot be
    /// evaluated (a MAC without a key file, NTS without cookie keys, other extension fields) do not
    /// authenticate and are ignored.
    pub(crate) fn check<'a>(
        &'a self,
        requests: &[Option<&'a [u8]>; BATCH],
        batch_keys: &mut BatchKeyBuffer,
    ) -> BatchAuthenticationResults<'a> {
        let mut credentials = [const { None }; BATCH];
        let mut sealed = [None; BATCH];
        for ((request, credential), sealed) in
            requests.iter().zip(&mut credentials).zip(&mut sealed)
        {
            let Some(request) = *request else { continue };
            let trailer = &request[HEADER_LEN.min(request.len())..];
            *credential = match (classify_trailer(trailer), &self.keys, &self.cookies) {
                (TrailerKind::Mac, Some(keys), _) => Some(
                    keys.verify(request)
                        .map(RequestAuthentication::Mac)
                        .map_err(|_| IgnoreReason::Mac),
                ),
                (TrailerKind::Nts, _, Some(_)) => {
                    *sealed = Some(request);
                    None
                }
                _ => Some(Ok(RequestAuthentication::None)),
            };
        }
        if let (Some(cookies), true) = (&self.cookies, sealed.iter().any(Option::is_some)) {
            open_requests(cookies, &sealed, batch_keys, |index, opened| {
                credentials[index] = Some(match opened {
                    Ok(opened) => Ok(RequestAuthentication::Nts(opened)),
                    Err(refusal) => refusal
                        .unique_id()
                        .map(RequestAuthentication::Kiss)
                        .ok_or(IgnoreReason::Nts),
                });
            });
        }
        credentials
    }

    /// Writes and seals NTS replies whose headers are final. Returns the length of each, by index;
    /// `None` without a reply.
    pub(crate) fn seal<'c>(
        &self,
        replies: impl Iterator<Item = Option<(&'c AuthenticRequest<'c>, &'c Header, &'c mut [u8])>>,
        batch_keys: &mut BatchKeyBuffer,
        nonces: &mut NonceStream,
    ) -> [Option<usize>; BATCH] {
        let Some(cookies) = &self.cookies else { return [None; BATCH] };
        let mut outgoing = [const { None }; BATCH];
        for (slot, reply) in outgoing.iter_mut().zip(replies) {
            *slot = reply.map(|(opened, header, out)| UnsealedReply {
                request: opened,
                header: header_bytes(header),
                out,
                len: 0,
            });
        }
        if outgoing.iter().any(Option::is_some) {
            seal_replies(cookies, &mut outgoing, batch_keys, &mut |bytes| nonces.fill(bytes));
        }
        outgoing.each_ref().map(|reply| reply.as_ref().map(|reply| reply.len))
    }
}

fn header_bytes(header: &Header) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    header.emit(&mut bytes);
    bytes
}

impl RequestAuthentication<'_> {
    /// Writes the reply with the final `header` to the start of `out` and returns its length; 0 if
    /// it does not fit. `out` is at most as long as the request. For an NTS reply, all of `out` is
    /// reserved, and [`BatchSecrets::seal`] writes it later.
    pub(crate) fn write(&self, header: &Header, out: &mut [u8]) -> usize {
        match self {
            Self::None => header.emit(out),
            Self::Mac(authentic) => {
                let len = header.emit(out);
                authentic.append_mac(out, len)
            }
            Self::Nts(opened) if opened.reply_len(0) > out.len() => 0,
            Self::Nts(_) => out.len(),
            Self::Kiss(unique_id) => write_nak(unique_id, &header_bytes(header), out),
        }
    }

    /// Counts the reply in `counts` by its kind of authentication; one without authentication is
    /// not counted.
    pub(crate) fn count(&self, counts: &mut SocketEngineCounts) {
        match self {
            Self::None => {}
            Self::Mac(_) => counts.mac += 1,
            Self::Nts(_) => counts.nts += 1,
            Self::Kiss(_) => counts.nts_kisses += 1,
        }
    }

    /// Returns true if the reply carries time; false for an NTS NAK.
    pub(crate) const fn can_carry_time(&self) -> bool {
        !matches!(self, Self::Kiss(_))
    }
}

#[cfg(test)]
#[path = "authenticate_tests.rs"]
mod tests;
