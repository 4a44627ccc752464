//! Symmetric-key message authentication codes of NTP packets (RFC 5905, section 7.3; RFC 8573 for
//! AES-CMAC): a key identifier of four bytes and a digest. MD5 is not supported (RFC 8573, section
//! 1). Keys are wiped on drop and never printed.

mod file;
mod key;

pub use file::{KeyFile, KeyFileLineError, UnusedKeyFileLines};
pub use key::{DIGEST_LEN_TRUNCATED, KeyError, MacAlgorithm, SymmetricKey};

use core::fmt;

use horolog_wire::ntp::HEADER_LEN;
use horolog_wire::ntp::extension::find_mac;
use thiserror::Error;

/// Length of a key identifier, in bytes.
pub const KEY_ID_LEN: usize = 4;
/// Length of the longest MAC, key identifier included, in bytes.
pub const MAC_LEN_MAX: usize = KEY_ID_LEN + key::DIGEST_LEN_MAX;

/// Reason why the MAC of a packet is rejected.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum MacRefusal {
    /// The packet has no MAC, or none of a known length.
    #[error("no MAC")]
    NoMac,
    /// No key has this identifier.
    #[error("no key {0}")]
    UnknownKey(u32),
    /// The digest is wrong, or its length is not valid for the key's algorithm.
    #[error("wrong MAC for key {0}")]
    Forged(u32),
}

/// Verified MAC of a packet: its key, and the length of its digest.
#[derive(Clone, Copy, Debug)]
pub struct AuthenticMac<'a> {
    /// Key by which the MAC was verified.
    pub key: &'a SymmetricKey,
    /// Length of the digest, complete or truncated, in bytes.
    pub digest_len: usize,
}

impl AuthenticMac<'_> {
    /// Appends a MAC with the same key and digest length to the packet in the first `len` bytes of
    /// `buffer`, such as the reply. Returns the new length of the packet in bytes; 0 if `buffer` is
    /// too short.
    pub fn append_mac(&self, buffer: &mut [u8], len: usize) -> usize {
        self.key.append_mac(self.digest_len, buffer, len)
    }
}

/// Symmetric keys, found by their identifiers.
#[derive(Default)]
pub struct KeyTable {
    /// Ordered by identifier.
    keys: Vec<SymmetricKey>,
}

impl KeyTable {
    /// Creates a table; of several keys with the same identifier, the first is used.
    #[must_use]
    pub fn new(mut keys: Vec<SymmetricKey>) -> Self {
        keys.sort_by_key(SymmetricKey::id);
        keys.dedup_by_key(|key| key.id());
        Self { keys }
    }

    /// Returns the number of keys.
    #[must_use]
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Returns true if the table has no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the key with identifier `id`.
    #[must_use]
    pub fn get(&self, id: u32) -> Option<&SymmetricKey> {
        self.keys.binary_search_by_key(&id, SymmetricKey::id).ok().and_then(|at| self.keys.get(at))
    }

    /// Verifies the MAC at the end of `packet`, which covers the header and the extension fields
    /// before the MAC.
    pub fn verify(&self, packet: &[u8]) -> Result<AuthenticMac<'_>, MacRefusal> {
        let mac = packet.get(HEADER_LEN..).and_then(find_mac).ok_or(MacRefusal::NoMac)?;
        let covered = &packet[..packet.len() - mac.len()];
        let (id, digest) = mac.split_first_chunk::<KEY_ID_LEN>().ok_or(MacRefusal::NoMac)?;
        let id = u32::from_be_bytes(*id);
        let key = self.get(id).ok_or(MacRefusal::UnknownKey(id))?;
        if !key.is_valid_digest(covered, digest) {
            return Err(MacRefusal::Forged(id));
        }
        Ok(AuthenticMac { key, digest_len: digest.len() })
    }
}

impl fmt::Debug for KeyTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.keys).finish()
    }
}

#[cfg(test)]
mod tests;
