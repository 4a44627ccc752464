//! Cached verifications, and that no other certificate is accepted because of them.

use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;

use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, ServerConnection};

use self::Verdict::{Bad, Remembered, Verified};
use super::*;
use crate::certificate::read_certificates;
use crate::testing::{TEST_TIMEOUT, TestCertificate, parameters};
use crate::{AES_SIV_CMAC_256, ALPN, NtsKeClient};

/// Standard verifier that counts its calls.
#[derive(Debug)]
struct Counting {
    verifier: Arc<WebPkiServerVerifier>,
    calls: AtomicUsize,
}

impl ServerCertVerifier for Counting {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.calls.fetch_add(1, Relaxed);
        self.verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken".into()))
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
}

/// A caching verifier that trusts some certificates, and the one that it calls.
struct Bench {
    remembering: CachingVerifier,
    counting: Arc<Counting>,
}

impl Bench {
    fn new(trusted: &[&CertificateDer<'static>]) -> Self {
        let mut roots = rustls::RootCertStore::empty();
        for root in trusted {
            roots.add((*root).clone()).unwrap();
        }
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider);
        let verifier = verifier.build().unwrap();
        let counting = Arc::new(Counting { verifier, calls: AtomicUsize::new(0) });
        Self { remembering: CachingVerifier::from_verifier(Arc::clone(&counting) as _), counting }
    }

    /// Returns the validity of the certificates, and whether the other verifier was called.
    fn verify(&self, certificates: &[&CertificateDer<'_>], name: &str, now: UnixTime) -> Verdict {
        let before = self.counting.calls.load(Relaxed);
        let intermediates: Vec<_> = certificates[1..].iter().map(|&der| der.clone()).collect();
        let name = ServerName::try_from(name).unwrap();
        let verified =
            self.remembering.verify_server_cert(certificates[0], &intermediates, &name, &[], now);
        let calls = self.counting.calls.load(Relaxed) - before;
        match (verified, calls) {
            (Ok(_), 0) => Remembered,
            (Ok(_), 1) => Verified,
            (Err(_), 1) => Bad,
            (verified, calls) => panic!("{verified:?} after {calls} questions"),
        }
    }
}

#[derive(PartialEq, Eq, Debug)]
enum Verdict {
    Remembered,
    Verified,
    Bad,
}

fn signed_itself(parameters: &CertificateParams) -> CertificateDer<'static> {
    parameters.self_signed(&KeyPair::generate().unwrap()).unwrap().into()
}

/// Noon of a day.
fn noon(year: i32, month: u8, day: u8) -> UnixTime {
    let seconds = date_time_ymd(year, month, day).unix_timestamp() + 12 * 3600;
    UnixTime::since_unix_epoch(Duration::from_secs(seconds as u64))
}

#[test]
fn the_same_is_verified_once() {
    let one = signed_itself(&parameters());
    let bench = Bench::new(&[&one]);
    let now = noon(2026, 1, 1);
    assert_eq!(bench.verify(&[&one], "localhost", now), Verified);
    assert_eq!(bench.verify(&[&one], "localhost", now), Remembered);
    assert_eq!(bench.verify(&[&one], "localhost", noon(2026, 1, 2)), Remembered);
}

#[test]
fn another_certificate_is_verified_anew() {
    let [one, other, stranger] = [(); 3].map(|()| signed_itself(&parameters()));
    let bench = Bench::new(&[&one, &other]);
    let now = noon(2026, 1, 1);
    assert_eq!(bench.verify(&[&one], "localhost", now), Verified);
    assert_eq!(bench.verify(&[&stranger], "localhost", now), Bad);
    assert_eq!(bench.verify(&[&one], "localhost", now), Remembered);
    assert_eq!(bench.verify(&[&other], "localhost", now), Verified);
    assert_eq!(bench.verify(&[&other, &one], "localhost", now), Verified, "one more");
    assert_eq!(bench.verify(&[&other], "localhost", now), Verified, "one fewer");
    let mut bent = other.to_vec();
    *bent.last_mut().unwrap() ^= 1;
    assert_eq!(bench.verify(&[&bent.into()], "localhost", now), Bad);
}

#[test]
fn another_name_is_verified_anew() {
    let one = signed_itself(&parameters());
    let bench = Bench::new(&[&one]);
    let now = noon(2026, 1, 1);
    assert_eq!(bench.verify(&[&one], "localhost", now), Verified);
    assert_eq!(bench.verify(&[&one], "other.example", now), Bad);
    assert_eq!(bench.verify(&[&one], "127.0.0.1", now), Verified);
    assert_eq!(bench.verify(&[&one], "127.0.0.2", now), Bad);
}

#[test]
fn what_is_bad_is_not_remembered() {
    let [one, other] = [(); 2].map(|()| signed_itself(&parameters()));
    let bench = Bench::new(&[&other]);
    let now = noon(2026, 1, 1);
    assert_eq!(bench.verify(&[&one], "localhost", now), Bad);
    assert_eq!(bench.verify(&[&one], "localhost", now), Bad);
}

#[test]
fn it_holds_from_when_it_was_verified_until_the_first_certificate_expires() {
    let mut long = parameters();
    long.not_before = date_time_ymd(2026, 1, 1);
    long.not_after = date_time_ymd(2036, 1, 1);
    let mut short = long.clone();
    short.not_after = date_time_ymd(2027, 1, 1);
    let (long, short) = (signed_itself(&long), signed_itself(&short));
    let bench = Bench::new(&[&long, &short]);
    let last = noon(2026, 12, 31);
    for chain in [[&short, &long], [&long, &short]] {
        assert_eq!(bench.verify(&chain, "localhost", noon(2026, 6, 1)), Verified);
        assert_eq!(bench.verify(&chain, "localhost", last), Remembered);
        // The clock was set back.
        assert_eq!(bench.verify(&chain, "localhost", noon(2026, 5, 31)), Verified);
        assert_eq!(bench.verify(&chain, "localhost", noon(2025, 12, 31)), Bad);
        assert_eq!(bench.verify(&chain, "localhost", last), Remembered);
    }
    // The second certificate of the last chain, which has expired, is not needed.
    assert_eq!(bench.verify(&[&long, &short], "localhost", noon(2027, 1, 1)), Verified);
    assert_eq!(bench.verify(&[&long, &short], "localhost", noon(2027, 1, 1)), Verified);
    assert_eq!(bench.verify(&[&short, &long], "localhost", noon(2027, 1, 1)), Bad);
}

/// Shows a certificate that is another's.
#[derive(Debug)]
struct Impostor(Arc<CertifiedKey>);

impl ResolvesServerCert for Impostor {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

#[test]
fn a_server_without_the_key_is_refused_with_the_certificate_that_is_remembered() {
    let identity = TestCertificate::new();
    let server = identity.serve();
    let client = NtsKeClient::new(&identity.trust(), &[AES_SIV_CMAC_256]).unwrap();
    assert!(client.exchange_keys("localhost", server.listen_addresses()[0], TEST_TIMEOUT).is_ok());

    let provider = Arc::new(aws_lc_rs::default_provider());
    let chain = read_certificates(&identity.certificate()).unwrap();
    let other = KeyPair::generate().unwrap().serialize_pem();
    let other = PrivateKeyDer::from_pem_slice(other.as_bytes()).unwrap();
    let other = provider.key_provider.load_private_key(other).unwrap();
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Impostor(Arc::new(CertifiedKey::new(chain, other)))));
    config.alpn_protocols = vec![ALPN.to_vec()];
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let impostor = thread::spawn(move || {
        let (mut stream, _): (TcpStream, _) = listener.accept().unwrap();
        let mut tls = ServerConnection::new(Arc::new(config)).unwrap();
        tls.complete_io(&mut stream)
    });
    let got = client.exchange_keys("localhost", at, TEST_TIMEOUT);
    let expected = rustls::CertificateError::BadSignature;
    assert!(
        matches!(&got, Err(NtsKeError::Tls(Error::InvalidCertificate(why))) if *why == expected),
        "{got:?}"
    );
    assert!(impostor.join().unwrap().is_err());
}
