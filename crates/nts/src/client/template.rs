//! Requests of one session that differ in the header and the unique identifier alone, for a
//! generator of load: written once, then copied and sealed without allocation. It keeps no
//! cookies: the same cookie goes out each time, which a client with a user would not do.

use horolog_wire::ntp::HEADER_LEN;

use super::{UNIQUE_ID_LEN, Writer, request_len, write_authenticator, write_fields};
use crate::aead::AeadKey;
use crate::field::PREFIX_LEN;
use crate::{Algorithm, SessionKeys};

const UNIQUE_ID_AT: usize = HEADER_LEN + PREFIX_LEN;

/// A request but for its header, its unique identifier and its authenticator.
pub struct RequestTemplate {
    algorithm: Algorithm,
    key: AeadKey,
    /// Everything that the authenticator covers.
    covered: Box<[u8]>,
}

impl RequestTemplate {
    /// For a session with `keys`, with `cookie` and `placeholders` fields as long as it.
    #[must_use]
    pub fn new(keys: &SessionKeys, cookie: &[u8], placeholders: usize) -> Self {
        let algorithm = keys.algorithm();
        let mut covered = vec![0; request_len(algorithm, cookie.len(), placeholders)];
        let mut fields = Writer::new(&mut covered);
        let unknown = ([0; HEADER_LEN], [0; UNIQUE_ID_LEN]);
        let written = write_fields(&mut fields, &unknown.0, &unknown.1, cookie, placeholders);
        debug_assert!(written.is_some(), "`covered` is as long as the whole request");
        let len = fields.len();
        covered.truncate(len);
        Self { algorithm, key: AeadKey::new(algorithm, keys.c2s()), covered: covered.into() }
    }

    /// Length of the requests, in bytes.
    #[must_use]
    pub fn request_len(&self) -> usize {
        self.covered.len() + crate::field::authenticator_len(self.algorithm.nonce_len(), 0)
    }

    /// Writes a request to the front of `out` and returns its length; 0 when `out` is too short.
    /// `nonce` is random.
    pub fn seal(
        &self,
        header: &[u8; HEADER_LEN],
        unique_id: &[u8; UNIQUE_ID_LEN],
        nonce: &[u8; 16],
        out: &mut [u8],
    ) -> usize {
        let mut request = Writer::new(out);
        let Some((_, covered)) = request.room(self.covered.len()) else { return 0 };
        covered.copy_from_slice(&self.covered);
        covered[..HEADER_LEN].copy_from_slice(header);
        covered[UNIQUE_ID_AT..UNIQUE_ID_AT + UNIQUE_ID_LEN].copy_from_slice(unique_id);
        write_authenticator(request, &self.key, self.algorithm, nonce).unwrap_or(0)
    }
}

impl core::fmt::Debug for RequestTemplate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("RequestTemplate").field("len", &self.request_len()).finish_non_exhaustive()
    }
}
