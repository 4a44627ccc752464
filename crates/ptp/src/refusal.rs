//! Reasons for which a message is refused, each with its own counter.

use horolog_wire::ParseError;

/// Reason for which a message, or a request in it, is refused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum PtpRefusal {
    /// Length of the message or of a TLV that exceeds the received bytes, or contradicts the type.
    Length,
    /// Unsupported PTP version.
    Version,
    /// Reserved message type.
    Type,
    /// Message of another domain or `sdoId`.
    Domain,
    /// Event message at the general port, or general message at the event port.
    Channel,
    /// Message to the group at a port without multicast, Signaling message to the group, or
    /// Announce message by unicast.
    Group,
    /// Message from this clock: looped back, or sent by another of its ports on the same link.
    Own,
    /// Message for another clock or port.
    Target,
    /// Clock that is unusable, or port that is not the master.
    State,
    /// Delay request of the mechanism that the port does not use.
    Mechanism,
    /// Unicast request of a client without the required grant.
    NotGranted,
    /// Denied request for a grant, because of its parameters or the limits on all grants.
    Denied,
    /// Client that is in no configured prefix or, if there is none, not on the link.
    NotAdmitted,
    /// Response that would be longer than its request, for a requester that is not on the link.
    Amplifying,
    /// Announce message that does not qualify its sender: its grandmaster is this clock, it is too
    /// many steps away, or it is an alternate master.
    Unqualified,
    /// More masters than can be stored.
    ForeignMastersFull,
    /// Message that a master does not process: Sync messages of others, or unsolicited responses.
    Unwanted,
    /// Multicast destination other than PTP's groups, or broadcast destination.
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

    /// Returns the name of the reason in counters.
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

impl From<ParseError> for PtpRefusal {
    fn from(malformed: ParseError) -> Self {
        match malformed {
            ParseError::Version => Self::Version,
            ParseError::Truncated | ParseError::Length | ParseError::Checksum => Self::Length,
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
