//! Errors of a lab, with advice.

use std::io;

use horolog_sys::ethtool::EthtoolError;
use horolog_sys::namespace::NamespaceError;
use horolog_sys::netlink::NetlinkError;
use horolog_wire::prefix::PrefixError;

use crate::config::{HOSTS_MAX, QUEUES_MAX};

/// Reason for which a lab could not be created, found, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process lacks `CAP_SYS_ADMIN` or `CAP_NET_ADMIN`.
    #[error("lab hosts need CAP_SYS_ADMIN and CAP_NET_ADMIN; run as root or with sudo")]
    NotPermitted,
    /// The number of hosts is out of range.
    #[error("a lab cannot have {0} hosts; use 2 to {HOSTS_MAX}")]
    HostCount(usize),
    /// A server of a tree has a parent that does not exist or whose number is not smaller.
    #[error("server {0} of a lab must be joined to a host with a smaller number")]
    InvalidParent(usize),
    /// The number of queues is out of range.
    #[error("an interface cannot have {0} queues; use 1 to {QUEUES_MAX}")]
    QueueCount(u32),
    /// The text is not a valid name of a lab.
    #[error(
        "invalid lab name '{0}'; use letters, digits, '-', '_' and '.', a letter or digit first"
    )]
    InvalidName(String),
    /// The name is so long that the names of its namespaces would not be valid file names.
    #[error("a lab's name has at most {max} bytes, not {length}; choose a shorter one")]
    NameTooLong {
        /// Length of the name, in bytes.
        length: usize,
        /// Largest possible length, in bytes.
        max: usize,
    },
    /// The lab, or the remains of one after a crash, exists already.
    #[error("lab '{0}' exists already; 'horolog lab down {0}' removes it")]
    Exists(String),
    /// No lab has this name.
    #[error("lab '{0}' not found; 'horolog lab up {0}' creates it")]
    NotFound(String),
    /// The lab has no such host.
    #[error("lab '{lab}' has no host '{host}'; its hosts are {}", hosts.join(", "))]
    NoSuchHost {
        /// Name of the lab.
        lab: String,
        /// Name of the requested host.
        host: String,
        /// Names of the hosts of the lab.
        hosts: Vec<String>,
    },
    /// No program to run was specified.
    #[error("no program specified; name one after the host")]
    NoProgram,
    /// A link-layer setting of an interface (ethtool) failed.
    #[error(transparent)]
    Ethtool(#[from] EthtoolError),
    /// A program could not be started.
    #[error("cannot run '{program}': {source}")]
    StartFailed {
        /// Name of the program as specified.
        program: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The kernel lacks IPv6.
    #[error("this kernel has no IPv6 ({setting} is missing); use a lab without it")]
    NoIpv6 {
        /// Path of the missing setting below `/proc/sys`.
        setting: String,
    },
    /// A setting of the new namespace could not be applied.
    #[error("cannot set {setting} in a lab host: {source}")]
    SettingFailed {
        /// Path of the setting below `/proc/sys`.
        setting: String,
        /// Error of the system.
        source: io::Error,
    },
    /// A link did not become operational in time.
    #[error("interface '{0}' of a lab host was not ready in time; check the load of this machine")]
    NotReady(String),
    /// An address does not match its prefix length.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Another namespace operation failed.
    #[error(transparent)]
    Namespace(NamespaceError),
    /// Another operation on interfaces, addresses, routes or neighbours failed.
    #[error(transparent)]
    Netlink(NetlinkError),
}

impl LabError {
    /// Returns true if the request is invalid, rather than this host lacking something.
    #[must_use]
    pub fn is_usage_error(&self) -> bool {
        match self {
            Self::HostCount(_)
            | Self::QueueCount(_)
            | Self::InvalidParent(_)
            | Self::InvalidName(_)
            | Self::NameTooLong { .. }
            | Self::Exists(_)
            | Self::NotFound(_)
            | Self::NoSuchHost { .. }
            | Self::NoProgram
            | Self::Prefix(_) => true,
            Self::NotPermitted
            | Self::Ethtool(_)
            | Self::StartFailed { .. }
            | Self::NoIpv6 { .. }
            | Self::SettingFailed { .. }
            | Self::NotReady(_)
            | Self::Namespace(_)
            | Self::Netlink(_) => false,
        }
    }
}

impl From<NamespaceError> for LabError {
    fn from(error: NamespaceError) -> Self {
        match error {
            NamespaceError::NotPermitted(_) => Self::NotPermitted,
            other => Self::Namespace(other),
        }
    }
}

impl From<NetlinkError> for LabError {
    fn from(error: NetlinkError) -> Self {
        match error {
            NetlinkError::NotPermitted { .. } => Self::NotPermitted,
            other => Self::Netlink(other),
        }
    }
}
