//! Advice on a failed NTS-KE exchange: one hint for each failure.

use std::io::ErrorKind;

use super::{NtsKeError, NtsKeExchangePhase, tls};
use crate::message::BadResponse;

const OTHER_SERVER: &str = "the server violates RFC 8915; update it, or use another one";

impl NtsKeError {
    /// Returns advice on the error for the user of a client.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::Connection { phase: NtsKeExchangePhase::Connecting, error, .. } => {
                connect_hint(error.kind())
            }
            Self::Connection { .. } | Self::StreamFailed(_) | Self::ClosedEarly(_) => {
                "the server may limit connections by number and by address, or use another \
                 protocol there; check its log"
            }
            Self::TimedOut { phase: NtsKeExchangePhase::Connecting, .. } => {
                "a packet filter may drop TCP to this port, or the host is down; the default port \
                 of NTS-KE is 4460"
            }
            Self::TimedOut { phase: NtsKeExchangePhase::Handshake, .. } => {
                "the port is open, but the program that listens there is overloaded or does not \
                 support TLS"
            }
            Self::TimedOut { .. } => {
                "the server received the request and did not complete its response; check its log"
            }
            Self::Tls(error) => tls::hint(error),
            Self::NotNtsKe => {
                "another TLS service listens there; the default port of NTS-KE is 4460"
            }
            Self::TooLong => {
                "the response is longer than any valid one: another service may \
                              listen there"
            }
            Self::BadResponse(bad) => response_hint(bad),
            Self::Refused { code } => code_hint(*code),
            Self::NoProtocol => "the server issues keys for other protocols only; use another one",
            Self::NoAlgorithm => {
                "offer more algorithms; every server supports AES-SIV-CMAC-256 (RFC 8915, section \
                 5.1)"
            }
            Self::NotOffered(_) => OTHER_SERVER,
            Self::NoAuthority => "name the PEM file of a trusted authority with --ca",
            Self::InvalidName(_) => "specify the name in the certificate with --nts-name",
            _ => "see the message",
        }
    }
}

const fn connect_hint(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::ConnectionRefused => {
            "check that an NTS-KE server runs there; the default port of NTS-KE is 4460"
        }
        ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
            "check the address, and that the interface of the route is up"
        }
        ErrorKind::AddrNotAvailable => {
            "this host has no free local port for this server; use fewer clients, or more addresses"
        }
        _ => "check the address, the port and TCP filters on the path",
    }
}

const fn response_hint(bad: &BadResponse) -> &'static str {
    match bad {
        BadResponse::Malformed(_) => OTHER_SERVER,
        BadResponse::UnrecognizedCritical(_) | BadResponse::Warning(_) => {
            "the server uses an unsupported NTS-KE extension; disable it there, or use another \
             server"
        }
        BadResponse::NoCookies => "the server issues unusable keys; check its log",
        BadResponse::Server(_) | BadResponse::Port => {
            "check the NTP server and port in the configuration of the NTS-KE server"
        }
    }
}

const fn code_hint(code: u16) -> &'static str {
    match code {
        0 => "the server does not support a mandatory record; update it",
        1 => "the server could not parse the request, or not in time; check its log",
        2 => "the server has an internal error; check its log",
        _ => "the code is not in RFC 8915; see the server's documentation",
    }
}
