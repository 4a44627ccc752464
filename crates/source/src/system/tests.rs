//! Tests of the source `system` with daemons that are played by threads of the test.

use std::net::UdpSocket;
use std::os::unix::net::UnixDatagram;
use std::thread;

use horolog_sys::adjtimex::KernelClockStatus;
use horolog_time::{NS_PER_S, NtpTimestamp};
use horolog_wire::chrony::{ChronydTracking, ChronydTrackingReply};
use horolog_wire::control::{self, Header};

use super::*;

fn readings(seconds: i64, synchronised: bool) -> ClockReadings {
    ClockReadings {
        monotonic: Timestamp::from_timespec(seconds, 0),
        realtime_minus_monotonic: Span::from_ns(1_700_000_000 * NS_PER_S),
        kernel: Some(KernelClockStatus {
            is_leap_second: false,
            synchronised,
            leap: PendingLeap::Delete,
            maximum_error: Span::from_ms(30),
            estimated_error: Span::ZERO,
            tai_offset_s: 37,
            frequency_ppb: 0.0,
        }),
        leaps_s: 0,
        leaps: crate::ServerLeapSeconds::default(),
    }
}

fn tracking(stratum: u8) -> ChronydTracking {
    ChronydTracking {
        leap: LeapIndicator::Insert,
        stratum,
        reference_id: [192, 0, 2, 7],
        reference: Timestamp::from_timespec(1_700_000_000, 0),
        correction: Span::from_ns(-NS_PER_S / 64),
        root_delay: Span::from_ns(NS_PER_S / 128),
        root_dispersion: Span::from_ns(NS_PER_S / 256),
    }
}

fn sequence_of(request: &[u8]) -> u32 {
    u32::from_be_bytes(request[8..12].try_into().unwrap())
}

#[test]
fn the_kernel_is_believed_where_no_daemon_answers() {
    let mut system = SystemClockSource::new("system:kernel".into(), &DaemonChoice::Kernel, &[]);
    let report = system.poll(&readings(5, true)).unwrap().unwrap();
    assert_eq!((report.leap, report.stratum), (LeapIndicator::Delete, KERNEL_STRATUM));
    assert_eq!((report.offset, report.root_dispersion), (Span::ZERO, Span::from_ms(30)));
    assert_eq!(report.reference, Timestamp::from_timespec(1_700_000_005, 0));
    assert!(matches!(system.poll(&readings(6, false)), Err(SourceError::Unusable(_))));
    assert!(matches!(
        system.poll(&ClockReadings { kernel: None, ..readings(7, true) }),
        Err(SourceError::Unusable(_))
    ));
}

#[test]
fn chronyd_is_mirrored_and_its_correction_served() {
    let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
    let choice = DaemonChoice::Chronyd(ChronydAddress::Udp(daemon.local_addr().unwrap()));
    let play = thread::spawn(move || {
        let mut request = [0; 512];
        for (round, tracking) in [Ok(tracking(3)), Err(2), Ok(tracking(0))].into_iter().enumerate()
        {
            let (length, from) = daemon.recv_from(&mut request).unwrap();
            assert_eq!(length, chrony::TRACKING_LEN);
            let sequence = sequence_of(&request);
            // An answer to an earlier question comes first, and is passed over.
            let late = ChronydTrackingReply {
                sequence: sequence.wrapping_sub(1),
                tracking: Ok(super::tests::tracking(9)),
            };
            daemon.send_to(&late.emit(), from).unwrap();
            daemon.send_to(&ChronydTrackingReply { sequence, tracking }.emit(), from).unwrap();
            assert!(round < 3);
        }
    });
    let mut system = SystemClockSource::new("system".into(), &choice, &[]);
    let report = system.poll(&readings(5, false)).unwrap().unwrap();
    assert_eq!((report.leap, report.stratum), (LeapIndicator::Insert, 3));
    assert_eq!(report.reference_id, [192, 0, 2, 7]);
    assert_eq!(report.offset, Span::from_ns(-NS_PER_S / 64));
    assert_eq!(report.root_delay, Span::from_ns(NS_PER_S / 128));
    assert_eq!(report.root_dispersion, Span::from_ns(NS_PER_S / 256));
    let refused = system.poll(&readings(6, true)).unwrap_err();
    assert!(
        matches!(&refused, SourceError::Unusable(text) if text.contains("status 2")),
        "{refused}"
    );
    assert!(matches!(system.poll(&readings(7, true)), Err(SourceError::Unusable(_))), "stratum 0");
    play.join().unwrap();
    // Its port is closed now. What it said holds for a while, and the kernel is no stand-in.
    assert_eq!(system.poll(&readings(8, true)), Ok(None));
    assert!(matches!(system.poll(&readings(90, true)), Err(SourceError::NoData(_))));
}

#[test]
fn chronyd_is_queried_over_its_socket_and_no_file_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("chronyd.sock");
    let daemon = UnixDatagram::bind(&path).unwrap();
    let play = thread::spawn(move || {
        let mut request = [0; 512];
        let (_, from) = daemon.recv_from(&mut request).unwrap();
        let reply =
            ChronydTrackingReply { sequence: sequence_of(&request), tracking: Ok(tracking(2)) };
        daemon.send_to(&reply.emit(), from.as_pathname().unwrap()).unwrap();
    });
    let choice = DaemonChoice::Chronyd(ChronydAddress::Unix(path));
    let mut system = SystemClockSource::new("system".into(), &choice, &[]);
    assert_eq!(system.poll(&readings(5, false)).unwrap().unwrap().stratum, 2);
    play.join().unwrap();
    drop(system);
    let left: Vec<_> = std::fs::read_dir(directory.path()).unwrap().flatten().collect();
    assert_eq!(left.len(), 1, "{left:?}");
}

#[test]
fn ntpd_is_mirrored_from_several_fragments() {
    let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
    let choice = DaemonChoice::Ntpd(daemon.local_addr().unwrap());
    let play = thread::spawn(move || {
        let mut packet = [0; 512];
        let (length, from) = daemon.recv_from(&mut packet).unwrap();
        let (request, names) = Header::parse(&packet[..length]).unwrap();
        assert_eq!(names, control::SYSTEM_VARIABLES.as_bytes());
        let text = b"leap=00, stratum=2, refid=192.0.2.1, rootdelay=1.5, rootdisp=0.25,\r\nreftime=0xe0000001.80000000\r\n";
        let (first, second) = text.split_at(33);
        let header = Header { response: true, more: true, ..request };
        let length = header.emit(first, &mut packet);
        daemon.send_to(&packet[..length], from).unwrap();
        let length = Header { more: false, offset: 33, ..header }.emit(second, &mut packet);
        daemon.send_to(&packet[..length], from).unwrap();
    });
    let mut system = SystemClockSource::new("system".into(), &choice, &[]);
    let report = system.poll(&readings(5, false)).unwrap().unwrap();
    play.join().unwrap();
    assert_eq!((report.leap, report.stratum), (LeapIndicator::None, 2));
    assert_eq!(report.root_delay, Span::from_ns(1_500_000));
    assert_eq!(report.root_dispersion, Span::from_ns(250_000));
    assert_eq!(NtpTimestamp::from_utc(report.reference).to_bits(), 0xe000_0001_8000_0000);
}

/// What a source says, and that it says it in time, whatever is sent to it again and again.
fn in_time(choice: &DaemonChoice) -> Result<Option<SourceEstimate>, SourceError> {
    let mut system = SystemClockSource::new("system".into(), choice, &[]);
    let started = Instant::now();
    let result = system.poll(&readings(5, true));
    assert!(started.elapsed() < Duration::from_millis(800), "{:?}", started.elapsed());
    result
}

#[test]
fn what_is_no_answer_does_not_make_others_wait() {
    let late = ChronydTrackingReply { sequence: u32::MAX, tracking: Ok(tracking(9)) };
    let (mut junk, chronyds) = (vec![0; 12], late.emit().to_vec());
    junk[0] = 0xff;
    for (ntpd, text) in [(true, junk), (false, chronyds)] {
        let daemon = UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = daemon.local_addr().unwrap();
        let play = thread::spawn(move || {
            let (_, from) = daemon.recv_from(&mut [0; 512]).unwrap();
            for _ in 0..12 {
                // Where it came from is closed in the end.
                let _ = daemon.send_to(&text, from);
                thread::sleep(Duration::from_millis(120));
            }
        });
        let choice = if ntpd {
            DaemonChoice::Ntpd(at)
        } else {
            DaemonChoice::Chronyd(ChronydAddress::Udp(at))
        };
        assert!(matches!(in_time(&choice), Err(SourceError::NoData(_))));
        play.join().unwrap();
    }
}

#[test]
fn a_daemon_that_takes_nothing_does_not_make_others_wait() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("chronyd.sock");
    let _stopped = UnixDatagram::bind(&path).unwrap();
    let filling = UnixDatagram::unbound().unwrap();
    filling.set_nonblocking(true).unwrap();
    while filling.send_to(&[0; 104], &path).is_ok() {}
    let (sender, receiver) = std::sync::mpsc::channel();
    let choice = DaemonChoice::Chronyd(ChronydAddress::Unix(path));
    // It would never end if it waited.
    thread::spawn(move || drop(sender.send(in_time(&choice))));
    let result = receiver.recv_timeout(Duration::from_secs(2)).expect("an end");
    assert!(matches!(result, Err(SourceError::NoData(_))), "{result:?}");
}

#[test]
fn a_server_does_not_query_itself() {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    let ntpd = at("127.0.0.1:123");
    for own in ["127.0.0.1:123", "0.0.0.0:123", "[::]:123"] {
        assert!(can_reach(at(own), ntpd), "{own}");
        assert_eq!(default_daemons(&[at(own)]).len() + 1, default_daemons(&[]).len());
    }
    for own in ["127.0.0.2:123", "0.0.0.0:124", "[::1]:123"] {
        assert!(!can_reach(at(own), ntpd), "{own}");
    }
}
