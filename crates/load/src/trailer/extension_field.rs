//! Notation of NTP extension fields for requests: a type and a body (RFC 7822).

use std::str::FromStr;

use horolog_wire::ntp::extension::ExtensionFieldType;
use thiserror::Error;

/// Longest body, in bytes: one that leaves a packet within an Ethernet frame.
const BODY_LEN_MAX: usize = 1024;

/// NTP extension field: type, and body without padding.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RequestExtensionField {
    pub(super) field_type: ExtensionFieldType,
    pub(super) body: Vec<u8>,
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

impl FromStr for RequestExtensionField {
    type Err = ExtensionFieldError;

    /// Parses `TYPE` or `TYPE:BODY`: a decimal or `0x` hexadecimal number, and hexadecimal digits.
    fn from_str(text: &str) -> Result<Self, ExtensionFieldError> {
        let (number, body) = text.split_once(':').unwrap_or((text, ""));
        let number = match number.strip_prefix("0x") {
            Some(digits) => u16::from_str_radix(digits, 16),
            None => number.parse(),
        };
        let field_type = number.map(ExtensionFieldType).map_err(|_| ExtensionFieldError::Syntax)?;
        if body.len() > 2 * BODY_LEN_MAX {
            return Err(ExtensionFieldError::TooLong);
        }
        if !body.len().is_multiple_of(2) || !body.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(ExtensionFieldError::Hex);
        }
        let pair = |at: usize| u8::from_str_radix(&body[at..at + 2], 16);
        let body = (0..body.len()).step_by(2).map(pair).collect::<Result<_, _>>();
        Ok(Self { field_type, body: body.map_err(|_| ExtensionFieldError::Hex)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_a_type_and_a_body() {
        let field: RequestExtensionField = "0x2005:0a0B".parse().unwrap();
        let field_type = ExtensionFieldType(0x2005);
        assert_eq!(field, RequestExtensionField { field_type, body: vec![10, 11] });
        assert_eq!("8197".parse(), Ok(RequestExtensionField { field_type, body: Vec::new() }));
        for bad in ["", ":", "x:00", "0x10000:00", "65536"] {
            assert_eq!(
                bad.parse::<RequestExtensionField>(),
                Err(ExtensionFieldError::Syntax),
                "{bad}"
            );
        }
        for bad in ["1:0", "1:0g", "1:é0", "1:+1"] {
            assert_eq!(
                bad.parse::<RequestExtensionField>(),
                Err(ExtensionFieldError::Hex),
                "{bad}"
            );
        }
        let long = format!("1:{}", "00".repeat(1025));
        assert_eq!(long.parse::<RequestExtensionField>(), Err(ExtensionFieldError::TooLong));
    }
}
