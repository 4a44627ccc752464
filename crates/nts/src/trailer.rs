//! Cheap classification of the trailer of an NTP packet, before anything is computed. It
//! authenticates nothing.

use crate::field::{AUTHENTICATOR, COOKIE, PLACEHOLDER, UNIQUE_ID, split};

/// Kind of the bytes after the 48-byte header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrailerKind {
    /// Nothing.
    Plain,
    /// Extension fields, at least one of them of NTS.
    Nts,
    /// A message authentication code, or other bytes that are not an extension field (including a
    /// crypto-NAK of RFC 5905, section 7.3, and authenticators of other forms), perhaps after such
    /// fields.
    Mac,
    /// Other extension fields only.
    Fields,
}

/// Lengths of a key identifier and a digest: truncated or CMAC (20), SHA-1 (24), SHA-256 (36),
/// SHA-384 (52), SHA-512 (68); in bytes.
const MAC_LENGTHS: [usize; 5] = [20, 24, 36, 52, 68];

/// Classifies `rest`, the bytes after the header.
#[must_use]
pub fn classify_trailer(rest: &[u8]) -> TrailerKind {
    let mut rest = rest;
    while !rest.is_empty() {
        if is_mac(rest) {
            return TrailerKind::Mac;
        }
        let Ok((field, after)) = split(rest) else { return TrailerKind::Mac };
        if matches!(field.kind, UNIQUE_ID | COOKIE | PLACEHOLDER | AUTHENTICATOR) {
            return TrailerKind::Nts;
        }
        rest = after;
        if rest.is_empty() {
            return TrailerKind::Fields;
        }
    }
    TrailerKind::Plain
}

/// Offset of the MAC in `rest`, if there is one.
pub(crate) fn mac_at(rest: &[u8]) -> Option<usize> {
    let mut left = rest;
    while !is_mac(left) {
        left = split(left).ok()?.1;
    }
    Some(rest.len() - left.len())
}

/// Returns true for a MAC. Up to 24 bytes are always a MAC (RFC 7822, section 3). Longer ones, with
/// digests that are not truncated, are distinguished from a field by two properties of a field that
/// they lack: a type other than zero (the upper half of the key identifier) or a length that is
/// valid.
fn is_mac(rest: &[u8]) -> bool {
    MAC_LENGTHS.contains(&rest.len())
        && (rest.len() <= 24 || rest.starts_with(&[0, 0]) || split(rest).is_err())
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
        assert_eq!(classify_trailer(&[]), TrailerKind::Plain);
        assert_eq!(classify_trailer(&field(UNIQUE_ID, 36)), TrailerKind::Nts);
        assert_eq!(
            classify_trailer(&[field(0x0009, 28), field(COOKIE, 104)].concat()),
            TrailerKind::Nts
        );
        assert_eq!(classify_trailer(&field(0x0009, 28)), TrailerKind::Fields);
        for other in [&[0; 4][..], &[7; 11], &[0, 0, 0, 1, 5, 5, 5, 5, 5, 5, 5, 5]] {
            assert_eq!((classify_trailer(other), mac_at(other)), (TrailerKind::Mac, None));
            let with_field = [&field(0x0009, 28), other].concat();
            assert_eq!(
                (classify_trailer(&with_field), mac_at(&with_field)),
                (TrailerKind::Mac, None)
            );
        }
        for len in MAC_LENGTHS {
            // Key 36 with SHA-256 has the very form of a field of type 0 and length 36.
            for id in [1u32, 36, 0xffff] {
                let mac = [&id.to_be_bytes()[..], &vec![0xab; len - 4]].concat();
                assert_eq!(classify_trailer(&mac), TrailerKind::Mac, "key {id}, {len} bytes");
                assert_eq!(mac_at(&mac), Some(0));
                let with_field = [field(0x0009, 28), mac].concat();
                assert_eq!(
                    (classify_trailer(&with_field), mac_at(&with_field)),
                    (TrailerKind::Mac, Some(28))
                );
            }
        }
    }
}
