//! The question "serverstats": what chronyd counted as a server. Its answer has grown with chronyd:
//! five counters, then eleven in another order, then the same in 64 bits; all are read here.

use zerocopy::FromBytes;
use zerocopy::byteorder::network_endian::{U32, U64};

use super::{reply_to, request};
use crate::Malformed;

/// Length of the request: that of the longest reply, chronyd 4.4's, without which none is given.
pub const STATISTICS_LEN: usize = 196;

const COMMAND: u16 = 54;
/// Replies by number, the oldest first.
const REPLY_OLD: u16 = 14;
const REPLY_2: u16 = 22;
const REPLY_3: u16 = 24;
const REPLY_4: u16 = 25;

/// What chronyd counted since its start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Statistics {
    /// NTP requests received, those that were dropped among them.
    pub ntp_received: u64,
    /// NTP requests that its rate limit dropped.
    pub ntp_dropped: u64,
    /// NTP requests with a MAC or NTS; 0 where an old chronyd does not say.
    pub ntp_authenticated: u64,
    /// Connections for NTS key establishment; 0 where an old chronyd does not say.
    pub nts_ke_accepted: u64,
    /// Those that were refused; 0 where an old chronyd does not say.
    pub nts_ke_dropped: u64,
    /// Clients that its log had no room for.
    pub log_dropped: u64,
}

/// A reply of chronyd.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The number of the request that it belongs to.
    pub sequence: u32,
    /// The answer, or the number of the daemon's refusal.
    pub statistics: Result<Statistics, u16>,
}

/// Writes the request "serverstats".
#[must_use]
pub fn statistics_request(sequence: u32) -> [u8; STATISTICS_LEN] {
    request(COMMAND, sequence)
}

impl Reply {
    /// Reads a reply to the request "serverstats".
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let (header, rest) = reply_to(COMMAND, bytes)?;
        let sequence = header.sequence.get();
        if header.status.get() != 0 {
            return Ok(Self { sequence, statistics: Err(header.status.get()) });
        }
        let statistics = match header.reply.get() {
            REPLY_OLD => {
                let [received, _, dropped, _, log_dropped] = narrow(rest)?;
                Statistics {
                    ntp_received: received,
                    ntp_dropped: dropped,
                    log_dropped,
                    ..Statistics::default()
                }
            }
            REPLY_2 | REPLY_3 => Statistics::of(narrow(rest)?),
            REPLY_4 => Statistics::of(wide(rest)?),
            _ => return Err(Malformed::Length),
        };
        Ok(Self { sequence, statistics: Ok(statistics) })
    }
}

impl Statistics {
    /// The eight counters with which all newer replies begin.
    fn of(counters: [u64; 8]) -> Self {
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

/// The first numbers of 32 bits each.
fn narrow<const N: usize>(bytes: &[u8]) -> Result<[u64; N], Malformed> {
    let (numbers, _) = <[U32; N]>::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    Ok(numbers.map(|number| number.get().into()))
}

/// The first numbers of 64 bits each.
fn wide<const N: usize>(bytes: &[u8]) -> Result<[u64; N], Malformed> {
    let (numbers, _) = <[U64; N]>::ref_from_prefix(bytes).map_err(|_| Malformed::Truncated)?;
    Ok(numbers.map(U64::get))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What chronyd 4.3 answered to request 7, when it had been asked for the sixth time.
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
        let reply = Reply::parse(&REPLY_OF_CHRONYD).unwrap();
        assert_eq!(reply, Reply { sequence: 7, statistics: Ok(Statistics::default()) });
    }

    #[test]
    fn every_form_is_read() {
        let newer = Statistics {
            ntp_received: 1,
            nts_ke_accepted: 2,
            ntp_dropped: 4,
            nts_ke_dropped: 5,
            log_dropped: 7,
            ntp_authenticated: 8,
        };
        let old =
            Statistics { ntp_received: 1, ntp_dropped: 3, log_dropped: 5, ..Statistics::default() };
        for (number, bytes_each, expected) in
            [(REPLY_OLD, 4, old), (REPLY_2, 4, newer), (REPLY_3, 4, newer), (REPLY_4, 8, newer)]
        {
            let bytes = reply(number, 0, &counters(bytes_each));
            assert_eq!(Reply::parse(&bytes).unwrap().statistics, Ok(expected), "{number}");
        }
        assert_eq!(Reply::parse(&reply(REPLY_4, 0, &counters(4))), Err(Malformed::Truncated));
        assert_eq!(Reply::parse(&reply(26, 0, &counters(8))), Err(Malformed::Length));
        assert_eq!(Reply::parse(&reply(1, 2, &[])).unwrap().statistics, Err(2));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>, number in 0_u16..30) {
            let _ = Reply::parse(&bytes);
            let _ = Reply::parse(&reply(number, 0, &bytes));
        }
    }
}
