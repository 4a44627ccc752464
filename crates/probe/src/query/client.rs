//! NTP client logic in basic and interleaved mode (RFC 9769, section 2): builds requests and
//! classifies replies. It reads no clock, draws no random number and opens nothing.
//!
//! An interleaved reply carries the precise transmit timestamp (T3) of the reply before it. In
//! interleaved mode an exchange is therefore held until the next reply arrives.

use std::collections::VecDeque;

use horolog_record::InvalidReplyReason;
use horolog_time::NtpTimestamp;
use horolog_wire::ntp::Header;

use super::packet_timestamp::PacketTimestamp;
use super::reply::{QueryReply, ReplyMatchFields, ReplyVerdict, is_before, judge_reply};

/// Number of past requests stored, to recognise late and duplicate replies.
const PAST_REQUESTS_MAX: usize = 16;

/// Completed exchange: four timestamps and their context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NtpExchange {
    /// Slot of the time grid, as passed with the request.
    pub slot: u64,
    /// Transmit timestamp of the request.
    pub t1: PacketTimestamp,
    /// Receive timestamp of the server.
    pub t2: NtpTimestamp,
    /// Transmit timestamp of the server.
    pub t3: NtpTimestamp,
    /// Receive timestamp of the reply.
    pub t4: PacketTimestamp,
    /// Precision stated by the server, log2 of seconds.
    pub precision: i8,
    /// True if T3 was received with the next reply, in interleaved mode.
    pub interleaved: bool,
}

/// Class of a received datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DatagramClass {
    /// First valid reply to the open request.
    Reply(QueryReply),
    /// Kiss-o'-Death in reply to the open request, with its code.
    Kiss([u8; 4]),
    /// Further reply to a request that was answered.
    Duplicate,
    /// Reply to a request that had timed out or was abandoned.
    Late,
    /// Invalid datagram, with the reason.
    Invalid(InvalidReplyReason),
}

#[derive(Clone, Copy, Debug)]
struct PastRequest {
    request: ReplyMatchFields,
    answered: bool,
}

/// Exchange whose precise T3 may arrive with the next reply. Without `has_t3` it is incomplete
/// until then, because its own reply was interleaved.
#[derive(Clone, Copy, Debug)]
struct ExchangeAwaitingT3 {
    exchange: NtpExchange,
    has_t3: bool,
}

impl ExchangeAwaitingT3 {
    fn with_t3(self) -> Option<NtpExchange> {
        self.has_t3.then_some(self.exchange)
    }
}

/// Client of one server.
#[derive(Debug)]
pub struct NtpClient {
    version: u8,
    interleaved: bool,
    allows_extensions: bool,
    open_request: Option<(u64, ReplyMatchFields)>,
    past_requests: VecDeque<PastRequest>,
    pending_exchange: Option<ExchangeAwaitingT3>,
}

impl NtpClient {
    /// Returns a client that has sent no request. `extended` permits extension fields after the
    /// headers of replies.
    #[must_use]
    pub fn new(version: u8, interleaved: bool, extended: bool) -> Self {
        Self {
            version,
            interleaved,
            allows_extensions: extended,
            open_request: None,
            past_requests: VecDeque::with_capacity(PAST_REQUESTS_MAX),
            pending_exchange: None,
        }
    }

    /// Returns the header of the next request and makes it the open one. Its transmit and receive
    /// timestamps are random, so that they reveal nothing about this host's clock.
    pub fn next_request(&mut self, slot: u64, random: [u64; 2]) -> Header {
        self.abandon_request();
        // Distinct and nonzero, since 0 stands for an unknown time.
        let transmit = NtpTimestamp::from_bits(random[0] | 1);
        let receive = NtpTimestamp::from_bits((random[1] & !1).max(2));
        let previous_t2 =
            self.pending_exchange.filter(|_| self.interleaved).map(|held| held.exchange.t2);
        self.open_request = Some((
            slot,
            ReplyMatchFields {
                version: self.version,
                transmit,
                receive: previous_t2.map(|_| receive),
                allows_extensions: self.allows_extensions,
            },
        ));
        let request = Header::request(self.version, transmit);
        match previous_t2 {
            Some(origin) => Header { origin, receive, ..request },
            None => request,
        }
    }

    /// Classifies a datagram without changing any state.
    #[must_use]
    pub fn classify(&self, payload: &[u8]) -> DatagramClass {
        let verdict = self.open_request.map(|(_, request)| judge_reply(&request, payload));
        match verdict {
            Some(ReplyVerdict::Reply(reply)) if self.is_consistent(&reply) => {
                DatagramClass::Reply(reply)
            }
            Some(ReplyVerdict::Reply(_)) => DatagramClass::Invalid(InvalidReplyReason::Timestamp),
            Some(ReplyVerdict::Kiss(code)) => DatagramClass::Kiss(code),
            None | Some(ReplyVerdict::Invalid(InvalidReplyReason::Origin)) => {
                self.classify_past(payload)
            }
            Some(ReplyVerdict::Invalid(reason)) => DatagramClass::Invalid(reason),
        }
    }

    /// Returns true unless the T3 of an interleaved reply precedes the T2 of the exchange that it
    /// completes.
    fn is_consistent(&self, reply: &QueryReply) -> bool {
        if !reply.has_server_timestamps() {
            return true;
        }
        let fits = |held: ExchangeAwaitingT3| !is_before(reply.header.transmit, held.exchange.t2);
        !reply.interleaved || self.pending_exchange.is_some_and(fits)
    }

    fn classify_past(&self, payload: &[u8]) -> DatagramClass {
        let mut reason = InvalidReplyReason::Origin;
        for past in self.past_requests.iter().rev() {
            match judge_reply(&past.request, payload) {
                ReplyVerdict::Invalid(InvalidReplyReason::Origin) => {}
                ReplyVerdict::Invalid(other) => reason = other,
                _ if past.answered => return DatagramClass::Duplicate,
                _ => return DatagramClass::Late,
            }
        }
        DatagramClass::Invalid(reason)
    }

    /// Closes the open request with its reply. Returns the exchange that is complete now: this one,
    /// or in interleaved mode the previous one; `None` if there is none yet.
    pub fn accept_reply(
        &mut self,
        reply: &QueryReply,
        t1: PacketTimestamp,
        t4: PacketTimestamp,
    ) -> Option<NtpExchange> {
        let (slot, _) = self.open_request?;
        self.close_request(true);
        if !reply.has_server_timestamps() {
            return self.take_pending();
        }
        let header = &reply.header;
        let exchange = NtpExchange {
            slot,
            t1,
            t2: header.receive,
            t3: header.transmit,
            t4,
            precision: header.precision,
            interleaved: false,
        };
        let next = ExchangeAwaitingT3 { exchange, has_t3: !reply.interleaved };
        if !self.interleaved {
            return next.with_t3();
        }
        let before = self.pending_exchange.replace(next)?;
        if reply.interleaved {
            Some(NtpExchange { t3: header.transmit, interleaved: true, ..before.exchange })
        } else {
            before.with_t3()
        }
    }

    /// Abandons the open request; a reply to it counts as late from now on.
    pub fn abandon_request(&mut self) {
        self.close_request(false);
    }

    fn close_request(&mut self, answered: bool) {
        if let Some((_, request)) = self.open_request.take() {
            if self.past_requests.len() == PAST_REQUESTS_MAX {
                self.past_requests.pop_front();
            }
            self.past_requests.push_back(PastRequest { request, answered });
        }
    }

    /// Returns the pending exchange when no further reply will complete it; `None` if it has no T3.
    pub fn take_pending(&mut self) -> Option<NtpExchange> {
        self.pending_exchange.take()?.with_t3()
    }
}

#[cfg(test)]
mod tests {
    use horolog_time::{Span, Timestamp};
    use horolog_wire::ntp::AssociationMode;
    use proptest::prelude::*;

    use super::super::reply::tests::bytes;
    use super::*;

    fn at(ns: i64) -> NtpTimestamp {
        NtpTimestamp::from_utc(Timestamp::from_ns(1_700_000_000_000_000_000 + ns))
    }

    fn stamp(ns: i64) -> PacketTimestamp {
        PacketTimestamp::user(Timestamp::from_ns(1_700_000_000_000_000_000 + ns))
    }

    /// A server as RFC 9769 has it, for one client: it remembers its last reply.
    #[derive(Default)]
    struct Server {
        last: Option<(NtpTimestamp, NtpTimestamp)>,
    }

    impl Server {
        /// Reply to a request received at `receive`; it leaves 7 µs after its transmit timestamp.
        fn reply(&mut self, request: &Header, receive: NtpTimestamp) -> Header {
            let transmit = receive.wrapping_add(Span::from_ns(1_000));
            let leaves = transmit.wrapping_add(Span::from_ns(7_000));
            let reply = Header {
                mode: AssociationMode::Server,
                stratum: 1,
                origin: request.transmit,
                receive,
                transmit,
                ..*request
            };
            let known = self.last.replace((receive, leaves));
            match known {
                Some((key, left)) if request.origin == key => {
                    Header { origin: request.receive, transmit: left, ..reply }
                }
                _ => reply,
            }
        }
    }

    fn reply_of(client: &NtpClient, header: &Header) -> QueryReply {
        match client.classify(&bytes(header)) {
            DatagramClass::Reply(reply) => reply,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_basic_exchange_is_complete_at_once() {
        let (mut client, mut server) = (NtpClient::new(4, false, false), Server::default());
        for slot in 0..3 {
            let request = client.next_request(slot, [slot * 100, 7]);
            assert_eq!((request.origin, request.receive), Default::default());
            let header = server.reply(&request, at(slot as i64 * 1_000_000));
            let reply = reply_of(&client, &header);
            let exchange = client.accept_reply(&reply, stamp(1), stamp(9)).unwrap();
            assert_eq!((exchange.slot, exchange.interleaved), (slot, false));
            assert_eq!((exchange.t2, exchange.t3), (header.receive, header.transmit));
            assert_eq!(client.classify(&bytes(&header)), DatagramClass::Duplicate);
        }
        assert_eq!(client.take_pending(), None);
    }

    #[test]
    fn an_interleaved_reply_completes_the_exchange_before() {
        let (mut client, mut server) = (NtpClient::new(4, true, false), Server::default());
        let mut done = Vec::new();
        for slot in 0..4 {
            let ns = slot as i64 * 1_000_000;
            let request = client.next_request(slot, [slot * 100, slot * 90]);
            let header = server.reply(&request, at(ns));
            let reply = reply_of(&client, &header);
            assert_eq!(reply.interleaved, slot > 0);
            done.extend(client.accept_reply(&reply, stamp(ns - 5), stamp(ns + 9_000)));
        }
        // The last one never learns when its reply left.
        assert_eq!(client.take_pending(), None);
        assert_eq!(done.iter().map(|one| one.slot).collect::<Vec<_>>(), [0, 1, 2]);
        for exchange in done {
            let ns = exchange.slot as i64 * 1_000_000;
            assert!(exchange.interleaved);
            assert_eq!((exchange.t1, exchange.t4), (stamp(ns - 5), stamp(ns + 9_000)));
            assert_eq!(exchange.t2, at(ns));
            assert!((exchange.t3.since(exchange.t2).as_ns() - 8_000).abs() <= 1);
        }
    }

    #[test]
    fn a_server_that_forgets_is_measured_in_basic_mode() {
        let (mut client, mut server) = (NtpClient::new(4, true, false), Server::default());
        let mut modes = Vec::new();
        for slot in 0..5 {
            let request = client.next_request(slot, [slot * 100, slot * 90]);
            if slot == 3 {
                server.last = None;
            }
            let reply = reply_of(&client, &server.reply(&request, at(slot as i64 * 1_000_000)));
            modes.extend(
                client
                    .accept_reply(&reply, stamp(0), stamp(9))
                    .map(|one| (one.slot, one.interleaved)),
            );
        }
        // 2 was interleaved and never learnt its T3; 3 was basic and learns it from 4.
        assert_eq!(modes, [(0, true), (1, true), (3, true)]);
        let mut forgetful = NtpClient::new(4, true, false);
        for slot in 0..2 {
            let request = forgetful.next_request(slot, [slot * 100, 4]);
            let header = Server::default().reply(&request, at(slot as i64));
            let reply = reply_of(&forgetful, &header);
            let done = forgetful.accept_reply(&reply, stamp(0), stamp(9));
            assert_eq!(
                done.map(|one| (one.slot, one.interleaved)),
                (slot == 1).then_some((0, false))
            );
        }
        assert_eq!(forgetful.take_pending().map(|one| one.slot), Some(1));
    }

    #[test]
    fn an_interleaved_reply_must_fit_the_one_before() {
        let (mut client, mut server) = (NtpClient::new(4, true, false), Server::default());
        let request = client.next_request(0, [1, 2]);
        let reply = reply_of(&client, &server.reply(&request, at(1_000_000)));
        client.accept_reply(&reply, stamp(0), stamp(9));
        let request = client.next_request(1, [3, 4]);
        let header = server.reply(&request, at(2_000_000));
        let too_early = Header { transmit: at(999_999), ..header };
        assert_eq!(
            client.classify(&bytes(&too_early)),
            DatagramClass::Invalid(InvalidReplyReason::Timestamp),
            "it left before its request had come"
        );
        assert!(matches!(client.classify(&bytes(&header)), DatagramClass::Reply(_)));
    }

    #[test]
    fn a_reply_after_its_time_is_late_and_then_a_duplicate_of_nothing() {
        let (mut client, mut server) = (NtpClient::new(4, false, false), Server::default());
        let request = client.next_request(0, [1, 2]);
        let late = server.reply(&request, at(0));
        client.abandon_request();
        assert_eq!(client.classify(&bytes(&late)), DatagramClass::Late);
        let _ = client.next_request(1, [3, 4]);
        assert_eq!(client.classify(&bytes(&late)), DatagramClass::Late);
        for slot in 2..2 + PAST_REQUESTS_MAX as u64 {
            let _ = client.next_request(slot, [slot * 100, 5]);
        }
        assert_eq!(
            client.classify(&bytes(&late)),
            DatagramClass::Invalid(InvalidReplyReason::Origin)
        );
    }

    #[test]
    fn a_reply_without_timestamps_is_a_reply_and_no_exchange() {
        for interleaved in [false, true] {
            let (mut client, mut server) =
                (NtpClient::new(4, interleaved, false), Server::default());
            let mut done = Vec::new();
            for slot in 0..4 {
                let ns = slot as i64 * 1_000_000;
                let request = client.next_request(slot, [slot * 100, slot * 90]);
                let mut header = server.reply(&request, at(ns));
                if slot == 2 {
                    (header.stratum, header.receive) = (16, NtpTimestamp::UNKNOWN);
                    header.transmit = NtpTimestamp::UNKNOWN;
                }
                let reply = reply_of(&client, &header);
                done.extend(client.accept_reply(&reply, stamp(ns - 5), stamp(ns + 9_000)));
            }
            done.extend(client.take_pending());
            let slots: Vec<_> = done.iter().map(|one| one.slot).collect();
            // T3 of request 1 is unknown: only the reply to 2 could have carried it.
            let expected = if interleaved { vec![0, 3] } else { vec![0, 1, 3] };
            assert_eq!(slots, expected);
        }
    }

    proptest! {
        /// Whatever is lost, forgotten or comes twice: every exchange has the timestamps of its
        /// own.
        #[test]
        fn exchanges_are_never_mixed_up(
            fates in prop::collection::vec(0_u8..5, 1..60), interleaved: bool,
        ) {
            let (mut client, mut server) = (NtpClient::new(4, interleaved, false), Server::default());
            let mut done = Vec::new();
            for (slot, fate) in (0..).zip(fates) {
                let ns = slot as i64 * 1_000_000;
                let request = client.next_request(slot, [slot.wrapping_mul(0x9e37_79b9_7f4a_7c15), !slot]);
                match fate {
                    0 => {} // The request is lost.
                    1 => drop(server.reply(&request, at(ns))), // The reply is.
                    2 => server.last = None,
                    _ => {
                        let header = server.reply(&request, at(ns));
                        let reply = reply_of(&client, &header);
                        done.extend(client.accept_reply(&reply, stamp(ns - 50), stamp(ns + 9_000)));
                        prop_assert_eq!(client.classify(&bytes(&header)), DatagramClass::Duplicate);
                    }
                }
            }
            done.extend(client.take_pending());
            prop_assert!(done.is_sorted_by(|a, b| a.slot < b.slot));
            for exchange in done {
                let ns = exchange.slot as i64 * 1_000_000;
                prop_assert_eq!((exchange.t1, exchange.t4), (stamp(ns - 50), stamp(ns + 9_000)));
                prop_assert_eq!(exchange.t2, at(ns));
                let response = exchange.t3.since(exchange.t2).as_ns();
                let expected = if exchange.interleaved { 8_000 } else { 1_000 };
                prop_assert!((response - expected).abs() <= 1, "{:?}", exchange);
            }
        }
    }
}
