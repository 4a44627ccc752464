//! Certificate authorities that a client trusts: those of one PEM file. The system's own are not
//! used: a measurement should not depend on the certificates installed on a host.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;

use crate::KeError;
use crate::certificate::certificates;

/// Certificates of authorities, or of servers with self-signed ones.
#[derive(Clone, Debug)]
pub struct TrustAnchors {
    pub(crate) roots: Arc<RootCertStore>,
}

impl TrustAnchors {
    /// Reads the certificates of a PEM file; all must be valid.
    ///
    /// # Errors
    ///
    /// Without a file, the message advises to specify one.
    pub fn from_pem_file(path: Option<&Path>) -> Result<Self, KeError> {
        let path = path.ok_or(KeError::NoTrust)?;
        let mut roots = RootCertStore::empty();
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| KeError::Damaged {
                what: "certificate",
                path: path.to_owned(),
                reason: error.to_string(),
            })?;
        }
        Ok(Self { roots: Arc::new(roots) })
    }
}
