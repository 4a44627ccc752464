//! Errors of a listener's start or reconfiguration, and of a client's exchange. Errors that clients
//! cause at a listener are only counted: [`crate::NtsKeCounts`].

mod hint;
mod tls;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use horolog_sys::explain::{explain, explain_to};

use crate::message::BadResponse;

/// Error of a listener's start or reconfiguration, or of a client's exchange.
#[derive(Debug, thiserror::Error)]
pub enum NtsKeError {
    /// A file cannot be read.
    #[error("cannot read {what} {}: {}", path.display(), unread(error))]
    Unreadable {
        /// Purpose of the file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file does not contain the expected items.
    #[error("{} contains no {what} in PEM form (-----BEGIN …-----)", path.display())]
    NoPemItems {
        /// The expected items.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
    },
    /// A file is damaged.
    #[error("{} is not a valid {what}: {reason}", path.display())]
    InvalidFile {
        /// Purpose of the file.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error(
        "the key in {} does not match the first certificate in {}; use the certificate's own key",
        key.display(), certificate.display()
    )]
    KeyMismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate has expired.
    #[error("the certificate in {} expired at {since}; renew it", path.display())]
    Expired {
        /// The certificate's file.
        path: PathBuf,
        /// End of its validity (RFC 3339).
        since: String,
    },
    /// A value of the configuration is not usable.
    #[error("{0}")]
    Configuration(String),
    /// An address cannot be listened on.
    #[error(
        "cannot listen for NTS-KE at {address}: {why}; choose another address with --nts-ke-listen",
        why = unheld(error, *address)
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        error: io::Error,
    },
    /// An address overlaps one that is listened on already.
    #[error(
        "--nts-ke-listen {0} overlaps {1}, which this server already listens on; restart the \
         server to change this"
    )]
    Overlap(SocketAddr, SocketAddr),
    /// The system provides no thread, descriptor or random number.
    #[error("cannot {doing}: {}", explain(error))]
    System {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// No trusted certificates are configured.
    #[error("no certificate authority specified; name the PEM file of a trusted one with --ca")]
    NoAuthority,
    /// The host's name is neither a domain name nor an address.
    #[error("'{}' is neither a host name nor an IP address", .0.escape_debug())]
    InvalidName(String),
    /// The connection could not be established, or it broke.
    #[error("NTS-KE with {address}: {phase}: {}", explain_to(error, address.ip()))]
    Connection {
        /// The server's address.
        address: SocketAddr,
        /// The phase in which it failed.
        phase: NtsKeExchangePhase,
        /// The system's error.
        error: io::Error,
    },
    /// The stream of an exchange failed.
    #[error("the connection of an NTS-KE exchange was lost: {}", explain(.0))]
    StreamFailed(io::Error),
    /// The exchange took too long.
    #[error("NTS-KE with {address}: {phase}: timeout")]
    TimedOut {
        /// The server's address.
        address: SocketAddr,
        /// The phase that was waited for.
        phase: NtsKeExchangePhase,
    },
    /// TLS failed, for instance because the certificate is not trusted.
    #[error("TLS with the NTS-KE server failed: {}", tls::words(.0))]
    Tls(#[from] rustls::Error),
    /// The server did not negotiate the application protocol `ntske/1` (ALPN).
    #[error("the server did not negotiate the protocol ntske/1 in the TLS handshake")]
    NotNtsKe,
    /// The server ended the connection before its response was complete.
    #[error("the NTS-KE server closed the connection too early: {0}")]
    ClosedEarly(NtsKeExchangePhase),
    /// The response exceeds the length limit.
    #[error(
        "the NTS-KE server's response is longer than {} bytes",
        crate::message::RESPONSE_LEN_MAX
    )]
    TooLong,
    /// The response is invalid.
    #[error("the NTS-KE server's response is invalid: {0}")]
    BadResponse(#[from] BadResponse),
    /// The server reports an error (RFC 8915, section 4.1.3).
    #[error("the NTS-KE server reported error {code} ({})", error_name(*code))]
    Refused {
        /// The error's number.
        code: u16,
    },
    /// The server does not support `NTPv4` as next protocol.
    #[error("the NTS-KE server offers no keys for NTPv4")]
    NoProtocol,
    /// The server supports none of the offered algorithms.
    #[error("the NTS-KE server supports none of the offered AEAD algorithms")]
    NoAlgorithm,
    /// The server chose an algorithm that the client did not offer.
    #[error("the NTS-KE server chose AEAD algorithm {0}, which was not offered")]
    NotOffered(u16),
}

/// Phase of an exchange, named after the event that completes it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NtsKeExchangePhase {
    /// The TCP connection is being established.
    Connecting,
    /// The TLS handshake is in progress.
    Handshake,
    /// Wait for the first byte of the response.
    Response,
    /// Wait for the other bytes of the response.
    PartialResponse,
}

impl fmt::Display for NtsKeExchangePhase {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Connecting => "TCP connection",
            Self::Handshake => "TLS handshake",
            Self::Response => "before the response",
            Self::PartialResponse => "during the response",
        })
    }
}

/// Returns the reason why a file cannot be read, with advice.
fn unread(error: &io::Error) -> String {
    match error.kind() {
        // A server started as root has dropped the right to read other users' files.
        io::ErrorKind::PermissionDenied => {
            "permission denied; make the file and its directory readable for the user who runs \
             this, even if that is root"
                .to_owned()
        }
        _ => explain(error).to_string(),
    }
}

/// Returns the reason why an address cannot be bound, with advice.
fn unheld(error: &io::Error, address: SocketAddr) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("address in use, as ss -tlpn 'sport = :{}' shows", address.port())
        }
        io::ErrorKind::PermissionDenied => {
            "a port below 1024 needs root or CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => explain(error).to_string(),
    }
}

fn error_name(code: u16) -> &'static str {
    match code {
        0 => "unrecognised critical record",
        1 => "bad request",
        2 => "internal server error",
        _ => "unknown error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permission_error_of_a_file_has_a_hint() {
        let of = |kind: io::ErrorKind| {
            let (path, error) = (PathBuf::from("key.pem"), io::Error::from(kind));
            NtsKeError::Unreadable { what: "key", path, error }.to_string()
        };
        let message = of(io::ErrorKind::PermissionDenied);
        assert!(
            message.starts_with("cannot read key key.pem: ")
                && message.contains("even if that is root"),
            "{message}"
        );
        assert!(!of(io::ErrorKind::NotFound).contains("even if that is root"));
    }

    #[test]
    fn no_number_of_an_error_is_shown() {
        let address = SocketAddr::from(([192, 0, 2, 1], 4460));
        for errno in 1..134 {
            let error = || io::Error::from_raw_os_error(errno);
            let (what, phase) = ("key", NtsKeExchangePhase::Connecting);
            for text in [
                NtsKeError::Unreadable { what, path: "key.pem".into(), error: error() },
                NtsKeError::Listen { address, error: error() },
                NtsKeError::System { doing: "start a thread", error: error() },
                NtsKeError::Connection { address, phase, error: error() },
            ]
            .map(|error| error.to_string())
            {
                assert!(!text.contains("os error"), "{text}");
            }
        }
    }
}
