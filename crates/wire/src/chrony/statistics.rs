//! Request "serverstats": chronyd's counters as a server. The reply has had several formats: five
//! 32-bit counters, later more of them in another order, and from chrony 4.4 on in 64 bits. All are
//! parsed here.

use zerocopy::FromBytes;
use zerocopy::byteorder::network_endian::{U32, U64};

use super::{request, split_reply};
use crate::ParseError;

/// Length of the request "serverstats" in bytes. chronyd 4.4 accepts no shorter one, since its
/// reply is that long.
pub const STATISTICS_LEN: usize = 196;

const COMMAND: u16 = 54;
/// Reply codes of the successive formats, oldest first, here and below.
const REPLY_OLD: u16 = 14;
const REPLY_2: u16 = 22;
const REPLY_3: u16 = 24;
const REPLY_4: u16 = 25;

/// Counters of chronyd since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct ChronydStatistics {
    /// NTP requests received, including dropped ones.
    pub ntp_received: u64,
    /// NTP requests dropped by the rate limit.
    pub ntp_dropped: u64,
    /// NTP requests with a MAC or NTS; 0 if an old chronyd does not report it.
    pub ntp_authenticated: u64,
    /// NTS-KE connections accepted; 0 if an old chronyd does not report it.
    pub nts_ke_accepted: u64,
    /// NTS-KE connections refused; 0 if an old chronyd does not report it.
    pub nts_ke_dropped: u64,
    /// Client records discarded because the client log was full.
    pub log_dropped: u64,
}

/// Reply of chronyd to the request "serverstats".
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChronydStatisticsReply {
    /// Sequence number, copied from the request.
    pub sequence: u32,
    /// Counters, or the nonzero status code of a refusal.
    pub statistics: Result<ChronydStatistics, u16>,
}

/// Returns the request "serverstats" with this sequence number, padded to the length of its longest
/// reply.
#[must_use]
pub fn statistics_request(sequence: u32) -> [u8; STATISTICS_LEN] {
    request(COMMAND, sequence)
}

impl ChronydStatisticsReply {
    /// Parses a reply to the request "serverstats" in any of its formats; a refusal yields its
    /// status code. Another version or packet type is [`ParseError::Version`], a reply to another
    /// command or of an unknown format [`ParseError::Length`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseError> {
        let (header, rest) = split_reply(COMMAND, bytes)?;
        let sequence = header.sequence.get();
        if header.status.get() != 0 {
            return Ok(Self { sequence, statistics: Err(header.status.get()) });
        }
        let statistics = match header.reply.get() {
            REPLY_OLD => {
                let [received, _, dropped, _, log_dropped] = first_u32_counters(rest)?;
                ChronydStatistics {
                    ntp_received: received,
                    ntp_dropped: dropped,
                    log_dropped,
                    ..ChronydStatistics::default()
                }
            }
            REPLY_2 | REPLY_3 => ChronydStatistics::from_counters(first_u32_counters(rest)?),
            REPLY_4 => ChronydStatistics::from_counters(first_u64_counters(rest)?),
            _ => return Err(ParseError::Length),
        };
        Ok(Self { sequence, statistics: Ok(statistics) })
    }
}

impl ChronydStatistics {
    /// Builds the statistics from the first eight counters, whose order is common to all but the
    /// oldest format.
    fn from_counters(counters: [u64; 8]) -> Self {
        let [ntp_received, nts_ke_accepted, _, ntp_dropped, nts_ke_dropped, _, log_dropped, auth] =
            counters;
        Self {
            ntp_received,
            ntp_dropped,
            ntp_authenticated: auth,
            nts_ke_accepted,
            nts_ke_dropped,
            log_dropped,
        }
    }
}

/// Parses the first `N` counters, of 32 bits each.
fn first_u32_counters<const N: usize>(bytes: &[u8]) -> Result<[u64; N], ParseError> {
    let (numbers, _) = <[U32; N]>::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    Ok(numbers.map(|number| number.get().into()))
}

/// Parses the first `N` counters, of 64 bits each.
fn first_u64_counters<const N: usize>(bytes: &[u8]) -> Result<[u64; N], ParseError> {
    let (numbers, _) = <[U64; N]>::ref_from_prefix(bytes).map_err(|_| ParseError::Truncated)?;
    Ok(numbers.map(U64::get))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Reply of chronyd 4.3 to request 7, the sixth that it received.
    const REPLY_OF_CHRONYD: [u8; 72] = {
        let mut bytes = [0; 72];
        (bytes[0], bytes[1], bytes[5], bytes[7], bytes[19], bytes[39]) = (6, 2, 54, 24, 7, 6);
        bytes
    };

    fn reply(number: u16, status: u16, counters: &[u8]) -> Vec<u8> {
        let mut bytes = REPLY_OF_CHRONYD[..28].to_vec();
        bytes[6..8].copy_from_slice(&number.to_be_bytes());
        bytes[8..10].copy_from_slice(&status.to_be_bytes());
        bytes.extend_from_slice(counters);
        bytes
    }

    fn counters(bytes_each: usize) -> Vec<u8> {
        (1_u64..=11).flat_map(|n| n.to_be_bytes()[8 - bytes_each..].to_vec()).collect()
    }

    #[test]
    fn a_reply_of_chronyd() {
        let reply = ChronydStatisticsReply::parse(&REPLY_OF_CHRONYD).unwrap();
        assert_eq!(
            reply,
            ChronydStatisticsReply { sequence: 7, statistics: Ok(ChronydStatistics::default()) }
        );
    }

    #[test]
    fn every_form_is_read() {
        let newer = ChronydStatistics {
            ntp_received: 1,
            nts_ke_accepted: 2,
            ntp_dropped: 4,
            nts_ke_dropped: 5,
            log_dropped: 7,
            ntp_authenticated: 8,
        };
        let old = ChronydStatistics {
            ntp_received: 1,
            ntp_dropped: 3,
            log_dropped: 5,
            ..ChronydStatistics::default()
        };
        for (number, bytes_each, expected) in
            [(REPLY_OLD, 4, old), (REPLY_2, 4, newer), (REPLY_3, 4, newer), (REPLY_4, 8, newer)]
        {
            let bytes = reply(number, 0, &counters(bytes_each));
            assert_eq!(
                ChronydStatisticsReply::parse(&bytes).unwrap().statistics,
                Ok(expected),
                "{number}"
            );
        }
        assert_eq!(
            ChronydStatisticsReply::parse(&reply(REPLY_4, 0, &counters(4))),
            Err(ParseError::Truncated)
        );
        assert_eq!(
            ChronydStatisticsReply::parse(&reply(26, 0, &counters(8))),
            Err(ParseError::Length)
        );
        assert_eq!(ChronydStatisticsReply::parse(&reply(1, 2, &[])).unwrap().statistics, Err(2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, number in 0_u16..30) {
            let _ = ChronydStatisticsReply::parse(&bytes);
            let _ = ChronydStatisticsReply::parse(&reply(number, 0, &bytes));
        }
    }
}
