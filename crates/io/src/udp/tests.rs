//! UDP devices over loopback.

use std::time::Instant;

use horolog_sys::clock::ClockRealtime;
use horolog_time::{Clock, Span};

use super::*;

const SECOND: Duration = Duration::from_secs(1);

fn bind(address: &str, options: &UdpDeviceOptions) -> UdpDevice {
    UdpDevice::bind(address.parse().unwrap(), options).unwrap()
}

fn defaults() -> UdpDeviceOptions {
    UdpDeviceOptions::default()
}

fn batch_of(address: DatagramEndpoints, packets: &[&[u8]]) -> Batch<DatagramEndpoints> {
    let mut batch = Batch::new(64, 64);
    for bytes in packets {
        assert!(batch.push(address, bytes));
    }
    batch
}

/// Sends one packet from `client` to the listener at `asked`, and back what arrived.
fn exchange(
    client: &mut UdpDevice,
    listener: &mut UdpDevice,
    address: IpAddr,
) -> DatagramEndpoints {
    let to = SocketAddr::new(address, listener.local_address().port());
    let mut batch = batch_of(DatagramEndpoints::to_remote(to), &[b"question"]);
    assert_eq!(client.send(&mut batch).unwrap(), 1);
    assert_eq!(listener.receive(&mut batch, SECOND).unwrap(), 1);
    let endpoints = batch.packet(0).address;
    assert_eq!(listener.send(&mut batch).unwrap(), 1);
    assert_eq!(client.receive(&mut batch, SECOND).unwrap(), 1);
    assert_eq!(batch.packet(0).address.remote, to, "the answer comes from the address asked");
    endpoints
}

#[test]
fn a_wildcard_listener_replies_from_the_requested_address() {
    let mut client = bind("127.0.0.1:0", &defaults());
    let mut listener = bind("0.0.0.0:0", &defaults());
    for address in ["127.0.0.2", "127.9.9.9"] {
        let address: IpAddr = address.parse().unwrap();
        let endpoints = exchange(&mut client, &mut listener, address);
        assert_eq!((endpoints.remote, endpoints.local), (client.local_address(), address));
        assert_ne!(endpoints.interface, 0);
    }
}

#[test]
fn a_listener_for_both_families_shows_each_as_its_own() {
    let mut listener = bind("[::]:0", &UdpDeviceOptions { v6_only: false, ..defaults() });
    for (own, address) in [("127.0.0.1:0", "127.0.0.3"), ("[::1]:0", "::1")] {
        let mut client = bind(own, &defaults());
        let endpoints = exchange(&mut client, &mut listener, address.parse().unwrap());
        assert_eq!(
            (endpoints.remote, endpoints.local),
            (client.local_address(), address.parse().unwrap())
        );
    }
}

#[test]
fn what_was_sent_to_several_hosts_is_distinguished() {
    let options = UdpDeviceOptions { report_unicast: true, ..defaults() };
    let mut listener = bind("0.0.0.0:0", &options);
    let client = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    client.set_broadcast(true).unwrap();
    let mut batch = Batch::new(1, 64);
    let cases: [(&str, &[u8], bool); 4] = [
        ("127.0.0.1", b"question", true),
        ("127.255.255.255", b"question", false),
        // The length that marks others is that of none.
        ("127.0.0.1", b"x", true),
        ("127.0.0.1", b"", true),
    ];
    for (to, bytes, unicast) in cases {
        client.send_to(bytes, (to, listener.local_address().port())).unwrap();
        assert_eq!(listener.receive(&mut batch, SECOND).unwrap(), 1, "{to}");
        assert_eq!(batch.packet(0).address.unicast, unicast, "{to} {bytes:?}");
    }
}

#[test]
fn a_server_has_an_address_of_its_own() {
    let options = UdpDeviceOptions { report_unicast: true, ..defaults() };
    for address in ["127.255.255.255:0", "255.255.255.255:0", "224.0.0.1:0", "[ff02::1]:0"] {
        let error = UdpDevice::bind(address.parse().unwrap(), &options).unwrap_err();
        assert!(matches!(error, UdpDeviceError::NotLocal(_)), "{address}: {error}");
    }
    for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
        bind(address, &options);
    }
}

/// Sends until what comes has a timestamp: the kernel begins to take them a moment after the first
/// socket on the machine asked.
fn await_timestamps(client: &mut UdpDevice, listener: &mut UdpDevice) {
    let mut received = Batch::new(1, 9);
    let has_timestamp = (0..1_000).any(|_| {
        client.send(&mut batch_of(DatagramEndpoints::default(), &[b"probe"])).unwrap();
        assert_eq!(listener.receive(&mut received, SECOND).unwrap(), 1);
        std::thread::sleep(Duration::from_millis(1));
        received.packet(0).received_at.is_some()
    });
    assert!(has_timestamp, "asked for timestamps");
}

#[test]
fn packets_arrive_in_order_with_length_truncation_and_time() {
    let mut listener = bind("127.0.0.1:0", &UdpDeviceOptions { slots: 4, ..defaults() });
    let mut client = UdpDevice::connect(listener.local_address(), &defaults()).unwrap();
    await_timestamps(&mut client, &mut listener);
    let before = ClockRealtime.now();
    let mut batch =
        batch_of(DatagramEndpoints::default(), &[b"short", b"just long", b"too long a", b""]);
    assert_eq!(client.send(&mut batch).unwrap(), 4);
    let mut received = Batch::new(8, 9);
    assert_eq!(listener.receive(&mut received, SECOND).unwrap(), 4);
    let packets: Vec<_> = received.iter().map(|packet| (packet.bytes, packet.truncated)).collect();
    assert_eq!(
        packets,
        [(&b"short"[..], false), (b"just long", false), (b"too long ", true), (b"", false)]
    );
    for packet in received.iter() {
        assert_eq!(packet.address.remote, client.local_address());
        assert_eq!(packet.address.local, listener.local_address().ip());
        let age = packet.received_at.expect("asked for timestamps") - before;
        assert!(age >= Span::ZERO && age < Span::from_ms(10_000), "{age:?}");
    }
}

#[test]
fn a_batch_larger_than_the_table_goes_in_several_calls() {
    let mut listener = bind("127.0.0.1:0", &UdpDeviceOptions { slots: 3, ..defaults() });
    let options = UdpDeviceOptions { slots: 3, ..defaults() };
    let mut client = UdpDevice::connect(listener.local_address(), &options).unwrap();
    let mut batch = batch_of(DatagramEndpoints::default(), &[&b"x"[..]; 10]);
    assert_eq!(client.send(&mut batch).unwrap(), 10);
    let counts = [(); 4].map(|()| listener.receive(&mut batch, Duration::ZERO).unwrap());
    assert_eq!(counts, [3, 3, 3, 1]);
}

#[test]
fn waiting_ends_in_time_and_no_wait_returns_at_once() {
    let mut listener = bind("127.0.0.1:0", &defaults());
    let mut batch = Batch::new(4, 64);
    let start = Instant::now();
    assert_eq!(listener.receive(&mut batch, Duration::ZERO).unwrap(), 0);
    assert!(start.elapsed() < Duration::from_millis(500));
    assert_eq!(listener.receive(&mut batch, Duration::from_millis(20)).unwrap(), 0);
    assert!(start.elapsed() >= Duration::from_millis(20));
}

#[test]
fn what_overflows_the_receive_buffer_is_counted() {
    const SENT: usize = 300;
    let options = UdpDeviceOptions { receive_buffer: Some(4_096), ..defaults() };
    let mut listener = bind("127.0.0.1:0", &options);
    let mut client = UdpDevice::connect(listener.local_address(), &defaults()).unwrap();
    let mut batch = batch_of(DatagramEndpoints::default(), &[&[0; 48][..]; 50]);
    for _ in 0..SENT / 50 {
        assert_eq!(client.send(&mut batch).unwrap(), 50);
    }
    let mut received = 0;
    while let count @ 1.. = listener.receive(&mut batch, Duration::ZERO).unwrap() {
        received += count;
    }
    assert!(received < SENT);
    assert_eq!(listener.dropped().unwrap(), (SENT - received) as u64);
}

#[test]
fn a_packet_that_cannot_be_sent_does_not_hold_up_the_others() {
    let mut listener = bind("127.0.0.1:0", &defaults());
    let mut client = bind("127.0.0.1:0", &defaults());
    let good = DatagramEndpoints::to_remote(listener.local_address());
    let bad = DatagramEndpoints::to_remote("127.0.0.1:0".parse().unwrap());
    let mut batch = Batch::new(4, 8);
    for address in [bad, good, bad, good] {
        assert!(batch.push(address, b"x"));
    }
    assert_eq!(client.send(&mut batch).unwrap(), 2);
    assert_eq!(listener.receive(&mut batch, SECOND).unwrap(), 2);
}

#[test]
fn a_connected_device_receives_the_error_of_a_closed_port() {
    let closed = bind("127.0.0.1:0", &defaults()).local_address();
    let mut client = UdpDevice::connect(closed, &defaults()).unwrap();
    let mut batch = batch_of(DatagramEndpoints::default(), &[b"anybody?"]);
    assert_eq!(client.send(&mut batch).unwrap(), 1);
    let error = client.receive(&mut batch, SECOND).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[test]
fn sockets_that_share_a_port_share_the_load_by_core() {
    let options = UdpDeviceOptions { share_port: true, ..defaults() };
    let first = bind("127.0.0.1:0", &options);
    let second = UdpDevice::bind(first.local_address(), &options).unwrap();
    first.steer_by_cpu(2).unwrap();
    let mut devices = [first, second];
    let core = *horolog_sys::affinity::allowed_cores().unwrap().last().unwrap();
    // In a thread that stays on one core, so all its packets go to the one socket of that core.
    let to = devices[0].local_address();
    std::thread::spawn(move || {
        horolog_sys::affinity::pin_to_core(core).unwrap();
        for _ in 0..20 {
            let mut client = UdpDevice::connect(to, &UdpDeviceOptions::default()).unwrap();
            assert_eq!(
                client.send(&mut batch_of(DatagramEndpoints::default(), &[b"x"])).unwrap(),
                1
            );
        }
    })
    .join()
    .unwrap();
    let mut batch = Batch::new(32, 64);
    assert_eq!(devices[core % 2].receive(&mut batch, SECOND).unwrap(), 20);
    assert_eq!(devices[(core + 1) % 2].receive(&mut batch, Duration::ZERO).unwrap(), 0);
}

#[test]
fn a_second_device_on_the_socket_receives_what_the_first_does_not() {
    let first = bind("127.0.0.1:0", &defaults());
    let mut second = first.try_clone().unwrap();
    let mut client = UdpDevice::connect(first.local_address(), &defaults()).unwrap();
    let mut batch = batch_of(DatagramEndpoints::default(), &[b"x"]);
    assert_eq!(client.send(&mut batch).unwrap(), 1);
    assert_eq!(second.receive(&mut batch, SECOND).unwrap(), 1);
}

#[test]
fn errors_name_the_cause() {
    let taken = bind("127.0.0.1:0", &defaults());
    let error = UdpDevice::bind(taken.local_address(), &defaults()).unwrap_err();
    assert!(matches!(error, UdpDeviceError::InUse(address) if address == taken.local_address()));
    let error = UdpDevice::bind("192.0.2.77:5000".parse().unwrap(), &defaults()).unwrap_err();
    assert!(matches!(error, UdpDeviceError::NotLocal(_)), "{error}");
    let options = UdpDeviceOptions { interface: Some("no-such-link".into()), ..defaults() };
    let error = UdpDevice::bind("127.0.0.1:0".parse().unwrap(), &options).unwrap_err();
    assert!(
        matches!(&error, UdpDeviceError::NoInterface(name) if name == "no-such-link"),
        "{error}"
    );
    assert!(!error.to_string().contains('\n'));
}

#[test]
fn a_marked_packet_comes_back_with_the_time_of_its_transmission() {
    let options = UdpDeviceOptions {
        transmit_timestamps: Some(TransmitTimestampSource::Kernel),
        slots: 4,
        ..defaults()
    };
    for (own, wildcard) in [("127.0.0.1:0", "0.0.0.0:0"), ("[::1]:0", "[::]:0")] {
        let listener = bind(own, &defaults());
        let mut sender = bind(wildcard, &options);
        let to = DatagramEndpoints {
            local: listener.local.ip(),
            ..DatagramEndpoints::to_remote(listener.local)
        };
        let mut batch = batch_of(to, &[b"plain", b"marked one", b"plain", b"marked two"]);
        for (index, packet) in batch.iter_mut().enumerate() {
            *packet.wants_timestamp = index % 2 == 1;
        }
        let before = ClockRealtime.now();
        assert_eq!(sender.send(&mut batch).unwrap(), 4);
        let mut back = Batch::new(4, 128);
        assert_eq!(sender.receive_transmitted(&mut back).unwrap(), 2);
        for (packet, text) in back.iter().zip(["marked one", "marked two"]) {
            assert!(packet.bytes.ends_with(text.as_bytes()), "{packet:?}");
            let at = packet.received_at.expect("a timestamp");
            assert!(at >= before && at <= ClockRealtime.now(), "{at:?}");
        }
        assert_eq!(sender.receive_transmitted(&mut back).unwrap(), 0);
    }
}

#[test]
fn what_waits_among_the_errors_does_not_pass_for_a_datagram() {
    let options = UdpDeviceOptions {
        transmit_timestamps: Some(TransmitTimestampSource::Kernel),
        ..defaults()
    };
    let listener = bind("127.0.0.1:0", &defaults());
    let mut sender = bind("127.0.0.1:0", &options);
    let mut batch = batch_of(DatagramEndpoints::to_remote(listener.local), &[b"marked"]);
    *batch.packet_mut(0).wants_timestamp = true;
    assert_eq!(sender.send(&mut batch).unwrap(), 1);
    assert_eq!(sender.receive(&mut batch, SECOND).unwrap(), 0);
    assert_eq!(sender.receive_transmitted(&mut batch).unwrap(), 1);
}

/// Sends one datagram of each length and returns the place of the socket that each went to.
fn receiving_sockets(sockets: &mut [UdpDevice], lengths: &[usize]) -> Vec<usize> {
    let to = sockets[0].local_address();
    let mut client = bind("127.0.0.1:0", &defaults());
    let mut batch = Batch::new(4, 256);
    lengths
        .iter()
        .map(|&length| {
            batch.clear();
            assert!(batch.push_with(DatagramEndpoints::to_remote(to), |_| length));
            assert_eq!(client.send(&mut batch).unwrap(), 1);
            let index = sockets
                .iter_mut()
                .position(|socket| socket.receive(&mut batch, Duration::ZERO).unwrap() == 1);
            index.expect("some socket has it")
        })
        .collect()
}

#[test]
fn long_datagrams_go_to_the_second_half() {
    let options = UdpDeviceOptions { share_port: true, ..defaults() };
    let first = bind("127.0.0.1:0", &options);
    let at = first.local.to_string();
    let mut sockets = vec![first];
    sockets.extend((1..4).map(|_| bind(&at, &options)));
    for by_cpu in [false, true] {
        sockets[0].steer_by_length(4, 48, by_cpu).unwrap();
        let lengths: Vec<usize> = (0..64).map(|n| if n % 2 == 0 { 48 } else { 49 }).collect();
        let indices = receiving_sockets(&mut sockets, &lengths);
        for (length, index) in lengths.iter().zip(&indices) {
            assert_eq!(*length > 48, *index >= 2, "{length} bytes to socket {index}");
        }
        let used = |index| indices.contains(&index);
        assert!(by_cpu || (0..4).all(used), "chance leaves a socket without any: {indices:?}");
    }
}
