//! Keys of an NTS session: the result of an NTS-KE exchange, and the content of a cookie. The keys
//! are wiped on drop and never printed.

use core::fmt;

use thiserror::Error;
use zeroize::ZeroizeOnDrop;

use crate::AeadAlgorithm;
use crate::aead::KEY_LEN_MAX;

/// Error: a key has the wrong length for its algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("a key of {got} bytes; {algorithm} requires {want}")]
pub struct WrongKeyLength {
    /// Algorithm for which the key was to be.
    pub algorithm: AeadAlgorithm,
    /// The required length, in bytes.
    pub want: usize,
    /// The actual length, in bytes.
    pub got: usize,
}

/// AEAD algorithm of a session, and a key for each direction (RFC 8915, section 4.3).
#[derive(Clone, ZeroizeOnDrop)]
pub struct SessionKeys {
    #[zeroize(skip)]
    algorithm: AeadAlgorithm,
    c2s: [u8; KEY_LEN_MAX],
    s2c: [u8; KEY_LEN_MAX],
}

impl SessionKeys {
    /// Creates the keys from their bytes: client to server, server to client.
    pub fn new(algorithm: AeadAlgorithm, c2s: &[u8], s2c: &[u8]) -> Result<Self, WrongKeyLength> {
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

    /// Generates keys from the kernel's random bytes, for cookies that are not the result of an
    /// NTS-KE exchange.
    pub fn generate(algorithm: AeadAlgorithm) -> Result<Self, getrandom::Error> {
        let mut keys = Self { algorithm, c2s: [0; KEY_LEN_MAX], s2c: [0; KEY_LEN_MAX] };
        getrandom::fill(&mut keys.c2s[..algorithm.key_len()])?;
        getrandom::fill(&mut keys.s2c[..algorithm.key_len()])?;
        Ok(keys)
    }

    /// Creates the keys from their concatenation, as in a cookie; `None` if its length is wrong.
    pub(crate) fn from_concatenated(algorithm: AeadAlgorithm, both: &[u8]) -> Option<Self> {
        let (c2s, s2c) = both.split_at_checked(algorithm.key_len())?;
        Self::new(algorithm, c2s, s2c).ok()
    }

    /// Returns the AEAD algorithm for which the keys are.
    #[must_use]
    #[inline]
    pub const fn algorithm(&self) -> AeadAlgorithm {
        self.algorithm
    }

    /// Returns the client-to-server key, of the algorithm's length.
    #[must_use]
    pub fn c2s(&self) -> &[u8] {
        &self.c2s[..self.algorithm.key_len()]
    }

    /// Returns the server-to-client key, of the algorithm's length.
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
