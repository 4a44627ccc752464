//! Verification of a server's certificate by a client, with a cache. For a load generator, which
//! receives the same chain in each handshake, verifying the chain would cost as much as the rest of
//! the verification. The signature of each handshake is always verified.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::validity::CertificateValidity;
use crate::{NtsKeError, TrustAnchors};

/// Verifier that caches the last valid certificate chain until the earliest expiry of its
/// certificates. The same chain, byte for byte and for the same name, is then accepted without
/// verification.
#[derive(Debug)]
pub(crate) struct CachingVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    last_valid: ArcSwapOption<CachedVerification>,
}

/// Certificate chain that was found valid for a name.
#[derive(Debug)]
struct CachedVerification {
    certificates: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
    /// Time of the verification. The entry is not used at earlier times, at which a certificate may
    /// not be valid yet.
    verified_at: UnixTime,
    /// Earliest expiry of the certificates.
    expires_at: SystemTime,
}

impl CachingVerifier {
    /// Creates a cache around rustls's default verifier.
    pub(crate) fn new(
        trust: &TrustAnchors,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, NtsKeError> {
        let roots = Arc::clone(&trust.roots);
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
            .build()
            .map(|verifier| Self::from_verifier(verifier))
            .map_err(|error| NtsKeError::Configuration(error.to_string()))
    }

    fn from_verifier(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self { verifier, last_valid: ArcSwapOption::empty() }
    }
}

impl CachedVerification {
    /// Creates an entry; `None` if the validity of a certificate cannot be parsed.
    fn new(
        certificates: &[&CertificateDer<'_>],
        name: &ServerName<'_>,
        verified_at: UnixTime,
    ) -> Option<Self> {
        let ends = certificates.iter().map(|der| Some(CertificateValidity::parse(der)?.not_after));
        Some(Self {
            expires_at: ends.collect::<Option<Vec<_>>>()?.into_iter().min()?,
            certificates: certificates
                .iter()
                .map(|der| der.to_owned().clone().into_owned())
                .collect(),
            name: name.to_owned(),
            verified_at,
        })
    }

    fn covers(
        &self,
        certificates: &[&CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> bool {
        self.verified_at <= now
            && UNIX_EPOCH + Duration::from_secs(now.as_secs()) <= self.expires_at
            && self.name == *name
            && self.certificates.iter().eq(certificates.iter().copied())
    }
}

impl ServerCertVerifier for CachingVerifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let certificates: Vec<_> = [end_entity].into_iter().chain(intermediates).collect();
        let last_valid = self.last_valid.load();
        if last_valid.as_ref().is_some_and(|cached| cached.covers(&certificates, server_name, now))
        {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        self.last_valid
            .store(CachedVerification::new(&certificates, server_name, now).map(Arc::new));
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }

    fn root_hint_subjects(&self) -> Option<&[DistinguishedName]> {
        self.verifier.root_hint_subjects()
    }
}

#[cfg(test)]
mod tests;
