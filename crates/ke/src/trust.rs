//! Trust anchors of a client: the certificates in one PEM file. The system's certificates are not
//! used, so that a measurement does not depend on what is installed on the host.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;

use crate::NtsKeError;
use crate::certificate::read_certificates;

/// Trusted certificates: of authorities, or self-signed ones of servers.
#[derive(Clone, Debug)]
pub struct TrustAnchors {
    pub(crate) roots: Arc<RootCertStore>,
}

impl TrustAnchors {
    /// Reads the certificates of a PEM file; all must be valid.
    ///
    /// # Errors
    ///
    /// No file is specified, or it cannot be read or parsed.
    pub fn from_pem_file(path: Option<&Path>) -> Result<Self, NtsKeError> {
        let path = path.ok_or(NtsKeError::NoAuthority)?;
        let mut roots = RootCertStore::empty();
        for certificate in read_certificates(path)? {
            roots.add(certificate).map_err(|error| NtsKeError::InvalidFile {
                what: "certificate",
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
        }
        Ok(Self { roots: Arc::new(roots) })
    }
}
