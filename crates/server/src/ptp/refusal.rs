//! Why a message is not answered or not taken into account, each reason with its counter.

use horolog_wire::Malformed;

/// Why a message is not answered, or not taken into account.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Refusal {
    /// Its length or that of a TLV contradicts the bytes at hand.
    Length,
    /// Another version of the protocol.
    Version,
    /// A reserved message type.
    Type,
    /// Another domain or another organisation's profile.
    Domain,
    /// An event message by the way of general ones, or the other way round.
    Channel,
    /// To a group, where the port speaks to nobody but single clients; or to this port alone, which
    /// had not asked for it.
    Group,
    /// From this clock itself: looped back, or from another of its ports on the same link.
    Own,
    /// For another clock or port.
    Target,
    /// The clock is unusable, or the port is not the master.
    State,
    /// A question for the delay that the port's mechanism does not have.
    Mechanism,
    /// Unicast, without a grant that it needs.
    NotGranted,
    /// A request that was denied: too much is granted already, or too much was asked for.
    Denied,
    /// From a client that is neither on the link nor on the list.
    NotAdmitted,
    /// The answer would be longer than the question, and whoever asks is not on the link.
    Amplifying,
    /// An Announce that does not tell of a master: one that follows this clock, is too many steps
    /// away or is an alternate one.
    Unqualified,
    /// More masters were heard than are remembered.
    Crowded,
    /// Nothing that a master needs: another's Sync, or an answer to nothing.
    Unwanted,
}

impl Refusal {
    /// Every reason, each at the index that it has as a number.
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
        Self::Crowded,
        Self::Unwanted,
    ];
    /// How many there are.
    pub const COUNT: usize = 17;

    /// Its name in counters.
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
            Self::Crowded => "crowded",
            Self::Unwanted => "unwanted",
        }
    }
}

impl From<Malformed> for Refusal {
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
        for (index, reason) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{}", reason.name());
        }
    }
}
