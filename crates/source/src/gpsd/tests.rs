//! Lines of gpsd, and what becomes of the time that they name.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;

use super::*;
use crate::reference::tests::{CLAIM, readings};

fn sample(class: &str, truth_ns: i64, system_ns: i64) -> String {
    let split = |ns: i64| (ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S));
    let ((real, real_ns), (clock, clock_ns)) = (split(truth_ns), split(system_ns));
    format!(
        "{{\"class\":\"{class}\",\"device\":\"/dev/ttyS0\",\"real_sec\":{real},\
         \"real_nsec\":{real_ns},\"clock_sec\":{clock},\"clock_nsec\":{clock_ns},\
         \"precision\":-20,\"more\":[1]}}\r\n"
    )
}

#[test]
fn lines_of_gpsd() {
    let line = sample("PPS", 1_700_000_000 * NS_PER_S, 1_699_999_999_999_999_000);
    let expected = GpsdLine::Sample {
        device: "/dev/ttyS0".into(),
        pulse: true,
        true_time: Timestamp::from_timespec(1_700_000_000, 0),
        system: Timestamp::from_ns(1_699_999_999_999_999_000),
        precision: -20,
    };
    assert_eq!(GpsdLine::parse(line.as_bytes()), Some(expected));
    // As version 3.22 sends it.
    let toff = "{\"class\":\"TOFF\",\"device\":\"/dev/pts/0\",\"real_sec\":1795374400, \
                \"real_nsec\":0,\"clock_sec\":1795374397,\"clock_nsec\":306120836}\r";
    let expected = GpsdLine::Sample {
        device: "/dev/pts/0".into(),
        pulse: false,
        true_time: Timestamp::from_timespec(1_795_374_400, 0),
        system: Timestamp::from_timespec(1_795_374_397, 306_120_836),
        precision: TOFF_PRECISION,
    };
    assert_eq!(GpsdLine::parse(toff.as_bytes()), Some(expected));
    assert_eq!(GpsdLine::parse(toff.replace("TOFF", "PPS").as_bytes()), None);
    let fix = |line: &str| GpsdLine::parse(line.as_bytes());
    let of = |device: &str, has_fix| Some(GpsdLine::Fix(device.into(), has_fix));
    assert_eq!(fix("{\"class\":\"TPV\",\"mode\":3}"), of("", true));
    assert_eq!(fix("{\"class\":\"TPV\",\"device\":\"/dev/a\",\"mode\":1}"), of("/dev/a", false));
    for (status, has_fix) in [(1, true), (2, true), (5, false), (6, true), (8, false)] {
        let line = format!("{{\"class\":\"TPV\",\"mode\":3,\"status\":{status}}}");
        assert_eq!(fix(&line), of("", has_fix), "{status}");
    }
    assert_eq!(fix("{\"class\":\"TPV\",\"device\":\"/dev/a\"}"), of("/dev/a", false));
    let float = line.replace("-20", "-20.0");
    assert_eq!(GpsdLine::parse(float.as_bytes()), GpsdLine::parse(line.as_bytes()));
    assert_eq!(fix("{\"class\":\"VERSION\"}"), Some(GpsdLine::Other));
    assert_eq!(fix("{\"class\":\"PPS\",\"real_sec\":1}"), None);
    assert_eq!(fix(&line.replace("\"clock_nsec\":999999000", "\"clock_nsec\":1000000000")), None);
    assert_eq!(fix("nonsense"), None);
}

#[test]
fn why_a_line_names_no_time_is_reported() {
    for (line, expected) in [
        ("HTTP/1.1 400 Bad Request\r", "not a gpsd report: 'HTTP/1.1 400 Bad Request'"),
        (r#"{"class":"ERROR","message":"Unrecognized request"}"#, "error: Unrecognized request"),
        (r#"{"class":"DEVICES","devices":[]}"#, "gpsd has no device"),
        (r#"{"class":"DEVICES","devices":[{"path":"/dev/a"}]}"#, "the last was DEVICES"),
        (r#"{"class":"TPV","mode":3}"#, "neither PPS nor TOFF; the last was TPV"),
        (r#"{"class":"PPS","real_sec":1}"#, "PPS lacks its precision"),
        (r#"{"class":"TOFF","real_sec":1}"#, "TOFF lacks a readable time"),
    ] {
        let complaint = GpsdLine::no_time_reason(line.as_bytes());
        assert!(complaint.contains(expected), "{complaint}");
    }
    assert!(GpsdLine::no_time_reason(&[b'x'; 10_000]).len() < 150);
}

/// A server in place of gpsd, and the source that is connected to it.
fn connected() -> (GpsdSource, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut gpsd = GpsdSource::open("gpsd".into(), address, CLAIM).unwrap();
    assert_eq!(gpsd.poll(&readings(5_000)), Ok(None));
    (gpsd, listener.accept().unwrap().0)
}

#[test]
fn lines_without_a_time_count_as_data_and_an_absent_device_blocks_no_other() {
    let (mut gpsd, mut stream) = connected();
    let mut send_and_poll = |text: &str, at_ms: i64| {
        stream.write_all(text.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        gpsd.poll(&readings(at_ms))
    };
    let tpv = |device: &str, mode: u8| {
        format!("{{\"class\":\"TPV\",\"device\":\"{device}\",\"mode\":{mode}}}\r\n")
    };
    assert_eq!(send_and_poll(&tpv("/dev/b", 3), 7_000), Ok(None), "it may be about to");
    let why = "gpsd sends neither PPS nor TOFF; the last was TPV";
    assert_eq!(send_and_poll(&tpv("/dev/b", 3), 9_000), Err(SourceError::NoData(why.into())));
    let no_fix = Err(SourceError::Unusable("the receiver has no fix".into()));
    assert_eq!(send_and_poll(&tpv("/dev/b", 1), 10_000), no_fix);
    let pulse = |at_ms: i64| {
        let system = readings(at_ms).realtime().as_ns();
        sample("PPS", system, system)
    };
    assert_eq!(send_and_poll(&pulse(11_000), 11_000), no_fix, "it may be of the one without a fix");
    assert!(send_and_poll(&pulse(21_000), 21_000).unwrap().is_some());
}

#[test]
fn an_address_is_resolved_once_and_named_when_it_cannot_be() {
    for (address, complaint) in [
        (":2947", "invalid address ':2947'; write HOST:PORT"),
        ("fe80::1%nowhere:2947", "cannot resolve the address fe80::1%nowhere:2947: interface"),
    ] {
        let Err(fault) = GpsdSource::open("gpsd".into(), address.into(), CLAIM) else {
            panic!("{address} is no address");
        };
        assert!(fault.to_string().starts_with(complaint), "{fault}");
    }
    // Nobody listens on the first address; what it is called is not looked up again.
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let resolved = vec![closed, listener.local_addr().unwrap()];
    let mut gpsd = GpsdSource::new("gpsd".into(), ":2947".into(), resolved, CLAIM);
    assert_eq!(gpsd.poll(&readings(1_000)), Ok(None));
    listener.accept().unwrap();
}

#[test]
fn pulses_go_before_the_rest_and_without_a_fix_nothing_counts() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut gpsd = GpsdSource::open("gpsd".into(), address, CLAIM).unwrap();
    let now = readings(5_000);
    let system = now.realtime().as_ns();
    assert_eq!(gpsd.poll(&now), Ok(None));
    let (mut stream, _) = listener.accept().unwrap();
    let mut request = String::new();
    BufReader::new(stream.try_clone().unwrap()).read_line(&mut request).unwrap();
    assert!(request.starts_with("?WATCH={") && request.contains("\"pps\":true"), "{request}");

    let mut send_and_poll = |gpsd: &mut GpsdSource, text: &str, at_ms: i64| {
        stream.write_all(text.as_bytes()).unwrap();
        std::thread::sleep(Duration::from_millis(50));
        gpsd.poll(&readings(at_ms))
    };
    let pulse = sample("PPS", system + 1_000, system);
    let vague = sample("TOFF", system + 400_000_000, system + 1);
    let (head, tail) = pulse.split_at(40);
    assert_eq!(send_and_poll(&mut gpsd, head, 5_000), Ok(None), "half a line");
    let report = send_and_poll(&mut gpsd, &format!("{tail}{vague}"), 5_001).unwrap().unwrap();
    assert_eq!(report.offset, Span::from_ns(1_500));
    // Of two receivers one is without a fix, and its samples do not count.
    let tpv = |device: &str, mode: i64| {
        format!("{{\"class\":\"TPV\",\"device\":\"{device}\",\"mode\":{mode}}}\n")
    };
    let other = tpv("/dev/ttyS1", 1) + &pulse.replace("ttyS0", "ttyS1");
    assert_eq!(send_and_poll(&mut gpsd, &(tpv("/dev/ttyS0", 3) + &other), 5_200), Ok(None));
    let next = sample("PPS", system + NS_PER_S + 1_000, system + NS_PER_S);
    assert!(send_and_poll(&mut gpsd, &(other + &next), 6_000).unwrap().is_some());
    let lost = send_and_poll(&mut gpsd, &tpv("/dev/ttyS0", 1), 6_500);
    assert!(matches!(lost, Err(SourceError::Unusable(_))), "{lost:?}");
    drop(stream);
    assert!(matches!(gpsd.poll(&readings(7_000)), Err(SourceError::NoData(_))));
    assert_eq!(gpsd.poll(&readings(8_000)), Ok(None), "it does not connect at every poll");
}
