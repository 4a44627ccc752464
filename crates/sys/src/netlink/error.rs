//! What can go wrong between this program and the kernel's routing netlink. Every refusal keeps
//! the kernel's errno, so that a caller can tell "exists already" from "not permitted".

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// The kernel said no.
#[derive(Debug)]
pub struct Refusal {
    /// The kernel's errno, as a Linux error number.
    pub errno: i32,
    /// The kernel's own explanation (the extended acknowledgement), where it gave one.
    pub explanation: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.errno))?;
        match &self.explanation {
            Some(explanation) => write!(f, " ({explanation})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Refusal {}

/// Why a netlink operation failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket itself failed: out of memory or file descriptors, or no netlink at all.
    #[error("netlink socket: {0}")]
    Socket(#[source] io::Error),
    /// No interface has this name.
    #[error("interface '{0}' not found; 'ip link' lists them")]
    NoSuchInterface(String),
    /// No interface has this index.
    #[error("no interface has index {0}; 'ip link' lists them")]
    NoSuchIndex(u32),
    /// The routing table has no way to this address, or forbids it.
    #[error("no route to {destination}: {refusal}; see 'ip route get {destination}'")]
    Unreachable {
        /// Where the route should have led.
        destination: IpAddr,
        /// The kernel's reason.
        refusal: Refusal,
    },
    /// Nothing answered an address resolution request.
    #[error(
        "{address} did not tell its MAC address on interface index {index} within {} ms; \
         check that it is up and on this link, or give the MAC address yourself",
        waited.as_millis()
    )]
    NeighbourSilent {
        /// The next hop that was asked for.
        address: IpAddr,
        /// The interface that it should be on.
        index: u32,
        /// How long the answer was waited for.
        waited: Duration,
    },
    /// The datagram that provokes address resolution could not be sent.
    #[error("cannot send a datagram to {address} to learn its MAC address: {source}")]
    Provoke {
        /// The next hop that was asked for.
        address: IpAddr,
        /// What the socket said.
        source: io::Error,
    },
    /// The process lacks the privilege.
    #[error("cannot {action}: that needs CAP_NET_ADMIN; run as root or with sudo")]
    NotPermitted {
        /// What was attempted, as a verb phrase.
        action: String,
        /// The kernel's refusal: EPERM or EACCES.
        refusal: Refusal,
    },
    /// Any other refusal.
    #[error("cannot {action}: {refusal}")]
    Refused {
        /// What was attempted, as a verb phrase.
        action: String,
        /// The kernel's reason.
        refusal: Refusal,
    },
    /// The kernel's answer is not one that this program understands.
    #[error("cannot {action}: the kernel's answer makes no sense ({detail})")]
    Malformed {
        /// What was attempted, as a verb phrase.
        action: String,
        /// What is wrong with the answer.
        detail: String,
    },
}

impl NetlinkError {
    /// The kernel's errno, where the kernel refused.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket(error) | Self::Provoke { source: error, .. } => error.raw_os_error(),
            Self::NoSuchInterface(_) | Self::NoSuchIndex(_) => Some(libc::ENODEV),
            Self::Unreachable { refusal, .. }
            | Self::NotPermitted { refusal, .. }
            | Self::Refused { refusal, .. } => Some(refusal.errno),
            Self::NeighbourSilent { .. } | Self::Malformed { .. } => None,
        }
    }

    /// The error for a refused `action`.
    pub(super) fn refused(action: &str, refusal: Refusal) -> Self {
        let action = action.to_owned();
        match refusal.errno {
            libc::EPERM | libc::EACCES => Self::NotPermitted { action, refusal },
            _ => Self::Refused { action, refusal },
        }
    }

    /// The error for an answer that cannot be understood.
    pub(super) fn malformed(action: &str, detail: impl fmt::Display) -> Self {
        Self::Malformed { action: action.to_owned(), detail: detail.to_string() }
    }

    /// Says which interface was meant where the kernel only says `ENODEV`.
    pub(super) fn for_index(self, index: u32) -> Self {
        match self.errno() {
            Some(libc::ENODEV) => Self::NoSuchIndex(index),
            _ => self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(errno: i32) -> Refusal {
        Refusal { errno, explanation: None }
    }

    #[test]
    fn lack_of_privilege_is_told_apart_and_keeps_its_errno() {
        let error = NetlinkError::refused("set 'eth0' up", refusal(libc::EPERM));
        assert!(matches!(error, NetlinkError::NotPermitted { .. }));
        assert_eq!(error.errno(), Some(libc::EPERM));
        assert_eq!(
            error.to_string(),
            "cannot set 'eth0' up: that needs CAP_NET_ADMIN; run as root or with sudo"
        );
    }

    #[test]
    fn a_vanished_interface_is_named_by_its_index() {
        let error = NetlinkError::refused("add a route", refusal(libc::ENODEV)).for_index(7);
        assert!(matches!(error, NetlinkError::NoSuchIndex(7)));
        let other = NetlinkError::refused("add a route", refusal(libc::EEXIST)).for_index(7);
        assert_eq!(other.errno(), Some(libc::EEXIST));
    }

    #[test]
    fn the_kernels_explanation_is_shown() {
        let refusal = Refusal {
            errno: libc::EINVAL,
            explanation: Some("Nexthop has invalid gateway".to_owned()),
        };
        let text = NetlinkError::refused("add a route", refusal).to_string();
        assert!(text.ends_with("(Nexthop has invalid gateway)"), "{text}");
    }
}
