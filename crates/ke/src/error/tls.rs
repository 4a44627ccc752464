//! Descriptions of TLS failures, with advice: invalid certificates, alerts from the server, and
//! servers that do not support TLS 1.3.

use jiff::Timestamp;
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, PeerIncompatible};

/// Description of a failure, and advice on it.
type DescribedFailure = (String, &'static str);

const OLD_TLS: &str = "NTS requires TLS 1.3 (RFC 8915, section 3): update the server, or enable \
                       TLS 1.3 there";
const OTHER_SERVICE: &str = "another service may listen there; the default port of NTS-KE is 4460";
const SERVER_LOG: &str = "check the server's log";

pub(super) fn words(error: &Error) -> String {
    describe(error).0
}

pub(super) fn hint(error: &Error) -> &'static str {
    describe(error).1
}

fn describe(error: &Error) -> DescribedFailure {
    match error {
        Error::InvalidCertificate(error) => describe_certificate_error(error),
        Error::AlertReceived(alert) => describe_alert(*alert),
        Error::PeerIncompatible(
            PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::ServerDoesNotSupportTls12Or13,
        ) => ("the server does not support TLS 1.3".into(), OLD_TLS),
        Error::InvalidMessage(_) => {
            ("the program that listens there does not use TLS".into(), OTHER_SERVICE)
        }
        Error::NoCertificatesPresented => {
            ("the server sent no certificate".into(), "the server requires a client certificate")
        }
        other => (other.to_string(), SERVER_LOG),
    }
}

fn describe_alert(alert: AlertDescription) -> DescribedFailure {
    let (what, hint) = match alert {
        AlertDescription::ProtocolVersion => ("it does not support TLS 1.3", OLD_TLS),
        AlertDescription::NoApplicationProtocol => {
            ("it does not support the protocol ntske/1", OTHER_SERVICE)
        }
        AlertDescription::UnrecognisedName => (
            "unknown host name",
            "use the name in the server's certificate, or specify it with --nts-name",
        ),
        AlertDescription::HandshakeFailure | AlertDescription::InsufficientSecurity => (
            "no cipher, group or signature algorithm in common with this client",
            "enable the mandatory algorithms of TLS 1.3 on the server",
        ),
        AlertDescription::CertificateRequired
        | AlertDescription::BadCertificate
        | AlertDescription::AccessDenied => (
            "it requires a client certificate",
            "NTS clients have none: the server must not require one",
        ),
        AlertDescription::InternalError => ("it has an internal error", SERVER_LOG),
        _ => ("it gives no further reason", SERVER_LOG),
    };
    (format!("the server ended the handshake by alert {}: {what}", u8::from(alert)), hint)
}

fn describe_certificate_error(error: &CertificateError) -> DescribedFailure {
    use CertificateError as Bad;
    let expired = "renew it on the server; if it is valid, this host's clock is ahead";
    let early = "this host's clock may be behind; otherwise wait until then";
    let name = "use the name in the server's certificate, or specify it with --nts-name";
    let (what, hint) = match error {
        Bad::Expired => ("has expired".to_owned(), expired),
        Bad::ExpiredContext { not_after, .. } => {
            (format!("expired at {}", rfc3339(*not_after)), expired)
        }
        Bad::NotValidYet => ("is not valid yet".to_owned(), early),
        Bad::NotValidYetContext { not_before, .. } => {
            (format!("is not valid before {}", rfc3339(*not_before)), early)
        }
        Bad::UnknownIssuer => (
            "is not from a trusted authority".to_owned(),
            "specify the PEM certificate of the issuing authority with --ca; the server's own \
             works only if it is self-signed",
        ),
        Bad::BadSignature => (
            "has a signature that does not match the trusted authority of that name".to_owned(),
            "the authority may have been renewed: specify its current certificate with --ca",
        ),
        Bad::NotValidForName => ("is for another name".to_owned(), name),
        Bad::NotValidForNameContext { expected, presented } => {
            let presented: Vec<_> = presented.iter().map(|one| name_value(one)).collect();
            let presented = presented.join(", ");
            (format!("is for {presented}, not for {}", expected.to_str()), name)
        }
        Bad::Revoked => {
            ("was revoked by its authority".to_owned(), "install another certificate on the server")
        }
        Bad::InvalidPurpose | Bad::InvalidPurposeContext { .. } => (
            "is not for servers".to_owned(),
            "install a certificate on the server whose extended key usage is serverAuth",
        ),
        Bad::Other(other) if other.to_string().contains("CaUsedAsEndEntity") => (
            "is a CA certificate".to_owned(),
            "install a server certificate with CA:FALSE issued by that authority; a self-signed \
             one also needs CA:FALSE",
        ),
        _ => (
            "cannot be verified by this client".to_owned(),
            "install a standard TLS server certificate; openssl x509 -text shows the present one",
        ),
    };
    (format!("the server's certificate {what}"), hint)
}

/// Extracts the name from rustls's debug form: `DnsName("a")` or `IpAddress(192.0.2.1)`.
fn name_value(shown: &str) -> &str {
    let inner = shown.split_once('(').and_then(|(_, rest)| rest.strip_suffix(')'));
    inner.unwrap_or(shown).trim_matches('"')
}

fn rfc3339(time: UnixTime) -> String {
    // The last instant that can be formatted is two days before the end of the year 9999.
    let instant = i64::try_from(time.as_secs()).map(Timestamp::from_second);
    format!("{:.0}", instant.ok().and_then(Result::ok).unwrap_or(Timestamp::MAX))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::crypto::aws_lc_rs;
    use rustls::pki_types::ServerName;

    use super::*;

    /// Error of a handshake with a server that shows the trusted certificate itself.
    fn of_trusted(is_ca: IsCa) -> Option<Error> {
        let mut parameters = CertificateParams::new(["localhost".to_owned()]).unwrap();
        parameters.is_ca = is_ca;
        let certificate = parameters.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(certificate.der().clone()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier =
            WebPkiServerVerifier::builder_with_provider(roots.into(), provider).build().unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        verifier.verify_server_cert(certificate.der(), &[], &name, &[], UnixTime::now()).err()
    }

    #[test]
    fn an_authority_s_own_certificate_is_called_that() {
        let error = of_trusted(IsCa::Ca(BasicConstraints::Unconstrained)).unwrap();
        assert_eq!(words(&error), "the server's certificate is a CA certificate");
        assert!(hint(&error).contains("CA:FALSE"));
        for is_ca in [IsCa::NoCa, IsCa::ExplicitNoCa] {
            assert!(of_trusted(is_ca).is_none(), "self-signed and trusted");
        }
    }

    #[test]
    fn a_revoked_certificate_is_described_before_the_advice() {
        let error = Error::InvalidCertificate(CertificateError::Revoked);
        assert_eq!(words(&error), "the server's certificate was revoked by its authority");
        assert!(hint(&error).starts_with("install another"));
    }

    #[test]
    fn no_text_of_the_library_is_shown() {
        for bad in [CertificateError::BadEncoding, CertificateError::UnhandledCriticalExtension] {
            let error = Error::InvalidCertificate(bad);
            let expected = "the server's certificate cannot be verified by this client";
            assert_eq!(words(&error), expected);
        }
    }
}
