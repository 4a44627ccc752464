//! Symmetric key: computation of digests, and their comparison in constant time.

use core::fmt;

use aes::{Aes128Enc, Aes256Enc};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq;
use thiserror::Error;
use zeroize::Zeroizing;

use super::KEY_ID_LEN;
use crate::aead::cmac::CmacKey;

/// The longest digest, in bytes.
pub(super) const DIGEST_LEN_MAX: usize = 64;
/// Length to which longer digests are truncated in packets of NTP version 4, in bytes: RFC 7822,
/// section 3, limits a MAC to 24 bytes, including the key identifier.
pub const DIGEST_LEN_TRUNCATED: usize = 20;
/// Largest accepted length of a key, in bytes.
const KEY_LEN_MAX: usize = 2048;

/// Algorithm of the digest.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum MacAlgorithm {
    /// AES-128-CMAC (RFC 8573).
    Aes128,
    /// AES-256-CMAC, which chrony supports as well.
    Aes256,
    /// SHA-1 of key and packet.
    Sha1,
    /// SHA-256 of key and packet.
    Sha256,
    /// SHA-384 of key and packet.
    Sha384,
    /// SHA-512 of key and packet.
    Sha512,
}

/// Formats the type name in key files.
impl fmt::Display for MacAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128 => "AES128",
            Self::Aes256 => "AES256",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
            Self::Sha384 => "SHA384",
            Self::Sha512 => "SHA512",
        })
    }
}

impl MacAlgorithm {
    /// Returns the algorithm with this type name in key files, case-insensitive; `None` if it is
    /// unknown.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_uppercase().as_str() {
            "AES128" | "AES-128" | "AES128CMAC" | "AES-128-CMAC" | "AES" | "CMAC" => {
                Some(Self::Aes128)
            }
            "AES256" | "AES-256" | "AES256CMAC" | "AES-256-CMAC" => Some(Self::Aes256),
            "SHA" | "SHA1" | "SHA-1" => Some(Self::Sha1),
            "SHA256" | "SHA-256" | "SHA2-256" => Some(Self::Sha256),
            "SHA384" | "SHA-384" | "SHA2-384" => Some(Self::Sha384),
            "SHA512" | "SHA-512" | "SHA2-512" => Some(Self::Sha512),
            _ => None,
        }
    }

    /// Returns the length of a complete digest, in bytes.
    #[must_use]
    #[inline]
    pub const fn digest_len(self) -> usize {
        match self {
            Self::Aes128 | Self::Aes256 => 16,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    /// Returns the required length of a key, in bytes; `None` if any length from 1 to 2048 is
    /// valid.
    #[must_use]
    pub const fn key_len(self) -> Option<usize> {
        match self {
            Self::Aes128 => Some(16),
            Self::Aes256 => Some(32),
            Self::Sha1 | Self::Sha256 | Self::Sha384 | Self::Sha512 => None,
        }
    }

    /// Returns true if `len` bytes are a valid length of a digest: complete, or truncated to 20.
    #[must_use]
    pub const fn supports_digest_len(self, len: usize) -> bool {
        len == self.digest_len()
            || len == DIGEST_LEN_TRUNCATED && self.digest_len() > DIGEST_LEN_TRUNCATED
    }
}

/// Reason why bytes are not a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum KeyError {
    /// The identifier is 0, which means "no key".
    #[error("key identifiers start at 1")]
    ZeroId,
    /// The key does not have the length that its algorithm requires.
    #[error("{algorithm} requires a key of {want} bytes, this one has {got}")]
    WrongLength {
        /// The algorithm.
        algorithm: MacAlgorithm,
        /// The required length, in bytes.
        want: usize,
        /// The actual length, in bytes.
        got: usize,
    },
    /// The key is empty or exceeds the length limit.
    #[error("a key has 1 to {KEY_LEN_MAX} bytes, this one has {0}")]
    LengthOutOfRange(usize),
}

enum MacSecret {
    Cmac128(CmacKey<Aes128Enc>),
    Cmac256(CmacKey<Aes256Enc>),
    Prefix(Zeroizing<Box<[u8]>>),
}

/// Symmetric key with its identifier and algorithm.
pub struct SymmetricKey {
    id: u32,
    algorithm: MacAlgorithm,
    secret: MacSecret,
}

impl SymmetricKey {
    /// Creates a key from its bytes.
    pub fn new(id: u32, algorithm: MacAlgorithm, key: &[u8]) -> Result<Self, KeyError> {
        if id == 0 {
            return Err(KeyError::ZeroId);
        }
        if key.is_empty() || key.len() > KEY_LEN_MAX {
            return Err(KeyError::LengthOutOfRange(key.len()));
        }
        let secret = match algorithm {
            MacAlgorithm::Aes128 => CmacKey::new(key).map(MacSecret::Cmac128),
            MacAlgorithm::Aes256 => CmacKey::new(key).map(MacSecret::Cmac256),
            _ => Some(MacSecret::Prefix(Zeroizing::new(key.into()))),
        };
        let want = algorithm.key_len().unwrap_or(key.len());
        let secret = secret.ok_or(KeyError::WrongLength { algorithm, want, got: key.len() })?;
        Ok(Self { id, algorithm, secret })
    }

    /// Returns the key identifier.
    #[must_use]
    #[inline]
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// Returns the algorithm of the digest.
    #[must_use]
    #[inline]
    pub const fn algorithm(&self) -> MacAlgorithm {
        self.algorithm
    }

    /// Returns true if `digest`, complete or truncated, is the digest of `covered` with this key.
    #[must_use]
    pub fn is_valid_digest(&self, covered: &[u8], digest: &[u8]) -> bool {
        let mut own = [0; DIGEST_LEN_MAX];
        self.compute_digest(covered, &mut own);
        self.algorithm.supports_digest_len(digest.len())
            && bool::from(own[..digest.len()].ct_eq(digest))
    }

    /// Appends a MAC with a digest of `digest_len` bytes to the packet in the first `len` bytes of
    /// `buffer`. Returns the new length of the packet in bytes; 0 if `buffer` is too short or the
    /// algorithm does not support this length.
    pub fn append_mac(&self, digest_len: usize, buffer: &mut [u8], len: usize) -> usize {
        let end = len + KEY_ID_LEN + digest_len;
        if end > buffer.len() || !self.algorithm.supports_digest_len(digest_len) {
            return 0;
        }
        let mut digest = [0; DIGEST_LEN_MAX];
        self.compute_digest(&buffer[..len], &mut digest);
        buffer[len..len + KEY_ID_LEN].copy_from_slice(&self.id.to_be_bytes());
        buffer[len + KEY_ID_LEN..end].copy_from_slice(&digest[..digest_len]);
        end
    }

    fn compute_digest(&self, covered: &[u8], digest: &mut [u8; DIGEST_LEN_MAX]) {
        match (&self.secret, self.algorithm) {
            (MacSecret::Cmac128(key), _) => digest[..16].copy_from_slice(&key.mac(covered)),
            (MacSecret::Cmac256(key), _) => digest[..16].copy_from_slice(&key.mac(covered)),
            (MacSecret::Prefix(key), MacAlgorithm::Sha256) => {
                keyed_hash::<Sha256>(key, covered, digest);
            }
            (MacSecret::Prefix(key), MacAlgorithm::Sha384) => {
                keyed_hash::<Sha384>(key, covered, digest);
            }
            (MacSecret::Prefix(key), MacAlgorithm::Sha512) => {
                keyed_hash::<Sha512>(key, covered, digest);
            }
            (MacSecret::Prefix(key), _) => keyed_hash::<Sha1>(key, covered, digest),
        }
    }
}

fn keyed_hash<D: Digest>(key: &[u8], covered: &[u8], digest: &mut [u8; DIGEST_LEN_MAX]) {
    let whole = D::new().chain_update(key).chain_update(covered).finalize();
    digest[..whole.len()].copy_from_slice(&whole);
}

impl fmt::Debug for SymmetricKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SymmetricKey")
            .field("id", &self.id)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}
