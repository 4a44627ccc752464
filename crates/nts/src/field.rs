//! Parser and writer of NTP extension fields (RFC 7822) as used by NTS (RFC 8915, sections 5.3 to
//! 5.6). Nothing is authenticated here.

use horolog_wire::ntp::HEADER_LEN;

use crate::aead::TAG_LEN;

pub(crate) const UNIQUE_ID: u16 = 0x0104;
pub(crate) const COOKIE: u16 = 0x0204;
pub(crate) const PLACEHOLDER: u16 = 0x0304;
pub(crate) const AUTHENTICATOR: u16 = 0x0404;

/// Length of the type and length at the front of a field, in bytes.
pub(crate) const PREFIX_LEN: usize = 4;
/// The shortest field (RFC 7822, section 3), in bytes.
pub(crate) const FIELD_LEN_MIN: usize = 16;
/// Size of the two lengths (nonce, ciphertext) at the front of an authenticator's body, in bytes.
pub(crate) const LENGTHS_LEN: usize = 4;
/// The shortest unique identifier (RFC 8915, section 5.3), in bytes.
pub(crate) const UNIQUE_ID_LEN_MIN: usize = 32;

/// Error: the bytes are not a valid field, a unique identifier is too short, or a field occurs
/// twice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct MalformedField;

/// Extension field, with its body borrowed from the packet.
pub(crate) struct ExtensionFieldRef<'a> {
    pub(crate) kind: u16,
    pub(crate) body: &'a [u8],
}

/// Returns the field at the front of `bytes`, and the bytes after it. The field's length, prefix
/// included, must be a multiple of 4 and at least [`FIELD_LEN_MIN`].
pub(crate) fn split_field(bytes: &[u8]) -> Result<(ExtensionFieldRef<'_>, &[u8]), MalformedField> {
    let &[a, b, c, d, ..] = bytes else { return Err(MalformedField) };
    let len = usize::from(u16::from_be_bytes([c, d]));
    if len < FIELD_LEN_MIN || !len.is_multiple_of(4) {
        return Err(MalformedField);
    }
    let (field, rest) = bytes.split_at_checked(len).ok_or(MalformedField)?;
    Ok((ExtensionFieldRef { kind: u16::from_be_bytes([a, b]), body: &field[PREFIX_LEN..] }, rest))
}

/// Returns the field at the front of decrypted fields, and the bytes after it. The minimum length
/// of RFC 7822 does not apply to these.
pub(crate) fn split_inner_field(
    bytes: &[u8],
) -> Result<(ExtensionFieldRef<'_>, &[u8]), MalformedField> {
    let &[a, b, c, d, ..] = bytes else { return Err(MalformedField) };
    let len = usize::from(u16::from_be_bytes([c, d]));
    if len < PREFIX_LEN || !len.is_multiple_of(4) {
        return Err(MalformedField);
    }
    let (field, rest) = bytes.split_at_checked(len).ok_or(MalformedField)?;
    Ok((ExtensionFieldRef { kind: u16::from_be_bytes([a, b]), body: &field[PREFIX_LEN..] }, rest))
}

/// Returns the prefix of a field: its type, and its length including the prefix, in bytes.
pub(crate) fn field_prefix(kind: u16, len: usize) -> [u8; PREFIX_LEN] {
    let ([a, b], [c, d]) = (kind.to_be_bytes(), (len as u16).to_be_bytes());
    [a, b, c, d]
}

/// Parts of an authenticator field (RFC 8915, section 5.6).
#[derive(Clone, Copy)]
pub(crate) struct AuthenticatorParts<'a> {
    pub(crate) nonce: &'a [u8],
    /// Ciphertext: tag and encrypted fields, in the algorithm's order.
    pub(crate) ciphertext: &'a [u8],
    /// Length of the nonce, its padding and the additional padding together, in bytes.
    pub(crate) nonce_space: usize,
}

impl<'a> AuthenticatorParts<'a> {
    fn parse(body: &'a [u8]) -> Result<Self, MalformedField> {
        let (&[a, b, c, d], rest) = body.split_first_chunk().ok_or(MalformedField)?;
        let nonce_len = usize::from(u16::from_be_bytes([a, b]));
        let sealed_len = usize::from(u16::from_be_bytes([c, d]));
        let (padded, rest) =
            rest.split_at_checked(nonce_len.next_multiple_of(4)).ok_or(MalformedField)?;
        let (sealed, additional) =
            rest.split_at_checked(sealed_len.next_multiple_of(4)).ok_or(MalformedField)?;
        if sealed_len < TAG_LEN {
            return Err(MalformedField);
        }
        Ok(Self {
            nonce: &padded[..nonce_len],
            ciphertext: &sealed[..sealed_len],
            nonce_space: padded.len() + additional.len(),
        })
    }
}

/// NTS fields of a packet, up to the authenticator. Later fields are ignored, because they are not
/// authenticated.
pub(crate) struct NtsFields<'a> {
    pub(crate) unique_id: Option<&'a [u8]>,
    pub(crate) cookie: Option<&'a [u8]>,
    /// Number of cookie placeholders.
    pub(crate) placeholders: usize,
    /// Authenticator, and the bytes before it, which it covers.
    pub(crate) sealed: Option<(AuthenticatorParts<'a>, &'a [u8])>,
}

/// Finds the NTS fields of `packet`, header included, up to the authenticator. Fields of other
/// types are tolerated; a second unique identifier or cookie, or a unique identifier of fewer than
/// [`UNIQUE_ID_LEN_MIN`] bytes, is not.
pub(crate) fn find_nts_fields(packet: &[u8]) -> Result<NtsFields<'_>, MalformedField> {
    let mut found = NtsFields { unique_id: None, cookie: None, placeholders: 0, sealed: None };
    let mut rest = packet.get(HEADER_LEN..).ok_or(MalformedField)?;
    while !rest.is_empty() {
        let at = packet.len() - rest.len();
        let (field, after) = split_field(rest)?;
        match field.kind {
            UNIQUE_ID if field.body.len() < UNIQUE_ID_LEN_MIN => return Err(MalformedField),
            UNIQUE_ID => set_once(&mut found.unique_id, field.body)?,
            COOKIE => set_once(&mut found.cookie, field.body)?,
            PLACEHOLDER => found.placeholders += 1,
            AUTHENTICATOR => {
                found.sealed = Some((AuthenticatorParts::parse(field.body)?, &packet[..at]));
                return Ok(found);
            }
            _ => {}
        }
        rest = after;
    }
    Ok(found)
}

fn set_once<'a>(slot: &mut Option<&'a [u8]>, body: &'a [u8]) -> Result<(), MalformedField> {
    if slot.replace(body).is_some() { Err(MalformedField) } else { Ok(()) }
}

/// Writer of fields into a caller's buffer, from front to back; content that does not fit yields
/// `None`.
pub(crate) struct FieldWriter<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> FieldWriter<'a> {
    pub(crate) fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Reserves the next `len` bytes. Returns the bytes written before, and the reserved ones.
    pub(crate) fn reserve(&mut self, len: usize) -> Option<(&[u8], &mut [u8])> {
        let (before, after) = self.out.split_at_mut_checked(self.len)?;
        let room = after.get_mut(..len)?;
        self.len += len;
        Some((before, room))
    }

    pub(crate) fn write_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.reserve(bytes.len())?.1.copy_from_slice(bytes);
        Some(())
    }

    /// Writes a field with `body`, padded with zeros to a multiple of 4.
    pub(crate) fn write_field(&mut self, kind: u16, body: &[u8]) -> Option<()> {
        let padded = body.len().next_multiple_of(4);
        self.write_bytes(&field_prefix(kind, PREFIX_LEN + padded))?;
        let room = self.reserve(padded)?.1;
        room[..body.len()].copy_from_slice(body);
        room[body.len()..].fill(0);
        Some(())
    }
}

/// Returns the length of an authenticator field for a nonce and a plaintext of these lengths,
/// prefix included, in bytes.
pub(crate) const fn authenticator_len(nonce_len: usize, text_len: usize) -> usize {
    PREFIX_LEN
        + LENGTHS_LEN
        + nonce_len.next_multiple_of(4)
        + (text_len + TAG_LEN).next_multiple_of(4)
}

/// Returns the front of an authenticator field: prefix, and lengths of nonce and ciphertext. `len`
/// is the length of the field.
pub(crate) fn authenticator_front(nonce_len: usize, text_len: usize, len: usize) -> [u8; 8] {
    let lengths = [nonce_len as u16, (text_len + TAG_LEN) as u16].map(u16::to_be_bytes);
    let [[a, b], [c, d]] = lengths;
    let mut front = [0, 0, 0, 0, a, b, c, d];
    front[..PREFIX_LEN].copy_from_slice(&field_prefix(AUTHENTICATOR, len));
    front
}
