//! Certificate and private key of the server: read from PEM files, checked, and replaced while the
//! listener runs. A pair is replaced only by one that was loaded and checked.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use crate::NtsKeError;
use crate::validity::CertificateValidity;

/// Certificate chain with its private key and validity period.
#[derive(Clone, Debug)]
pub(crate) struct CertificateKeyPair {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) validity: CertificateValidity,
}

impl CertificateKeyPair {
    /// Reads the certificate chain and the key from PEM files, and checks that they match and have
    /// not expired at `now`.
    pub(crate) fn load(
        certificate: &Path,
        key: &Path,
        provider: &CryptoProvider,
        now: SystemTime,
    ) -> Result<Self, NtsKeError> {
        let chain = read_certificates(certificate)?;
        let validity = chain.first().and_then(|first| CertificateValidity::parse(first));
        let validity = validity.ok_or_else(|| NtsKeError::InvalidFile {
            what: "certificate",
            path: certificate.to_owned(),
            reason: "unreadable validity period".into(),
        })?;
        if validity.not_after < now {
            return Err(NtsKeError::Expired {
                path: certificate.to_owned(),
                since: Timestamp::try_from(validity.not_after)
                    .unwrap_or(Timestamp::MAX)
                    .to_string(),
            });
        }
        let secret = PrivateKeyDer::from_pem_reader(open_file("key", key)?)
            .map_err(|error| pem_error("private key", key, error))?;
        let certified = CertifiedKey::from_der(chain, secret, provider).map_err(|error| {
            if matches!(error, Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) {
                return NtsKeError::KeyMismatch {
                    certificate: certificate.to_owned(),
                    key: key.to_owned(),
                };
            }
            // rustls reports a certificate that it cannot parse here, too.
            let (what, path) = match error {
                Error::InvalidCertificate(_) => ("certificate", certificate),
                _ => ("private key", key),
            };
            NtsKeError::InvalidFile { what, path: path.to_owned(), reason: error.to_string() }
        })?;
        Ok(Self { certified: Arc::new(certified), validity })
    }
}

/// Reads the certificates of a PEM file; an error if there are none.
pub(crate) fn read_certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, NtsKeError> {
    let what = "certificate";
    let chain: Vec<_> = CertificateDer::pem_reader_iter(open_file(what, path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| pem_error(what, path, error))?;
    if chain.is_empty() {
        return Err(NtsKeError::NoPemItems { what, path: path.to_owned() });
    }
    Ok(chain)
}

fn open_file(what: &'static str, path: &Path) -> Result<BufReader<File>, NtsKeError> {
    File::open(path).map(BufReader::new).map_err(|error| NtsKeError::Unreadable {
        what,
        path: path.to_owned(),
        error,
    })
}

fn pem_error(what: &'static str, path: &Path, error: pem::Error) -> NtsKeError {
    let path = path.to_owned();
    match error {
        pem::Error::NoItemsFound => NtsKeError::NoPemItems { what, path },
        pem::Error::Io(error) => NtsKeError::Unreadable { what, path, error },
        other => NtsKeError::InvalidFile { what, path, reason: other.to_string() },
    }
}

/// Resolver by which rustls obtains the current certificate for each handshake.
#[derive(Debug)]
pub(crate) struct CertificateResolver(ArcSwap<CertificateKeyPair>);

impl CertificateResolver {
    pub(crate) fn new(pair: CertificateKeyPair) -> Self {
        Self(ArcSwap::from_pointee(pair))
    }

    pub(crate) fn replace(&self, pair: CertificateKeyPair) {
        self.0.store(Arc::new(pair));
    }

    pub(crate) fn validity(&self) -> CertificateValidity {
        self.0.load().validity
    }
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0.load().certified))
    }
}
