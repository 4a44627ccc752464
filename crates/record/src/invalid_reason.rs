//! Reasons for which replies are invalid, numbered identically in all engines.

use serde::{Deserialize, Serialize};

/// Reason why a reply is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InvalidReplyReason {
    /// Shorter than an NTP header or longer than the request; for PTP, a length that differs from
    /// the one stated in the message or its TLVs.
    Length,
    /// Not mode 4 (server); for PTP, a message that is no reply.
    Mode,
    /// Version other than that of the request.
    Version,
    /// Origin timestamp, or requesting port of a PTP message, that is not one of ours.
    Origin,
    /// Reply to a client that did not send the request.
    Client,
    /// Stratum above 16; in earlier results also 0.
    Stratum,
    /// Leap 3 without stratum 16, or the reverse; in earlier results only.
    Leap,
    /// Transmit timestamp that is 0, unless the server is unsynchronised, or lies before the
    /// receive timestamp; for PTP also an invalid timestamp.
    Timestamp,
    /// PTP domain or profile other than requested.
    Domain,
    /// Unicast flag of a PTP message that contradicts its destination address.
    Flags,
    /// Sequence number of a PTP message that matches no outstanding request.
    Sequence,
    /// PTP port identity other than that of the first reply.
    Source,
    /// Reply without NetSync Monitor data although requested.
    Monitor,
    /// Kiss of death RATE: the server demands fewer requests (RFC 5905, section 7.4).
    KissRate,
    /// Kiss of death DENY: the server refuses access.
    KissDeny,
    /// Kiss of death RSTR: the server refuses access by its local policy.
    KissRstr,
    /// Any kiss of death other than RATE, DENY, RSTR and NTSN.
    KissOther,
    /// Unicast grant of a PTP master that differs from the request or is missing.
    UnicastTerms,
    /// Missing or failed NTS authentication of a reply that requires it.
    Nts,
    /// Missing or wrong MAC for the request's key.
    Mac,
    /// Kiss of death NTSN: the server rejected the cookie (RFC 8915, section 5.7).
    KissNtsn,
}

/// Writes the name used in JSON.
impl std::fmt::Display for InvalidReplyReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        Serialize::serialize(self, f)
    }
}

impl InvalidReplyReason {
    /// All variants, in the numbering of the engines. The in-kernel engine supports neither unicast
    /// negotiation nor NTS nor MACs, and has no numbers for the last four.
    pub const ALL: [Self; 21] = [
        Self::Length,
        Self::Mode,
        Self::Version,
        Self::Origin,
        Self::Client,
        Self::Stratum,
        Self::Leap,
        Self::Timestamp,
        Self::Domain,
        Self::Flags,
        Self::Sequence,
        Self::Source,
        Self::Monitor,
        Self::KissRate,
        Self::KissDeny,
        Self::KissRstr,
        Self::KissOther,
        Self::UnicastTerms,
        Self::Nts,
        Self::Mac,
        Self::KissNtsn,
    ];

    /// Returns the kiss code (RFC 5905, section 7.4), or `other`; `None` if the reason is not a
    /// kiss of death.
    #[must_use]
    pub const fn kiss_code(self) -> Option<&'static str> {
        match self {
            Self::KissRate => Some("RATE"),
            Self::KissDeny => Some("DENY"),
            Self::KissRstr => Some("RSTR"),
            Self::KissNtsn => Some("NTSN"),
            Self::KissOther => Some("other"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_in_the_list_once() {
        for (index, reason) in InvalidReplyReason::ALL.into_iter().enumerate() {
            assert_eq!(index_of(reason), index, "{reason:?}");
        }
    }

    /// Index in the list. A new reason does not compile before it has one.
    fn index_of(reason: InvalidReplyReason) -> usize {
        match reason {
            InvalidReplyReason::Length => 0,
            InvalidReplyReason::Mode => 1,
            InvalidReplyReason::Version => 2,
            InvalidReplyReason::Origin => 3,
            InvalidReplyReason::Client => 4,
            InvalidReplyReason::Stratum => 5,
            InvalidReplyReason::Leap => 6,
            InvalidReplyReason::Timestamp => 7,
            InvalidReplyReason::Domain => 8,
            InvalidReplyReason::Flags => 9,
            InvalidReplyReason::Sequence => 10,
            InvalidReplyReason::Source => 11,
            InvalidReplyReason::Monitor => 12,
            InvalidReplyReason::KissRate => 13,
            InvalidReplyReason::KissDeny => 14,
            InvalidReplyReason::KissRstr => 15,
            InvalidReplyReason::KissOther => 16,
            InvalidReplyReason::UnicastTerms => 17,
            InvalidReplyReason::Nts => 18,
            InvalidReplyReason::Mac => 19,
            InvalidReplyReason::KissNtsn => 20,
        }
    }
}
