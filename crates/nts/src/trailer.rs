//! Classification of the trailer of an NTP packet by its form, before any cryptographic operation.

use crate::field::{AUTHENTICATOR, COOKIE, PLACEHOLDER, UNIQUE_ID, split_field};

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

/// Lengths of a MAC, key identifier included, in bytes: AES-CMAC (20), SHA-1 or truncated (24),
/// SHA-256 (36), SHA-384 (52), SHA-512 (68).
const MAC_LENGTHS: [usize; 5] = [20, 24, 36, 52, 68];

/// Classifies `rest`, the bytes after the header.
#[must_use]
pub fn classify_trailer(rest: &[u8]) -> TrailerKind {
    let mut rest = rest;
    while !rest.is_empty() {
        if is_mac(rest) {
            return TrailerKind::Mac;
        }
        let Ok((field, after)) = split_field(rest) else { return TrailerKind::Mac };
        if matches!(field.kind, UNIQUE_ID | COOKIE | PLACEHOLDER | AUTHENTICATOR) {
            return TrailerKind::Nts;
        }
        rest = after;
        if rest.is_empty() {
            return TrailerKind::OtherFields;
        }
    }
    TrailerKind::Empty
}

/// Returns the offset of the MAC in `rest`, in bytes; `None` if there is no MAC.
pub(crate) fn mac_offset(rest: &[u8]) -> Option<usize> {
    let mut left = rest;
    while !is_mac(left) {
        left = split_field(left).ok()?.1;
    }
    Some(rest.len() - left.len())
}

/// Returns true if `rest` is a MAC. A trailer of up to 24 bytes with the length of a MAC is always
/// one (RFC 7822, section 3). A longer one is a MAC unless it is a valid extension field with a
/// nonzero type; the position of the type holds the upper half of a MAC's key identifier.
fn is_mac(rest: &[u8]) -> bool {
    MAC_LENGTHS.contains(&rest.len())
        && (rest.len() <= 24 || rest.starts_with(&[0, 0]) || split_field(rest).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(kind: u16, len: u16) -> Vec<u8> {
        let mut field = vec![0x55; usize::from(len)];
        field[..2].copy_from_slice(&kind.to_be_bytes());
        field[2..4].copy_from_slice(&len.to_be_bytes());
        field
    }

    #[test]
    fn trailers_are_classified() {
        assert_eq!(classify_trailer(&[]), TrailerKind::Empty);
        assert_eq!(classify_trailer(&field(UNIQUE_ID, 36)), TrailerKind::Nts);
        assert_eq!(
            classify_trailer(&[field(0x0009, 28), field(COOKIE, 104)].concat()),
            TrailerKind::Nts
        );
        assert_eq!(classify_trailer(&field(0x0009, 28)), TrailerKind::OtherFields);
        for other in [&[0; 4][..], &[7; 11], &[0, 0, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5]] {
            assert_eq!((classify_trailer(other), mac_offset(other)), (TrailerKind::Mac, None));
            let with_field = [&field(0x0009, 28), other].concat();
            assert_eq!(
                (classify_trailer(&with_field), mac_offset(&with_field)),
                (TrailerKind::Mac, None)
            );
        }
        for len in MAC_LENGTHS {
            // Key 36 with SHA-256 has the very form of a field of type 0 and length 36.
            for id in [1u32, 36, 0xffff] {
                let mac = [&id.to_be_bytes()[..], &vec![0xab; len - 4]].concat();
                assert_eq!(classify_trailer(&mac), TrailerKind::Mac, "key {id}, {len} bytes");
                assert_eq!(mac_offset(&mac), Some(0));
                let with_field = [field(0x0009, 28), mac].concat();
                assert_eq!(
                    (classify_trailer(&with_field), mac_offset(&with_field)),
                    (TrailerKind::Mac, Some(28))
                );
            }
        }
    }
}
