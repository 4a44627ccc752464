//! Trailer after the NTP header of requests and replies: NTS extension fields, or extension fields
//! and a MAC from options. Requests without a trailer are made from a template instead.

use std::sync::Arc;

use horolog_nts::ReplyError;
use horolog_nts::mac::{DIGEST_LEN_TRUNCATED, KEY_ID_LEN, SymmetricKey};
use horolog_record::InvalidReplyReason;
use horolog_wire::ntp::HEADER_LEN;
use horolog_wire::ntp::extension::{
    ExtensionFieldWriter, ExtensionFields, FIELD_LEN_MIN, LAST_FIELD_LEN_MIN, field_len,
};

use crate::nts::{LaneSessions, NtsReplyError};
use crate::request::{self, RequestTimestamps};
use crate::verify::PAYLOAD_LEN;

mod extension_field;

pub use extension_field::{ExtensionFieldError, RequestExtensionField};
pub use horolog_nts::mac::{KeyFile, KeyTable};

/// Options of the trailer: extension fields and MAC of every request.
#[derive(Clone, Default, Debug)]
pub struct TrailerOptions {
    /// Extension fields, in this order (RFC 7822).
    pub fields: Vec<RequestExtensionField>,
    /// Key table and ID of the key for the MAC (RFC 5905, section 7.3); `None` for no MAC.
    pub mac: Option<(Arc<KeyTable>, u32)>,
}

impl TrailerOptions {
    /// Returns true if there are neither extension fields nor a MAC.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.fields.is_empty() && self.mac.is_none()
    }

    fn key(&self) -> Option<&SymmetricKey> {
        let (keys, id) = self.mac.as_ref()?;
        keys.get(*id)
    }
}

/// Trailer of a lane's requests.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "a lane has one, in a box of its own")]
pub enum RequestTrailer {
    /// NTS extension fields, in all requests or a share of them.
    Nts(LaneSessions),
    /// Constant extension fields, and a MAC.
    Fixed(TrailerTemplate),
}

/// Request that a reply claims to answer.
#[derive(Clone, Copy)]
pub(crate) struct RequestClaimedByReply {
    pub(crate) client: u32,
    pub(crate) sequence: u32,
    /// Transmit timestamp of the request.
    pub(crate) transmit: u64,
}

impl RequestTrailer {
    /// Returns the length of the longest request, in bytes.
    pub(crate) const fn request_len_max(&self) -> usize {
        match self {
            Self::Nts(sessions) => sessions.request_len_max(),
            Self::Fixed(template) => template.request.len(),
        }
    }

    /// Returns true if the request with this sequence number is authenticated by NTS.
    pub(crate) const fn has_nts(&self, sequence: u32) -> bool {
        match self {
            Self::Nts(sessions) => sessions.is_authenticated(sequence),
            Self::Fixed(_) => false,
        }
    }

    /// Returns the initial count of reused cookies; `None` if they are not counted.
    pub(crate) fn cookies_reused(&self) -> Option<u64> {
        match self {
            Self::Nts(sessions) => sessions.counts_reused().then_some(0),
            Self::Fixed(_) => None,
        }
    }

    /// Returns the payload of a client's request. `nts` is `Some` for an authenticated request (see
    /// [`RequestTrailer::has_nts`]) and counts reused cookies.
    pub(crate) fn build_request(
        &mut self,
        client: u32,
        timestamps: RequestTimestamps,
        nts: Option<&mut Option<u64>>,
    ) -> &[u8] {
        match self {
            Self::Nts(sessions) => match nts {
                Some(reused) => sessions.seal(client, timestamps, reused),
                None => sessions.plain_request(timestamps),
            },
            Self::Fixed(template) => template.build_request(timestamps),
        }
    }

    /// Discards the cookies stored from the last verified reply, a duplicate, to the request of
    /// this client with this sequence number.
    pub(crate) fn count_duplicate(&mut self, client: u32, sequence: u32) {
        if let Self::Nts(sessions) = self
            && sessions.is_authenticated(sequence)
        {
            sessions.discard_stored_cookies(client);
        }
    }

    /// Verifies the trailer of a reply to `request`.
    pub(crate) fn verify(
        &mut self,
        request: RequestClaimedByReply,
        reply: &[u8],
    ) -> Result<(), InvalidReplyReason> {
        match self {
            Self::Nts(sessions) if sessions.is_authenticated(request.sequence) => {
                sessions.open(request.client, request.transmit, reply).map_err(
                    |fault| match fault {
                        NtsReplyError::TooLong => InvalidReplyReason::Length,
                        // Only a host on the path of the request knows its unique identifier, so
                        // the refusal is genuine.
                        NtsReplyError::Invalid(ReplyError::CookieRefused) => {
                            InvalidReplyReason::KissNtsn
                        }
                        NtsReplyError::Invalid(_) => InvalidReplyReason::Nts,
                    },
                )
            }
            Self::Nts(_) if reply.len() == PAYLOAD_LEN => Ok(()),
            Self::Nts(_) => Err(InvalidReplyReason::Length),
            Self::Fixed(template) => template.verify(reply),
        }
    }
}

/// Template of requests with the same extension fields and MAC, completed without allocation.
pub struct TrailerTemplate {
    keys: Option<(Arc<KeyTable>, u32)>,
    digest_len: usize,
    /// Header, extension fields and space for the MAC.
    request: Box<[u8]>,
    mac_offset: usize,
}

impl TrailerTemplate {
    /// Creates the template of a lane whose requests have this version.
    pub(crate) fn new(options: &TrailerOptions, version: u8) -> Self {
        let mut request = request::ntp_payload(version, RequestTimestamps::default()).to_vec();
        for (index, field) in options.fields.iter().enumerate() {
            let is_last = index + 1 == options.fields.len() && options.mac.is_none();
            let len_min = if is_last { LAST_FIELD_LEN_MIN } else { FIELD_LEN_MIN };
            let at = request.len();
            request.resize(at + field_len(field.body.len(), len_min), 0);
            let mut writer = ExtensionFieldWriter::new(&mut request[at..]);
            let written = writer.write_field(field.field_type, &field.body, len_min);
            debug_assert!(written.is_some(), "a body has at most 1,024 bytes");
        }
        let mac_offset = request.len();
        let digest_len = options.key().map_or(0, |key| digest_len(key, version));
        request.resize(mac_offset + if digest_len > 0 { KEY_ID_LEN + digest_len } else { 0 }, 0);
        Self { keys: options.mac.clone(), digest_len, request: request.into(), mac_offset }
    }

    fn build_request(&mut self, timestamps: RequestTimestamps) -> &[u8] {
        request::set_timestamps(&mut self.request, timestamps);
        if let Some(key) = self.keys.as_ref().and_then(|(keys, id)| keys.get(*id)) {
            // The template has space for the digest, and the algorithm supports its length.
            key.append_mac(self.digest_len, &mut self.request, self.mac_offset);
        }
        &self.request
    }

    /// Verifies a reply: it has the MAC of the same key if the request had one. The server may
    /// answer extension fields or not.
    fn verify(&self, reply: &[u8]) -> Result<(), InvalidReplyReason> {
        if reply.len() > self.request.len() {
            return Err(InvalidReplyReason::Length);
        }
        let Some((keys, id)) = &self.keys else {
            let trailer = reply.get(HEADER_LEN..).unwrap_or_default();
            let has_only_fields = ExtensionFields::of_trailer(trailer).all(|field| field.is_ok());
            return if has_only_fields { Ok(()) } else { Err(InvalidReplyReason::Length) };
        };
        match keys.verify(reply) {
            Ok(authentic) if authentic.key.id() == *id => Ok(()),
            _ => Err(InvalidReplyReason::Mac),
        }
    }
}

impl std::fmt::Debug for TrailerTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TrailerTemplate").field("len", &self.request.len()).finish_non_exhaustive()
    }
}

fn digest_len(key: &SymmetricKey, version: u8) -> usize {
    let whole = key.algorithm().digest_len();
    if version == 4 { whole.min(DIGEST_LEN_TRUNCATED) } else { whole }
}

#[cfg(test)]
mod tests;
