//! AEAD algorithms of NTS, with a common interface that is independent of packets. Buffers of the
//! caller are sealed in place.

pub(crate) mod cmac;
mod schedule;
pub(crate) mod siv;

use aes_gcm_siv::{AeadInOut, AesGcmSiv, KeyInit, Nonce, Tag};
use horolog_wire::ntp::nts::TAG_LEN;

use schedule::WipingKeySchedule;
use siv::SivKey;

/// Length of the longest nonce generated here, of any algorithm, in bytes.
pub(crate) const NONCE_LEN_MAX: usize = 16;
/// Length of the longest key of any algorithm, in bytes.
pub(crate) const KEY_LEN_MAX: usize = 32;

/// AEAD algorithm; its discriminant is the number in IANA's AEAD registry.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum AeadAlgorithm {
    /// AES-SIV-CMAC-256 (RFC 5297), mandatory for every NTS server (RFC 8915, section 5.1).
    AesSivCmac256 = 15,
    /// AES-128-GCM-SIV (RFC 8452): shorter keys and cookies.
    Aes128GcmSiv = 30,
}

/// Formats the name in IANA's AEAD registry, without the prefix `AEAD_` and with hyphens.
impl std::fmt::Display for AeadAlgorithm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::AesSivCmac256 => "AES-SIV-CMAC-256",
            Self::Aes128GcmSiv => "AES-128-GCM-SIV",
        })
    }
}

impl AeadAlgorithm {
    /// All algorithms, the one with the shorter cookies first.
    pub const ALL: [Self; 2] = [Self::Aes128GcmSiv, Self::AesSivCmac256];

    /// Returns the algorithm with this number in IANA's AEAD registry, if it is supported.
    #[must_use]
    #[inline]
    pub const fn from_number(number: u16) -> Option<Self> {
        match number {
            15 => Some(Self::AesSivCmac256),
            30 => Some(Self::Aes128GcmSiv),
            _ => None,
        }
    }

    /// Returns the number in IANA's AEAD registry.
    #[must_use]
    #[inline]
    pub const fn number(self) -> u16 {
        self as u16
    }

    /// Returns the length of a key, in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::AesSivCmac256 => 32,
            Self::Aes128GcmSiv => 16,
        }
    }

    /// Returns the length of the nonces generated here, in bytes. AES-SIV accepts any other length
    /// than 0 as well.
    #[must_use]
    #[inline]
    pub const fn nonce_len(self) -> usize {
        match self {
            Self::AesSivCmac256 => 16,
            Self::Aes128GcmSiv => 12,
        }
    }

    /// Returns the minimum length of a request's nonce and its paddings together, in bytes (`N_REQ`
    /// in RFC 8915, section 5.6).
    pub(crate) const fn nonce_space_min(self) -> usize {
        self.nonce_len()
    }

    /// Returns true if a nonce of `len` bytes is valid.
    pub(crate) const fn is_valid_nonce_len(self, len: usize) -> bool {
        match self {
            Self::AesSivCmac256 => len > 0,
            Self::Aes128GcmSiv => len == 12,
        }
    }

    /// Returns the offset of the text in a buffer to be sealed, in bytes: after the tag (SIV) or
    /// before it.
    pub(crate) const fn text_offset(self) -> usize {
        match self {
            Self::AesSivCmac256 => TAG_LEN,
            Self::Aes128GcmSiv => 0,
        }
    }
}

/// AEAD key with its precomputed values.
#[allow(clippy::large_enum_variant, reason = "a box would be an allocation for a packet")]
pub(crate) enum AeadKey {
    Siv(SivKey),
    GcmSiv(AesGcmSiv<WipingKeySchedule>),
}

impl AeadKey {
    /// Prepares a key of the algorithm's length.
    pub(crate) fn new(algorithm: AeadAlgorithm, key: &[u8]) -> Self {
        match algorithm {
            AeadAlgorithm::AesSivCmac256 => Self::Siv(SivKey::new(key)),
            AeadAlgorithm::Aes128GcmSiv => Self::GcmSiv(gcm_siv_key(key)),
        }
    }

    /// Seals `buffer` in place, with the associated data `data`. The buffer holds the text at
    /// [`AeadAlgorithm::text_offset`], and [`TAG_LEN`] bytes for the tag. `None` if it is shorter
    /// than a tag or the nonce's length is invalid for the algorithm.
    pub(crate) fn seal(&self, nonce: &[u8], data: &[u8], buffer: &mut [u8]) -> Option<()> {
        if let Self::GcmSiv(key) = self {
            let (text, tag) = buffer.split_last_chunk_mut::<TAG_LEN>()?;
            let nonce = Nonce::try_from(nonce).ok()?;
            *tag = key.encrypt_inout_detached(&nonce, data, text.into()).ok()?.0;
            return Some(());
        }
        let (tag, text) = buffer.split_first_chunk_mut::<TAG_LEN>()?;
        match self {
            Self::Siv(key) => key.seal(&[data, nonce], tag, text),
            Self::GcmSiv(_) => return None,
        }
        Some(())
    }

    /// Authenticates and decrypts `sealed`, whose associated data is `data`, writes the plaintext
    /// to the front of `text`, and returns its length in bytes. `None` if `sealed` is not authentic
    /// or `text` is too short; the content of `text` is then invalid.
    pub(crate) fn open(
        &self,
        nonce: &[u8],
        data: &[u8],
        sealed: &[u8],
        text: &mut [u8],
    ) -> Option<usize> {
        let text = text.get_mut(..sealed.len().checked_sub(TAG_LEN)?)?;
        if let Self::GcmSiv(key) = self {
            let (body, tag) = sealed.split_last_chunk::<TAG_LEN>()?;
            let nonce = Nonce::try_from(nonce).ok()?;
            text.copy_from_slice(body);
            let tag = Tag::from(*tag);
            key.decrypt_inout_detached(&nonce, data, (&mut *text).into(), &tag).ok()?;
            return Some(text.len());
        }
        let (tag, body) = sealed.split_first_chunk::<TAG_LEN>()?;
        text.copy_from_slice(body);
        let is_genuine = match self {
            Self::Siv(key) => key.open(&[data, nonce], tag, text),
            Self::GcmSiv(_) => false,
        };
        is_genuine.then_some(text.len())
    }
}

/// Creates an AES-128-GCM-SIV key. `SessionKeys` has checked the length of `key`.
fn gcm_siv_key(key: &[u8]) -> AesGcmSiv<WipingKeySchedule> {
    let key = key.first_chunk::<16>().unwrap_or(&[0; 16]);
    AesGcmSiv::new(key.into())
}

#[cfg(test)]
mod tests;
