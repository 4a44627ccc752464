//! Client side of NTS for NTP (RFC 8915, section 5.7): seals requests in the caller's buffer, opens
//! replies, and stores cookies. The NTP header of an authentic reply is checked by the caller.

use core::fmt;

use horolog_wire::ntp::HEADER_LEN;
use horolog_wire::ntp::extension::{
    ExtensionFieldType, ExtensionFieldWriter, ExtensionFields, FIELD_LEN_MIN, field_len,
};
use horolog_wire::ntp::nts::{Authenticator, NtsFields, TAG_LEN};
use thiserror::Error;

use crate::aead::AeadKey;
use crate::cookie::COOKIE_NONCE_LEN;
use crate::{AeadAlgorithm, COOKIES_MAX, SessionKeys};

mod template;
pub use template::RequestTemplate;

/// Length of the unique identifiers of requests sealed here, in bytes.
pub const UNIQUE_ID_LEN: usize = 32;
/// Longest cookie of a server that is stored, in bytes.
pub(crate) const FOREIGN_COOKIE_LEN_MAX: usize = 1024;
/// Longest accepted plaintext of a reply, in bytes; more than fits into a packet of 1500 bytes.
const REPLY_TEXT_MAX: usize = 2048;

/// Reason why a packet is not an authentic reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ReplyError {
    /// The extension fields are malformed, or there is no authenticator.
    #[error("malformed NTS fields")]
    Malformed,
    /// The unique identifier differs from the request's, or is missing.
    #[error("not the reply to this request")]
    OtherRequest,
    /// Kiss code NTSN: the server cannot open the cookie. The reply is not authenticated, so a
    /// client waits for an authentic reply before it requests new keys (RFC 8915, section 5.7).
    #[error("the server refused the cookie (kiss code NTSN)")]
    CookieRefused,
    /// Another kiss-o'-death, not authenticated, but with the unique identifier of the request, so
    /// that a client complies (RFC 8915, section 5.7).
    #[error("a kiss-o'-death")]
    KissOfDeath,
    /// The authenticator is invalid, or the buffer is too short for the plaintext.
    #[error("not authentic")]
    Forged,
}

/// Encrypted fields of an authentic reply, decrypted.
#[derive(Clone, Copy, Debug)]
pub struct DecryptedReplyFields<'a> {
    text: &'a [u8],
}

impl<'a> DecryptedReplyFields<'a> {
    /// Returns the new cookies, up to the first malformed field.
    pub fn cookies(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        ExtensionFields::of_plaintext(self.text)
            .map_while(Result::ok)
            .filter(|field| field.field_type == ExtensionFieldType::COOKIE)
            .map(|field| field.value)
    }
}

/// Returns the length of a request without encrypted fields, in bytes.
#[must_use]
pub const fn request_len(
    algorithm: AeadAlgorithm,
    cookie_len: usize,
    placeholders: usize,
) -> usize {
    HEADER_LEN
        + field_len(UNIQUE_ID_LEN, FIELD_LEN_MIN)
        + (1 + placeholders) * field_len(cookie_len, FIELD_LEN_MIN)
        + Authenticator::field_len(algorithm.nonce_len(), TAG_LEN)
}

/// Writes a sealed request to the front of `out`: `header`, unique identifier, `cookie`,
/// `placeholders` fields as long as the cookie, and the authenticator. Returns its length in bytes
/// ([`request_len`]); 0 if `out` is too short. The algorithm uses the first bytes of the nonce.
///
/// For a single request. For several, [`ClientSession`] and [`RequestTemplate`] are faster, because
/// they prepare the key once.
pub fn seal_request(
    keys: &SessionKeys,
    header: &[u8; HEADER_LEN],
    unique_id: &[u8; UNIQUE_ID_LEN],
    cookie: &[u8],
    placeholders: usize,
    nonce: &[u8; COOKIE_NONCE_LEN],
    out: &mut [u8],
) -> usize {
    let mut fields = ExtensionFieldWriter::new(out);
    if write_fields(&mut fields, header, unique_id, cookie, placeholders).is_none() {
        return 0;
    }
    let key = AeadKey::new(keys.algorithm(), keys.c2s());
    write_authenticator(fields, &key, keys.algorithm(), nonce).unwrap_or(0)
}

fn write_fields(
    out: &mut ExtensionFieldWriter<'_>,
    header: &[u8; HEADER_LEN],
    unique_id: &[u8; UNIQUE_ID_LEN],
    cookie: &[u8],
    placeholders: usize,
) -> Option<()> {
    out.write_bytes(header)?;
    out.write_field(ExtensionFieldType::UNIQUE_IDENTIFIER, unique_id, FIELD_LEN_MIN)?;
    out.write_field(ExtensionFieldType::COOKIE, cookie, FIELD_LEN_MIN)?;
    for _ in 0..placeholders {
        let placeholder = ExtensionFieldType::COOKIE_PLACEHOLDER;
        out.reserve_field(placeholder, cookie.len(), FIELD_LEN_MIN)?.1.fill(0);
    }
    Some(())
}

fn write_authenticator(
    mut out: ExtensionFieldWriter<'_>,
    key: &AeadKey,
    algorithm: AeadAlgorithm,
    nonce: &[u8; COOKIE_NONCE_LEN],
) -> Option<usize> {
    let nonce = &nonce[..algorithm.nonce_len()];
    let (covered, tag) = Authenticator::reserve(&mut out, nonce, TAG_LEN)?;
    key.seal(nonce, covered, tag)?;
    Some(out.written_len())
}

/// Opens the reply `packet` to the request with `unique_id`. The plaintext is written to `text`; 1
/// KiB suffices for eight cookies of about 100 bytes.
///
/// For a single reply. For several, a [`ClientSession`] is faster, because it prepares the key
/// once.
pub fn open_reply<'t>(
    keys: &SessionKeys,
    packet: &[u8],
    unique_id: &[u8],
    text: &'t mut [u8],
) -> Result<DecryptedReplyFields<'t>, ReplyError> {
    open_with_key(&AeadKey::new(keys.algorithm(), keys.s2c()), packet, unique_id, text)
}

/// Checks the form of the reply `packet` to the request with `unique_id`, without the
/// server-to-client key: valid fields, this identifier, and an authenticator. A reply that passes
/// may still be forged.
pub fn examine_reply(packet: &[u8], unique_id: &[u8]) -> Result<(), ReplyError> {
    find_authenticator(packet, unique_id).map(drop)
}

/// Returns the authenticator of the reply to the request with `unique_id`.
fn find_authenticator<'p>(
    packet: &'p [u8],
    unique_id: &[u8],
) -> Result<Authenticator<'p>, ReplyError> {
    let found = NtsFields::parse(packet).map_err(|_| ReplyError::Malformed)?;
    if found.unique_id != Some(unique_id) {
        return Err(ReplyError::OtherRequest);
    }
    found.authenticator.ok_or_else(|| match (packet.get(1), packet.get(12..16)) {
        (Some(0), Some(b"NTSN")) => ReplyError::CookieRefused,
        (Some(0), Some(code)) if code.iter().all(u8::is_ascii_graphic) => ReplyError::KissOfDeath,
        _ => ReplyError::Malformed,
    })
}

fn open_with_key<'t>(
    key: &AeadKey,
    packet: &[u8],
    unique_id: &[u8],
    text: &'t mut [u8],
) -> Result<DecryptedReplyFields<'t>, ReplyError> {
    let sealed = find_authenticator(packet, unique_id)?;
    let len = key.open(sealed.nonce, sealed.covered, sealed.ciphertext, text);
    Ok(DecryptedReplyFields { text: &text[..len.ok_or(ReplyError::Forged)?] })
}

/// NTS session of a client with one server: prepared keys, and up to eight cookies, each of which
/// is used once.
pub struct ClientSession {
    algorithm: AeadAlgorithm,
    c2s: AeadKey,
    s2c: AeadKey,
    cookies: Vec<Box<[u8]>>,
}

impl ClientSession {
    /// Creates a session with the keys and cookies of an NTS-KE exchange. Stores the first eight
    /// cookies, without empty ones and those of more than 1024 bytes.
    #[must_use]
    pub fn new<'c>(keys: &SessionKeys, cookies: impl IntoIterator<Item = &'c [u8]>) -> Self {
        let mut session = Self {
            algorithm: keys.algorithm(),
            c2s: AeadKey::new(keys.algorithm(), keys.c2s()),
            s2c: AeadKey::new(keys.algorithm(), keys.s2c()),
            cookies: Vec::with_capacity(COOKIES_MAX),
        };
        for cookie in cookies {
            session.store_cookie(cookie);
        }
        session
    }

    /// Returns the number of unused cookies.
    #[must_use]
    #[inline]
    pub fn cookie_count(&self) -> usize {
        self.cookies.len()
    }

    /// Removes and returns a cookie; `None` if there is none.
    #[inline]
    pub fn take_cookie(&mut self) -> Option<Box<[u8]>> {
        self.cookies.pop()
    }

    /// Writes a sealed request to the front of `out`. It consumes one cookie, even if `out` is too
    /// short, and has a placeholder for each missing cookie as far as they fit into `out`. Returns
    /// its length in bytes; 0 if no cookie is left or `out` is too short. `nonce` must be random.
    pub fn seal_request(
        &mut self,
        header: &[u8; HEADER_LEN],
        unique_id: &[u8; UNIQUE_ID_LEN],
        nonce: &[u8; COOKIE_NONCE_LEN],
        out: &mut [u8],
    ) -> usize {
        let Some(cookie) = self.take_cookie() else { return 0 };
        let missing = COOKIES_MAX - 1 - self.cookies.len();
        let fits = |n: &usize| request_len(self.algorithm, cookie.len(), *n) <= out.len();
        let Some(placeholders) = (0..=missing).rev().find(fits) else { return 0 };
        let mut fields = ExtensionFieldWriter::new(out);
        write_fields(&mut fields, header, unique_id, &cookie, placeholders)
            .and_then(|()| write_authenticator(fields, &self.c2s, self.algorithm, nonce))
            .unwrap_or(0)
    }

    /// Opens the reply `packet` to the request with `unique_id`, and stores its cookies until there
    /// are eight. Returns the number of cookies in the reply, stored or not.
    pub fn open_reply(&mut self, packet: &[u8], unique_id: &[u8]) -> Result<usize, ReplyError> {
        let mut text = [0; REPLY_TEXT_MAX];
        let reply = open_with_key(&self.s2c, packet, unique_id, &mut text)?;
        Ok(reply.cookies().map(|cookie| self.store_cookie(cookie)).count())
    }

    fn store_cookie(&mut self, cookie: &[u8]) {
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
