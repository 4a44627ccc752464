//! NTS session supplied by the user as text: client-to-server key and cookie from an NTS-KE
//! exchange of another client, in hexadecimal digits, separated by a comma. The server-to-client
//! key may follow; without it, replies cannot be opened.

use core::fmt;

use thiserror::Error;
use zeroize::Zeroizing;

use crate::client::FOREIGN_COOKIE_LEN_MAX;
use crate::secret::hex_value;
use crate::{AeadAlgorithm, SessionKeys};

/// The only algorithm of imported sessions (RFC 8915, section 5.1).
const ALGORITHM: AeadAlgorithm = AeadAlgorithm::AesSivCmac256;

/// Reason why a text is not an imported session. The message contains no part of the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum ImportedSessionError {
    /// The text does not have two or three parts.
    #[error(
        "an imported session is a key and a cookie, C2S,COOKIE, or C2S,COOKIE,S2C; this one \
             has {0} parts"
    )]
    Parts(usize),
    /// A part is not pairs of hexadecimal digits.
    #[error("the {0} is not a sequence of hexadecimal digit pairs")]
    NotHexadecimal(&'static str),
    /// A key has the wrong length.
    #[error("the {part} has {got} bytes; AEAD_AES_SIV_CMAC_256 (15) requires {want}")]
    Key {
        /// Name of the key: `key C2S` or `key S2C`.
        part: &'static str,
        /// Actual length, in bytes.
        got: usize,
        /// Required length, in bytes.
        want: usize,
    },
    /// The cookie is empty or longer than 1024 bytes; the field is its length, in bytes.
    #[error("the cookie has {0} bytes; 1 to {FOREIGN_COOKIE_LEN_MAX} are supported")]
    Cookie(usize),
}

/// Imported session. Its keys and its cookie are wiped on drop and never printed.
#[derive(Clone)]
pub struct ImportedSession {
    keys: SessionKeys,
    cookie: Zeroizing<Vec<u8>>,
    can_open_replies: bool,
}

impl ImportedSession {
    /// Parses `C2S,COOKIE` or `C2S,COOKIE,S2C`.
    pub fn parse(text: &str) -> Result<Self, ImportedSessionError> {
        let mut parts = text.trim().split(',');
        let (Some(c2s), Some(cookie), s2c, None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(ImportedSessionError::Parts(text.split(',').count()));
        };
        let c2s = parse_key(c2s, "key C2S")?;
        let cookie = parse_hex(cookie, "cookie")?;
        if !(1..=FOREIGN_COOKIE_LEN_MAX).contains(&cookie.len()) {
            return Err(ImportedSessionError::Cookie(cookie.len()));
        }
        let s2c = s2c.map(|text| parse_key(text, "key S2C")).transpose()?;
        // Without a server-to-client key, no reply is opened; the other key is a placeholder.
        let opener = s2c.as_ref().unwrap_or(&c2s);
        let keys = SessionKeys::new(ALGORITHM, &c2s, opener).map_err(|wrong| {
            ImportedSessionError::Key { part: "key", got: wrong.got, want: wrong.want }
        })?;
        Ok(Self { keys, cookie, can_open_replies: s2c.is_some() })
    }

    /// Returns the session keys. The server-to-client key is valid only if
    /// [`Self::can_open_replies`] returns true; otherwise it equals the client-to-server key.
    #[must_use]
    pub const fn keys(&self) -> &SessionKeys {
        &self.keys
    }

    /// Returns the cookie.
    #[must_use]
    pub fn cookie(&self) -> &[u8] {
        &self.cookie
    }

    /// Returns true if the server-to-client key is known.
    #[must_use]
    pub const fn can_open_replies(&self) -> bool {
        self.can_open_replies
    }
}

impl fmt::Debug for ImportedSession {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ImportedSession")
            .field("opens", &self.can_open_replies)
            .finish_non_exhaustive()
    }
}

fn parse_key(text: &str, part: &'static str) -> Result<Zeroizing<Vec<u8>>, ImportedSessionError> {
    let key = parse_hex(text, part)?;
    let (got, want) = (key.len(), ALGORITHM.key_len());
    if got == want { Ok(key) } else { Err(ImportedSessionError::Key { part, got, want }) }
}

fn parse_hex(text: &str, part: &'static str) -> Result<Zeroizing<Vec<u8>>, ImportedSessionError> {
    let digits = text.trim().as_bytes();
    if !digits.len().is_multiple_of(2) || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(ImportedSessionError::NotHexadecimal(part));
    }
    let value = |pair: &[u8]| pair.iter().fold(0, |value, digit| value << 4 | hex_value(*digit));
    Ok(Zeroizing::new(digits.chunks(2).map(value).collect()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: &str = "44508cc523bd3ff2334a3b73e70969bf69bc4753eb745fd8ec054ff083df788c";

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |text, byte| text + &format!("{byte:02X}"))
    }

    #[test]
    fn a_key_and_a_cookie_are_a_session_that_opens_nothing() {
        let session = ImportedSession::parse(&format!("{KEY},2D1FF1")).unwrap();
        assert_eq!(
            (session.cookie(), session.can_open_replies()),
            (&[0x2d, 0x1f, 0xf1][..], false)
        );
        assert_eq!(hex(session.keys().c2s()).to_lowercase(), KEY);
        let both = ImportedSession::parse(&format!("{KEY},2d,{}", "ab".repeat(32))).unwrap();
        assert!(both.can_open_replies() && both.keys().s2c() == [0xab; 32]);
    }

    #[test]
    fn what_is_wrong_is_named_and_never_shown() {
        let long = "ab".repeat(FOREIGN_COOKIE_LEN_MAX + 1);
        let cases = [
            (String::new(), ImportedSessionError::Parts(1)),
            (KEY.to_owned(), ImportedSessionError::Parts(1)),
            (format!("{KEY},aa,{KEY},aa"), ImportedSessionError::Parts(4)),
            (format!("{KEY},"), ImportedSessionError::Cookie(0)),
            (format!("{KEY},{long}"), ImportedSessionError::Cookie(FOREIGN_COOKIE_LEN_MAX + 1)),
            (format!("{KEY},abc"), ImportedSessionError::NotHexadecimal("cookie")),
            (format!("0x{KEY},ab"), ImportedSessionError::NotHexadecimal("key C2S")),
            (
                format!("{KEY}aa,ab"),
                ImportedSessionError::Key { part: "key C2S", got: 33, want: 32 },
            ),
            (
                format!("{KEY},ab,aa"),
                ImportedSessionError::Key { part: "key S2C", got: 1, want: 32 },
            ),
        ];
        for (text, error) in cases {
            assert_eq!(ImportedSession::parse(&text).unwrap_err(), error);
            assert!(!error.to_string().contains(&KEY[..8]));
        }
        let session = ImportedSession::parse(&format!("{KEY},ab")).unwrap();
        assert!(!format!("{session:?}").contains("4450"));
    }

    proptest! {
        #[test]
        fn no_text_upsets_it(text: String) {
            let _ = ImportedSession::parse(&text);
        }

        #[test]
        fn what_is_written_is_read(
            c2s: [u8; 32],
            cookie in prop::collection::vec(any::<u8>(), 1..200),
            s2c: Option<[u8; 32]>,
        ) {
            let mut text = format!("{},{}", hex(&c2s), hex(&cookie));
            if let Some(s2c) = s2c {
                text = format!("{text},{}", hex(&s2c));
            }
            let session = ImportedSession::parse(&text).unwrap();
            prop_assert_eq!(session.keys().c2s(), c2s);
            prop_assert_eq!(session.cookie(), cookie);
            prop_assert_eq!(session.can_open_replies(), s2c.is_some());
        }
    }
}
