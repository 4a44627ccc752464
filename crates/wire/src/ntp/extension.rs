//! Extension fields after the NTP header, and the legacy MAC that may follow them (RFC 7822,
//! section 3): their types, a walker, a writer, and the classification of a trailer by its form.
//! Nothing is authenticated here; the values of the fields of NTS are in [`super::nts`].

use crate::ParseError;

/// Length of the type and length at the front of a field, in bytes.
pub const PREFIX_LEN: usize = 4;
/// Length of the shortest field, prefix included (RFC 7822, section 3), in bytes.
pub const FIELD_LEN_MIN: usize = 16;
/// Length to which the last field of a packet without a MAC is padded by its sender, in bytes,
/// because a receiver may take fewer for a MAC (RFC 7822, section 3).
pub const LAST_FIELD_LEN_MIN: usize = 28;
/// Length of the shortest encrypted field, in bytes: the minimum of RFC 7822 does not apply there.
pub const ENCRYPTED_FIELD_LEN_MIN: usize = PREFIX_LEN;

/// Lengths of a MAC, key identifier included, in bytes: AES-CMAC (20), SHA-1 or truncated (24),
/// SHA-256 (36), SHA-384 (52), SHA-512 (68).
const MAC_LENGTHS: [usize; 5] = [20, 24, 36, 52, 68];
/// Length of the longest MAC of version 4 (RFC 7822, section 3), in bytes.
const MAC_LEN_MAX_V4: usize = 24;

/// Type of an extension field (IANA registry "NTP Extension Field Types"). Every number is a valid
/// type; those that have a meaning here have a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExtensionFieldType(pub u16);

impl ExtensionFieldType {
    /// Unique identifier of an NTS request, which its reply repeats (RFC 8915, section 5.3).
    pub const UNIQUE_IDENTIFIER: Self = Self(0x0104);
    /// NTS cookie (RFC 8915, section 5.4).
    pub const COOKIE: Self = Self(0x0204);
    /// NTS cookie placeholder: space for one more cookie in the reply (RFC 8915, section 5.5).
    pub const COOKIE_PLACEHOLDER: Self = Self(0x0304);
    /// NTS authenticator and encrypted extension fields (RFC 8915, section 5.6).
    pub const AUTHENTICATOR: Self = Self(0x0404);

    /// Returns true if the type is one of NTS.
    #[must_use]
    pub const fn is_nts(self) -> bool {
        matches!(
            self,
            Self::UNIQUE_IDENTIFIER | Self::COOKIE | Self::COOKIE_PLACEHOLDER | Self::AUTHENTICATOR
        )
    }
}

/// Extension field, with its value borrowed from the bytes from which it was parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExtensionField<'a> {
    /// Type.
    pub field_type: ExtensionFieldType,
    /// Value with its padding, which only the type's own format can tell apart.
    pub value: &'a [u8],
}

/// Iterator over extension fields. Ends after the first malformed one, which it returns as an
/// error. A field's length, prefix included, must be a multiple of 4 and at least the minimum.
#[derive(Clone, Debug)]
pub struct ExtensionFields<'a> {
    rest: &'a [u8],
    len_min: usize,
}

impl<'a> ExtensionFields<'a> {
    /// Returns an iterator over the fields of a trailer.
    #[must_use]
    #[inline]
    pub const fn of_trailer(trailer: &'a [u8]) -> Self {
        Self { rest: trailer, len_min: FIELD_LEN_MIN }
    }

    /// Returns an iterator over fields that were encrypted.
    #[must_use]
    #[inline]
    pub const fn of_plaintext(text: &'a [u8]) -> Self {
        Self { rest: text, len_min: ENCRYPTED_FIELD_LEN_MIN }
    }

    /// Returns the bytes after the last returned field; none after a malformed one.
    #[must_use]
    #[inline]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns true if the remaining bytes are a MAC, unless NTS authenticates the packet: then it
    /// has none. Up to 24 bytes with the length of a MAC are always one (RFC 7822, section 3). More
    /// are a MAC unless they begin with a valid extension field with a nonzero type; the position
    /// of the type holds the upper half of a MAC's key identifier.
    #[must_use]
    pub fn is_at_mac(&self) -> bool {
        MAC_LENGTHS.contains(&self.rest.len())
            && (self.rest.len() <= MAC_LEN_MAX_V4
                || self.rest.starts_with(&[0, 0])
                || self.split_first().is_err())
    }

    /// Returns the field at the front of the remaining bytes, and the bytes after it.
    #[inline]
    fn split_first(&self) -> Result<(ExtensionField<'a>, &'a [u8]), ParseError> {
        let &[a, b, c, d, ..] = self.rest else { return Err(ParseError::Truncated) };
        let len = usize::from(u16::from_be_bytes([c, d]));
        if len < self.len_min || !len.is_multiple_of(4) {
            return Err(ParseError::Length);
        }
        let (field, rest) = self.rest.split_at_checked(len).ok_or(ParseError::Truncated)?;
        let field_type = ExtensionFieldType(u16::from_be_bytes([a, b]));
        Ok((ExtensionField { field_type, value: &field[PREFIX_LEN..] }, rest))
    }
}

impl<'a> Iterator for ExtensionFields<'a> {
    type Item = Result<ExtensionField<'a>, ParseError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let parsed = self.split_first();
        self.rest = parsed.map_or(&[], |(_, rest)| rest);
        Some(parsed.map(|(field, _)| field))
    }
}

/// Kind of the bytes after the 48-byte header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrailerKind {
    /// No trailer.
    Empty,
    /// Extension fields, at least one of them of NTS.
    Nts,
    /// MAC, or other bytes that are not an extension field (such as a crypto-NAK; RFC 5905, section
    /// 7.3), possibly after extension fields other than those of NTS.
    Mac,
    /// Only extension fields other than those of NTS.
    OtherFields,
}

/// Classifies the bytes after the header by their form, before any cryptographic operation.
#[must_use]
pub fn classify_trailer(trailer: &[u8]) -> TrailerKind {
    let mut fields = ExtensionFields::of_trailer(trailer);
    while !fields.is_at_mac() {
        match fields.next() {
            None if trailer.is_empty() => return TrailerKind::Empty,
            None => return TrailerKind::OtherFields,
            Some(Ok(field)) if field.field_type.is_nts() => return TrailerKind::Nts,
            Some(Ok(_)) => {}
            Some(Err(_)) => return TrailerKind::Mac,
        }
    }
    TrailerKind::Mac
}

/// Returns the MAC at the end of a trailer, after any extension fields; `None` if there is none.
#[must_use]
pub fn find_mac(trailer: &[u8]) -> Option<&[u8]> {
    let mut fields = ExtensionFields::of_trailer(trailer);
    while !fields.is_at_mac() {
        fields.next()?.ok()?;
    }
    Some(fields.rest())
}

/// Returns the length of a field with a value of this length, prefix and padding included, in
/// bytes.
#[must_use]
#[inline]
pub const fn field_len(value_len: usize, len_min: usize) -> usize {
    let len = (PREFIX_LEN + value_len).next_multiple_of(4);
    if len < len_min { len_min } else { len }
}

/// Writer of fields, and of bytes before them, into a caller's buffer, from front to back. Content
/// that does not fit, or a field that is too long for its length, yields `None`.
#[derive(Debug)]
pub struct ExtensionFieldWriter<'a> {
    out: &'a mut [u8],
    len: usize,
}

impl<'a> ExtensionFieldWriter<'a> {
    /// Returns a writer to the front of `out`.
    #[inline]
    pub const fn new(out: &'a mut [u8]) -> Self {
        Self { out, len: 0 }
    }

    /// Returns the number of written bytes.
    #[must_use]
    #[inline]
    pub const fn written_len(&self) -> usize {
        self.len
    }

    /// Reserves the next `len` bytes. Returns the bytes written before, and the reserved ones.
    #[inline]
    pub fn reserve(&mut self, len: usize) -> Option<(&[u8], &mut [u8])> {
        let (before, after) = self.out.split_at_mut_checked(self.len)?;
        let room = after.get_mut(..len)?;
        self.len += len;
        Some((before, room))
    }

    /// Writes bytes that are no field, such as the header.
    #[inline]
    pub fn write_bytes(&mut self, bytes: &[u8]) -> Option<()> {
        self.reserve(bytes.len())?.1.copy_from_slice(bytes);
        Some(())
    }

    /// Writes the prefix of a field of at least `len_min` bytes. Returns the bytes written before
    /// the field, and the room for its value and padding.
    #[inline]
    pub fn reserve_field(
        &mut self,
        field_type: ExtensionFieldType,
        value_len: usize,
        len_min: usize,
    ) -> Option<(&[u8], &mut [u8])> {
        let len = field_len(value_len, len_min);
        let len_bytes = u16::try_from(len).ok()?.to_be_bytes();
        let (before, field) = self.reserve(len)?;
        let (prefix, room) = field.split_at_mut(PREFIX_LEN);
        prefix[..2].copy_from_slice(&field_type.0.to_be_bytes());
        prefix[2..].copy_from_slice(&len_bytes);
        Some((before, room))
    }

    /// Writes a field, padded with zeros to a multiple of 4 bytes and to `len_min`.
    #[inline]
    pub fn write_field(
        &mut self,
        field_type: ExtensionFieldType,
        value: &[u8],
        len_min: usize,
    ) -> Option<()> {
        let (_, room) = self.reserve_field(field_type, value.len(), len_min)?;
        let (front, padding) = room.split_at_mut(value.len());
        front.copy_from_slice(value);
        padding.fill(0);
        Some(())
    }
}

#[cfg(test)]
#[path = "extension_tests.rs"]
mod tests;
