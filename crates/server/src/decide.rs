//! What the server answers, as a pure function of the request, its source, the clock page, the
//! receive timestamp and what is remembered of the client. It reads no clock, keeps no state, and
//! leaves one field of a basic reply open: the transmit timestamp, which is filled in as late as it
//! can be.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use horolog_time::{NtpShort, NtpTimestamp};
use horolog_wire::ntp::{HEADER_LEN, Header, Leap, Mode, PORT};

use crate::interleaved::{as_receive, as_transmit, looks_interleaved};
use crate::{KissCode, Page, Why};

/// The versions that have the layout of version 4: RFC 1059, RFC 1119, RFC 1305, RFC 5905.
const VERSIONS: std::ops::RangeInclusive<u8> = 1..=4;

/// What to do about a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Send this back, 48 bytes.
    Reply(Reply),
    /// Send nothing.
    Ignore(Reason),
}

/// A reply, and what there is to do with its transmit timestamp.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply {
    /// The reply's header. Its transmit timestamp is there already in an interleaved reply and
    /// [`NtpTimestamp::UNKNOWN`] in every other; see [`Reply::at`].
    pub header: Header,
    /// Which mode it is of.
    pub kind: ReplyKind,
}

/// The mode of a reply (RFC 9769, section 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReplyKind {
    /// The request is of basic mode: nothing is remembered.
    Basic,
    /// The request may be of interleaved mode, but of the reply that it refers to nothing is known.
    /// The reply is of basic mode, and its timestamps are to be remembered.
    First,
    /// The reply tells when the one before it left, and its own timestamps are to be remembered.
    Interleaved,
}

impl ReplyKind {
    /// Whether the reply's receive timestamp and the instant at which it leaves are to be
    /// remembered for the client's next request.
    #[must_use]
    pub const fn is_remembered(self) -> bool {
        !matches!(self, Self::Basic)
    }
}

impl Reply {
    /// The header as it is sent when the reply leaves at `transmit`.
    #[must_use]
    pub const fn at(mut self, transmit: NtpTimestamp) -> Header {
        if !matches!(self.kind, ReplyKind::Interleaved) {
            self.header.transmit = as_transmit(transmit);
        }
        self.header
    }

    /// The kiss to send in the place of a reply of basic mode (RFC 5905, section 7.4). It says
    /// nothing of the clock and is not remembered.
    #[must_use]
    pub const fn into_kiss(self, code: KissCode) -> Self {
        let header = Header {
            leap: Leap::Unsynchronised,
            stratum: 0,
            root_delay: NtpShort::from_bits(0),
            root_dispersion: NtpShort::from_bits(0),
            reference_id: code.as_bytes(),
            reference: NtpTimestamp::UNKNOWN,
            ..self.header
        };
        Self { header, kind: ReplyKind::Basic }
    }
}

/// Why a datagram is not answered.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(usize)]
pub enum Reason {
    /// Shorter than a header, or what follows the header cannot be extension fields and a message
    /// authentication code, which come in words of 32 bits.
    Length,
    /// A version other than 1 to 4.
    Version,
    /// Not a client's request: an answer to it could start two servers answering one another, or
    /// serve as an amplifier (modes 6 and 7).
    Mode,
    /// From port 0, which cannot be answered, or from an address that names no single host.
    Source,
    /// A message authentication code of a key that is not known, or a wrong one.
    Mac,
    /// Fields of Network Time Security that are malformed or lack a cookie.
    Nts,
    /// The client asked too often.
    Limited,
    /// The lists of prefixes deny the client.
    Denied,
    /// Too many clients that were not known before.
    Newcomers,
}

impl From<Why> for Reason {
    fn from(why: Why) -> Self {
        match why {
            Why::Limited => Self::Limited,
            Why::Denied => Self::Denied,
            Why::Newcomers => Self::Newcomers,
        }
    }
}

impl Reason {
    /// Every reason, each at the index that it has as a number.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Length,
        Self::Version,
        Self::Mode,
        Self::Source,
        Self::Mac,
        Self::Nts,
        Self::Limited,
        Self::Denied,
        Self::Newcomers,
    ];
    /// How many there are.
    pub const COUNT: usize = 9;

    /// Its name in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Length => "length",
            Self::Version => "version",
            Self::Mode => "mode",
            Self::Source => "source",
            Self::Mac => "mac",
            Self::Nts => "nts",
            Self::Limited => "limited",
            Self::Denied => "denied",
            Self::Newcomers => "newcomers",
        }
    }
}

/// Judges the payload of a UDP datagram that came from `source` at `received` (T2). For a request
/// that may be of interleaved mode, and for no other, `transmit_of` is asked for the transmit
/// timestamp of this client's reply whose receive timestamp was the one given.
///
/// Extension fields and message authentication codes are passed over: the reply is 48 bytes and
/// authenticates nothing, so a client that asked for authentication drops it, as it must. No reply
/// is longer than its request.
#[must_use]
pub fn decide(
    request: &[u8],
    source: SocketAddr,
    page: &Page,
    received: NtpTimestamp,
    transmit_of: impl FnOnce(NtpTimestamp) -> Option<NtpTimestamp>,
) -> Verdict {
    let Ok((request, rest)) = Header::parse(request) else {
        return Verdict::Ignore(Reason::Length);
    };
    match objection(&request, rest, source) {
        Some(reason) => Verdict::Ignore(reason),
        None => Verdict::Reply(reply(&request, page, received, transmit_of)),
    }
}

fn objection(request: &Header, rest: &[u8], source: SocketAddr) -> Option<Reason> {
    if !rest.len().is_multiple_of(4) {
        Some(Reason::Length)
    } else if !VERSIONS.contains(&request.version) {
        Some(Reason::Version)
    } else if !is_client(request, source.port()) {
        Some(Reason::Mode)
    } else if source.port() == 0 || !names_one_host(source.ip()) {
        Some(Reason::Source)
    } else {
        None
    }
}

/// Version 1 had no mode field; its three bits are zero, and a client is told from a peer by its
/// port, which is not 123 (RFC 1059, appendix B and section 3; RFC 1305, appendix D).
fn is_client(request: &Header, source_port: u16) -> bool {
    match request.mode {
        Mode::Client => true,
        Mode::Reserved => request.version == 1 && source_port != PORT,
        _ => false,
    }
}

fn names_one_host(ip: IpAddr) -> bool {
    let ip = ip.to_canonical();
    !(ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST))
}

fn reply(
    request: &Header,
    page: &Page,
    received: NtpTimestamp,
    transmit_of: impl FnOnce(NtpTimestamp) -> Option<NtpTimestamp>,
) -> Reply {
    let variables = &page.variables;
    let basic = Header {
        leap: variables.leap,
        version: request.version,
        mode: Mode::Server,
        stratum: variables.stratum,
        poll: request.poll,
        precision: variables.precision,
        root_delay: variables.root_delay,
        root_dispersion: variables.root_dispersion,
        reference_id: variables.reference_id,
        reference: variables.reference,
        origin: request.transmit,
        receive: as_receive(received),
        transmit: NtpTimestamp::UNKNOWN,
    };
    if !looks_interleaved(request) {
        return Reply { header: basic, kind: ReplyKind::Basic };
    }
    match transmit_of(request.origin) {
        None => Reply { header: basic, kind: ReplyKind::First },
        Some(transmit) => Reply {
            header: Header { origin: request.receive, transmit, ..basic },
            kind: ReplyKind::Interleaved,
        },
    }
}

const _: () = assert!(HEADER_LEN == 48);

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::page::tests::page;

    const RECEIVED: NtpTimestamp = NtpTimestamp::from_bits(0xe000_0000_2000_0000);

    fn client() -> SocketAddr {
        "192.0.2.7:40000".parse().unwrap()
    }

    fn packet(version: u8, mode: u8, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len.max(HEADER_LEN)];
        Header::request(version, NtpTimestamp::from_bits(0x0102_0304_0506_0708)).emit(&mut bytes);
        bytes[0] = bytes[0] & !7 | mode;
        bytes[2] = 10;
        bytes.truncate(len);
        bytes
    }

    fn judge(bytes: &[u8], source: SocketAddr) -> Verdict {
        decide(bytes, source, &page(), RECEIVED, |_| None)
    }

    #[test]
    fn a_request_of_each_version_is_answered_in_that_version() {
        for version in 1..=4 {
            let Verdict::Reply(reply) = judge(&packet(version, 3, 48), client()) else {
                panic!("version {version} was ignored");
            };
            assert_eq!(reply.kind, ReplyKind::Basic);
            let reply = reply.header;
            assert_eq!((reply.version, reply.mode), (version, Mode::Server));
            assert_eq!((reply.leap, reply.stratum, reply.poll), (page().variables.leap, 1, 10));
            assert_eq!((reply.precision, &reply.reference_id), (-25, b"PPS\0"));
            assert_eq!(reply.root_delay, page().variables.root_delay);
            assert_eq!(reply.root_dispersion, page().variables.root_dispersion);
            assert_eq!(reply.reference, page().variables.reference);
            assert_eq!(reply.origin.to_bits(), 0x0102_0304_0506_0708);
            assert_eq!((reply.receive, reply.transmit), (RECEIVED, NtpTimestamp::UNKNOWN));
        }
    }

    #[test]
    fn other_versions_are_ignored() {
        for version in [0, 5, 6, 7] {
            let verdict = judge(&packet(version, 3, 48), client());
            assert_eq!(verdict, Verdict::Ignore(Reason::Version), "version {version}");
        }
    }

    #[test]
    fn other_modes_are_ignored() {
        for mode in [0, 1, 2, 4, 5, 6, 7] {
            let verdict = judge(&packet(4, mode, 48), client());
            assert_eq!(verdict, Verdict::Ignore(Reason::Mode), "mode {mode}");
        }
    }

    #[test]
    fn version_1_without_a_mode_is_a_client_unless_its_port_is_123() {
        assert!(matches!(judge(&packet(1, 0, 48), client()), Verdict::Reply(_)));
        let server = "192.0.2.7:123".parse().unwrap();
        assert_eq!(judge(&packet(1, 0, 48), server), Verdict::Ignore(Reason::Mode));
        assert_eq!(judge(&packet(2, 0, 48), client()), Verdict::Ignore(Reason::Mode));
        assert!(matches!(judge(&packet(1, 3, 48), server), Verdict::Reply(_)));
    }

    #[test]
    fn lengths() {
        for len in [0, 1, 47, 49, 50, 51, 67] {
            let verdict = judge(&packet(4, 3, len), client());
            assert_eq!(verdict, Verdict::Ignore(Reason::Length), "{len} bytes");
        }
        for len in [48, 52, 68, 72, 1_024] {
            let verdict = judge(&packet(4, 3, len), client());
            assert!(matches!(verdict, Verdict::Reply(_)), "{len} bytes");
        }
    }

    #[test]
    fn sources_that_cannot_be_answered_are_ignored() {
        let sources = [
            "192.0.2.7:0",
            "0.0.0.0:4000",
            "224.0.1.1:4000",
            "255.255.255.255:4000",
            "[::]:4000",
            "[ff02::101]:4000",
            "[::ffff:224.0.1.1]:4000",
        ];
        for source in sources {
            let verdict = judge(&packet(4, 3, 48), source.parse().unwrap());
            assert_eq!(verdict, Verdict::Ignore(Reason::Source), "{source}");
        }
    }

    #[test]
    fn reasons_stand_at_their_own_index() {
        for (index, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index);
        }
    }

    /// A request in interleaved mode: origin, receive, transmit.
    fn interleaved(origin: u64, receive: u64, transmit: u64) -> [u8; HEADER_LEN] {
        let mut bytes = [0; HEADER_LEN];
        Header {
            origin: NtpTimestamp::from_bits(origin),
            receive: NtpTimestamp::from_bits(receive),
            ..Header::request(4, NtpTimestamp::from_bits(transmit))
        }
        .emit(&mut bytes);
        bytes
    }

    #[test]
    fn an_interleaved_reply_tells_when_the_one_before_left() {
        let (before, left) =
            (0xe000_0000_1111_1112, NtpTimestamp::from_bits(0xe000_0000_1111_9999));
        let ask = |request: &[u8]| {
            let known = |origin: NtpTimestamp| (origin.to_bits() == before).then_some(left);
            match decide(request, client(), &page(), RECEIVED, known) {
                Verdict::Reply(reply) => reply,
                Verdict::Ignore(reason) => panic!("ignored: {reason:?}"),
            }
        };
        let leaves = NtpTimestamp::from_bits(0xe000_0000_2000_4444);

        let reply = ask(&interleaved(before, 21, 22));
        assert_eq!(reply.kind, ReplyKind::Interleaved);
        let header = reply.at(leaves);
        assert_eq!(
            (header.origin.to_bits(), header.receive, header.transmit),
            (21, RECEIVED, left)
        );

        let reply = ask(&interleaved(before + 2, 21, 22));
        assert_eq!(reply.kind, ReplyKind::First);
        let header = reply.at(leaves);
        assert_eq!((header.origin.to_bits(), header.receive), (22, RECEIVED));
        assert_eq!(header.transmit.to_bits(), leaves.to_bits() | 1);

        let reply = ask(&interleaved(before, 22, 22));
        assert_eq!((reply.kind, reply.header.origin.to_bits()), (ReplyKind::Basic, 22));
    }

    /// The exchanges of RFC 9769, figure 1, whose timestamps stand in the packets as they do there;
    /// only the second reply is still of basic mode, because nothing is kept for the client before
    /// it has asked in interleaved mode.
    #[test]
    fn rfc_9769_figure_1() {
        // Receive timestamps are even and transmit timestamps odd, the client's own are any.
        let t = |n: u64| 0xe000_0000_2000_0000 + 16 * n + n % 4 / 3;
        let kept = std::cell::Cell::new((0, NtpTimestamp::UNKNOWN));
        let ask = |(origin, receive, transmit), received: u64, leaves: u64| {
            let request = interleaved(origin, receive, transmit);
            let (of, left) = kept.get();
            let known = |origin: NtpTimestamp| (origin.to_bits() == of).then_some(left);
            let received = NtpTimestamp::from_bits(received);
            let verdict = decide(&request, client(), &page(), received, known);
            let Verdict::Reply(reply) = verdict else { panic!("ignored") };
            let header = reply.at(NtpTimestamp::from_bits(leaves));
            if reply.kind.is_remembered() {
                kept.set((header.receive.to_bits(), NtpTimestamp::from_bits(leaves)));
            }
            [header.origin, header.receive, header.transmit].map(NtpTimestamp::to_bits)
        };
        assert_eq!(ask((0, 0, t(1)), t(2), t(3)), [t(1), t(2), t(3)]);
        assert_eq!(ask((t(2), t(4), t(5)), t(6), t(7)), [t(5), t(6), t(7)]);
        assert_eq!(ask((t(6), t(8), t(9)), t(10), t(11)), [t(8), t(10), t(7)]);
        assert_eq!(ask((t(10), t(12), t(13)), t(14), t(15)), [t(12), t(14), t(11)]);
    }

    #[test]
    fn receive_timestamps_are_even_and_transmit_timestamps_odd() {
        let odd = NtpTimestamp::from_bits(RECEIVED.to_bits() | 1);
        let verdict = decide(&packet(4, 3, 48), client(), &page(), odd, |_| None);
        let Verdict::Reply(reply) = verdict else { panic!("ignored") };
        let header = reply.at(RECEIVED);
        assert_eq!((header.receive, header.transmit), (RECEIVED, odd));
    }

    fn any_source() -> impl Strategy<Value = SocketAddr> {
        (any::<IpAddr>(), any::<u16>()).prop_map(SocketAddr::from)
    }

    proptest! {
        #[test]
        fn any_bytes_from_anywhere_are_judged(bytes in proptest::collection::vec(any::<u8>(), 0..200),
                                              source in any_source(), received: u64, known: bool) {
            let received = NtpTimestamp::from_bits(received);
            let known = |origin| known.then_some(origin);
            if let Verdict::Reply(reply) = decide(&bytes, source, &page(), received, known) {
                prop_assert!(bytes.len() >= HEADER_LEN, "a reply longer than its request");
                let told = if reply.kind == ReplyKind::Interleaved { 32..40 } else { 40..48 };
                let reply = reply.at(received);
                prop_assert_eq!(&reply.origin.to_bits().to_be_bytes()[..], &bytes[told]);
                prop_assert_eq!(reply.receive, as_receive(received));
                let mut emitted = [0; HEADER_LEN];
                reply.emit(&mut emitted);
                prop_assert_eq!(judge(&emitted, source), Verdict::Ignore(Reason::Mode),
                                "a reply that would be answered in turn");
            }
        }
    }
}
