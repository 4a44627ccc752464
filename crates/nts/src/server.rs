//! Server side of NTS for NTP (RFC 8915, section 5.7): opens requests and seals replies, in the
//! caller's buffers. It does not read the header, so basic and interleaved mode are the same here.
//! No reply is longer than its request.

use horolog_wire::ntp::HEADER_LEN;
use thiserror::Error;

use crate::aead::siv::{BATCH, BatchKeys, is_equal, vectors};
use crate::aead::{AeadKey, NONCE_LEN_MAX, TAG_LEN};
use crate::cookie::{COOKIE_NONCE_LEN, cookie_len};
use crate::field::{
    AuthenticatorParts, COOKIE, FieldWriter, PREFIX_LEN, UNIQUE_ID, authenticator_front,
    authenticator_len, find, prefix,
};
use crate::{Algorithm, CookieKeys, SessionKeys};

/// Greatest number of cookies in a reply (RFC 8915, section 5.7).
pub const COOKIES_MAX: usize = 8;
/// The longest reply to a request whose unique identifier has 32 bytes; longer identifiers add
/// their extra length.
pub const REPLY_LEN_MAX: usize = HEADER_LEN
    + PREFIX_LEN
    + 32
    + authenticator_len(NONCE_LEN_MAX, COOKIES_MAX * (PREFIX_LEN + crate::COOKIE_LEN_MAX));

/// Offsets of the header fields that a kiss does not take from the clock page (RFC 5905, figure 8).
const LEAP_UNKNOWN: u8 = 3 << 6;
const STRATUM_AT: usize = 1;
const ROOT: core::ops::Range<usize> = 4..12;
const REFERENCE_ID: core::ops::Range<usize> = 12..16;
const REFERENCE: core::ops::Range<usize> = 16..24;
/// The longest encrypted part of a request that is read, in bytes.
const REQUEST_TEXT_MAX: usize = 1024;

/// Reason for which a request is not answered as an NTS request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum NtsRefusal<'a> {
    /// Its fields are malformed, a required one is missing or repeated, or it lacks the padding
    /// that RFC 8915, section 5.6, demands. It is dropped.
    #[error("malformed NTS fields")]
    Malformed,
    /// It has no cookie. It is dropped.
    #[error("no cookie")]
    NoCookie,
    /// No key of this server opens its cookie. A kiss ([`nak`]) makes the client get new ones.
    #[error("a cookie that no current key decrypts")]
    UnknownCookie {
        /// The request's unique identifier.
        unique_id: &'a [u8],
    },
    /// Its cookie is valid, but it is not authentic. Answered like an unknown cookie.
    #[error("not authentic")]
    Forged {
        /// The request's unique identifier.
        unique_id: &'a [u8],
    },
}

impl<'a> NtsRefusal<'a> {
    /// The unique identifier to which a kiss may be sent (RFC 8915, section 5.7); `None` if the
    /// request must be dropped.
    #[must_use]
    pub const fn unique_id(&self) -> Option<&'a [u8]> {
        match self {
            Self::Malformed | Self::NoCookie => None,
            Self::UnknownCookie { unique_id } | Self::Forged { unique_id } => Some(unique_id),
        }
    }
}

/// An authentic request.
#[derive(Debug)]
pub struct AuthenticRequest<'a> {
    /// Its unique identifier: 32 bytes or more.
    pub unique_id: &'a [u8],
    /// The session's keys, from the cookie.
    pub session: SessionKeys,
    /// Number of cookies in the reply: one for the cookie and one for each placeholder, at most
    /// [`COOKIES_MAX`], and no more than keep the reply as short as the request.
    pub cookies_wanted: usize,
    /// Length of the request, in bytes.
    pub request_len: usize,
}

impl<'a> AuthenticRequest<'a> {
    fn new(parts: &SealedParts<'a>, session: SessionKeys, request_len: usize) -> Self {
        let unique_id = parts.unique_id;
        let mut opened = Self { unique_id, session, cookies_wanted: 0, request_len };
        let wanted = (1 + parts.placeholders).min(COOKIES_MAX);
        opened.cookies_wanted = opened.cookies_for(wanted, request_len);
        opened
    }

    /// Number of cookies, at most `most`, that fit into a reply of `room` bytes.
    fn cookies_for(&self, most: usize, room: usize) -> usize {
        (0..=most).rev().find(|&count| self.reply_len(count) <= room).unwrap_or(0)
    }

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

/// Parts to be opened once the cookie's keys are known.
struct SealedParts<'a> {
    unique_id: &'a [u8],
    cookie: &'a [u8],
    placeholders: usize,
    sealed: AuthenticatorParts<'a>,
    covered: &'a [u8],
}

impl SealedParts<'_> {
    /// The tag of an authenticator that encrypts nothing.
    fn tag(&self) -> Option<&[u8; TAG_LEN]> {
        self.sealed.ciphertext.try_into().ok()
    }

    fn has_nonce_for(&self, algorithm: Algorithm) -> bool {
        let AuthenticatorParts { nonce, nonce_room, .. } = self.sealed;
        nonce_room >= algorithm.nonce_room() && algorithm.takes_nonce(nonce.len())
    }
}

fn parts(packet: &[u8]) -> Result<SealedParts<'_>, NtsRefusal<'_>> {
    let found = find(packet).map_err(|_| NtsRefusal::Malformed)?;
    let cookie = found.cookie.ok_or(NtsRefusal::NoCookie)?;
    let (Some(unique_id), Some((sealed, covered))) = (found.unique_id, found.sealed) else {
        return Err(NtsRefusal::Malformed);
    };
    Ok(SealedParts { unique_id, cookie, placeholders: found.placeholders, sealed, covered })
}

/// Opens the request `packet` (the header and all bytes after it) with the keys from its cookie.
///
/// # Errors
/// See [`NtsRefusal`].
pub fn open_request<'a>(
    keys: &CookieKeys,
    packet: &'a [u8],
) -> Result<AuthenticRequest<'a>, NtsRefusal<'a>> {
    let mut result = Err(NtsRefusal::Malformed);
    open_requests(keys, &[Some(packet)], &mut BatchKeys::default(), |_, opened| result = opened);
    result
}

/// Opens up to [`BATCH`] requests as [`open_request`] does, in less time each, and passes each
/// result to `take`, with its index.
pub fn open_requests<'a>(
    keys: &CookieKeys,
    packets: &[Option<&'a [u8]>],
    room: &mut BatchKeys,
    mut take: impl FnMut(usize, Result<AuthenticRequest<'a>, NtsRefusal<'a>>),
) {
    let count = packets.len().min(BATCH);
    let packets = &packets[..count];
    let mut found = [const { None }; BATCH];
    let mut cookies = [None; BATCH];
    for (index, packet) in packets.iter().enumerate() {
        match packet.map(parts) {
            Some(Ok(parts)) => {
                cookies[index] = Some(parts.cookie);
                found[index] = Some(parts);
            }
            Some(Err(refusal)) => take(index, Err(refusal)),
            None => {}
        }
    }
    let mut sessions = [const { None }; BATCH];
    keys.open_all(&cookies[..count], &mut sessions);
    for (index, (found, session)) in found.iter_mut().zip(&sessions).enumerate() {
        if let (Some(parts), Some(session)) = (&found, session)
            && !parts.has_nonce_for(session.algorithm())
        {
            take(index, Err(NtsRefusal::Malformed));
            *found = None;
        }
    }
    let mut genuine = [false; BATCH];
    authenticate(&found[..count], &sessions, room, &mut genuine);
    for (index, (packet, parts)) in packets.iter().zip(&found).enumerate() {
        let (Some(packet), Some(parts)) = (packet, parts) else { continue };
        let unique_id = parts.unique_id;
        let opened = match sessions[index].take() {
            None => Err(NtsRefusal::UnknownCookie { unique_id }),
            Some(_) if !genuine[index] => Err(NtsRefusal::Forged { unique_id }),
            Some(session) => Ok(AuthenticRequest::new(parts, session, packet.len())),
        };
        take(index, opened);
    }
}

/// Determines which of the requests are authentic. One without keys is not; the nonces are of valid
/// length.
fn authenticate(
    found: &[Option<SealedParts<'_>>],
    sessions: &[Option<SessionKeys>; BATCH],
    room: &mut BatchKeys,
    genuine: &mut [bool; BATCH],
) {
    let mut tags = [None; BATCH];
    let mut covered = [[&[][..]; 2]; BATCH];
    for (index, (parts, session)) in found.iter().zip(sessions).enumerate() {
        let (Some(parts), Some(session)) = (parts, session) else { continue };
        let algorithm = session.algorithm();
        if let (Algorithm::AesSivCmac256, Some(tag)) = (algorithm, parts.tag()) {
            room.set_mac(index, session.c2s());
            covered[index] = [parts.covered, parts.sealed.nonce];
            tags[index] = Some(tag);
        } else {
            genuine[index] = is_authentic(&AeadKey::new(algorithm, session.c2s()), parts);
        }
    }
    let mut jobs = [None; BATCH];
    for (index, (job, parts)) in jobs.iter_mut().zip(&covered).enumerate() {
        if tags[index].is_some() {
            *job = Some(room.job(index, parts, &[]));
        }
    }
    let mut expected = [Default::default(); BATCH];
    vectors(&jobs[..found.len()], &mut expected);
    room.wipe(found.len());
    for ((genuine, tag), expected) in genuine.iter_mut().zip(tags).zip(&expected) {
        if let Some(tag) = tag {
            *genuine = is_equal(tag, expected);
        }
    }
}

fn is_authentic(key: &AeadKey, parts: &SealedParts<'_>) -> bool {
    let ciphertext = parts.sealed.ciphertext;
    if ciphertext.len() == TAG_LEN {
        return key.open(parts.sealed.nonce, parts.covered, ciphertext, &mut []).is_some();
    }
    is_authentic_with_text(key, parts)
}

/// Returns true for an authentic request whose authenticator also encrypts fields. No field that a
/// client may send there has a meaning to a server.
#[cold]
fn is_authentic_with_text(key: &AeadKey, parts: &SealedParts<'_>) -> bool {
    let mut text = [0; REQUEST_TEXT_MAX];
    key.open(parts.sealed.nonce, parts.covered, parts.sealed.ciphertext, &mut text).is_some()
}

/// Writes the reply to the front of `out`: `header`, the unique identifier, and an authenticator
/// with as many new cookies as the client requested and as fit into the length of the request and
/// into `out`. Returns its length; 0 if `out` has no space for a reply without cookies.
///
/// `header` is final: its transmit timestamp is authenticated. `random` fills a buffer with
/// unpredictable bytes that never repeat (see [`crate::Nonces`]).
pub fn seal_reply(
    keys: &CookieKeys,
    opened: &AuthenticRequest<'_>,
    header: &[u8; HEADER_LEN],
    random: &mut impl FnMut(&mut [u8]),
    out: &mut [u8],
) -> usize {
    let mut replies = [Some(UnsealedReply { opened, header: *header, out, len: 0 })];
    seal_replies(keys, &mut replies, &mut BatchKeys::default(), random);
    let [reply] = replies;
    reply.map_or(0, |reply| reply.len)
}

/// A reply to be written and sealed.
#[derive(Debug)]
pub struct UnsealedReply<'r, 'o> {
    /// The request that it answers.
    pub opened: &'r AuthenticRequest<'r>,
    /// Its header, which is final.
    pub header: [u8; HEADER_LEN],
    /// Its buffer.
    pub out: &'o mut [u8],
    /// Its final length, in bytes; 0 if it did not fit.
    pub len: usize,
}

/// Offsets of the parts of a reply that are still to be sealed.
struct SealOffsets {
    nonce: [u8; NONCE_LEN_MAX],
    cookies: usize,
    covered: usize,
    sealed: core::ops::Range<usize>,
}

/// Writes and seals up to [`BATCH`] replies as [`seal_reply`] does, in less time each.
pub fn seal_replies(
    keys: &CookieKeys,
    replies: &mut [Option<UnsealedReply<'_, '_>>],
    room: &mut BatchKeys,
    random: &mut impl FnMut(&mut [u8]),
) {
    let count = replies.len().min(BATCH);
    let mut layouts = [const { None }; BATCH];
    for (layout, reply) in layouts.iter_mut().zip(&mut *replies) {
        if let Some(reply) = reply {
            *layout = lay_out(keys, reply, random);
            reply.len = layout.as_ref().map_or(0, |layout: &SealOffsets| layout.sealed.end);
        }
    }
    let most = layouts.iter().flatten().map(|layout| layout.cookies).max().unwrap_or(0);
    for number in 0..most {
        let mut cookies = [const { None }; BATCH];
        for ((cookie, layout), reply) in cookies.iter_mut().zip(&layouts).zip(&mut *replies) {
            if let (Some(layout), Some(reply)) = (layout, reply) {
                *cookie = layout.cookie(reply, number);
            }
        }
        keys.seal_written(&mut cookies[..count]);
    }
    seal_texts(&mut replies[..count], &layouts, room);
}

/// Writes a whole reply in unsealed form; `None` if it does not fit.
fn lay_out(
    keys: &CookieKeys,
    reply: &mut UnsealedReply<'_, '_>,
    random: &mut impl FnMut(&mut [u8]),
) -> Option<SealOffsets> {
    let opened = reply.opened;
    let room = reply.out.len().min(opened.request_len);
    let cookies = opened.cookies_for(opened.cookies_wanted, room);
    if opened.reply_len(cookies) > room {
        return None;
    }
    let algorithm = opened.session.algorithm();
    let (nonce_len, cookie_len) = (algorithm.nonce_len(), cookie_len(algorithm));
    let text_len = cookies * (PREFIX_LEN + cookie_len);
    let mut nonces = [0; NONCE_LEN_MAX + COOKIES_MAX * COOKIE_NONCE_LEN];
    random(nonces.get_mut(..NONCE_LEN_MAX + cookies * COOKIE_NONCE_LEN)?);
    let (nonce, cookie_nonces) = nonces.split_first_chunk()?;

    let mut writer = FieldWriter::new(reply.out);
    writer.put(&reply.header)?;
    writer.field(UNIQUE_ID, opened.unique_id)?;
    let covered = writer.len();
    let len = authenticator_len(nonce_len, text_len);
    writer.put(&authenticator_front(nonce_len, text_len, len))?;
    writer.put(&nonce[..nonce_len])?;
    let start = writer.len();
    let (_, sealed) = writer.room(text_len + TAG_LEN)?;
    let text = &mut sealed[algorithm.text_at()..][..text_len];
    let fields = text.chunks_exact_mut(PREFIX_LEN + cookie_len);
    for (field, nonce) in fields.zip(cookie_nonces.as_chunks().0) {
        let (front, body) = field.split_at_mut(PREFIX_LEN);
        front.copy_from_slice(&prefix(COOKIE, PREFIX_LEN + cookie_len));
        keys.write(&opened.session, nonce, body);
    }
    Some(SealOffsets { nonce: *nonce, cookies, covered, sealed: start..writer.len() })
}

impl SealOffsets {
    /// The cookie with this number, if there is one.
    fn cookie<'c>(
        &self,
        reply: &'c mut UnsealedReply<'_, '_>,
        number: usize,
    ) -> Option<&'c mut [u8]> {
        let algorithm = reply.opened.session.algorithm();
        let text = reply.out.get_mut(self.sealed.clone())?.get_mut(algorithm.text_at()..)?;
        let fields = text.chunks_exact_mut(PREFIX_LEN + cookie_len(algorithm));
        Some(&mut fields.take(self.cookies).nth(number)?[PREFIX_LEN..])
    }
}

/// Seals the texts of replies, in which the cookies are sealed already.
fn seal_texts(
    replies: &mut [Option<UnsealedReply<'_, '_>>],
    layouts: &[Option<SealOffsets>; BATCH],
    room: &mut BatchKeys,
) {
    let count = replies.len();
    let mut parts = [[&[][..]; 2]; BATCH];
    let mut sealed = [const { None }; BATCH];
    for (index, (reply, layout)) in replies.iter_mut().zip(layouts).enumerate() {
        let (Some(reply), Some(layout)) = (reply, layout) else { continue };
        let session = &reply.opened.session;
        let algorithm = session.algorithm();
        let (before, rest) = reply.out.split_at_mut(layout.sealed.start);
        let (data, nonce) = (&before[..layout.covered], &layout.nonce[..algorithm.nonce_len()]);
        let buffer = &mut rest[..layout.sealed.len()];
        if algorithm == Algorithm::AesSivCmac256 {
            room.set_mac(index, session.s2c());
            room.set_stream(index, session.s2c());
            parts[index] = [data, nonce];
            sealed[index] = buffer.split_first_chunk_mut::<TAG_LEN>();
        } else if AeadKey::new(algorithm, session.s2c()).seal(nonce, data, buffer).is_none() {
            reply.len = 0;
        }
    }
    let mut jobs = [None; BATCH];
    for (index, ((job, parts), sealed)) in jobs.iter_mut().zip(&parts).zip(&sealed).enumerate() {
        if let Some((_, text)) = sealed {
            *job = Some(room.job(index, parts, text));
        }
    }
    let mut tags = [Default::default(); BATCH];
    vectors(&jobs[..count], &mut tags);
    for (index, (sealed, vector)) in sealed.iter_mut().zip(&tags).enumerate() {
        if let Some((tag, text)) = sealed {
            **tag = *vector;
            room.stream(index).apply(vector, text);
        }
    }
    room.wipe(count);
}

/// Writes the kiss NTSN (RFC 8915, section 5.7) to the front of `out`: `header` with stratum 0 and
/// the kiss code, and the request's unique identifier. Like every kiss it reveals nothing about the
/// clock: leap 3 and no root delay, root dispersion and reference time. It is not authenticated.
/// Returns its length, which is always less than the request's; 0 if `out` is too short.
pub fn nak(unique_id: &[u8], header: &[u8; HEADER_LEN], out: &mut [u8]) -> usize {
    let mut header = *header;
    header[0] |= LEAP_UNKNOWN;
    header[STRATUM_AT] = 0;
    header[ROOT].fill(0);
    header[REFERENCE_ID].copy_from_slice(b"NTSN");
    header[REFERENCE].fill(0);
    let mut kiss = FieldWriter::new(out);
    let written = kiss.put(&header).and_then(|()| kiss.field(UNIQUE_ID, unique_id));
    written.map_or(0, |()| kiss.len())
}

#[cfg(test)]
mod tests;
