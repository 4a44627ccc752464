//! Master secret of cookies, from which all servers that share it derive the same keys. The caller
//! reads its file; this module parses the text.

use core::fmt;

use thiserror::Error;
use zeroize::{ZeroizeOnDrop, Zeroizing};

/// Length of the secret, in bytes.
const SECRET_LEN: usize = 32;

/// Reason why a master secret could not be obtained.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum CookieMasterSecretError {
    /// The text is not 64 hexadecimal digits.
    #[error(
        "the master secret has {digits} hexadecimal digits{}; it requires 64, for 32 random bytes: \
         create one with `openssl rand -hex 32`",
        if *.foreign { " and other characters" } else { "" }
    )]
    NotHexadecimal {
        /// Number of hexadecimal digits in the text.
        digits: usize,
        /// True if the text contains other characters, apart from white space at its ends.
        foreign: bool,
    },
    /// The kernel provided no random bytes.
    #[error("cannot read random bytes from the kernel: {0}")]
    NoRandomBytes(getrandom::Error),
}

/// Master secret of 32 bytes, wiped on drop and never printed.
#[derive(Clone, ZeroizeOnDrop)]
pub struct CookieMasterSecret([u8; SECRET_LEN]);

impl CookieMasterSecret {
    /// Creates a master secret from its bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; SECRET_LEN]) -> Self {
        Self(bytes)
    }

    /// Generates a master secret from the kernel's random bytes, for a server that does not share
    /// it.
    pub fn generate() -> Result<Self, CookieMasterSecretError> {
        let mut secret = Self([0; SECRET_LEN]);
        getrandom::fill(&mut secret.0).map_err(CookieMasterSecretError::NoRandomBytes)?;
        Ok(secret)
    }

    /// Parses 64 hexadecimal digits, with optional white space around them.
    pub fn parse(text: &str) -> Result<Self, CookieMasterSecretError> {
        let text = text.trim();
        let digits = text.bytes().filter(u8::is_ascii_hexdigit).count();
        let refused =
            CookieMasterSecretError::NotHexadecimal { digits, foreign: digits != text.len() };
        if digits != 2 * SECRET_LEN || digits != text.len() {
            return Err(refused);
        }
        let mut secret = Self([0; SECRET_LEN]);
        for (byte, pair) in secret.0.iter_mut().zip(text.as_bytes().chunks(2)) {
            *byte = pair.iter().fold(0, |value, digit| value << 4 | hex_value(*digit));
        }
        Ok(secret)
    }

    /// Formats the secret as hexadecimal digits for [`CookieMasterSecret::parse`].
    #[must_use]
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::with_capacity(2 * SECRET_LEN));
        for byte in &self.0 {
            for digit in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(digit), 16).unwrap_or('0'));
            }
        }
        text
    }

    pub(crate) const fn bytes(&self) -> &[u8; SECRET_LEN] {
        &self.0
    }
}

/// Returns the value of a hexadecimal digit; 0 for other characters.
pub(crate) fn hex_value(digit: u8) -> u8 {
    char::from(digit).to_digit(16).unwrap_or(0) as u8
}

impl fmt::Debug for CookieMasterSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MasterSecret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        let secret = CookieMasterSecret::from_bytes(core::array::from_fn(|i| 0xf0 ^ i as u8));
        let again = CookieMasterSecret::parse(&format!("\n {}\t\n", *secret.to_text())).unwrap();
        assert_eq!(again.bytes(), secret.bytes());
        let upper = CookieMasterSecret::parse(&secret.to_text().to_uppercase()).unwrap();
        assert_eq!(upper.bytes(), secret.bytes());
    }

    #[test]
    fn an_error_contains_its_reason_and_never_the_secret() {
        let short = CookieMasterSecret::parse(&"ab".repeat(31)).unwrap_err();
        assert_eq!(short, CookieMasterSecretError::NotHexadecimal { digits: 62, foreign: false });
        let foreign = CookieMasterSecret::parse(&format!("{}xy", "ab".repeat(31))).unwrap_err();
        assert!(foreign.to_string().contains("62 hexadecimal digits and other characters"));
        assert!(!foreign.to_string().contains("abab"));
        let secret = CookieMasterSecret::from_bytes([0xab; 32]);
        assert_eq!(format!("{secret:?}"), "MasterSecret(..)");
    }

    #[test]
    fn generated_secrets_differ() {
        let (a, b) =
            (CookieMasterSecret::generate().unwrap(), CookieMasterSecret::generate().unwrap());
        assert_ne!(a.bytes(), b.bytes());
    }
}
