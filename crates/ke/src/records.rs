//! Records of NTS key establishment (RFC 8915, section 4.1): critical bit and type in two bytes,
//! the length in two bytes, then the body. Their content is checked by [`crate::message`].

/// Length of type and length before the body, in bytes.
pub const RECORD_HEADER_LEN: usize = 4;

/// The types of records (RFC 8915, section 7.6).
pub mod kind {
    /// The last record of a message (section 4.1.1).
    pub const END_OF_MESSAGE: u16 = 0;
    /// Protocols for which keys are established (section 4.1.2).
    pub const NEXT_PROTOCOL: u16 = 1;
    /// Error of a server (section 4.1.3).
    pub const ERROR: u16 = 2;
    /// Warning of a server (section 4.1.4).
    pub const WARNING: u16 = 3;
    /// AEAD algorithms (section 4.1.5).
    pub const AEAD_ALGORITHM: u16 = 4;
    /// A cookie (section 4.1.6).
    pub const NEW_COOKIE: u16 = 5;
    /// The NTP server (section 4.1.7).
    pub const SERVER: u16 = 6;
    /// The UDP port of the NTP server (section 4.1.8).
    pub const PORT: u16 = 7;
    /// Indicates that keys for AES-128-GCM-SIV are exported according to the standard: see
    /// [`crate::message::NtsKeRequest::exact_exporter`].
    pub const EXACT_EXPORTER: u16 = 1024;
}

const CRITICAL: u16 = 0x8000;

/// One record; its body is borrowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NtsKeRecord<'a> {
    /// True if a receiver that does not know the type must refuse the message.
    pub critical: bool,
    /// One of [`kind`], or an unknown type; 15 bits.
    pub kind: u16,
    /// Content; at most 65,535 bytes.
    pub body: &'a [u8],
}

impl<'a> NtsKeRecord<'a> {
    /// Parses the record at the beginning of `bytes`. Returns it with the bytes after it; `None` if
    /// it is incomplete.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (header, rest) = bytes.split_first_chunk::<RECORD_HEADER_LEN>()?;
        let [type_high, type_low, length_high, length_low] = *header;
        let word = u16::from_be_bytes([type_high, type_low]);
        let length = u16::from_be_bytes([length_high, length_low]);
        let (body, rest) = rest.split_at_checked(length.into())?;
        Some((Self { critical: word & CRITICAL != 0, kind: word & !CRITICAL, body }, rest))
    }

    /// Appends the record to a message. A body too long for its length field is truncated.
    pub fn append_to(&self, message: &mut Vec<u8>) {
        let critical = if self.critical { CRITICAL } else { 0 };
        let length = u16::try_from(self.body.len()).unwrap_or(u16::MAX);
        message.extend_from_slice(&(self.kind & !CRITICAL | critical).to_be_bytes());
        message.extend_from_slice(&length.to_be_bytes());
        message.extend_from_slice(&self.body[..usize::from(length)]);
    }
}

/// Returns the length of the message at the beginning of `bytes`, up to and including the End of
/// Message record, in bytes; `None` if the message is incomplete.
#[must_use]
pub fn message_len(bytes: &[u8]) -> Option<usize> {
    let mut left = bytes;
    loop {
        let (record, rest) = NtsKeRecord::parse(left)?;
        left = rest;
        if record.kind == kind::END_OF_MESSAGE {
            return Some(bytes.len() - left.len());
        }
    }
}

/// Returns the 16-bit numbers in a body; `None` if its length is odd.
#[must_use]
pub fn numbers(body: &[u8]) -> Option<impl Iterator<Item = u16> + '_> {
    let (pairs, left) = body.as_chunks::<2>();
    left.is_empty().then(|| pairs.iter().map(|pair| u16::from_be_bytes(*pair)))
}

/// Returns the 16-bit number in a body; `None` if the body is not two bytes long.
#[must_use]
pub fn number(body: &[u8]) -> Option<u16> {
    <[u8; 2]>::try_from(body).ok().map(u16::from_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn records_as_the_standard_draws_them() {
        // Next protocol NTPv4, critical; AES-SIV-CMAC-256, not critical; end, critical.
        let message = [0x80, 1, 0, 2, 0, 0, 0, 4, 0, 2, 0, 15, 0x80, 0, 0, 0];
        let (next, rest) = NtsKeRecord::parse(&message).unwrap();
        assert_eq!(next, NtsKeRecord { critical: true, kind: kind::NEXT_PROTOCOL, body: &[0, 0] });
        let (aead, rest) = NtsKeRecord::parse(rest).unwrap();
        assert_eq!(
            aead,
            NtsKeRecord { critical: false, kind: kind::AEAD_ALGORITHM, body: &[0, 15] }
        );
        let (end, rest) = NtsKeRecord::parse(rest).unwrap();
        assert_eq!(end, NtsKeRecord { critical: true, kind: kind::END_OF_MESSAGE, body: &[] });
        assert!(rest.is_empty());
        assert_eq!(message_len(&message), Some(message.len()));
        for cut in 0..message.len() {
            assert_eq!(message_len(&message[..cut]), None, "{cut}");
        }
    }

    #[test]
    fn a_message_ends_at_its_end() {
        assert_eq!(message_len(&[0x80, 0, 0, 0, 1, 2, 3]), Some(4));
        assert_eq!(message_len(&[0x80, 0, 0, 1]), None);
    }

    #[test]
    fn half_a_number_is_none() {
        assert!(numbers(&[0, 15, 0]).is_none());
        assert_eq!(numbers(&[0, 15, 0, 30]).unwrap().collect::<Vec<_>>(), [15, 30]);
        assert_eq!((number(&[1, 2]), number(&[1]), number(&[1, 2, 3])), (Some(258), None, None));
    }

    proptest! {
        #[test]
        fn a_record_comes_back(
            critical: bool, kind in 0u16..0x8000, body: Vec<u8>, rest: [u8; 3],
        ) {
            let record = NtsKeRecord { critical, kind, body: &body };
            let mut bytes = Vec::new();
            record.append_to(&mut bytes);
            prop_assert_eq!(bytes.len(), RECORD_HEADER_LEN + body.len());
            bytes.extend_from_slice(&rest);
            prop_assert_eq!(NtsKeRecord::parse(&bytes), Some((record, &rest[..])));
        }
    }
}
