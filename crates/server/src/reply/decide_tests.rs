//! Tests of the decision: what is answered, how, and what is ignored for which reason.

use proptest::prelude::*;

use super::*;

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

fn judge(bytes: &[u8], source: SocketAddr) -> RequestVerdict {
    decide(bytes, source, &ClockPage::SAMPLE, RECEIVED, |_| None)
}

#[test]
fn a_request_of_each_version_is_answered_in_that_version() {
    for version in 1..=4 {
        let RequestVerdict::Reply(reply) = judge(&packet(version, 3, 48), client()) else {
            panic!("version {version} was ignored");
        };
        assert_eq!(reply.kind, ReplyTimestampMode::Basic);
        let reply = reply.header;
        assert_eq!((reply.version, reply.mode), (version, AssociationMode::Server));
        assert_eq!(
            (reply.leap, reply.stratum, reply.poll),
            (ClockPage::SAMPLE.variables.leap, 1, 10)
        );
        assert_eq!((reply.precision, &reply.reference_id), (-25, b"PPS\0"));
        assert_eq!(reply.root_delay, ClockPage::SAMPLE.variables.root_delay);
        assert_eq!(reply.root_dispersion, ClockPage::SAMPLE.variables.root_dispersion);
        assert_eq!(reply.reference, ClockPage::SAMPLE.variables.reference);
        assert_eq!(reply.origin.to_bits(), 0x0102_0304_0506_0708);
        assert_eq!((reply.receive, reply.transmit), (RECEIVED, NtpTimestamp::UNKNOWN));
    }
}

#[test]
fn other_versions_are_ignored() {
    for version in [0, 5, 6, 7] {
        let verdict = judge(&packet(version, 3, 48), client());
        assert_eq!(verdict, RequestVerdict::Ignore(IgnoreReason::Version), "version {version}");
    }
}

#[test]
fn other_modes_are_ignored_each_with_its_reason() {
    for (mode, reason) in [
        (0, IgnoreReason::ModeReserved),
        (2, IgnoreReason::ModePassive),
        (4, IgnoreReason::ModeServer),
        (5, IgnoreReason::ModeBroadcast),
        (6, IgnoreReason::ModeControl),
        (7, IgnoreReason::ModePrivate),
    ] {
        for source in [client(), SocketAddr::new(client().ip(), PORT)] {
            let verdict = judge(&packet(4, mode, 48), source);
            assert_eq!(verdict, RequestVerdict::Ignore(reason), "mode {mode}");
        }
    }
    for (mode, reason) in [(6, IgnoreReason::ModeControl), (7, IgnoreReason::ModePrivate)] {
        for len in [2, 8, 12, 47, 49, 192] {
            let verdict = judge(&packet(2, mode, len), client());
            assert_eq!(verdict, RequestVerdict::Ignore(reason), "mode {mode}, {len} bytes");
        }
    }
}

#[test]
fn symmetric_active_mode_is_answered_in_symmetric_passive_mode() {
    let from_ntp = SocketAddr::new(client().ip(), PORT);
    for (version, source) in [(1, client()), (3, client()), (3, from_ntp), (4, from_ntp)] {
        let RequestVerdict::Reply(reply) = judge(&packet(version, 1, 48), source) else {
            panic!("version {version} was ignored");
        };
        let header = reply.header_at(RECEIVED);
        assert_eq!((header.version, header.mode), (version, AssociationMode::SymmetricPassive));
        assert_eq!(header.origin.to_bits(), 0x0102_0304_0506_0708);
        let mut bytes = [0; HEADER_LEN];
        header.emit(&mut bytes);
        assert_eq!(
            judge(&bytes, source),
            RequestVerdict::Ignore(IgnoreReason::ModePassive),
            "a loop"
        );
    }
}

/// Interleaved symmetric mode needs an association (RFC 9769, section 3).
#[test]
fn symmetric_active_mode_is_never_interleaved() {
    let before = 0xe000_0000_1111_1112;
    let mut request = interleaved(before, 21, 22);
    request[0] = 0xe1;
    let known = |_| -> Option<NtpTimestamp> { panic!("looked up") };
    let verdict = decide(&request, client(), &ClockPage::SAMPLE, RECEIVED, known);
    let RequestVerdict::Reply(reply) = verdict else { panic!("ignored") };
    assert_eq!((reply.kind, reply.header.origin.to_bits()), (ReplyTimestampMode::Basic, 22));
}

#[test]
fn version_1_without_a_mode_is_a_client_unless_its_port_is_123() {
    assert!(matches!(judge(&packet(1, 0, 48), client()), RequestVerdict::Reply(_)));
    let server = "192.0.2.7:123".parse().unwrap();
    assert_eq!(
        judge(&packet(1, 0, 48), server),
        RequestVerdict::Ignore(IgnoreReason::ModeReserved)
    );
    assert_eq!(
        judge(&packet(2, 0, 48), client()),
        RequestVerdict::Ignore(IgnoreReason::ModeReserved)
    );
    assert!(matches!(judge(&packet(1, 3, 48), server), RequestVerdict::Reply(_)));
}

#[test]
fn lengths() {
    for len in [0, 1, 47, 49, 50, 51, 67] {
        let verdict = judge(&packet(4, 3, len), client());
        assert_eq!(verdict, RequestVerdict::Ignore(IgnoreReason::Length), "{len} bytes");
    }
    for len in [48, 52, 68, 72, 1_024] {
        let verdict = judge(&packet(4, 3, len), client());
        assert!(matches!(verdict, RequestVerdict::Reply(_)), "{len} bytes");
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
        assert_eq!(verdict, RequestVerdict::Ignore(IgnoreReason::Source), "{source}");
    }
}

#[test]
fn reasons_stand_at_their_own_index() {
    for (index, reason) in IgnoreReason::ALL.into_iter().enumerate() {
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
fn an_interleaved_reply_has_the_transmit_time_of_the_previous_one() {
    let (before, left) = (0xe000_0000_1111_1112, NtpTimestamp::from_bits(0xe000_0000_1111_9999));
    let exchange = |request: &[u8]| {
        let known = |origin: NtpTimestamp| (origin.to_bits() == before).then_some(left);
        match decide(request, client(), &ClockPage::SAMPLE, RECEIVED, known) {
            RequestVerdict::Reply(reply) => reply,
            RequestVerdict::Ignore(reason) => panic!("ignored: {reason:?}"),
        }
    };
    let leaves = NtpTimestamp::from_bits(0xe000_0000_2000_4444);

    let reply = exchange(&interleaved(before, 21, 22));
    assert_eq!(reply.kind, ReplyTimestampMode::Interleaved);
    let header = reply.header_at(leaves);
    assert_eq!((header.origin.to_bits(), header.receive, header.transmit), (21, RECEIVED, left));

    let reply = exchange(&interleaved(before + 2, 21, 22));
    assert_eq!(reply.kind, ReplyTimestampMode::First);
    let header = reply.header_at(leaves);
    assert_eq!((header.origin.to_bits(), header.receive), (22, RECEIVED));
    assert_eq!(header.transmit.to_bits(), leaves.to_bits() | 1);

    let reply = exchange(&interleaved(before, 22, 22));
    assert_eq!((reply.kind, reply.header.origin.to_bits()), (ReplyTimestampMode::Basic, 22));
}

/// The exchanges of RFC 9769, figure 1, whose timestamps stand in the packets as they do there;
/// only the second reply is still of basic mode, because nothing is kept for the client before
/// it has asked in interleaved mode.
#[test]
fn rfc_9769_figure_1() {
    // Receive timestamps are even and transmit timestamps odd, the client's own are any.
    let t = |n: u64| 0xe000_0000_2000_0000 + 16 * n + n % 4 / 3;
    let stored = std::cell::Cell::new((0, NtpTimestamp::UNKNOWN));
    let exchange = |(origin, receive, transmit), received: u64, leaves: u64| {
        let request = interleaved(origin, receive, transmit);
        let (of, left) = stored.get();
        let known = |origin: NtpTimestamp| (origin.to_bits() == of).then_some(left);
        let received = NtpTimestamp::from_bits(received);
        let verdict = decide(&request, client(), &ClockPage::SAMPLE, received, known);
        let RequestVerdict::Reply(reply) = verdict else { panic!("ignored") };
        let header = reply.header_at(NtpTimestamp::from_bits(leaves));
        if reply.kind.needs_timestamps_stored() {
            stored.set((header.receive.to_bits(), NtpTimestamp::from_bits(leaves)));
        }
        [header.origin, header.receive, header.transmit].map(NtpTimestamp::to_bits)
    };
    assert_eq!(exchange((0, 0, t(1)), t(2), t(3)), [t(1), t(2), t(3)]);
    assert_eq!(exchange((t(2), t(4), t(5)), t(6), t(7)), [t(5), t(6), t(7)]);
    assert_eq!(exchange((t(6), t(8), t(9)), t(10), t(11)), [t(8), t(10), t(7)]);
    assert_eq!(exchange((t(10), t(12), t(13)), t(14), t(15)), [t(12), t(14), t(11)]);
}

#[test]
fn receive_timestamps_are_even_and_transmit_timestamps_odd() {
    let odd = NtpTimestamp::from_bits(RECEIVED.to_bits() | 1);
    let verdict = decide(&packet(4, 3, 48), client(), &ClockPage::SAMPLE, odd, |_| None);
    let RequestVerdict::Reply(reply) = verdict else { panic!("ignored") };
    let header = reply.header_at(RECEIVED);
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
        if let RequestVerdict::Reply(reply) = decide(&bytes, source, &ClockPage::SAMPLE, received, known) {
            prop_assert!(bytes.len() >= HEADER_LEN, "a reply longer than its request");
            let echoed = if reply.kind == ReplyTimestampMode::Interleaved { 32..40 } else { 40..48 };
            let reply = reply.header_at(received);
            prop_assert_eq!(&reply.origin.to_bits().to_be_bytes()[..], &bytes[echoed]);
            prop_assert_eq!(reply.receive, as_receive(received));
            let mut emitted = [0; HEADER_LEN];
            reply.emit(&mut emitted);
            let again = [IgnoreReason::ModePassive, IgnoreReason::ModeServer].map(RequestVerdict::Ignore);
            prop_assert!(again.contains(&judge(&emitted, source)),
                         "a reply that would be answered in turn");
        }
    }
}
