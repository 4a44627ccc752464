//! The client's side of NTS for NTP (RFC 8915, section 5.7): requests sealed into the caller's
//! buffer, replies opened, cookies kept. It judges no time; whether the header of an authentic
//! reply makes sense is for the caller.

use core::fmt;

use horolog_wire::ntp::HEADER_LEN;
use thiserror::Error;

use crate::aead::{AeadKey, TAG_LEN};
use crate::cookie::COOKIE_NONCE_LEN;
use crate::field::{
    COOKIE, PLACEHOLDER, PREFIX_LEN, Sealed, UNIQUE_ID, Writer, authenticator_front,
    authenticator_len, find, split_inner,
};
use crate::{Algorithm, COOKIES_MAX, SessionKeys};

mod template;
pub use template::RequestTemplate;

/// Length of the unique identifiers that are made here, in bytes.
pub const UNIQUE_ID_LEN: usize = 32;
/// The longest cookie of any server that is kept, in bytes.
pub(crate) const FOREIGN_COOKIE_LEN_MAX: usize = 1024;
/// The longest encrypted part of a reply, in bytes: a packet that leaves no room for more.
const REPLY_TEXT_MAX: usize = 2048;

/// Why a packet is no authentic reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReplyFault {
    /// Its fields are broken, or it has no authenticator.
    #[error("malformed NTS fields")]
    Malformed,
    /// It bears another unique identifier than the request, or none.
    #[error("not the answer to this request")]
    OtherRequest,
    /// The kiss NTSN: the server opens none of these cookies. It is not authenticated, so a client
    /// waits for an authentic reply before it asks for new keys (RFC 8915, section 5.7).
    #[error("the server refused the cookie (kiss code NTSN)")]
    Refused,
    /// It is not authentic.
    #[error("not authentic")]
    Forged,
}

/// What an authentic reply brought, beside its header.
#[derive(Clone, Copy, Debug)]
pub struct Reply<'a> {
    text: &'a [u8],
}

impl<'a> Reply<'a> {
    /// The new cookies.
    pub fn cookies(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.text;
        core::iter::from_fn(move || {
            let (field, after) = split_inner(rest).ok()?;
            rest = after;
            Some(field)
        })
        .filter(|field| field.kind == COOKIE)
        .map(|field| field.body)
    }
}

/// Length of a request whose authenticator encrypts nothing, in bytes.
#[must_use]
pub const fn request_len(algorithm: Algorithm, cookie_len: usize, placeholders: usize) -> usize {
    HEADER_LEN
        + PREFIX_LEN
        + UNIQUE_ID_LEN
        + (1 + placeholders) * (PREFIX_LEN + cookie_len.next_multiple_of(4))
        + authenticator_len(algorithm.nonce_len(), 0)
}

/// Writes a request to the front of `out`: `header`, unique identifier, `cookie`, `placeholders`
/// fields as long as the cookie, and the authenticator. Returns its length, see [`request_len`]; 0
/// when `out` is too short. The nonce's first bytes, as many as the algorithm takes, are used.
///
/// For one request; [`ClientSession`] and [`RequestTemplate`] keep what is computed from the keys.
pub fn seal_request(
    keys: &SessionKeys,
    header: &[u8; HEADER_LEN],
    unique_id: &[u8; UNIQUE_ID_LEN],
    cookie: &[u8],
    placeholders: usize,
    nonce: &[u8; COOKIE_NONCE_LEN],
    out: &mut [u8],
) -> usize {
    let mut fields = Writer::new(out);
    if write_fields(&mut fields, header, unique_id, cookie, placeholders).is_none() {
        return 0;
    }
    let key = AeadKey::new(keys.algorithm(), keys.c2s());
    write_authenticator(fields, &key, keys.algorithm(), nonce).unwrap_or(0)
}

fn write_fields(
    out: &mut Writer<'_>,
    header: &[u8; HEADER_LEN],
    unique_id: &[u8; UNIQUE_ID_LEN],
    cookie: &[u8],
    placeholders: usize,
) -> Option<()> {
    out.put(header)?;
    out.field(UNIQUE_ID, unique_id)?;
    out.field(COOKIE, cookie)?;
    for _ in 0..placeholders {
        let len = cookie.len().next_multiple_of(4);
        out.put(&crate::field::prefix(PLACEHOLDER, PREFIX_LEN + len))?;
        out.room(len)?.1.fill(0);
    }
    Some(())
}

fn write_authenticator(
    mut out: Writer<'_>,
    key: &AeadKey,
    algorithm: Algorithm,
    nonce: &[u8; COOKIE_NONCE_LEN],
) -> Option<usize> {
    let covered = out.len();
    let nonce = &nonce[..algorithm.nonce_len()];
    let len = authenticator_len(nonce.len(), 0);
    out.put(&authenticator_front(nonce.len(), 0, len))?;
    out.put(nonce)?;
    let (before, tag) = out.room(TAG_LEN)?;
    key.seal(nonce, &before[..covered], tag)?;
    Some(out.len())
}

/// Opens the reply `packet` to the request that bore `unique_id`; its text goes to `text`, which
/// 1 KiB suffices for with servers whose cookies have about 100 bytes.
///
/// For one reply; a [`ClientSession`] keeps what is computed from the keys.
pub fn open_reply<'t>(
    keys: &SessionKeys,
    packet: &[u8],
    unique_id: &[u8],
    text: &'t mut [u8],
) -> Result<Reply<'t>, ReplyFault> {
    open(&AeadKey::new(keys.algorithm(), keys.s2c()), packet, unique_id, text)
}

/// Judges the reply `packet` to the request that bore `unique_id` without the server's key: by its
/// fields, by that identifier, and by whether there is something to open. A reply that passes may
/// be forged all the same.
pub fn examine_reply(packet: &[u8], unique_id: &[u8]) -> Result<(), ReplyFault> {
    sealed_part(packet, unique_id).map(drop)
}

/// The encrypted part of a reply to that request, and what its authenticator covers.
fn sealed_part<'p>(
    packet: &'p [u8],
    unique_id: &[u8],
) -> Result<(Sealed<'p>, &'p [u8]), ReplyFault> {
    let found = find(packet).map_err(|_| ReplyFault::Malformed)?;
    if found.unique_id != Some(unique_id) {
        return Err(ReplyFault::OtherRequest);
    }
    found.sealed.ok_or_else(|| {
        let kiss = packet.get(1) == Some(&0) && packet.get(12..16) == Some(b"NTSN");
        if kiss { ReplyFault::Refused } else { ReplyFault::Malformed }
    })
}

fn open<'t>(
    key: &AeadKey,
    packet: &[u8],
    unique_id: &[u8],
    text: &'t mut [u8],
) -> Result<Reply<'t>, ReplyFault> {
    let (sealed, covered) = sealed_part(packet, unique_id)?;
    let len = key.open(sealed.nonce, covered, sealed.ciphertext, text);
    Ok(Reply { text: &text[..len.ok_or(ReplyFault::Forged)?] })
}

/// A client's association with one server: keys made ready, and at most eight cookies, each of
/// which is used once.
pub struct ClientSession {
    algorithm: Algorithm,
    c2s: AeadKey,
    s2c: AeadKey,
    cookies: Vec<Box<[u8]>>,
}

impl ClientSession {
    /// With the keys and the cookies that key establishment gave.
    #[must_use]
    pub fn new<'c>(keys: &SessionKeys, cookies: impl IntoIterator<Item = &'c [u8]>) -> Self {
        let mut session = Self {
            algorithm: keys.algorithm(),
            c2s: AeadKey::new(keys.algorithm(), keys.c2s()),
            s2c: AeadKey::new(keys.algorithm(), keys.s2c()),
            cookies: Vec::with_capacity(COOKIES_MAX),
        };
        for cookie in cookies {
            session.keep(cookie);
        }
        session
    }

    /// How many cookies are left.
    #[must_use]
    pub fn cookies(&self) -> usize {
        self.cookies.len()
    }

    /// Writes a request to the front of `out` with one of the cookies, which is used up by this,
    /// and with as many placeholders as cookies are missing and fit into `out`. Returns its length;
    /// 0 when no cookie is left or `out` is too short. `nonce` is random.
    pub fn seal_request(
        &mut self,
        header: &[u8; HEADER_LEN],
        unique_id: &[u8; UNIQUE_ID_LEN],
        nonce: &[u8; COOKIE_NONCE_LEN],
        out: &mut [u8],
    ) -> usize {
        let Some(cookie) = self.cookies.pop() else { return 0 };
        let missing = COOKIES_MAX - 1 - self.cookies.len();
        let fits = |n: &usize| request_len(self.algorithm, cookie.len(), *n) <= out.len();
        let Some(placeholders) = (0..=missing).rev().find(fits) else { return 0 };
        let mut fields = Writer::new(out);
        write_fields(&mut fields, header, unique_id, &cookie, placeholders)
            .and_then(|()| write_authenticator(fields, &self.c2s, self.algorithm, nonce))
            .unwrap_or(0)
    }

    /// Opens the reply `packet` to the request that bore `unique_id`, and keeps its cookies.
    /// Returns how many it brought.
    pub fn open_reply(&mut self, packet: &[u8], unique_id: &[u8]) -> Result<usize, ReplyFault> {
        let mut text = [0; REPLY_TEXT_MAX];
        let reply = open(&self.s2c, packet, unique_id, &mut text)?;
        Ok(reply.cookies().map(|cookie| self.keep(cookie)).count())
    }

    fn keep(&mut self, cookie: &[u8]) {
        let usable = (1..=FOREIGN_COOKIE_LEN_MAX).contains(&cookie.len());
        if usable && self.cookies.len() < COOKIES_MAX {
            self.cookies.push(cookie.into());
        }
    }
}

impl fmt::Debug for ClientSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClientSession")
            .field("algorithm", &self.algorithm)
            .field("cookies", &self.cookies.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
