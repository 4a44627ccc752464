//! The server's side of NTS for NTP (RFC 8915, section 5.7): opens requests and seals replies, in
//! the caller's buffers. It does not look into the header, so basic and interleaved mode are the
//! same here. No reply is longer than its request.

use horolog_wire::ntp::HEADER_LEN;
use thiserror::Error;

use crate::aead::{AeadKey, NONCE_LEN_MAX, TAG_LEN};
use crate::cookie::{COOKIE_NONCE_LEN, cookie_len};
use crate::field::{
    COOKIE, PREFIX_LEN, UNIQUE_ID, Writer, authenticator_front, authenticator_len, find, prefix,
};
use crate::{CookieKeys, SessionKeys};

/// The most cookies that a reply carries (RFC 8915, section 5.7).
pub const COOKIES_MAX: usize = 8;
/// The longest reply to a request whose unique identifier has 32 bytes; longer identifiers add
/// what they have more.
pub const REPLY_LEN_MAX: usize = HEADER_LEN
    + PREFIX_LEN
    + 32
    + authenticator_len(NONCE_LEN_MAX, COOKIES_MAX * (PREFIX_LEN + crate::COOKIE_LEN_MAX));

/// Bytes at `out[STRATUM_AT]` and after: stratum, and the reference identifier with the kiss code.
const STRATUM_AT: usize = 1;
const REFERENCE_ID: core::ops::Range<usize> = 12..16;
/// The longest encrypted part of a request that is looked at, in bytes.
const REQUEST_TEXT_MAX: usize = 1024;

/// Why a request is not answered as an NTS request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum Refusal<'a> {
    /// Its fields are broken, one that must be there is missing or there twice, or it has not the
    /// padding that RFC 8915, section 5.6, demands. It is dropped.
    #[error("malformed NTS fields")]
    Malformed,
    /// It has no cookie. It is dropped.
    #[error("no cookie")]
    NoCookie,
    /// No key of ours opens its cookie. A kiss ([`nak`]) tells the client to get new ones.
    #[error("a cookie that no present key opens")]
    UnknownCookie {
        /// The request's unique identifier.
        unique_id: &'a [u8],
    },
    /// Its cookie is ours, but it is not authentic. Answered like an unknown cookie.
    #[error("not authentic")]
    Forged {
        /// The request's unique identifier.
        unique_id: &'a [u8],
    },
}

impl<'a> Refusal<'a> {
    /// The unique identifier to which a kiss may be sent (RFC 8915, section 5.7); none when the
    /// request is to be dropped.
    #[must_use]
    pub const fn unique_id(&self) -> Option<&'a [u8]> {
        match self {
            Self::Malformed | Self::NoCookie => None,
            Self::UnknownCookie { unique_id } | Self::Forged { unique_id } => Some(unique_id),
        }
    }
}

/// A request that is authentic.
#[derive(Debug)]
pub struct Opened<'a> {
    /// Its unique identifier: 32 bytes or more.
    pub unique_id: &'a [u8],
    /// The session's keys, out of the cookie.
    pub session: SessionKeys,
    /// How many cookies the reply will carry: one for the cookie and one for each placeholder,
    /// at most [`COOKIES_MAX`], and no more than leave the reply as short as the request.
    pub cookies_wanted: usize,
    /// Length of the request, in bytes.
    pub request_len: usize,
}

impl Opened<'_> {
    /// Length of the reply with `cookies` cookies, in bytes.
    #[must_use]
    pub fn reply_len(&self, cookies: usize) -> usize {
        let algorithm = self.session.algorithm();
        let text_len = cookies * (PREFIX_LEN + cookie_len(algorithm));
        HEADER_LEN
            + PREFIX_LEN
            + self.unique_id.len()
            + authenticator_len(algorithm.nonce_len(), text_len)
    }
}

/// What is to be opened once the cookie's keys are known.
struct Parts<'a> {
    unique_id: &'a [u8],
    cookie: &'a [u8],
    placeholders: usize,
    sealed: crate::field::Sealed<'a>,
    covered: &'a [u8],
}

fn parts(packet: &[u8]) -> Result<Parts<'_>, Refusal<'_>> {
    let found = find(packet).map_err(|_| Refusal::Malformed)?;
    let cookie = found.cookie.ok_or(Refusal::NoCookie)?;
    let (Some(unique_id), Some((sealed, covered))) = (found.unique_id, found.sealed) else {
        return Err(Refusal::Malformed);
    };
    Ok(Parts { unique_id, cookie, placeholders: found.placeholders, sealed, covered })
}

/// Opens the request `packet` (the header and all that follows it) with the keys out of its cookie.
///
/// # Errors
/// See [`Refusal`].
pub fn open_request<'a>(keys: &CookieKeys, packet: &'a [u8]) -> Result<Opened<'a>, Refusal<'a>> {
    let parts = parts(packet)?;
    let unique_id = parts.unique_id;
    let session = keys.open(parts.cookie).ok_or(Refusal::UnknownCookie { unique_id })?;
    let algorithm = session.algorithm();
    let nonce = parts.sealed.nonce;
    if parts.sealed.nonce_room < algorithm.nonce_room() || !algorithm.takes_nonce(nonce.len()) {
        return Err(Refusal::Malformed);
    }
    let key = AeadKey::once(algorithm, session.c2s());
    if !authentic(&key, &parts) {
        return Err(Refusal::Forged { unique_id });
    }
    let request_len = packet.len();
    let mut opened = Opened { unique_id, session, cookies_wanted: 0, request_len };
    let wanted = (1 + parts.placeholders).min(COOKIES_MAX);
    let fits = |count: &usize| opened.reply_len(*count) <= request_len;
    opened.cookies_wanted = (0..=wanted).rev().find(fits).unwrap_or(0);
    Ok(opened)
}

fn authentic(key: &AeadKey<'_>, parts: &Parts<'_>) -> bool {
    let ciphertext = parts.sealed.ciphertext;
    if ciphertext.len() == TAG_LEN {
        return key.open(parts.sealed.nonce, parts.covered, ciphertext, &mut []).is_some();
    }
    authentic_with_text(key, parts)
}

/// A request whose authenticator encrypts fields as well. None that a client may send there means
/// anything to a server.
#[cold]
fn authentic_with_text(key: &AeadKey<'_>, parts: &Parts<'_>) -> bool {
    let mut text = [0; REQUEST_TEXT_MAX];
    key.open(parts.sealed.nonce, parts.covered, parts.sealed.ciphertext, &mut text).is_some()
}

/// Writes the reply to the front of `out`: `header`, the unique identifier, and an authenticator
/// with as many new cookies as the client asked for and fit into the length of the request and into
/// `out`. Returns its length; 0 when `out` has no room for a reply without cookies.
///
/// `header` is final: its transmit timestamp is authenticated. `random` fills a buffer with
/// bytes that nobody can foresee and that never repeat (see [`crate::Nonces`]).
pub fn seal_reply(
    keys: &CookieKeys,
    opened: &Opened<'_>,
    header: &[u8; HEADER_LEN],
    random: &mut impl FnMut(&mut [u8]),
    out: &mut [u8],
) -> usize {
    let room = out.len().min(opened.request_len);
    let fits = |count: &usize| opened.reply_len(*count) <= room;
    let Some(cookies) = (0..=opened.cookies_wanted).rev().find(fits) else { return 0 };
    write_reply(keys, opened, header, cookies, random, out).unwrap_or(0)
}

fn write_reply(
    keys: &CookieKeys,
    opened: &Opened<'_>,
    header: &[u8; HEADER_LEN],
    cookies: usize,
    random: &mut impl FnMut(&mut [u8]),
    out: &mut [u8],
) -> Option<usize> {
    let algorithm = opened.session.algorithm();
    let (nonce_len, cookie_len) = (algorithm.nonce_len(), cookie_len(algorithm));
    let text_len = cookies * (PREFIX_LEN + cookie_len);
    let mut nonces = [0; NONCE_LEN_MAX + COOKIES_MAX * COOKIE_NONCE_LEN];
    random(nonces.get_mut(..NONCE_LEN_MAX + cookies * COOKIE_NONCE_LEN)?);
    let (nonce, cookie_nonces) = nonces.split_at(NONCE_LEN_MAX);
    let nonce = &nonce[..nonce_len];

    let mut reply = Writer::new(out);
    reply.put(header)?;
    reply.field(UNIQUE_ID, opened.unique_id)?;
    let covered = reply.len();
    let len = authenticator_len(nonce_len, text_len);
    reply.put(&authenticator_front(nonce_len, text_len, len))?;
    reply.put(nonce)?;
    let (before, sealed) = reply.room(text_len + TAG_LEN)?;
    let text = &mut sealed[algorithm.text_at()..][..text_len];
    let fields = text.chunks_exact_mut(PREFIX_LEN + cookie_len);
    for (field, nonce) in fields.zip(cookie_nonces.as_chunks().0) {
        let (front, body) = field.split_at_mut(PREFIX_LEN);
        front.copy_from_slice(&prefix(COOKIE, PREFIX_LEN + cookie_len));
        keys.seal(&opened.session, *nonce, body);
    }
    let key = AeadKey::once(algorithm, opened.session.s2c());
    key.seal(nonce, &before[..covered], sealed)?;
    Some(reply.len())
}

/// Writes the kiss NTSN (RFC 8915, section 5.7) to the front of `out`: `header` with stratum 0 and
/// the kiss code, and the request's unique identifier. It is not authenticated. Returns its length,
/// which is always less than the request's; 0 when `out` is too short.
pub fn nak(unique_id: &[u8], header: &[u8; HEADER_LEN], out: &mut [u8]) -> usize {
    let mut header = *header;
    header[STRATUM_AT] = 0;
    header[REFERENCE_ID].copy_from_slice(b"NTSN");
    let mut kiss = Writer::new(out);
    let written = kiss.put(&header).and_then(|()| kiss.field(UNIQUE_ID, unique_id));
    written.map_or(0, |()| kiss.len())
}

#[cfg(test)]
mod tests;
