//! Extension fields of NTS (RFC 8915, sections 5.3 to 5.6): search of a packet for them, and layout
//! of the authenticator. Nothing is authenticated here.

use super::HEADER_LEN;
use super::extension::{
    ExtensionField, ExtensionFieldType, ExtensionFieldWriter, ExtensionFields, FIELD_LEN_MIN,
    PREFIX_LEN,
};
use crate::ParseError;

/// Length of the shortest unique identifier (RFC 8915, section 5.3), in bytes.
pub const UNIQUE_ID_LEN_MIN: usize = 32;
/// Length of the tag of the AEAD algorithms for NTS (RFC 5297, RFC 8452), the shortest ciphertext,
/// in bytes.
pub const TAG_LEN: usize = 16;
/// Size of the two lengths (nonce, ciphertext) at the front of an authenticator's value, in bytes.
const LENGTHS_LEN: usize = 4;

/// Authenticator field (RFC 8915, section 5.6).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Authenticator<'a> {
    /// Bytes before the field, which it covers: header and earlier fields.
    pub covered: &'a [u8],
    /// Nonce.
    pub nonce: &'a [u8],
    /// Ciphertext, at least [`TAG_LEN`] bytes: tag and encrypted fields, in the algorithm's order.
    pub ciphertext: &'a [u8],
    /// Length of the nonce, its padding and the additional padding together, in bytes.
    pub nonce_space: usize,
}

impl<'a> Authenticator<'a> {
    fn parse(covered: &'a [u8], value: &'a [u8]) -> Result<Self, ParseError> {
        let (&[a, b, c, d], rest) = value.split_first_chunk().ok_or(ParseError::Truncated)?;
        let nonce_len = usize::from(u16::from_be_bytes([a, b]));
        let ciphertext_len = usize::from(u16::from_be_bytes([c, d]));
        let (nonce, rest) =
            rest.split_at_checked(nonce_len.next_multiple_of(4)).ok_or(ParseError::Length)?;
        let (ciphertext, additional) =
            rest.split_at_checked(ciphertext_len.next_multiple_of(4)).ok_or(ParseError::Length)?;
        if ciphertext_len < TAG_LEN {
            return Err(ParseError::Length);
        }
        Ok(Self {
            covered,
            nonce: &nonce[..nonce_len],
            ciphertext: &ciphertext[..ciphertext_len],
            nonce_space: nonce.len() + additional.len(),
        })
    }

    const fn value_len(nonce_len: usize, ciphertext_len: usize) -> usize {
        LENGTHS_LEN + nonce_len.next_multiple_of(4) + ciphertext_len.next_multiple_of(4)
    }

    /// Returns the length of a field without additional padding, prefix included, in bytes.
    #[must_use]
    pub const fn field_len(nonce_len: usize, ciphertext_len: usize) -> usize {
        PREFIX_LEN + Self::value_len(nonce_len, ciphertext_len)
    }

    /// Writes a field except its ciphertext. Returns the covered bytes before the field, and the
    /// room for the ciphertext.
    #[inline]
    pub fn reserve<'w>(
        writer: &'w mut ExtensionFieldWriter<'_>,
        nonce: &[u8],
        ciphertext_len: usize,
    ) -> Option<(&'w [u8], &'w mut [u8])> {
        let value_len = Self::value_len(nonce.len(), ciphertext_len);
        let (covered, room) =
            writer.reserve_field(ExtensionFieldType::AUTHENTICATOR, value_len, FIELD_LEN_MIN)?;
        let (lengths, room) = room.split_at_mut(LENGTHS_LEN);
        // The length of the field, which is not less than either of them, has 16 bits.
        lengths[..2].copy_from_slice(&(nonce.len() as u16).to_be_bytes());
        lengths[2..].copy_from_slice(&(ciphertext_len as u16).to_be_bytes());
        let (nonce_room, room) = room.split_at_mut(nonce.len().next_multiple_of(4));
        let (front, padding) = nonce_room.split_at_mut(nonce.len());
        front.copy_from_slice(nonce);
        padding.fill(0);
        let (ciphertext, padding) = room.split_at_mut(ciphertext_len);
        padding.fill(0);
        Some((covered, ciphertext))
    }
}

/// NTS fields of a packet, up to the authenticator. Later fields are ignored, because they are not
/// authenticated.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NtsFields<'a> {
    /// Unique identifier, at least [`UNIQUE_ID_LEN_MIN`] bytes.
    pub unique_id: Option<&'a [u8]>,
    /// Cookie, with its padding.
    pub cookie: Option<&'a [u8]>,
    /// Number of cookie placeholders.
    pub placeholders: usize,
    /// Authenticator.
    pub authenticator: Option<Authenticator<'a>>,
}

impl<'a> NtsFields<'a> {
    /// Finds the NTS fields of `packet`, header included, up to the authenticator. Fields of other
    /// types are tolerated; a second unique identifier or cookie, or a unique identifier of fewer
    /// than [`UNIQUE_ID_LEN_MIN`] bytes, is not.
    pub fn parse(packet: &'a [u8]) -> Result<Self, ParseError> {
        let trailer = packet.get(HEADER_LEN..).ok_or(ParseError::Truncated)?;
        let mut found = Self::default();
        let mut fields = ExtensionFields::of_trailer(trailer);
        loop {
            let at = packet.len() - fields.rest().len();
            let Some(field) = fields.next() else { return Ok(found) };
            let ExtensionField { field_type, value } = field?;
            match field_type {
                ExtensionFieldType::UNIQUE_IDENTIFIER if value.len() < UNIQUE_ID_LEN_MIN => {
                    return Err(ParseError::Length);
                }
                ExtensionFieldType::UNIQUE_IDENTIFIER => set_once(&mut found.unique_id, value)?,
                ExtensionFieldType::COOKIE => set_once(&mut found.cookie, value)?,
                ExtensionFieldType::COOKIE_PLACEHOLDER => found.placeholders += 1,
                ExtensionFieldType::AUTHENTICATOR => {
                    found.authenticator = Some(Authenticator::parse(&packet[..at], value)?);
                    return Ok(found);
                }
                _ => {}
            }
        }
    }
}

fn set_once<'a>(slot: &mut Option<&'a [u8]>, value: &'a [u8]) -> Result<(), ParseError> {
    if slot.replace(value).is_some() { Err(ParseError::Length) } else { Ok(()) }
}

#[cfg(test)]
#[path = "nts_tests.rs"]
mod tests;
