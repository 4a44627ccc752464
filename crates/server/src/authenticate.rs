//! What stands behind the header of a request and of its reply: NTS (RFC 8915, section 5) and
//! symmetric-key message authentication codes (RFC 5905, section 7.3; RFC 8573). It checks the one
//! and writes the other in the caller's buffers; what the header says is decided elsewhere. It
//! allocates nothing, and no reply becomes longer than its request.

use std::sync::Arc;

use arc_swap::{ArcSwap, Guard};
use horolog_nts::mac::{Authentic, KeyTable};
use horolog_nts::{CookieKeys, Looks, Nonces, Opened, looks, nak, open_request, seal_reply};
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

impl Present {
    /// Checks what stands behind the header of `request`, which is at least as long as a header.
    /// What is not looked at (a MAC without a key file, NTS without cookie keys, other extension
    /// fields) authenticates nothing and does no harm.
    pub(crate) fn check<'a>(&'a self, request: &'a [u8]) -> Result<Credential<'a>, Reason> {
        let rest = &request[HEADER_LEN.min(request.len())..];
        if rest.is_empty() {
            return Ok(Credential::None);
        }
        match (looks(rest), &self.keys, &self.cookies) {
            (Looks::Mac, Some(keys), _) => {
                keys.verify(request).map(Credential::Mac).map_err(|_| Reason::Mac)
            }
            (Looks::Nts, _, Some(cookies)) => match open_request(cookies, request) {
                Ok(opened) => Ok(Credential::Nts(opened)),
                Err(refusal) => refusal.unique_id().map(Credential::Kiss).ok_or(Reason::Nts),
            },
            _ => Ok(Credential::None),
        }
    }

    /// Writes the reply of which `header` is final to the front of `out`, and returns its length; 0
    /// where it has no room. `out` is as long as the request at most.
    pub(crate) fn write(
        &self,
        credential: &Credential<'_>,
        header: &Header,
        nonces: &mut Nonces,
        out: &mut [u8],
    ) -> usize {
        match (credential, &self.cookies) {
            (Credential::Mac(authentic), _) => {
                let len = header.emit(out);
                authentic.append(out, len)
            }
            (Credential::Nts(opened), Some(cookies)) => {
                let mut bytes = [0; HEADER_LEN];
                header.emit(&mut bytes);
                seal_reply(cookies, opened, &bytes, &mut |bytes| nonces.fill(bytes), out)
            }
            (Credential::Kiss(unique_id), _) => {
                let mut bytes = [0; HEADER_LEN];
                header.emit(&mut bytes);
                nak(unique_id, &bytes, out)
            }
            _ => header.emit(out),
        }
    }
}

impl Credential<'_> {
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
