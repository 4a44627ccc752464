//! The far end's answers: to whom it gives a session, what it echoes, and what it is silent at.

use horolog_wire::path_probe::HEADER_LEN;
use proptest::prelude::*;

use super::*;

const NOW: Timestamp<Monotonic> = Timestamp::from_ns(7 * PERIOD_NS + 5);

fn from(port: u16) -> Arrival {
    Arrival {
        remote: SocketAddr::from(([192, 0, 2, 1], port)),
        now: NOW,
        received_ns: 1_000,
        traffic_class: 0xb8,
    }
}

fn reflector() -> Reflector {
    Reflector::new(1_000_000, "boot".to_owned())
}

fn ask(reflector: &mut Reflector, header: Header, len: usize, arrival: &Arrival) -> Option<Header> {
    let mut bytes = vec![0; len];
    header.emit(&mut bytes);
    match reflector.take(&mut bytes, arrival) {
        Verdict::Answer(kind, _) => {
            let (answer, _) = Header::parse(&bytes).unwrap();
            assert_eq!(answer.kind, kind);
            Some(answer)
        }
        Verdict::Silence(_) => None,
    }
}

fn session(reflector: &mut Reflector, flags: u8, arrival: &Arrival) -> u64 {
    let hello = Header { flags, ..Header::new(Kind::Hello, 0, 9) };
    let welcome = ask(reflector, hello, HELLO_LEN, arrival).unwrap();
    assert_eq!((welcome.kind, welcome.sequence), (Kind::Welcome, 9));
    assert_eq!(welcome.received_ns, kernel_hash("boot\n", 9));
    welcome.session
}

#[test]
fn who_was_welcomed_is_echoed_and_counted() {
    let mut far = reflector();
    let near = from(4_000);
    let session = session(&mut far, FLAG_TRAFFIC_CLASS, &near);
    let probe = |sequence| Header::new(Kind::Probe, session, sequence);
    let warm = Header { flags: FLAG_WARM_UP, ..probe(0) };
    assert_eq!(ask(&mut far, warm, 100, &near).unwrap().counted, Counted::default());
    for sequence in [1, 2, 5, 3, 5] {
        let echo = ask(&mut far, probe(sequence), 100, &near).unwrap();
        assert_eq!((echo.kind, echo.sequence), (Kind::Echo, sequence));
        assert_eq!((echo.received_ns, echo.traffic_class), (1_000, 0xb8));
    }
    assert_eq!(far.wanted(), FLAG_TRAFFIC_CLASS);
    let load = Header::new(Kind::Load, session, 0);
    assert_eq!(ask(&mut far, load, 2_000, &from(1)), None, "load is counted and not answered");
    let tally = ask(&mut far, Header::new(Kind::End, session, 0), HEADER_LEN, &near).unwrap();
    assert_eq!(tally.counted, Counted { arrivals: 5, behind: 2, load: 1 });
    assert_eq!(far.wanted(), 0, "a session that is over wants nothing");
}

#[test]
fn what_was_limited_and_dropped_is_told_at_the_end() {
    let mut far = Reflector::new(10, "boot".to_owned());
    let near = from(4_000);
    far.dropped = Some(u32::MAX);
    let session = session(&mut far, 0, &near);
    let probe = |sequence| Header::new(Kind::Probe, session, sequence);
    let warm = |sequence| Header { flags: FLAG_WARM_UP, ..probe(sequence) };
    let mut echoed = |header| ask(&mut far, header, 100, &near).is_some();
    assert!(echoed(warm(0)) && echoed(probe(1)), "an instant's worth");
    assert!(!echoed(probe(2)) && !echoed(probe(3)) && !echoed(warm(4)));
    let end = Header::new(Kind::End, session, 0);
    far.dropped = Some(6);
    let tally = ask(&mut far, end, HEADER_LEN, &near).unwrap();
    assert_eq!(tally.counted, Counted { arrivals: 1, behind: 0, load: 0 });
    assert_eq!(tally.losses(), Some(Losses { limited: 2, dropped: 7 }));
    far.dropped = None;
    assert_eq!(ask(&mut far, end, HEADER_LEN, &near).unwrap().losses(), None);
}

#[test]
fn strangers_get_no_echo() {
    let mut far = reflector();
    let session = session(&mut far, 0, &from(4_000));
    let probe = Header::new(Kind::Probe, session, 1);
    assert_eq!(ask(&mut far, probe, 64, &from(4_001)), None, "another port");
    assert_eq!(ask(&mut far, Header::new(Kind::Probe, 0, 1), 64, &from(4_000)), None);
    assert_eq!(ask(&mut far, Header::new(Kind::End, session, 1), 64, &from(4_001)), None);
    assert!(ask(&mut far, probe, 64, &from(4_000)).is_some());
    let much_later = Arrival { now: NOW + Span::from_ns(3 * PERIOD_NS), ..from(4_002) };
    let late = super::tests::session(&mut far, 0, &from(4_002));
    let probe = Header::new(Kind::Probe, late, 1);
    assert_eq!(ask(&mut far, probe, 64, &much_later), None, "a word holds for a while only");
}

#[test]
fn a_session_of_which_no_probe_came_is_told_so() {
    let mut far = reflector();
    let session = session(&mut far, 0, &from(4_000));
    let end = Header::new(Kind::End, session, 0);
    let tally = ask(&mut far, end, HEADER_LEN, &from(4_000)).unwrap();
    assert_eq!((tally.kind, tally.counted), (Kind::Tally, Counted::default()));
}

#[test]
fn answers_are_not_answered_and_short_hellos_neither() {
    let mut far = reflector();
    for kind in [Kind::Welcome, Kind::Full, Kind::Echo, Kind::Tally] {
        assert_eq!(ask(&mut far, Header::new(kind, 1, 1), 64, &from(4_000)), None, "{kind:?}");
    }
    assert_eq!(ask(&mut far, Header::new(Kind::Hello, 0, 1), 63, &from(4_000)), None);
    let mut noise = *b"GET / HTTP/1.1";
    let silence = Verdict::Silence(Reason::Foreign);
    assert_eq!(far.take(&mut noise, &from(4_000)), silence);
}

#[test]
fn there_are_bounds() {
    let mut far = reflector();
    // Not faster than hellos are answered.
    let at = |port: u16, ms: u16| Arrival { now: NOW + Span::from_ms(ms.into()), ..from(port) };
    let last = SESSIONS_MAX as u16;
    for port in 1..=last {
        let session = session(&mut far, 0, &at(port, port));
        let probe = Header::new(Kind::Probe, session, 0);
        assert!(ask(&mut far, probe, 64, &at(port, port)).is_some());
    }
    let hello = Header::new(Kind::Hello, 0, 1);
    let full = ask(&mut far, hello, 64, &at(9_999, last + 1)).unwrap();
    assert_eq!((full.kind, full.session), (Kind::Full, 0));
    let later = Arrival { now: NOW + IDLE + Span::from_ms(last.into()), ..from(9_999) };
    assert_eq!(ask(&mut far, hello, 64, &later).unwrap().kind, Kind::Welcome, "idle ones go");
    let mut answered = 0;
    for _ in 0..10_000 {
        answered += u32::from(ask(&mut far, hello, 64, &later).is_some());
    }
    assert!(answered < 500, "{answered} hellos were answered at once");
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
        if let Verdict::Answer(kind, _) = reflector().take(&mut bytes, &from(4_000)) {
            prop_assert!(kind == Kind::Welcome, "{:?} without a session", kind);
            prop_assert_eq!(bytes.get(HEADER_LEN..).map(<[u8]>::to_vec), padding);
        }
    }
}
