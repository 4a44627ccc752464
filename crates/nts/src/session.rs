//! Keys shared by a client and a server: the result of NTS key establishment, and the content of a
//! cookie. Their bytes are wiped on drop, and nothing prints them.

use core::fmt;

use thiserror::Error;
use zeroize::ZeroizeOnDrop;

use crate::Algorithm;
use crate::aead::KEY_LEN_MAX;

/// Keys of the wrong length for their algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a key of {got} bytes; {algorithm} requires {want}")]
pub struct WrongKeyLength {
    /// The algorithm.
    pub algorithm: Algorithm,
    /// The required length, in bytes.
    pub want: usize,
    /// The actual length, in bytes.
    pub got: usize,
}

/// An algorithm and a key for each direction (RFC 8915, section 4.3).
#[derive(Clone, ZeroizeOnDrop)]
pub struct SessionKeys {
    #[zeroize(skip)]
    algorithm: Algorithm,
    c2s: [u8; KEY_LEN_MAX],
    s2c: [u8; KEY_LEN_MAX],
}

impl SessionKeys {
    /// Creates the keys from their bytes: client to server, server to client.
    pub fn new(algorithm: Algorithm, c2s: &[u8], s2c: &[u8]) -> Result<Self, WrongKeyLength> {
        let want = algorithm.key_len();
        for key in [c2s, s2c] {
            if key.len() != want {
                return Err(WrongKeyLength { algorithm, want, got: key.len() });
            }
        }
        let mut keys = Self { algorithm, c2s: [0; KEY_LEN_MAX], s2c: [0; KEY_LEN_MAX] };
        keys.c2s[..want].copy_from_slice(c2s);
        keys.s2c[..want].copy_from_slice(s2c);
        Ok(keys)
    }

    /// Generates new ones from the kernel's random bytes, for sealing cookies that no client
    /// requested.
    pub fn generate(algorithm: Algorithm) -> Result<Self, getrandom::Error> {
        let mut keys = Self { algorithm, c2s: [0; KEY_LEN_MAX], s2c: [0; KEY_LEN_MAX] };
        getrandom::fill(&mut keys.c2s[..algorithm.key_len()])?;
        getrandom::fill(&mut keys.s2c[..algorithm.key_len()])?;
        Ok(keys)
    }

    /// Both keys, one after the other, as in a cookie.
    pub(crate) fn of_both(algorithm: Algorithm, both: &[u8]) -> Option<Self> {
        let (c2s, s2c) = both.split_at_checked(algorithm.key_len())?;
        Self::new(algorithm, c2s, s2c).ok()
    }

    /// The AEAD algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// The client-to-server key.
    #[must_use]
    pub fn c2s(&self) -> &[u8] {
        &self.c2s[..self.algorithm.key_len()]
    }

    /// The server-to-client key.
    #[must_use]
    pub fn s2c(&self) -> &[u8] {
        &self.s2c[..self.algorithm.key_len()]
    }
}

impl fmt::Debug for SessionKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKeys").field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}
