//! Reasons for which a packet is not relayed, and for which a copy is not sent. Each has a name by
//! which it is counted.

use std::io;

/// Reason for which a whole packet is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum PacketRefusal {
    /// No group listens on the destination address, or the packet was sent to several hosts and the
    /// group is unicast, or the reverse.
    Destination,
    /// The source is not on the group's list.
    Source,
    /// The packet comes from a child of the group: a loop.
    Child,
    /// The packet comes from an address of this host and a port on which a group listens, so from a
    /// relay: a loop.
    Relay,
    /// The TTL or hop limit is exhausted, or the kernel did not report it.
    HopLimit,
    /// The group's packets exceed the rate of the group.
    Rate,
    /// The copies of the packet would exceed the relay's copy rate.
    CopyRate,
}

impl PacketRefusal {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [Self; 7] = [
        Self::Destination,
        Self::Source,
        Self::Child,
        Self::Relay,
        Self::HopLimit,
        Self::Rate,
        Self::CopyRate,
    ];

    /// Returns the reason's name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Destination => "destination",
            Self::Source => "source",
            Self::Child => "from-child",
            Self::Relay => "from-oneself",
            Self::HopLimit => "hop-limit",
            Self::Rate => "rate",
            Self::CopyRate => "copy-rate",
        }
    }
}

/// Reason for which one child does not get its copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum CopyDrop {
    /// The copy is longer than the MTU of the path to the child.
    TooLarge,
    /// The link address of the child's neighbour cannot be resolved.
    Unresolved,
    /// The child is unreachable: no route, or an interface that is down.
    Unreachable,
    /// A buffer of this host is full.
    BufferFull,
    /// This host's rules forbid sending the copy (permission denied).
    Forbidden,
    /// Any other error of the kernel.
    Other,
}

impl CopyDrop {
    /// Every reason, in the order of the discriminants.
    pub const ALL: [Self; 6] = [
        Self::TooLarge,
        Self::Unresolved,
        Self::Unreachable,
        Self::BufferFull,
        Self::Forbidden,
        Self::Other,
    ];

    /// Returns the reason's name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::TooLarge => "too-large",
            Self::Unresolved => "unresolved",
            Self::Unreachable => "unreachable",
            Self::BufferFull => "buffer-full",
            Self::Forbidden => "forbidden",
            Self::Other => "other",
        }
    }

    /// Returns the reason of an error with which the kernel refused to send a copy.
    #[must_use]
    pub fn from_error(error: &io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::OutOfMemory => Self::BufferFull,
            io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable => Self::Unreachable,
            io::ErrorKind::PermissionDenied => Self::Forbidden,
            _ => match error.raw_os_error() {
                Some(horolog_sys::datagram::TOO_LONG) => Self::TooLarge,
                Some(horolog_sys::datagram::NO_BUFFERS) => Self::BufferFull,
                _ => Self::Other,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discriminants_are_indices() {
        assert!(
            PacketRefusal::ALL.iter().enumerate().all(|(place, reason)| *reason as usize == place)
        );
        assert!(CopyDrop::ALL.iter().enumerate().all(|(place, reason)| *reason as usize == place));
    }

    #[test]
    fn the_kernels_words_are_understood() {
        for (errno, reason) in [
            (90, CopyDrop::TooLarge),
            (11, CopyDrop::BufferFull),
            (105, CopyDrop::BufferFull),
            (12, CopyDrop::BufferFull),
            (101, CopyDrop::Unreachable),
            (113, CopyDrop::Unreachable),
            (100, CopyDrop::Unreachable),
            (99, CopyDrop::Unreachable),
            (1, CopyDrop::Forbidden),
            (13, CopyDrop::Forbidden),
            (22, CopyDrop::Other),
        ] {
            assert_eq!(
                CopyDrop::from_error(&io::Error::from_raw_os_error(errno)),
                reason,
                "errno {errno}"
            );
        }
    }
}
