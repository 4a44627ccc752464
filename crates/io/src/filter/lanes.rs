//! Programs with a lane mark, run over frames.

use super::interpreter::run;
use super::*;
use proptest::prelude::*;

const MARK: LaneNumberFilter = LaneNumberFilter { kind: 9, offset: 52, number: 2, last: 3 };

fn filter(ipv4: bool) -> UdpFilter {
    let source = if ipv4 { "192.0.2.1" } else { "2001:db8::1" };
    UdpFilter {
        source: source.parse().unwrap(),
        source_port: None,
        destination_port: None,
        destination_network: None,
    }
}

/// Returns a frame from the filter's source with this payload.
fn frame(ipv4: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 12];
    let udp_len = (payload.len() + 8) as u16;
    if ipv4 {
        frame.extend([0x08, 0x00, 0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
        frame.extend([192, 0, 2, 1, 10, 0, 0, 1]);
    } else {
        frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
        frame.extend("2001:db8::1".parse::<std::net::Ipv6Addr>().unwrap().octets());
        frame.extend([0xfd; 16]);
    }
    frame.extend([1, 64, 1, 64]);
    frame.extend(udp_len.to_be_bytes());
    frame.extend([0, 0]);
    frame.extend(payload);
    frame
}

fn payload(kind: u8, number: u16, len: usize) -> Vec<u8> {
    let mut payload = vec![0; 60];
    payload[0] = 0x10 | kind;
    payload[52..54].copy_from_slice(&number.to_be_bytes());
    payload.truncate(len);
    payload
}

#[test]
fn only_what_names_another_lane_is_dropped() {
    for ipv4 in [false, true] {
        let program = filter(ipv4).program_of_lane(&MARK);
        let keeps = |payload: &[u8]| run(&program, &frame(ipv4, payload)) == KEEP;
        for (number, expected) in [(0, true), (1, false), (2, true), (3, false), (4, true)] {
            assert_eq!(keeps(&payload(9, number, 60)), expected, "IPv4: {ipv4}, {number}");
            assert_eq!(keeps(&payload(9, number, 54)), expected, "IPv4: {ipv4}, {number}");
            for len in [0, 1, 53] {
                assert!(keeps(&payload(9, number, len)), "{len} bytes name no lane");
            }
            assert!(keeps(&payload(8, number, 60)), "of another kind");
        }
    }
}

#[test]
fn what_the_filter_refuses_stays_refused() {
    for ipv4 in [false, true] {
        let program = filter(ipv4).program_of_lane(&MARK);
        let own = frame(ipv4, &payload(9, 2, 60));
        assert_eq!(run(&program, &own), KEEP);
        for at in [12, if ipv4 { 23 } else { 20 }, if ipv4 { 29 } else { 37 }] {
            let mut other = own.clone();
            other[at] ^= 1;
            assert_eq!(run(&program, &other), DROP, "IPv4: {ipv4}, byte {at}");
        }
    }
}

#[test]
fn what_goes_to_another_network_is_dropped() {
    let cases = [
        (true, "10.0.0.1", 32, true),
        (true, "10.0.0.0", 31, true),
        (true, "10.0.0.2", 31, false),
        (true, "10.128.0.0", 9, false),
        (true, "11.0.0.0", 0, true),
        (false, "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fd00", 120, true),
        (false, "fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fdfd:fe00", 120, false),
        (false, "fdfd:fdff::", 31, false),
        (false, "fdfd:fdfd::", 32, true),
    ];
    for (ipv4, network, prefix_len, expected) in cases {
        let destination_network = Some((network.parse().unwrap(), prefix_len));
        let filter = UdpFilter { destination_network, ..filter(ipv4) };
        for program in [filter.program(), filter.program_of_lane(&MARK)] {
            let keeps = run(&program, &frame(ipv4, &payload(9, 2, 60))) == KEEP;
            assert_eq!(keeps, expected, "{network}/{prefix_len}");
        }
    }
}

proptest! {
    #[test]
    fn without_a_mark_all_lanes_are_kept(ipv4: bool, bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
        prop_assert_eq!(run(&filter(ipv4).program(), &frame(ipv4, &bytes)), KEEP);
    }
}
