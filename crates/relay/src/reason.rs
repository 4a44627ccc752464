//! Why a packet is not relayed, and why a copy is not sent. Each has a name by which it is counted.

use std::io;

/// Why a whole packet is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Refusal {
    /// It was not sent to an address that a group listens at.
    Destination,
    /// Its source is not on the group's list.
    Source,
    /// It comes from a child of the group: a loop.
    Child,
    /// It comes from this relay itself: a loop.
    Oneself,
    /// Its TTL or hop limit is exhausted, or the kernel did not tell it.
    HopLimit,
    /// The group has more packets than its rate.
    Rate,
    /// The relay would make more copies than its rate.
    CopyRate,
}

impl Refusal {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 7] = [
        Self::Destination,
        Self::Source,
        Self::Child,
        Self::Oneself,
        Self::HopLimit,
        Self::Rate,
        Self::CopyRate,
    ];

    /// Its name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Destination => "destination",
            Self::Source => "source",
            Self::Child => "from-child",
            Self::Oneself => "from-oneself",
            Self::HopLimit => "hop-limit",
            Self::Rate => "rate",
            Self::CopyRate => "copy-rate",
        }
    }
}

/// Why one child does not get its copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum Drop {
    /// It is longer than the MTU of the path to the child.
    TooLarge,
    /// The neighbour on the way to the child does not say its link address.
    Unresolved,
    /// There is no way to the child: no route, or an interface that is down.
    Unreachable,
    /// A buffer of this host is full.
    BufferFull,
    /// This host's rules forbid it.
    Forbidden,
    /// Anything else that the kernel said.
    Other,
}

impl Drop {
    /// All of them, in the order of their discriminants.
    pub const ALL: [Self; 6] = [
        Self::TooLarge,
        Self::Unresolved,
        Self::Unreachable,
        Self::BufferFull,
        Self::Forbidden,
        Self::Other,
    ];

    /// Its name in counters.
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

    /// What the kernel's refusal to send a copy means.
    #[must_use]
    pub fn of(error: &io::Error) -> Self {
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
    fn discriminants_are_places() {
        assert!(Refusal::ALL.iter().enumerate().all(|(place, reason)| *reason as usize == place));
        assert!(Drop::ALL.iter().enumerate().all(|(place, reason)| *reason as usize == place));
    }

    #[test]
    fn the_kernels_words_are_understood() {
        for (errno, reason) in [
            (90, Drop::TooLarge),
            (11, Drop::BufferFull),
            (105, Drop::BufferFull),
            (12, Drop::BufferFull),
            (101, Drop::Unreachable),
            (113, Drop::Unreachable),
            (100, Drop::Unreachable),
            (99, Drop::Unreachable),
            (1, Drop::Forbidden),
            (13, Drop::Forbidden),
            (22, Drop::Other),
        ] {
            assert_eq!(Drop::of(&io::Error::from_raw_os_error(errno)), reason, "errno {errno}");
        }
    }
}
