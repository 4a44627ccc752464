//! Reasons for which a message is not answered or not taken into account, each with its counter.

use horolog_wire::Malformed;

/// Reason for which a message is not answered or not taken into account.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum PtpRefusal {
    /// Length, of the message or of a TLV, that contradicts the available bytes.
    Length,
    /// Different version of the protocol.
    Version,
    /// Reserved message type.
    Type,
    /// Different domain or another organisation's profile.
    Domain,
    /// Event message on the general channel, or the reverse.
    Channel,
    /// Message to a group at a port without multicast; or an unrequested one to this port alone.
    Group,
    /// Message from this clock itself: looped back, or from another of its ports on the same link.
    Own,
    /// Message for another clock or port.
    Target,
    /// Clock that is unusable, or port that is not the master.
    State,
    /// Delay request that does not match the port's mechanism.
    Mechanism,
    /// Unicast request without the required grant.
    NotGranted,
    /// Denied request: too much is granted already, or too much was requested.
    Denied,
    /// Client that is neither on the link nor on the list.
    NotAdmitted,
    /// Response that would be longer than its request, to a requester not on the link.
    Amplifying,
    /// Announce that does not qualify a master: its sender follows this clock, is too many steps
    /// away or is an alternate master.
    Unqualified,
    /// More masters than can be stored.
    ForeignMastersFull,
    /// Message that a master does not need: another's Sync, or an unsolicited response.
    Unwanted,
    /// Multicast destination that is not PTP's, or broadcast destination.
    NotUnicast,
}

impl PtpRefusal {
    /// All reasons, each at the index of its discriminant.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Length,
        Self::Version,
        Self::Type,
        Self::Domain,
        Self::Channel,
        Self::Group,
        Self::Own,
        Self::Target,
        Self::State,
        Self::Mechanism,
        Self::NotGranted,
        Self::Denied,
        Self::NotAdmitted,
        Self::Amplifying,
        Self::Unqualified,
        Self::ForeignMastersFull,
        Self::Unwanted,
        Self::NotUnicast,
    ];
    /// Number of reasons.
    pub const COUNT: usize = 18;

    /// Returns its name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Version => "version",
            Self::Type => "type",
            Self::Domain => "domain",
            Self::Channel => "channel",
            Self::Group => "group",
            Self::Own => "own",
            Self::Target => "target",
            Self::State => "state",
            Self::Mechanism => "mechanism",
            Self::NotGranted => "not_granted",
            Self::Denied => "denied",
            Self::NotAdmitted => "not_admitted",
            Self::Amplifying => "amplifying",
            Self::Unqualified => "unqualified",
            Self::ForeignMastersFull => "crowded",
            Self::Unwanted => "unwanted",
            Self::NotUnicast => "not_unicast",
        }
    }
}

impl From<Malformed> for PtpRefusal {
    fn from(malformed: Malformed) -> Self {
        match malformed {
            Malformed::Version => Self::Version,
            Malformed::Truncated | Malformed::Length | Malformed::Checksum => Self::Length,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_at_its_index() {
        for (index, reason) in PtpRefusal::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{}", reason.name());
        }
    }
}
