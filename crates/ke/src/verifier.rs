//! How a client verifies a server: its certificate once, the proof that it has the key every time.
//! A client that comes back sees the same certificate again, and to follow its chain to a trusted
//! authority costs as much as all the rest that a client verifies.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwapOption;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};

use crate::validity::Validity;
use crate::{KeError, Trust};

/// A verifier that remembers the last certificates that it found good, until the first of them
/// expires. Byte for byte the same ones, for the same name, are then good again. The signature of
/// the handshake is verified in each.
#[derive(Debug)]
pub(crate) struct Remembering {
    verifier: Arc<dyn ServerCertVerifier>,
    good: ArcSwapOption<Good>,
}

/// What was found good.
#[derive(Debug)]
struct Good {
    certificates: Vec<CertificateDer<'static>>,
    name: ServerName<'static>,
    /// When it was verified. At an earlier time a certificate may not be valid yet.
    since: UnixTime,
    /// When the first certificate expires.
    until: SystemTime,
}

impl Remembering {
    /// Verifies as rustls does of itself.
    pub(crate) fn new(trust: &Trust, provider: &Arc<CryptoProvider>) -> Result<Self, KeError> {
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

impl Good {
    /// None if the end of a certificate's validity cannot be read.
    fn new(
        certificates: &[&CertificateDer<'_>],
        name: &ServerName<'_>,
        since: UnixTime,
    ) -> Option<Self> {
        let ends = certificates.iter().map(|der| Some(Validity::parse(der)?.not_after));
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

impl ServerCertVerifier for Remembering {
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
        self.good.store(Good::new(&certificates, server_name, now).map(Arc::new));
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
