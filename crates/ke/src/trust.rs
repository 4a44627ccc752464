//! Which certificate authorities a client trusts: those of one PEM file. The system's own are not
//! looked for: a measurement should not depend on what a machine happens to have installed.

use std::path::Path;
use std::sync::Arc;

use rustls::RootCertStore;

use crate::KeError;
use crate::certificate::certificates;

/// Certificates of authorities, or of servers that signed their own.
#[derive(Clone, Debug)]
pub struct Trust {
    pub(crate) roots: Arc<RootCertStore>,
}

impl Trust {
    /// Reads the certificates of a PEM file; all must be sound.
    ///
    /// # Errors
    ///
    /// Without a file, the message tells to give one.
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
