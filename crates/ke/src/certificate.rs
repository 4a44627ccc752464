//! The server's certificate and key: read from PEM files, checked, and replaced while running. An
//! unusable pair never replaces a usable one.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{Error, InconsistentKeys};

use crate::KeError;
use crate::validity::CertificateValidity;

/// A certificate with its key, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct Pair {
    pub(crate) certified: Arc<CertifiedKey>,
    pub(crate) validity: CertificateValidity,
}

impl Pair {
    /// Reads and checks both.
    pub(crate) fn load(
        certificate: &Path,
        key: &Path,
        provider: &CryptoProvider,
        now: SystemTime,
    ) -> Result<Self, KeError> {
        let chain = certificates(certificate)?;
        let validity = chain.first().and_then(|first| CertificateValidity::parse(first));
        let validity = validity.ok_or_else(|| KeError::Damaged {
            what: "certificate",
            path: certificate.to_owned(),
            reason: "unreadable validity period".into(),
        })?;
        if validity.not_after < now {
            return Err(KeError::Expired {
                path: certificate.to_owned(),
                since: humantime::format_rfc3339_seconds(validity.not_after).to_string(),
            });
        }
        let secret = PrivateKeyDer::from_pem_reader(open("key", key)?)
            .map_err(|error| explain("private key", key, error))?;
        let certified = CertifiedKey::from_der(chain, secret, provider).map_err(|error| {
            if matches!(error, Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) {
                return KeError::KeyDoesNotFit {
                    certificate: certificate.to_owned(),
                    key: key.to_owned(),
                };
            }
            // A certificate that cannot be parsed is detected here as well.
            let (what, path) = match error {
                Error::InvalidCertificate(_) => ("certificate", certificate),
                _ => ("private key", key),
            };
            KeError::Damaged { what, path: path.to_owned(), reason: error.to_string() }
        })?;
        Ok(Self { certified: Arc::new(certified), validity })
    }
}

/// The certificates of a PEM file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, KeError> {
    let what = "certificate";
    let chain: Vec<_> = CertificateDer::pem_reader_iter(open(what, path)?)
        .collect::<Result<_, _>>()
        .map_err(|error| explain(what, path, error))?;
    if chain.is_empty() {
        return Err(KeError::Empty { what, path: path.to_owned() });
    }
    Ok(chain)
}

fn open(what: &'static str, path: &Path) -> Result<BufReader<File>, KeError> {
    File::open(path).map(BufReader::new).map_err(|error| KeError::Unreadable {
        what,
        path: path.to_owned(),
        error,
    })
}

fn explain(what: &'static str, path: &Path, error: pem::Error) -> KeError {
    let path = path.to_owned();
    match error {
        pem::Error::NoItemsFound => KeError::Empty { what, path },
        pem::Error::Io(error) => KeError::Unreadable { what, path, error },
        other => KeError::Damaged { what, path, reason: other.to_string() },
    }
}

/// Resolver that gives each handshake the current pair.
#[derive(Debug)]
pub(crate) struct CertificateResolver(ArcSwap<Pair>);

impl CertificateResolver {
    pub(crate) fn new(pair: Pair) -> Self {
        Self(ArcSwap::from_pointee(pair))
    }

    pub(crate) fn exchange(&self, pair: Pair) {
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
