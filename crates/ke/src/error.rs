//! What can go wrong in starting a listener, in changing it, and in asking one. Each
//! message names what, where, and what to do. What single clients do wrong is counted instead:
//! [`crate::KeCounters`].

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::message::BadResponse;

/// Why there is no listener, no change of one or no keys.
#[derive(Debug, thiserror::Error)]
pub enum KeError {
    /// A file cannot be read.
    #[error("cannot read {what} {}: {error}{}", path.display(), right_to(error))]
    Unreadable {
        /// What the file is for.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A file has nothing of what it is for.
    #[error("{} holds no {what} in PEM form (-----BEGIN …-----)", path.display())]
    Empty {
        /// What was looked for.
        what: &'static str,
        /// Where.
        path: PathBuf,
    },
    /// A file is damaged.
    #[error("{} is no sound {what}: {reason}", path.display())]
    Damaged {
        /// What the file is for.
        what: &'static str,
        /// Where it is.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The key belongs to another certificate.
    #[error(
        "the key in {} does not fit the first certificate in {}; give the key that it was made with",
        key.display(), certificate.display()
    )]
    KeyDoesNotFit {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate is too old to be served.
    #[error("the certificate in {} expired at {since}; renew it", path.display())]
    Expired {
        /// The certificate's file.
        path: PathBuf,
        /// Its last instant (RFC 3339).
        since: String,
    },
    /// A value of the configuration that cannot be used.
    #[error("{0}")]
    Configuration(String),
    /// An address cannot be listened at.
    #[error(
        "cannot listen for NTS key establishment at {address}: {error}{hint}; choose another \
         address with --nts-ke-listen",
        hint = hint(error, address.port())
    )]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// An address that covers one that is listened at, or is covered by it.
    #[error(
        "--nts-ke-listen {0} overlaps {1}, which this server listens on; to change this, restart it"
    )]
    Overlap(SocketAddr, SocketAddr),
    /// The system gives no thread, descriptor or random number.
    #[error("cannot {doing}: {error}")]
    System {
        /// What was tried.
        doing: &'static str,
        /// What the system says.
        error: io::Error,
    },
    /// It is not known which certificates to trust.
    #[error("no certificate authority is given; name the PEM file of one that you trust with --ca")]
    NoTrust,
    /// The host's name is neither a domain name nor an address.
    #[error("{0:?} is neither a host name nor an IP address")]
    BadName(String),
    /// There is no connection, or it broke.
    #[error("NTS key establishment with {address}: {error}")]
    Connection {
        /// The server's address.
        address: SocketAddr,
        /// What the system says.
        error: io::Error,
    },
    /// The stream that an exchange runs over failed.
    #[error("the connection of an NTS key establishment broke: {0}")]
    Broken(io::Error),
    /// The exchange took too long.
    #[error("NTS key establishment with {0} was not done in time")]
    TimedOut(SocketAddr),
    /// TLS failed, for instance because the certificate is not trusted.
    #[error("TLS with the NTS-KE server failed: {0}")]
    Tls(#[from] rustls::Error),
    /// The server does not speak NTS-KE: it did not agree to `ntske/1`.
    #[error("the server did not agree to the protocol ntske/1 in the TLS handshake")]
    NotNtsKe,
    /// The server ended the connection before its response was complete.
    #[error("the NTS-KE server ended the connection before its response was complete")]
    Truncated,
    /// The response is longer than any that makes sense.
    #[error(
        "the NTS-KE server's response is longer than {} bytes",
        crate::message::RESPONSE_LEN_MAX
    )]
    TooLong,
    /// The response makes no sense.
    #[error("the NTS-KE server's response makes no sense: {0}")]
    BadResponse(#[from] BadResponse),
    /// The server reports an error (RFC 8915, section 4.1.3).
    #[error("the NTS-KE server refuses with error {code} ({})", error_name(*code))]
    Refused {
        /// The error's number.
        code: u16,
    },
    /// The server does not serve `NTPv4`.
    #[error("the NTS-KE server offers no keys for NTPv4")]
    NoProtocol,
    /// The server has none of the algorithms, or chose one that was not offered.
    #[error("the NTS-KE server has none of the offered AEAD algorithms")]
    NoAlgorithm,
}

/// What somebody has to do who may not read a file.
fn right_to(error: &io::Error) -> &'static str {
    match error.kind() {
        // A server of root has given up the right to read what is others'.
        io::ErrorKind::PermissionDenied => {
            "; its permissions and its directory's have to let the user who runs this read it, even \
             where that is root"
        }
        _ => "",
    }
}

/// More of why this port cannot be had, where that is known.
fn hint(error: &io::Error, port: u16) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(", as ss -tlpn 'sport = :{port}' shows"),
        io::ErrorKind::PermissionDenied => {
            ", as a port below 1024 needs root or CAP_NET_BIND_SERVICE".to_owned()
        }
        _ => String::new(),
    }
}

fn error_name(code: u16) -> &'static str {
    match code {
        0 => "unrecognized critical record",
        1 => "bad request",
        2 => "internal server error",
        _ => "not known here",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_not_read_a_file_is_told_what_to_do() {
        let of = |kind: io::ErrorKind| {
            let (path, error) = (PathBuf::from("key.pem"), io::Error::from(kind));
            KeError::Unreadable { what: "key", path, error }.to_string()
        };
        let said = of(io::ErrorKind::PermissionDenied);
        assert!(
            said.starts_with("cannot read key key.pem: ") && said.contains("even where"),
            "{said}"
        );
        assert!(!of(io::ErrorKind::NotFound).contains("even where"));
    }
}
