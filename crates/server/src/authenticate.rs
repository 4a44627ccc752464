//! What stands behind the header of a request and of its reply: NTS (RFC 8915, section 5) and
//! symmetric-key message authentication codes (RFC 5905, section 7.3; RFC 8573). It checks the one
//! and writes the other in the caller's buffers; what the header says is decided elsewhere. It
//! allocates nothing, and no reply becomes longer than its request.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use horolog_nts::mac::{Authentic, KeyTable};
use horolog_nts::{
    BATCH, BatchKeys, CookieKeys, Looks, Nonces, Opened, Outgoing, looks, nak, open_requests,
    seal_replies,
};
use horolog_wire::ntp::{HEADER_LEN, Header};

use crate::{Reason, Totals};

/// The secrets of a server, shared by all of its threads.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secrets {
    /// Symmetric keys at present; none where MACs are not looked at.
    pub(crate) keys: Option<Arc<ArcSwap<KeyTable>>>,
    /// What opens and seals cookies at present; none where NTS is off.
    pub(crate) cookies: Option<Arc<ArcSwap<CookieKeys>>>,
}

impl Secrets {
    /// Whether there is anything to authenticate with.
    pub(crate) fn is_some(&self) -> bool {
        self.keys.is_some() || self.cookies.is_some()
    }

    /// The secrets for one batch, during which they stay as they are.
    pub(crate) fn present(&self) -> Present {
        Present {
            keys: self.keys.as_ref().map(|keys| keys.load()),
            cookies: self.cookies.as_ref().map(|cookies| cookies.load()),
        }
    }
}

/// [`Secrets`] as they are at present.
#[derive(Debug)]
pub(crate) struct Present {
    keys: Option<Guard<Arc<KeyTable>>>,
    cookies: Option<Guard<Arc<CookieKeys>>>,
}

/// What a request has shown of itself, and what its reply takes therefore.
#[derive(Debug)]
pub(crate) enum Credential<'a> {
    /// Nothing that is looked at; the reply is the header alone.
    None,
    /// A MAC of a key that both sides have.
    Mac(Authentic<'a>),
    /// NTS with a cookie of ours.
    Nts(Opened<'a>),
    /// NTS with a cookie that is not ours or not the sender's; the reply is a kiss that makes an
    /// honest client get new ones (RFC 8915, section 5.7). Here is the request's unique identifier.
    Kiss(&'a [u8]),
}

/// What each request of a batch has shown; nothing where none was checked.
pub(crate) type Credentials<'a> = [Option<Result<Credential<'a>, Reason>>; BATCH];

impl Present {
    /// Checks what stands behind the headers of `requests`, each at least as long as a header. What
    /// is not looked at (a MAC without a key file, NTS without cookie keys, other extension fields)
    /// authenticates nothing and does no harm.
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
            *credential = match (looks(rest), &self.keys, &self.cookies) {
                (Looks::Mac, Some(keys), _) => {
                    Some(keys.verify(request).map(Credential::Mac).map_err(|_| Reason::Mac))
                }
                (Looks::Nts, _, Some(_)) => {
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
                    Err(refusal) => refusal.unique_id().map(Credential::Kiss).ok_or(Reason::Nts),
                });
            });
        }
        credentials
    }

    /// Writes and seals replies of which the headers are final, and says how long each has become;
    /// nothing where there is none.
    pub(crate) fn seal<'c>(
        &self,
        replies: impl Iterator<Item = Option<(&'c Opened<'c>, &'c Header, &'c mut [u8])>>,
        room: &mut BatchKeys,
        nonces: &mut Nonces,
    ) -> [Option<usize>; BATCH] {
        let Some(cookies) = &self.cookies else { return [None; BATCH] };
        let mut outgoing = [const { None }; BATCH];
        for (slot, reply) in outgoing.iter_mut().zip(replies) {
            *slot = reply.map(|(opened, header, out)| Outgoing {
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
    /// Writes the reply of which `header` is final to the front of `out`, and returns its length; 0
    /// where it has no room. `out` is as long as the request at most. A reply that is to be sealed
    /// is left to [`Present::seal`]: it takes all of `out`, and is written there.
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

    /// Counts it.
    pub(crate) fn count(&self, turn: &mut Totals) {
        match self {
            Self::None => {}
            Self::Mac(_) => turn.mac += 1,
            Self::Nts(_) => turn.nts += 1,
            Self::Kiss(_) => turn.nts_kisses += 1,
        }
    }

    /// Whether the reply may tell the client anything but to get new cookies.
    pub(crate) const fn is_served(&self) -> bool {
        !matches!(self, Self::Kiss(_))
    }
}

#[cfg(test)]
#[path = "authenticate_tests.rs"]
mod tests;
