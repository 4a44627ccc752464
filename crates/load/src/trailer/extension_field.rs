//! NTP extension fields for requests, as a user specifies them: a type and a body (RFC 7822).

use std::str::FromStr;

use thiserror::Error;

/// Length of the type and length of a field, in bytes.
const PREFIX_LEN: usize = 4;
/// Shortest field, prefix included, in bytes (RFC 7822, section 3).
const FIELD_LEN_MIN: usize = 16;
/// Shortest last field of a packet without a MAC, in bytes: a shorter one would be parsed as a MAC
/// (RFC 7822, section 3).
const LAST_FIELD_LEN_MIN: usize = 28;
/// Longest body, in bytes: one that leaves a packet within an Ethernet frame.
const BODY_LEN_MAX: usize = 1024;

/// NTP extension field: type, and body without padding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ExtensionField {
    kind: u16,
    body: Vec<u8>,
}

/// Reason for which a text is not an extension field.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum ExtensionFieldError {
    /// Not a type and a body.
    #[error("write a type and a body, such as 0x2005:0a0b0c0d, or a type alone")]
    Syntax,
    /// The body is not a hexadecimal number.
    #[error("the body is not a sequence of hexadecimal digit pairs")]
    Hex,
    /// The body leaves no room in a frame.
    #[error("the body has more than {BODY_LEN_MAX} bytes")]
    TooLong,
}

impl FromStr for ExtensionField {
    type Err = ExtensionFieldError;

    /// Parses `TYPE` or `TYPE:BODY`: a decimal or `0x` hexadecimal number, and hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, ExtensionFieldError> {
        let (kind, body) = text.split_once(':').unwrap_or((text, ""));
        let kind = match kind.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16),
            None => kind.parse(),
        };
        let kind = kind.map_err(|_| ExtensionFieldError::Syntax)?;
        if body.len() > 2 * BODY_LEN_MAX {
            return Err(ExtensionFieldError::TooLong);
        }
        if !body.len().is_multiple_of(2) || !body.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(ExtensionFieldError::Hex);
        }
        let pair = |at: usize| u8::from_str_radix(&body[at..at + 2], 16);
        let body = (0..body.len()).step_by(2).map(pair).collect::<Result<_, _>>();
        Ok(Self { kind, body: body.map_err(|_| ExtensionFieldError::Hex)? })
    }
}

impl ExtensionField {
    /// Appends the field to a packet, padded with zeros to a valid length. `last` is true if it is
    /// the last field and no MAC follows.
    pub(super) fn write(&self, last: bool, packet: &mut Vec<u8>) {
        let len_min = if last { LAST_FIELD_LEN_MIN } else { FIELD_LEN_MIN };
        let len = (PREFIX_LEN + self.body.len()).next_multiple_of(4).max(len_min);
        let end = packet.len() + len;
        packet.extend(self.kind.to_be_bytes());
        // A body has at most 1,024 bytes.
        packet.extend((len as u16).to_be_bytes());
        packet.extend(&self.body);
        packet.resize(end, 0);
    }
}

/// Returns true if `rest` is a sequence of whole fields, or empty.
pub(super) fn is_field_sequence(mut rest: &[u8]) -> bool {
    while let &[_, _, high, low, ..] = rest {
        let len = usize::from(u16::from_be_bytes([high, low]));
        if len < FIELD_LEN_MIN || !len.is_multiple_of(4) || len > rest.len() {
            return false;
        }
        rest = &rest[len..];
    }
    rest.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_field_is_a_type_and_a_body() {
        let field: ExtensionField = "0x2005:0a0B".parse().unwrap();
        assert_eq!(field, ExtensionField { kind: 0x2005, body: vec![10, 11] });
        assert_eq!("8197".parse(), Ok(ExtensionField { kind: 8197, body: Vec::new() }));
        for bad in ["", ":", "x:00", "0x10000:00", "65536"] {
            assert_eq!(bad.parse::<ExtensionField>(), Err(ExtensionFieldError::Syntax), "{bad}");
        }
        for bad in ["1:0", "1:0g", "1:é0", "1:+1"] {
            assert_eq!(bad.parse::<ExtensionField>(), Err(ExtensionFieldError::Hex), "{bad}");
        }
        let long = format!("1:{}", "00".repeat(1025));
        assert_eq!(long.parse::<ExtensionField>(), Err(ExtensionFieldError::TooLong));
    }

    #[test]
    fn a_field_is_padded_to_what_is_allowed() {
        let field: ExtensionField = "1:ff".parse().unwrap();
        let mut packet = Vec::new();
        field.write(false, &mut packet);
        assert_eq!((packet.len(), &packet[..6]), (16, &[0, 1, 0, 16, 0xff, 0][..]));
        field.write(true, &mut packet);
        assert_eq!((packet.len(), &packet[16..21]), (44, &[0, 1, 0, 28, 0xff][..]));
        assert!(is_field_sequence(&packet) && is_field_sequence(&[]));
        assert!(!is_field_sequence(&packet[..43]) && !is_field_sequence(&[0, 1, 0, 4]));
        assert!(!is_field_sequence(&[1, 2]) && !is_field_sequence(&[0; 16]));
    }

    proptest! {
        #[test]
        fn what_is_written_are_fields(
            fields in proptest::collection::vec((any::<u16>(), 0..1025_usize), 0..5), last: bool
        ) {
            let mut packet = Vec::new();
            for (kind, len) in fields {
                let text = format!("{kind}:{}", "ab".repeat(len));
                text.parse::<ExtensionField>().unwrap().write(last, &mut packet);
            }
            prop_assert!(is_field_sequence(&packet));
        }

        #[test]
        fn any_bytes_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            is_field_sequence(&bytes);
        }
    }
}
