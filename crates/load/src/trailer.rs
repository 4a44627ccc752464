//! Trailer after the header of a lane's requests, and of their replies: NTS fields, or extension
//! fields and a MAC that the user requested. Requests without a trailer do not use this module: a
//! template and a few bytes suffice for them.

use std::sync::Arc;

use horolog_nts::ReplyError;
use horolog_nts::mac::{KEY_ID_LEN, SymmetricKey};
use horolog_record::InvalidReason;
use horolog_wire::ntp::HEADER_LEN;

use crate::nts::{Fault, LaneSessions};
use crate::request::{self, RequestTimestamps};
use crate::verify::PAYLOAD_LEN;

mod extension_field;

pub use extension_field::{ExtensionField, ExtensionFieldError};
pub use horolog_nts::mac::{KeyFile, KeyTable};

/// Longest digest after a packet of version 4, in bytes (RFC 7822, section 3).
const DIGEST_LEN_V4: usize = 20;

/// Extension fields and a MAC after the header of every request.
#[derive(Clone, Default, Debug)]
pub struct TrailerOptions {
    /// Extension fields, in this order (RFC 7822).
    pub fields: Vec<ExtensionField>,
    /// Keys, and the ID of the one that authenticates requests (RFC 5905, section 7.3).
    pub mac: Option<(Arc<KeyTable>, u32)>,
}

impl TrailerOptions {
    /// Returns true if there are none.
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
    /// NTS fields, after all headers or a share of them.
    Nts(LaneSessions),
    /// Identical fields and MAC after each header.
    Added(TrailerTemplate),
}

/// Request that a reply belongs to.
#[derive(Clone, Copy)]
pub(crate) struct RequestRef {
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
            Self::Added(added) => added.request.len(),
        }
    }

    /// Returns true if the request with this sequence number is authenticated by NTS.
    pub(crate) const fn has_nts(&self, sequence: u32) -> bool {
        match self {
            Self::Nts(sessions) => sessions.has(sequence),
            Self::Added(_) => false,
        }
    }

    /// Returns the initial count of reused cookies; `None` if they are not counted.
    pub(crate) fn cookies_reused(&self) -> Option<u64> {
        match self {
            Self::Nts(sessions) => sessions.counts_reused().then_some(0),
            Self::Added(_) => None,
        }
    }

    /// Returns the payload of a client's request. If it is authenticated according to
    /// [`RequestTrailer::has_nts`], `nts` counts whether its cookie was used before.
    pub(crate) fn request(
        &mut self,
        client: u32,
        timestamps: RequestTimestamps,
        nts: Option<&mut Option<u64>>,
    ) -> &[u8] {
        match self {
            Self::Nts(sessions) => match nts {
                Some(reused) => sessions.seal(client, timestamps, reused),
                None => sessions.plain(timestamps),
            },
            Self::Added(added) => added.request(timestamps),
        }
    }

    /// Records that the reply verified last, to the request with this sequence number of this
    /// client, was a duplicate.
    pub(crate) fn count_duplicate(&mut self, client: u32, sequence: u32) {
        if let Self::Nts(sessions) = self
            && sessions.has(sequence)
        {
            sessions.give_back(client);
        }
    }

    /// Verifies the trailer of a reply.
    pub(crate) fn judge(&mut self, request: RequestRef, reply: &[u8]) -> Result<(), InvalidReason> {
        match self {
            Self::Nts(sessions) if sessions.has(request.sequence) => {
                sessions.open(request.client, request.transmit, reply).map_err(
                    |fault| match fault {
                        Fault::Longer => InvalidReason::Length,
                        // Only a host that received the request knows its unique identifier.
                        Fault::Reply(ReplyError::Refused) => InvalidReason::KissNtsn,
                        Fault::Reply(_) => InvalidReason::Nts,
                    },
                )
            }
            Self::Nts(_) if reply.len() == PAYLOAD_LEN => Ok(()),
            Self::Nts(_) => Err(InvalidReason::Length),
            Self::Added(added) => added.judge(reply),
        }
    }
}

/// Request with a constant trailer, to be completed without allocation.
pub struct TrailerTemplate {
    keys: Option<(Arc<KeyTable>, u32)>,
    digest_len: usize,
    /// Header, fields and room for the MAC.
    request: Box<[u8]>,
    covered: usize,
}

impl TrailerTemplate {
    /// Creates the template of a lane whose requests have this version.
    pub(crate) fn new(additions: &TrailerOptions, version: u8) -> Self {
        let mut request = request::payload(version, RequestTimestamps::default()).to_vec();
        let last = additions.fields.len().checked_sub(1);
        for (index, field) in additions.fields.iter().enumerate() {
            field.write(Some(index) == last && additions.mac.is_none(), &mut request);
        }
        let covered = request.len();
        let digest_len = additions.key().map_or(0, |key| digest_len(key, version));
        request.resize(covered + if digest_len > 0 { KEY_ID_LEN + digest_len } else { 0 }, 0);
        Self { keys: additions.mac.clone(), digest_len, request: request.into(), covered }
    }

    fn request(&mut self, timestamps: RequestTimestamps) -> &[u8] {
        request::set_timestamps(&mut self.request, timestamps);
        if let Some(key) = self.keys.as_ref().and_then(|(keys, id)| keys.get(*id)) {
            // There is room for it, and the algorithm has such a digest.
            key.append(self.digest_len, &mut self.request, self.covered);
        }
        &self.request
    }

    /// Verifies a reply: it has the MAC of the same key if the request had one. The server may
    /// answer extension fields or not.
    fn judge(&self, reply: &[u8]) -> Result<(), InvalidReason> {
        if reply.len() > self.request.len() {
            return Err(InvalidReason::Length);
        }
        let Some((keys, id)) = &self.keys else {
            let rest = reply.get(HEADER_LEN..).unwrap_or_default();
            return if extension_field::are_fields(rest) {
                Ok(())
            } else {
                Err(InvalidReason::Length)
            };
        };
        match keys.verify(reply) {
            Ok(authentic) if authentic.key.id() == *id => Ok(()),
            _ => Err(InvalidReason::Mac),
        }
    }
}

impl std::fmt::Debug for TrailerTemplate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Added").field("len", &self.request.len()).finish_non_exhaustive()
    }
}

fn digest_len(key: &SymmetricKey, version: u8) -> usize {
    let whole = key.algorithm().digest_len();
    if version == 4 { whole.min(DIGEST_LEN_V4) } else { whole }
}

#[cfg(test)]
mod tests;
