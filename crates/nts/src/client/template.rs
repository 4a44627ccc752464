//! Template for the requests of one NTS session, for load generators: the fields are written once,
//! then copied, completed and sealed for each request without allocation.

use horolog_wire::ntp::HEADER_LEN;
use horolog_wire::ntp::extension::{ExtensionFieldWriter, FIELD_LEN_MIN, PREFIX_LEN, field_len};

use super::{UNIQUE_ID_LEN, request_len, write_authenticator, write_fields};
use crate::aead::AeadKey;
use crate::{AeadAlgorithm, SessionKeys};

const UNIQUE_ID_OFFSET: usize = HEADER_LEN + PREFIX_LEN;
const COOKIE_OFFSET: usize = UNIQUE_ID_OFFSET + UNIQUE_ID_LEN + PREFIX_LEN;

/// Template of a request, without header, unique identifier and authenticator.
pub struct RequestTemplate {
    algorithm: AeadAlgorithm,
    key: AeadKey,
    cookie_len: usize,
    /// Bytes that the authenticator covers, of a request with all placeholders.
    covered: Box<[u8]>,
}

impl RequestTemplate {
    /// Creates a template for a session with `keys`, with `cookie` and up to `placeholders`
    /// placeholder fields.
    #[must_use]
    pub fn new(keys: &SessionKeys, cookie: &[u8], placeholders: usize) -> Self {
        let algorithm = keys.algorithm();
        let mut covered = vec![0; request_len(algorithm, cookie.len(), placeholders)];
        let mut fields = ExtensionFieldWriter::new(&mut covered);
        let unknown = ([0; HEADER_LEN], [0; UNIQUE_ID_LEN]);
        let written = write_fields(&mut fields, &unknown.0, &unknown.1, cookie, placeholders);
        debug_assert!(written.is_some(), "`covered` is as long as the whole request");
        let len = fields.written_len();
        covered.truncate(len);
        let key = AeadKey::new(algorithm, keys.c2s());
        Self { algorithm, key, cookie_len: cookie.len(), covered: covered.into() }
    }

    /// Returns the length of a request with this number of placeholders, in bytes.
    #[must_use]
    pub const fn request_len(&self, placeholders: usize) -> usize {
        request_len(self.algorithm, self.cookie_len, placeholders)
    }

    /// Replaces the cookie. Returns false, and changes nothing, if the new one has another length.
    pub fn replace_cookie(&mut self, cookie: &[u8]) -> bool {
        let fits = cookie.len() == self.cookie_len;
        if fits {
            self.covered[COOKIE_OFFSET..COOKIE_OFFSET + cookie.len()].copy_from_slice(cookie);
        }
        fits
    }

    /// Writes a sealed request with this number of placeholders to the front of `out`. Returns its
    /// length in bytes; 0 if `out` is too short, or the template has fewer placeholders. `nonce`
    /// must be random.
    pub fn seal(
        &self,
        header: &[u8; HEADER_LEN],
        unique_id: &[u8; UNIQUE_ID_LEN],
        nonce: &[u8; 16],
        placeholders: usize,
        out: &mut [u8],
    ) -> usize {
        let cookies_len = (1 + placeholders) * field_len(self.cookie_len, FIELD_LEN_MIN);
        let len = COOKIE_OFFSET - PREFIX_LEN + cookies_len;
        let mut request = ExtensionFieldWriter::new(out);
        let (Some(template), Some((_, covered))) = (self.covered.get(..len), request.reserve(len))
        else {
            return 0;
        };
        covered.copy_from_slice(template);
        covered[..HEADER_LEN].copy_from_slice(header);
        covered[UNIQUE_ID_OFFSET..UNIQUE_ID_OFFSET + UNIQUE_ID_LEN].copy_from_slice(unique_id);
        write_authenticator(request, &self.key, self.algorithm, nonce).unwrap_or(0)
    }
}

impl core::fmt::Debug for RequestTemplate {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let len = self.request_len(0);
        f.debug_struct("RequestTemplate").field("len", &len).finish_non_exhaustive()
    }
}
