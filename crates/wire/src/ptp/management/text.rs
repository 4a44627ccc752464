//! Management data with `PTPText` fields: clock description and user description (IEEE 1588-2019,
//! clauses 5.3.9, 15.5.3.1.2 and 15.5.3.1.3).

use crate::ParseError;

/// Returns the encoded length of a text in bytes, with its length byte: at most 256, because longer
/// texts are truncated.
#[must_use]
pub const fn text_len(text: &str) -> usize {
    1 + truncated(text).len()
}

/// Truncates a text to 255 bytes, at a character boundary.
const fn truncated(text: &str) -> &str {
    text.split_at(text.floor_char_boundary(u8::MAX as usize)).0
}

/// Writes a text, truncated to 255 bytes at a character boundary and preceded by its length byte,
/// to the front of `buffer`; returns the encoded length in bytes.
///
/// # Panics
///
/// If `buffer` is shorter than [`text_len`].
pub fn emit_text(text: &str, buffer: &mut [u8]) -> usize {
    let text = truncated(text);
    buffer[0] = text.len() as u8;
    buffer[1..=text.len()].copy_from_slice(text.as_bytes());
    1 + text.len()
}

/// Parses a UTF-8 text preceded by its length byte; returns it with the remaining bytes. Truncated
/// or invalid text is [`ParseError::Length`].
fn parse_text(bytes: &[u8]) -> Result<(&str, &[u8]), ParseError> {
    let (&length, rest) = bytes.split_first().ok_or(ParseError::Length)?;
    let (text, rest) = rest.split_at_checked(length.into()).ok_or(ParseError::Length)?;
    Ok((core::str::from_utf8(text).map_err(|_| ParseError::Length)?, rest))
}

/// Description of a clock and its location (clause 15.5.3.1.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockDescription<'a> {
    /// Clock types, one bit each; see [`ClockDescription::ORDINARY`].
    pub kinds: u16,
    /// Name of the port's physical layer.
    pub physical_layer: &'a str,
    /// Address of the port on the physical layer: a MAC address on Ethernet.
    pub physical_address: &'a [u8],
    /// Network protocol code of `protocol_address` (table 3).
    pub protocol: u16,
    /// Address of the port in the protocol `protocol`.
    pub protocol_address: &'a [u8],
    /// OUI or CID of the manufacturer.
    pub manufacturer: [u8; 3],
    /// Manufacturer, model and instance, separated by semicolons.
    pub product: &'a str,
    /// Revisions of hardware, firmware and software, separated by semicolons.
    pub revision: &'a str,
    /// Name assigned by the user (IEEE 1588, userDescription).
    pub user: &'a str,
    /// Identifier of the PTP profile.
    pub profile: [u8; 6],
}

impl<'a> ClockDescription<'a> {
    /// Bit of an ordinary clock.
    pub const ORDINARY: u16 = 0x8000;

    /// Returns the encoded length of the description, in bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        2 + text_len(self.physical_layer)
            + 2
            + self.physical_address.len()
            + 4
            + self.protocol_address.len()
            + 4
            + text_len(self.product)
            + text_len(self.revision)
            + text_len(self.user)
            + 6
    }

    /// Returns false: a description has fields of fixed length at least.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        false
    }

    /// Parses a description; a padding byte at the end is skipped.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, ParseError> {
        let (kinds, rest) = parse_u16(bytes)?;
        let (physical_layer, rest) = parse_text(rest)?;
        let (physical_address, rest) = parse_address(rest)?;
        let (protocol, rest) = parse_u16(rest)?;
        let (protocol_address, rest) = parse_address(rest)?;
        let (&[a, b, c, _], rest) = rest.split_first_chunk().ok_or(ParseError::Length)?;
        let (product, rest) = parse_text(rest)?;
        let (revision, rest) = parse_text(rest)?;
        let (user, rest) = parse_text(rest)?;
        let (&profile, rest) = rest.split_first_chunk().ok_or(ParseError::Length)?;
        if rest.len() > 1 {
            return Err(ParseError::Length);
        }
        Ok(Self {
            kinds,
            physical_layer,
            physical_address,
            protocol,
            protocol_address,
            manufacturer: [a, b, c],
            product,
            revision,
            user,
            profile,
        })
    }

    /// Writes the description to the front of `buffer` and returns its length in bytes. Texts are
    /// truncated to 255 bytes.
    ///
    /// # Panics
    ///
    /// If `buffer` is shorter than [`ClockDescription::len`].
    pub fn emit(&self, buffer: &mut [u8]) -> usize {
        let mut at = 0;
        let mut put = |bytes: &[u8]| {
            buffer[at..at + bytes.len()].copy_from_slice(bytes);
            at += bytes.len();
        };
        let put_text = |put: &mut dyn FnMut(&[u8]), text: &str| {
            let text = truncated(text);
            put(&[text.len() as u8]);
            put(text.as_bytes());
        };
        put(&self.kinds.to_be_bytes());
        put_text(&mut put, self.physical_layer);
        put(&(self.physical_address.len() as u16).to_be_bytes());
        put(self.physical_address);
        put(&self.protocol.to_be_bytes());
        put(&(self.protocol_address.len() as u16).to_be_bytes());
        put(self.protocol_address);
        put(&self.manufacturer);
        put(&[0]);
        for text in [self.product, self.revision, self.user] {
            put_text(&mut put, text);
        }
        put(&self.profile);
        at
    }
}

fn parse_u16(bytes: &[u8]) -> Result<(u16, &[u8]), ParseError> {
    let (number, rest) = bytes.split_first_chunk().ok_or(ParseError::Length)?;
    Ok((u16::from_be_bytes(*number), rest))
}

/// Parses a 16-bit length and an address of that length; returns the address with the remaining
/// bytes.
fn parse_address(bytes: &[u8]) -> Result<(&[u8], &[u8]), ParseError> {
    let (length, rest) = parse_u16(bytes)?;
    rest.split_at_checked(length.into()).ok_or(ParseError::Length)
}
