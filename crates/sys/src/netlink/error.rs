//! Errors of rtnetlink. A refusal retains the kernel's error number, so that a caller can
//! distinguish `EEXIST` from `EPERM`.

use crate::explain::explain;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

/// Refusal by the kernel.
#[derive(Debug)]
pub struct KernelRefusal {
    /// The kernel's errno, as a Linux error number.
    pub errno: i32,
    /// Text of the extended acknowledgement, if there is one.
    pub explanation: Option<String>,
}

impl fmt::Display for KernelRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", io::Error::from_raw_os_error(self.errno))?;
        match &self.explanation {
            Some(explanation) => write!(f, " ({explanation})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for KernelRefusal {}

/// Reason for which a netlink operation failed.
#[derive(Debug, thiserror::Error)]
pub enum NetlinkError {
    /// The socket failed: out of memory or descriptors, or a kernel without netlink.
    #[error("netlink socket: {why}", why = explain(.0))]
    Socket(#[source] io::Error),
    /// No interface has this name.
    #[error("interface '{0}' not found; 'ip link' lists them")]
    NoSuchInterface(String),
    /// No interface has this index.
    #[error("no interface has index {0}; 'ip link' lists them")]
    NoSuchIndex(u32),
    /// No route to this address, or a route that forbids it.
    #[error("no route to {destination}: {refusal}; see 'ip route get {destination}'")]
    Unreachable {
        /// Destination of the route.
        destination: IpAddr,
        /// The kernel's reason.
        refusal: KernelRefusal,
    },
    /// No reply to an address resolution request.
    #[error(
        "no MAC address from {address} on interface index {index} within {} ms; check that it is \
         up and on this link, or specify its MAC address",
        timeout.as_millis()
    )]
    NeighbourUnreachable {
        /// Next hop to be resolved.
        address: IpAddr,
        /// Index of its expected interface.
        index: u32,
        /// Timeout of the resolution.
        timeout: Duration,
    },
    /// The datagram that triggers address resolution could not be sent.
    #[error(
        "cannot send a datagram to {address} to resolve its MAC address: {why}",
        why = explain(.source)
    )]
    ResolutionTrigger {
        /// Next hop to be resolved.
        address: IpAddr,
        /// Error of the socket.
        source: io::Error,
    },
    /// The process lacks the privilege.
    #[error("cannot {action}: CAP_NET_ADMIN is required; run as root or with sudo")]
    NotPermitted {
        /// Attempted operation, as a verb phrase.
        action: String,
        /// The kernel's refusal: EPERM or EACCES.
        refusal: KernelRefusal,
    },
    /// Refusal for another reason.
    #[error("cannot {action}: {refusal}")]
    Refused {
        /// Attempted operation, as a verb phrase.
        action: String,
        /// The kernel's reason.
        refusal: KernelRefusal,
    },
    /// The kernel's response is malformed.
    #[error("cannot {action}: the kernel's answer is malformed ({detail})")]
    Malformed {
        /// Attempted operation, as a verb phrase.
        action: String,
        /// Defect of the response.
        detail: String,
    },
}

impl NetlinkError {
    /// Returns the name of the interface if the error is that none has this name.
    #[must_use]
    pub fn missing_interface(&self) -> Option<&str> {
        match self {
            Self::NoSuchInterface(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the Linux error number, if the error has one: of the kernel's refusal or of the
    /// socket, and `ENODEV` for a missing interface.
    #[must_use]
    pub fn errno(&self) -> Option<i32> {
        match self {
            Self::Socket(error) | Self::ResolutionTrigger { source: error, .. } => {
                error.raw_os_error()
            }
            Self::NoSuchInterface(_) | Self::NoSuchIndex(_) => Some(libc::ENODEV),
            Self::Unreachable { refusal, .. }
            | Self::NotPermitted { refusal, .. }
            | Self::Refused { refusal, .. } => Some(refusal.errno),
            Self::NeighbourUnreachable { .. } | Self::Malformed { .. } => None,
        }
    }

    /// Returns the error for a refused `action`.
    pub(super) fn refused(action: &str, refusal: KernelRefusal) -> Self {
        let action = action.to_owned();
        match refusal.errno {
            libc::EPERM | libc::EACCES => Self::NotPermitted { action, refusal },
            _ => Self::Refused { action, refusal },
        }
    }

    /// Returns the error for a malformed answer.
    pub(super) fn malformed(action: &str, detail: impl fmt::Display) -> Self {
        Self::Malformed { action: action.to_owned(), detail: detail.to_string() }
    }

    /// Converts an `ENODEV` of the kernel to an error that names the interface index.
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

    fn refusal(errno: i32) -> KernelRefusal {
        KernelRefusal { errno, explanation: None }
    }

    #[test]
    fn lack_of_privilege_is_distinguished_and_retains_its_errno() {
        let error = NetlinkError::refused("set 'eth0' up", refusal(libc::EPERM));
        assert!(matches!(error, NetlinkError::NotPermitted { .. }));
        assert_eq!(error.errno(), Some(libc::EPERM));
        assert_eq!(
            error.to_string(),
            "cannot set 'eth0' up: CAP_NET_ADMIN is required; run as root or with sudo"
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
        let refusal = KernelRefusal {
            errno: libc::EINVAL,
            explanation: Some("Nexthop has invalid gateway".to_owned()),
        };
        let text = NetlinkError::refused("add a route", refusal).to_string();
        assert!(text.ends_with("(Nexthop has invalid gateway)"), "{text}");
    }
}
