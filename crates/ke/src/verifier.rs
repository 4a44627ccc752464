//! Verification of a server by a client: its certificate once, the proof that it has the key each
//! time. A returning client receives the same certificate again, and following its chain to a
//! trusted authority costs as much as the rest of the verification.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::validity::CertificateValidity;
use crate::{KeError, TrustAnchors};

/// A verifier that caches the last certificates found valid, until the first of them expires. The
/// same certificates, byte for byte and for the same name, are then accepted again. The signature
/// of each handshake is verified.
#[derive(Debug)]
pub(crate) struct CachingVerifier {
    verifier: Arc<dyn ServerCertVerifier>,
    good: ArcSwapOption<CachedVerification>,
}

/// Certificates found valid.
#[derive(Debug)]
struct CachedVerification {
    certificates: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
    /// Time of verification. At an earlier time a certificate may not be valid yet.
    since: UnixTime,
    /// Expiry of the first certificate.
    until: SystemTime,
}

impl CachingVerifier {
    /// Verifies as rustls does by default.
    pub(crate) fn new(
        trust: &TrustAnchors,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, KeError> {
        let roots = Arc::clone(&trust.roots);
        WebPkiServerVerifier::builder_with_provider(roots, Arc::clone(provider))
            .build()
            .map(|verifier| Self::of(verifier))
            .map_err(|error| KeError::Configuration(error.to_string()))
    }

    fn of(verifier: Arc<dyn ServerCertVerifier>) -> Self {
        Self { verifier, good: ArcSwapOption::empty() }
    }
}

impl CachedVerification {
    /// `None` if the end of a certificate's validity cannot be read.
    fn new(
        certificates: &[&CertificateDer<'_>],
        name: &ServerName<'_>,
        since: UnixTime,
    ) -> Option<Self> {
        let ends = certificates.iter().map(|der| Some(CertificateValidity::parse(der)?.not_after));
        Some(Self {
            until: ends.collect::<Option<Vec<_>>>()?.into_iter().min()?,
            certificates: certificates
                .iter()
                .map(|der| der.to_owned().clone().into_owned())
                .collect(),
            name: name.to_owned(),
            since,
        })
    }

    fn covers(
        &self,
        certificates: &[&CertificateDer<'_>],
        name: &ServerName<'_>,
        now: UnixTime,
    ) -> bool {
        self.since <= now
            && UNIX_EPOCH + Duration::from_secs(now.as_secs()) <= self.until
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
        let good = self.good.load();
        if good.as_ref().is_some_and(|good| good.covers(&certificates, server_name, now)) {
            return Ok(ServerCertVerified::assertion());
        }
        let verified = self.verifier.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        )?;
        self.good.store(CachedVerification::new(&certificates, server_name, now).map(Arc::new));
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
