//! The far end's answers: to whom it gives a session, what it echoes, and what it is silent at.

use horolog_wire::path_probe::HEADER_LEN;
use proptest::prelude::*;

use super::*;

const NOW: Timestamp<Monotonic> = Timestamp::from_ns(7 * KEY_PERIOD_NS + 5);

fn from(port: u16) -> DatagramMetadata {
    DatagramMetadata {
        remote: SocketAddr::from(([192, 0, 2, 1], port)),
        now: NOW,
        received_ns: 1_000,
        traffic_class: 0xb8,
    }
}

fn reflector() -> PathProbeReflector {
    PathProbeReflector::new(1_000_000, "boot".to_owned())
}

fn reply_to(
    reflector: &mut PathProbeReflector,
    header: Header,
    len: usize,
    arrival: &DatagramMetadata,
) -> Option<Header> {
    let mut bytes = vec![0; len];
    header.emit(&mut bytes);
    match reflector.handle(&mut bytes, arrival) {
        DatagramVerdict::Reply(kind, _) => {
            let (answer, _) = Header::parse(&bytes).unwrap();
            assert_eq!(answer.kind, kind);
            Some(answer)
        }
        DatagramVerdict::Drop(_) => None,
    }
}

fn session(reflector: &mut PathProbeReflector, flags: u8, arrival: &DatagramMetadata) -> u64 {
    let hello = Header { flags, ..Header::new(PathDatagramKind::Hello, 0, 9) };
    let welcome = reply_to(reflector, hello, HELLO_LEN, arrival).unwrap();
    assert_eq!((welcome.kind, welcome.sequence), (PathDatagramKind::Welcome, 9));
    assert_eq!(welcome.received_ns, kernel_hash("boot\n", 9));
    welcome.session
}

#[test]
fn who_was_welcomed_is_echoed_and_counted() {
    let mut far = reflector();
    let near = from(4_000);
    let session = session(&mut far, FLAG_TRAFFIC_CLASS, &near);
    let probe = |sequence| Header::new(PathDatagramKind::Probe, session, sequence);
    let warm = Header { flags: FLAG_WARM_UP, ..probe(0) };
    assert_eq!(reply_to(&mut far, warm, 100, &near).unwrap().counts, SessionCounts::default());
    for sequence in [1, 2, 5, 3, 5] {
        let echo = reply_to(&mut far, probe(sequence), 100, &near).unwrap();
        assert_eq!((echo.kind, echo.sequence), (PathDatagramKind::Echo, sequence));
        assert_eq!((echo.received_ns, echo.traffic_class), (1_000, 0xb8));
    }
    assert_eq!(far.requested_flags(), FLAG_TRAFFIC_CLASS);
    let load = Header::new(PathDatagramKind::Load, session, 0);
    assert_eq!(reply_to(&mut far, load, 2_000, &from(1)), None, "load is counted and not answered");
    let tally =
        reply_to(&mut far, Header::new(PathDatagramKind::End, session, 0), HEADER_LEN, &near)
            .unwrap();
    assert_eq!(tally.counts, SessionCounts { arrivals: 5, out_of_order: 2, load: 1 });
    assert_eq!(far.requested_flags(), 0, "a session that is over wants nothing");
}

#[test]
fn a_reused_port_does_not_continue_the_counts_of_its_last_session() {
    let mut far = reflector();
    let mut arrivals_after_hello = |near: &DatagramMetadata, end: bool| {
        let session = session(&mut far, 0, near);
        let probe = Header::new(PathDatagramKind::Probe, session, 0);
        let echo = reply_to(&mut far, probe, 100, near).unwrap();
        if end {
            let end = Header::new(PathDatagramKind::End, session, 0);
            reply_to(&mut far, end, HEADER_LEN, near).unwrap();
        }
        echo.counts.arrivals
    };
    let near = from(4_000);
    assert_eq!(arrivals_after_hello(&near, true), 1);
    assert_eq!(arrivals_after_hello(&near, false), 1, "the last one had ended");
    assert_eq!(arrivals_after_hello(&near, false), 2, "a copy of the hello");
    let later = DatagramMetadata { now: NOW + HELLO_COPY_DELAY_MAX + Span::from_ns(1), ..near };
    assert_eq!(arrivals_after_hello(&later, false), 1, "the last one was interrupted");
}

#[test]
fn limited_and_dropped_packets_are_reported_at_the_end() {
    let mut far = PathProbeReflector::new(10, "boot".to_owned());
    let near = from(4_000);
    far.dropped = Some(u32::MAX);
    let session = session(&mut far, 0, &near);
    let probe = |sequence| Header::new(PathDatagramKind::Probe, session, sequence);
    let warm = |sequence| Header { flags: FLAG_WARM_UP, ..probe(sequence) };
    let mut echoed = |header| reply_to(&mut far, header, 100, &near).is_some();
    assert!(echoed(warm(0)) && echoed(probe(1)), "an instant's worth");
    assert!(!echoed(probe(2)) && !echoed(probe(3)) && !echoed(warm(4)));
    let end = Header::new(PathDatagramKind::End, session, 0);
    far.dropped = Some(6);
    let tally = reply_to(&mut far, end, HEADER_LEN, &near).unwrap();
    assert_eq!(tally.counts, SessionCounts { arrivals: 1, out_of_order: 0, load: 0 });
    assert_eq!(tally.losses(), Some(FarEndHostLosses { limited: 2, dropped: 7 }));
    far.dropped = None;
    assert_eq!(reply_to(&mut far, end, HEADER_LEN, &near).unwrap().losses(), None);
}

#[test]
fn strangers_get_no_echo() {
    let mut far = reflector();
    let session = session(&mut far, 0, &from(4_000));
    let probe = Header::new(PathDatagramKind::Probe, session, 1);
    assert_eq!(reply_to(&mut far, probe, 64, &from(4_001)), None, "another port");
    assert_eq!(
        reply_to(&mut far, Header::new(PathDatagramKind::Probe, 0, 1), 64, &from(4_000)),
        None
    );
    assert_eq!(
        reply_to(&mut far, Header::new(PathDatagramKind::End, session, 1), 64, &from(4_001)),
        None
    );
    assert!(reply_to(&mut far, probe, 64, &from(4_000)).is_some());
    let much_later =
        DatagramMetadata { now: NOW + Span::from_ns(3 * KEY_PERIOD_NS), ..from(4_002) };
    let late = super::tests::session(&mut far, 0, &from(4_002));
    let probe = Header::new(PathDatagramKind::Probe, late, 1);
    assert_eq!(reply_to(&mut far, probe, 64, &much_later), None, "a word holds for a while only");
}

#[test]
fn a_session_without_probes_is_reported_at_its_end() {
    let mut far = reflector();
    let session = session(&mut far, 0, &from(4_000));
    let end = Header::new(PathDatagramKind::End, session, 0);
    let tally = reply_to(&mut far, end, HEADER_LEN, &from(4_000)).unwrap();
    assert_eq!((tally.kind, tally.counts), (PathDatagramKind::Counts, SessionCounts::default()));
}

#[test]
fn answers_are_not_answered_and_short_hellos_neither() {
    let mut far = reflector();
    for kind in [
        PathDatagramKind::Welcome,
        PathDatagramKind::Refusal,
        PathDatagramKind::Echo,
        PathDatagramKind::Counts,
    ] {
        assert_eq!(reply_to(&mut far, Header::new(kind, 1, 1), 64, &from(4_000)), None, "{kind:?}");
    }
    assert_eq!(
        reply_to(&mut far, Header::new(PathDatagramKind::Hello, 0, 1), 63, &from(4_000)),
        None
    );
    let mut noise = *b"GET / HTTP/1.1";
    let verdict = DatagramVerdict::Drop(ReflectorDropReason::Foreign);
    assert_eq!(far.handle(&mut noise, &from(4_000)), verdict);
}

#[test]
fn there_are_bounds() {
    let mut far = reflector();
    // Not faster than hellos are answered.
    let at =
        |port: u16, ms: u16| DatagramMetadata { now: NOW + Span::from_ms(ms.into()), ..from(port) };
    let last = SESSIONS_MAX as u16;
    for port in 1..=last {
        let session = session(&mut far, 0, &at(port, port));
        let probe = Header::new(PathDatagramKind::Probe, session, 0);
        assert!(reply_to(&mut far, probe, 64, &at(port, port)).is_some());
    }
    let hello = Header::new(PathDatagramKind::Hello, 0, 1);
    let full = reply_to(&mut far, hello, 64, &at(9_999, last + 1)).unwrap();
    assert_eq!((full.kind, full.session), (PathDatagramKind::Refusal, 0));
    let later =
        DatagramMetadata { now: NOW + IDLE_TIMEOUT + Span::from_ms(last.into()), ..from(9_999) };
    assert_eq!(
        reply_to(&mut far, hello, 64, &later).unwrap().kind,
        PathDatagramKind::Welcome,
        "idle ones go"
    );
    let mut answered = 0;
    for _ in 0..10_000 {
        answered += u32::from(reply_to(&mut far, hello, 64, &later).is_some());
    }
    assert!(answered < 500, "{answered} hellos were answered at once");
}

#[test]
fn a_short_probe_is_echoed_and_counted_with_the_others() {
    let mut far = reflector();
    let near = from(4_000);
    let session = session(&mut far, 0, &near);
    let take = |far: &mut PathProbeReflector,
                probe: short::ShortProbe,
                len: usize,
                from: &DatagramMetadata| {
        let mut bytes = vec![0x55; len];
        probe.emit(&mut bytes);
        let verdict = far.handle(&mut bytes, from);
        (verdict, short::ShortEcho::parse(&bytes))
    };
    let probe = |sequence| short::ShortProbe { warm_up: false, sequence, session };
    for (count, sequence) in [(1, 1), (2, 5), (3, 3)] {
        let (verdict, echo) = take(&mut far, probe(sequence), 20, &near);
        assert_eq!(verdict, DatagramVerdict::Reply(PathDatagramKind::Echo, 0));
        let echo = echo.unwrap();
        assert_eq!((echo.sequence, echo.arrivals, echo.session), (sequence, count, session as u8));
        assert_eq!((echo.received_ns(900), echo.traffic_class), (1_000, 0xb8));
    }
    let none = DatagramVerdict::Drop(ReflectorDropReason::NoSession);
    assert_eq!(take(&mut far, probe(6), 16, &from(4_001)).0, none, "another's session");
    assert_eq!(take(&mut far, short::ShortProbe { session: 0, ..probe(6) }, 16, &near).0, none);
    assert!(
        reply_to(&mut far, Header::new(PathDatagramKind::Probe, session, 7), 48, &near).is_some()
    );
    let tally =
        reply_to(&mut far, Header::new(PathDatagramKind::End, session, 0), HEADER_LEN, &near)
            .unwrap();
    assert_eq!((tally.counts.arrivals, tally.counts.out_of_order), (4, 1));
}

proptest! {
    /// Whatever comes, an answer is of one of three kinds and stands in the header.
    #[test]
    fn no_bytes_upset_it(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0_u8..10) {
        let mut bytes = bytes;
        if bytes.len() >= 6 {
            bytes[..6].copy_from_slice(&[b'H', b'P', b't', b'h', 1, kind]);
        }
        let padding = bytes.get(HEADER_LEN..).map(<[u8]>::to_vec);
        if let DatagramVerdict::Reply(kind, _) = reflector().handle(&mut bytes, &from(4_000)) {
            prop_assert!(kind == PathDatagramKind::Welcome, "{:?} without a session", kind);
            prop_assert_eq!(bytes.get(HEADER_LEN..).map(<[u8]>::to_vec), padding);
        }
    }
}
