//! Server side of NTS for NTP (RFC 8915, section 5.7): opens requests and seals replies in the
//! caller's buffers. The NTP header is left to the caller. No reply is longer than its request.

use horolog_wire::ntp::HEADER_LEN;
use horolog_wire::ntp::extension::{
    ENCRYPTED_FIELD_LEN_MIN, ExtensionFieldType, ExtensionFieldWriter, FIELD_LEN_MIN, PREFIX_LEN,
    field_len,
};
use horolog_wire::ntp::nts::{Authenticator, NtsFields, TAG_LEN};
use thiserror::Error;

use crate::aead::siv::{BATCH, BatchKeyBuffer, is_equal, s2v_batch};
use crate::aead::{AeadKey, NONCE_LEN_MAX};
use crate::cookie::{COOKIE_NONCE_LEN, cookie_len};
use crate::{AeadAlgorithm, CookieKeys, SessionKeys};

/// Largest number of cookies in a reply, and that a client stores: the eight that a client should
/// keep (RFC 8915, section 5.7).
pub const COOKIES_MAX: usize = 8;
/// Length of the longest reply to a request whose unique identifier has 32 bytes, in bytes; a
/// longer identifier adds its extra length.
pub const REPLY_LEN_MAX: usize = HEADER_LEN
    + field_len(32, FIELD_LEN_MIN)
    + Authenticator::field_len(NONCE_LEN_MAX, ciphertext_len(COOKIES_MAX, crate::COOKIE_LEN_MAX));

/// Value and offsets of the header fields that a kiss-o'-death sets itself (RFC 5905, figure 8).
const LEAP_UNKNOWN: u8 = 3 << 6;
const STRATUM_OFFSET: usize = 1;
const ROOT_DELAY_DISPERSION: core::ops::Range<usize> = 4..12;
const REFERENCE_ID: core::ops::Range<usize> = 12..16;
const REFERENCE_TIMESTAMP: core::ops::Range<usize> = 16..24;
/// Longest accepted plaintext of a request, in bytes.
const REQUEST_TEXT_MAX: usize = 1024;

/// Reason why a request gets no authenticated reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NtsRefusal<'a> {
    /// The fields are malformed, one other than the cookie is missing, one is repeated, or the
    /// nonce has an invalid length or lacks the padding that RFC 8915, section 5.6, requires. The
    /// request is dropped.
    #[error("malformed NTS fields")]
    Malformed,
    /// The request has no cookie. It is dropped.
    #[error("no cookie")]
    NoCookie,
    /// No key of this server opens the cookie. The reply is a kiss-o'-death ([`write_nak`]), after
    /// which the client requests new cookies.
    #[error("a cookie that no current key decrypts")]
    UnknownCookie {
        /// The request's unique identifier.
        unique_id: &'a [u8],
    },
    /// The cookie is valid, but the request is not authentic, or its encrypted fields exceed 1024
    /// bytes. The reply is a kiss-o'-death ([`write_nak`]).
    #[error("not authentic")]
    Forged {
        /// The request's unique identifier.
        unique_id: &'a [u8],
    },
}

impl<'a> NtsRefusal<'a> {
    /// Returns the unique identifier for the kiss-o'-death (RFC 8915, section 5.7); `None` if the
    /// request must be dropped.
    #[must_use]
    #[inline]
    pub const fn unique_id(&self) -> Option<&'a [u8]> {
        match self {
            Self::Malformed | Self::NoCookie => None,
            Self::UnknownCookie { unique_id } | Self::Forged { unique_id } => Some(unique_id),
        }
    }
}

/// Authentic request, with the keys for its reply.
#[derive(Debug)]
pub struct AuthenticRequest<'a> {
    /// Unique identifier, 32 bytes or more.
    pub unique_id: &'a [u8],
    /// Session keys from the cookie.
    pub session: SessionKeys,
    /// Number of cookies for the reply: one for the cookie and one for each placeholder, at most
    /// [`COOKIES_MAX`], and no more than fit into the length of the request.
    pub cookies_wanted: usize,
    /// Length of the request, in bytes.
    pub request_len: usize,
}

impl<'a> AuthenticRequest<'a> {
    fn new(parts: &SealedRequest<'a>, session: SessionKeys, request_len: usize) -> Self {
        let unique_id = parts.unique_id;
        let mut opened = Self { unique_id, session, cookies_wanted: 0, request_len };
        let wanted = (1 + parts.placeholders).min(COOKIES_MAX);
        opened.cookies_wanted = opened.fitting_cookies(wanted, request_len);
        opened
    }

    /// Returns the number of cookies, at most `most`, that fit into a reply of `room` bytes; 0 even
    /// if a reply without cookies does not fit.
    fn fitting_cookies(&self, most: usize, room: usize) -> usize {
        (0..=most).rev().find(|&count| self.reply_len(count) <= room).unwrap_or(0)
    }

    /// Returns the length of a reply with `cookies` cookies, in bytes.
    #[must_use]
    pub fn reply_len(&self, cookies: usize) -> usize {
        let algorithm = self.session.algorithm();
        let ciphertext_len = ciphertext_len(cookies, cookie_len(algorithm));
        HEADER_LEN
            + field_len(self.unique_id.len(), FIELD_LEN_MIN)
            + Authenticator::field_len(algorithm.nonce_len(), ciphertext_len)
    }
}

/// Returns the length of a tag and the encrypted fields of cookies, in bytes. The lengths of these
/// cookies are multiples of 4, so the fields need no padding.
const fn ciphertext_len(cookies: usize, cookie_len: usize) -> usize {
    TAG_LEN + cookies * field_len(cookie_len, ENCRYPTED_FIELD_LEN_MIN)
}

/// Fields of a request that is not authenticated yet.
struct SealedRequest<'a> {
    unique_id: &'a [u8],
    cookie: &'a [u8],
    placeholders: usize,
    sealed: Authenticator<'a>,
}

impl SealedRequest<'_> {
    /// Returns the ciphertext if it is only a tag, without encrypted fields.
    fn bare_tag(&self) -> Option<&[u8; TAG_LEN]> {
        self.sealed.ciphertext.try_into().ok()
    }

    fn has_valid_nonce(&self, algorithm: AeadAlgorithm) -> bool {
        let Authenticator { nonce, nonce_space, .. } = self.sealed;
        nonce_space >= algorithm.nonce_space_min() && algorithm.is_valid_nonce_len(nonce.len())
    }
}

fn parse_request(packet: &[u8]) -> Result<SealedRequest<'_>, NtsRefusal<'_>> {
    let found = NtsFields::parse(packet).map_err(|_| NtsRefusal::Malformed)?;
    let cookie = found.cookie.ok_or(NtsRefusal::NoCookie)?;
    let (Some(unique_id), Some(sealed)) = (found.unique_id, found.authenticator) else {
        return Err(NtsRefusal::Malformed);
    };
    Ok(SealedRequest { unique_id, cookie, placeholders: found.placeholders, sealed })
}

/// Authenticates the request `packet` (header and trailer) with the keys from its cookie.
///
/// # Errors
/// See [`NtsRefusal`].
pub fn open_request<'a>(
    keys: &CookieKeys,
    packet: &'a [u8],
) -> Result<AuthenticRequest<'a>, NtsRefusal<'a>> {
    let mut result = Err(NtsRefusal::Malformed);
    open_requests(keys, &[Some(packet)], &mut BatchKeyBuffer::default(), |_, opened| {
        result = opened;
    });
    result
}

/// Authenticates the first [`BATCH`] requests like [`open_request`], in less time per request.
/// Passes each result with its index to `on_result`, not in the order of the indices. `None`
/// entries have no result.
pub fn open_requests<'a>(
    keys: &CookieKeys,
    packets: &[Option<&'a [u8]>],
    batch_keys: &mut BatchKeyBuffer,
    mut on_result: impl FnMut(usize, Result<AuthenticRequest<'a>, NtsRefusal<'a>>),
) {
    let count = packets.len().min(BATCH);
    let packets = &packets[..count];
    let mut requests = [const { None }; BATCH];
    let mut cookies = [None; BATCH];
    for (index, packet) in packets.iter().enumerate() {
        match packet.map(parse_request) {
            Some(Ok(parts)) => {
                cookies[index] = Some(parts.cookie);
                requests[index] = Some(parts);
            }
            Some(Err(refusal)) => on_result(index, Err(refusal)),
            None => {}
        }
    }
    let mut sessions = [const { None }; BATCH];
    keys.open_batch(&cookies[..count], &mut sessions);
    for (index, (found, session)) in requests.iter_mut().zip(&sessions).enumerate() {
        if let (Some(parts), Some(session)) = (&found, session)
            && !parts.has_valid_nonce(session.algorithm())
        {
            on_result(index, Err(NtsRefusal::Malformed));
            *found = None;
        }
    }
    let mut are_genuine = [false; BATCH];
    authenticate(&requests[..count], &sessions, batch_keys, &mut are_genuine);
    for (index, (packet, parts)) in packets.iter().zip(&requests).enumerate() {
        let (Some(packet), Some(parts)) = (packet, parts) else { continue };
        let unique_id = parts.unique_id;
        let opened = match sessions[index].take() {
            None => Err(NtsRefusal::UnknownCookie { unique_id }),
            Some(_) if !are_genuine[index] => Err(NtsRefusal::Forged { unique_id }),
            Some(session) => Ok(AuthenticRequest::new(parts, session, packet.len())),
        };
        on_result(index, opened);
    }
}

/// Determines which requests are authentic. A request without session keys is not. The lengths of
/// the nonces must be valid.
fn authenticate(
    requests: &[Option<SealedRequest<'_>>],
    sessions: &[Option<SessionKeys>; BATCH],
    batch_keys: &mut BatchKeyBuffer,
    are_genuine: &mut [bool; BATCH],
) {
    let mut tags = [None; BATCH];
    let mut covered = [[&[][..]; 2]; BATCH];
    for (index, (parts, session)) in requests.iter().zip(sessions).enumerate() {
        let (Some(parts), Some(session)) = (parts, session) else { continue };
        let algorithm = session.algorithm();
        if let (AeadAlgorithm::AesSivCmac256, Some(tag)) = (algorithm, parts.bare_tag()) {
            batch_keys.set_mac_key(index, session.c2s());
            covered[index] = [parts.sealed.covered, parts.sealed.nonce];
            tags[index] = Some(tag);
        } else {
            are_genuine[index] = is_authentic(&AeadKey::new(algorithm, session.c2s()), parts);
        }
    }
    let mut inputs = [None; BATCH];
    for (index, (job, parts)) in inputs.iter_mut().zip(&covered).enumerate() {
        if tags[index].is_some() {
            *job = Some(batch_keys.input(index, parts, &[]));
        }
    }
    let mut expected = [Default::default(); BATCH];
    s2v_batch(&inputs[..requests.len()], &mut expected);
    batch_keys.wipe(requests.len());
    for ((genuine, tag), expected) in are_genuine.iter_mut().zip(tags).zip(&expected) {
        if let Some(tag) = tag {
            *genuine = is_equal(tag, expected);
        }
    }
}

fn is_authentic(key: &AeadKey, parts: &SealedRequest<'_>) -> bool {
    let Authenticator { covered, nonce, ciphertext, .. } = parts.sealed;
    if ciphertext.len() == TAG_LEN {
        return key.open(nonce, covered, ciphertext, &mut []).is_some();
    }
    is_authentic_with_text(key, parts)
}

/// Returns true if a request with encrypted fields of up to [`REQUEST_TEXT_MAX`] bytes is
/// authentic. The fields are ignored, because none is defined for requests.
#[cold]
fn is_authentic_with_text(key: &AeadKey, parts: &SealedRequest<'_>) -> bool {
    let mut text = [0; REQUEST_TEXT_MAX];
    let Authenticator { covered, nonce, ciphertext, .. } = parts.sealed;
    key.open(nonce, covered, ciphertext, &mut text).is_some()
}

/// Writes the sealed reply to the front of `out`: `header`, unique identifier, and an authenticator
/// with as many new cookies as the client requested and as fit into the length of the request and
/// into `out`. Returns its length in bytes; 0 if not even a reply without cookies fits.
///
/// `header` cannot be changed afterwards, because it is authenticated with its transmit timestamp.
/// `random` fills a buffer with unpredictable bytes that never repeat (see [`crate::NonceStream`]).
pub fn seal_reply(
    keys: &CookieKeys,
    opened: &AuthenticRequest<'_>,
    header: &[u8; HEADER_LEN],
    random: &mut impl FnMut(&mut [u8]),
    out: &mut [u8],
) -> usize {
    let mut replies = [Some(UnsealedReply { request: opened, header: *header, out, len: 0 })];
    seal_replies(keys, &mut replies, &mut BatchKeyBuffer::default(), random);
    let [reply] = replies;
    reply.map_or(0, |reply| reply.len)
}

/// Reply to be written and sealed.
#[derive(Debug)]
pub struct UnsealedReply<'r, 'o> {
    /// Authentic request that is answered.
    pub request: &'r AuthenticRequest<'r>,
    /// NTP header with its final values.
    pub header: [u8; HEADER_LEN],
    /// Buffer for the reply.
    pub out: &'o mut [u8],
    /// Output: length of the reply, in bytes; 0 if it did not fit.
    pub len: usize,
}

/// Nonce, number of cookies and offsets of a reply that has been written but not sealed.
struct SealOffsets {
    nonce: [u8; NONCE_LEN_MAX],
    cookies: usize,
    covered: usize,
    sealed: core::ops::Range<usize>,
}

/// Writes and seals up to [`BATCH`] replies like [`seal_reply`], in less time per reply, and sets
/// their lengths. Skips `None` entries and any beyond [`BATCH`].
pub fn seal_replies(
    keys: &CookieKeys,
    replies: &mut [Option<UnsealedReply<'_, '_>>],
    batch_keys: &mut BatchKeyBuffer,
    random: &mut impl FnMut(&mut [u8]),
) {
    let count = replies.len().min(BATCH);
    let mut offsets = [const { None }; BATCH];
    for (layout, reply) in offsets.iter_mut().zip(&mut *replies) {
        if let Some(reply) = reply {
            *layout = write_unsealed(keys, reply, random);
            reply.len = layout.as_ref().map_or(0, |layout: &SealOffsets| layout.sealed.end);
        }
    }
    let most = offsets.iter().flatten().map(|layout| layout.cookies).max().unwrap_or(0);
    for number in 0..most {
        let mut cookies = [const { None }; BATCH];
        for ((cookie, layout), reply) in cookies.iter_mut().zip(&offsets).zip(&mut *replies) {
            if let (Some(layout), Some(reply)) = (layout, reply) {
                *cookie = layout.cookie(reply, number);
            }
        }
        keys.seal_batch(&mut cookies[..count]);
    }
    seal_texts(&mut replies[..count], &offsets, batch_keys);
}

/// Writes a reply with unsealed cookies and authenticator; `None` if it does not fit.
fn write_unsealed(
    keys: &CookieKeys,
    reply: &mut UnsealedReply<'_, '_>,
    random: &mut impl FnMut(&mut [u8]),
) -> Option<SealOffsets> {
    let opened = reply.request;
    let room = reply.out.len().min(opened.request_len);
    let cookies = opened.fitting_cookies(opened.cookies_wanted, room);
    if opened.reply_len(cookies) > room {
        return None;
    }
    let algorithm = opened.session.algorithm();
    let (nonce_len, cookie_len) = (algorithm.nonce_len(), cookie_len(algorithm));
    let ciphertext_len = ciphertext_len(cookies, cookie_len);
    let mut nonces = [0; NONCE_LEN_MAX + COOKIES_MAX * COOKIE_NONCE_LEN];
    random(nonces.get_mut(..NONCE_LEN_MAX + cookies * COOKIE_NONCE_LEN)?);
    let (nonce, cookie_nonces) = nonces.split_first_chunk()?;

    let mut writer = ExtensionFieldWriter::new(reply.out);
    writer.write_bytes(&reply.header)?;
    writer.write_field(ExtensionFieldType::UNIQUE_IDENTIFIER, opened.unique_id, FIELD_LEN_MIN)?;
    let (before, sealed) =
        Authenticator::reserve(&mut writer, &nonce[..nonce_len], ciphertext_len)?;
    let covered = before.len();
    let mut fields = ExtensionFieldWriter::new(&mut sealed[algorithm.text_offset()..]);
    for nonce in &cookie_nonces.as_chunks().0[..cookies] {
        let field_type = ExtensionFieldType::COOKIE;
        let (_, body) = fields.reserve_field(field_type, cookie_len, ENCRYPTED_FIELD_LEN_MIN)?;
        keys.write_unsealed(&opened.session, nonce, body);
    }
    let end = writer.written_len();
    Some(SealOffsets { nonce: *nonce, cookies, covered, sealed: end - ciphertext_len..end })
}

impl SealOffsets {
    /// Returns the bytes of the cookie with this index, if there is one.
    fn cookie<'c>(
        &self,
        reply: &'c mut UnsealedReply<'_, '_>,
        number: usize,
    ) -> Option<&'c mut [u8]> {
        let algorithm = reply.request.session.algorithm();
        let text = reply.out.get_mut(self.sealed.clone())?.get_mut(algorithm.text_offset()..)?;
        let len = field_len(cookie_len(algorithm), ENCRYPTED_FIELD_LEN_MIN);
        let fields = text.chunks_exact_mut(len);
        Some(&mut fields.take(self.cookies).nth(number)?[PREFIX_LEN..])
    }
}

/// Seals the authenticators of replies, whose cookies must be sealed already.
fn seal_texts(
    replies: &mut [Option<UnsealedReply<'_, '_>>],
    offsets: &[Option<SealOffsets>; BATCH],
    batch_keys: &mut BatchKeyBuffer,
) {
    let count = replies.len();
    let mut parts = [[&[][..]; 2]; BATCH];
    let mut sealed = [const { None }; BATCH];
    for (index, (reply, layout)) in replies.iter_mut().zip(offsets).enumerate() {
        let (Some(reply), Some(layout)) = (reply, layout) else { continue };
        let session = &reply.request.session;
        let algorithm = session.algorithm();
        let (before, rest) = reply.out.split_at_mut(layout.sealed.start);
        let (data, nonce) = (&before[..layout.covered], &layout.nonce[..algorithm.nonce_len()]);
        let buffer = &mut rest[..layout.sealed.len()];
        if algorithm == AeadAlgorithm::AesSivCmac256 {
            batch_keys.set_mac_key(index, session.s2c());
            batch_keys.set_ctr_key(index, session.s2c());
            parts[index] = [data, nonce];
            sealed[index] = buffer.split_first_chunk_mut::<TAG_LEN>();
        } else if AeadKey::new(algorithm, session.s2c()).seal(nonce, data, buffer).is_none() {
            reply.len = 0;
        }
    }
    let mut inputs = [None; BATCH];
    for (index, ((job, parts), sealed)) in inputs.iter_mut().zip(&parts).zip(&sealed).enumerate() {
        if let Some((_, text)) = sealed {
            *job = Some(batch_keys.input(index, parts, text));
        }
    }
    let mut tags = [Default::default(); BATCH];
    s2v_batch(&inputs[..count], &mut tags);
    for (index, (sealed, vector)) in sealed.iter_mut().zip(&tags).enumerate() {
        if let Some((tag, text)) = sealed {
            **tag = *vector;
            batch_keys.ctr_key(index).apply_keystream(vector, text);
        }
    }
    batch_keys.wipe(count);
}

/// Writes the kiss-o'-death NTSN (RFC 8915, section 5.7) to the front of `out`: `header` with
/// stratum 0, the kiss code, leap indicator 3, and zero root delay, root dispersion and reference
/// timestamp; then the request's unique identifier. It is not authenticated. Returns its length in
/// bytes, which is less than the request's; 0 if `out` is too short.
pub fn write_nak(unique_id: &[u8], header: &[u8; HEADER_LEN], out: &mut [u8]) -> usize {
    let mut header = *header;
    header[0] |= LEAP_UNKNOWN;
    header[STRATUM_OFFSET] = 0;
    header[ROOT_DELAY_DISPERSION].fill(0);
    header[REFERENCE_ID].copy_from_slice(b"NTSN");
    header[REFERENCE_TIMESTAMP].fill(0);
    let mut kiss = ExtensionFieldWriter::new(out);
    let field_type = ExtensionFieldType::UNIQUE_IDENTIFIER;
    kiss.write_bytes(&header)
        .and_then(|()| kiss.write_field(field_type, unique_id, FIELD_LEN_MIN))
        .map_or(0, |()| kiss.written_len())
}

#[cfg(test)]
mod tests;
