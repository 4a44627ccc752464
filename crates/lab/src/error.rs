//! What can go wrong with a lab, in words that say what to do.

use std::io;

use horolog_sys::ethtool::EthtoolError;
use horolog_sys::namespace::NamespaceError;
use horolog_sys::netlink::{NetlinkError, PrefixError};

use crate::config::{HOSTS_MAX, QUEUES_MAX};

/// Why a lab could not be made, found, used or removed.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process lacks the privilege.
    #[error("private hosts need CAP_SYS_ADMIN and CAP_NET_ADMIN; run as root or with sudo")]
    NotPermitted,
    /// So many hosts cannot be.
    #[error("a lab of {0} hosts cannot be made; ask for 2 to {HOSTS_MAX}")]
    Hosts(usize),
    /// A host is to hang below one that is made later, or not at all.
    #[error("server {0} of a lab has to be joined to a host of a smaller number")]
    NotAbove(usize),
    /// So many queues cannot be.
    #[error("an interface with {0} queues cannot be made; ask for 1 to {QUEUES_MAX}")]
    Queues(u32),
    /// The name is not one that a lab can have.
    #[error(
        "'{0}' cannot name a lab; use letters, digits, '-', '_' and '.', a letter or digit first"
    )]
    BadName(String),
    /// The name is too long for the names of its hosts to be file names.
    #[error("a lab's name can have {max} bytes, not {length}; choose a shorter one")]
    LongName {
        /// Its length in bytes.
        length: usize,
        /// The longest that is possible.
        max: usize,
    },
    /// The lab, or what a crash left of it, is there already.
    #[error("lab '{0}' exists already; 'horolog lab down {0}' removes it")]
    Exists(String),
    /// No lab has this name.
    #[error("no lab is called '{0}'; 'horolog lab up {0}' makes it")]
    NotFound(String),
    /// The lab has no such host.
    #[error("lab '{lab}' has no host '{host}'; it has {}", hosts.join(", "))]
    NoSuchHost {
        /// The lab's name.
        lab: String,
        /// The host that was asked for.
        host: String,
        /// The hosts that it has.
        hosts: Vec<String>,
    },
    /// No program to run was given.
    #[error("no program to run was given; name one after the host")]
    NoProgram,
    /// An interface refused a setting.
    #[error(transparent)]
    Ethtool(#[from] EthtoolError),
    /// A program could not be started.
    #[error("cannot run '{program}': {source}")]
    Run {
        /// The program's name as it was given.
        program: String,
        /// The reason.
        source: io::Error,
    },
    /// The kernel lacks IPv6.
    #[error("this kernel has no IPv6 ({setting} is missing); ask for a lab without it")]
    NoIpv6 {
        /// The setting that was not found.
        setting: String,
    },
    /// A setting of the new namespace could not be made.
    #[error("cannot set {setting} in a private host: {source}")]
    Setting {
        /// The setting's path below `/proc/sys`.
        setting: String,
        /// The reason.
        source: io::Error,
    },
    /// A link did not come up although both its ends are there.
    #[error("interface '{0}' of a private host did not become ready; is the machine overloaded?")]
    NotReady(String),
    /// An address does not go with its prefix length.
    #[error(transparent)]
    Prefix(#[from] PrefixError),
    /// Something with namespaces failed otherwise.
    #[error(transparent)]
    Namespace(NamespaceError),
    /// Something with interfaces, addresses, routes or neighbours failed otherwise.
    #[error(transparent)]
    Netlink(NetlinkError),
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
