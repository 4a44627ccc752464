//! Clients that take too much, too long, or too often.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::Ordering::Relaxed;

use super::*;

/// Waits for the server to close.
fn await_end(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
    let ended = stream.read(&mut [0; 512]);
    // A reset, where the server had not read all.
    let reset = |error: &io::Error| error.kind() == io::ErrorKind::ConnectionReset;
    assert!(ended.as_ref().map_or_else(reset, |&length| length == 0), "{ended:?}");
}

fn limited(identity: &TestCertificate, change: impl FnOnce(&mut NtsKeLimits)) -> NtsKeServer {
    let mut config = identity.config();
    config.threads = 1;
    change(&mut config.limits);
    NtsKeServer::start(config, Arc::new(PlaintextCookieProvider)).unwrap()
}

#[test]
fn an_idle_client_is_disconnected() {
    let identity = TestCertificate::new();
    let server = limited(&identity, |limits| limits.timeout = Duration::from_millis(50));
    let mut idle = TcpStream::connect(server.listen_addresses()[0]).unwrap();
    await_end(&mut idle);
    let counters = await_counters(&server, |counters| counters.open == 0);
    assert_eq!(counters, NtsKeCounts { accepted: 1, timed_out: 1, ..NtsKeCounts::default() });
}

#[test]
fn a_dribbling_client_wins_no_time() {
    let identity = TestCertificate::new();
    let server = limited(&identity, |limits| limits.timeout = Duration::from_millis(200));
    let mut dribbling = TcpStream::connect(server.listen_addresses()[0]).unwrap();
    // The head of a TLS record of a handshake that never gets complete.
    dribbling.write_all(&[22, 3, 1, 1, 0]).unwrap();
    while dribbling.write_all(&[1]).is_ok() {
        thread::sleep(Duration::from_millis(5));
    }
    await_counters(&server, |counters| counters.timed_out + counters.handshake_failed == 1);
}

#[test]
fn a_full_house_refuses_the_next_and_takes_it_later() {
    let identity = TestCertificate::new();
    let server = limited(&identity, |limits| {
        limits.connections = 2;
        limits.eviction_age = TEST_TIMEOUT;
    });
    let at = server.listen_addresses()[0];
    let guests = [(); 2].map(|()| TcpStream::connect(at).unwrap());
    await_counters(&server, |counters| counters.open == 2);
    await_end(&mut TcpStream::connect(at).unwrap());
    assert_eq!(server.counts().refused_full, 1);
    drop(guests);
    await_counters(&server, |counters| counters.open == 0);
    assert!(exchange(&server, &identity).is_ok());
    assert_eq!(server.counts().broken, 2);
}

#[test]
fn an_old_connection_gives_way_to_a_new_one() {
    let identity = TestCertificate::new();
    let server = limited(&identity, |limits| {
        limits.connections = 2;
        limits.eviction_age = Duration::ZERO;
    });
    let at = server.listen_addresses()[0];
    let mut guests = [(); 2].map(|()| TcpStream::connect(at).unwrap());
    await_counters(&server, |counters| counters.open == 2);
    assert!(exchange(&server, &identity).is_ok());
    await_end(&mut guests[0]);
    let counters = await_counters(&server, |counters| counters.open <= 1);
    assert_eq!((counters.crowded_out, counters.established, counters.refused_full), (1, 1, 0));
}

#[test]
fn one_prefix_has_its_share() {
    let identity = TestCertificate::new();
    let server = limited(&identity, |limits| limits.connections_per_prefix = 1);
    let guest = TcpStream::connect(server.listen_addresses()[0]).unwrap();
    await_counters(&server, |counters| counters.open == 1);
    await_end(&mut TcpStream::connect(server.listen_addresses()[0]).unwrap());
    assert_eq!(server.counts().refused_concurrent, 1);
    drop(guest);
    await_counters(&server, |counters| counters.open == 0);
    assert!(exchange(&server, &identity).is_ok());

    let server = limited(&identity, |limits| {
        limits.rate_per_prefix = 1;
        limits.burst_per_prefix = 2;
    });
    let at = server.listen_addresses()[0];
    for mut stream in [(); 5].map(|()| TcpStream::connect(at).unwrap()) {
        stream.write_all(&[0]).unwrap();
        let _ = stream.read(&mut [0; 512]);
    }
    let counters = await_counters(&server, |counters| counters.accepted == 5);
    assert!(counters.refused_rate >= 1, "{counters:?}");
}

/// Keeps up to `count` connections open, each with a byte of a handshake now and then.
fn dribble(at: SocketAddr, count: usize, stop: &AtomicBool) {
    let mut streams = Vec::new();
    while !stop.load(Relaxed) {
        streams.retain_mut(|stream: &mut TcpStream| stream.write_all(&[1]).is_ok());
        while streams.len() < count {
            let mut stream = TcpStream::connect(at).unwrap();
            let _ = stream.write_all(&[22, 3, 1, 1, 0]);
            streams.push(stream);
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn slow_clients_do_not_hold_up_honest_ones() {
    let identity = TestCertificate::new();
    let server = limited(&identity, |limits| limits.connections = 200);
    let at = server.listen_addresses()[0];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| dribble(at, 150, &stop));
        await_counters(&server, |counters| counters.open >= 150);
        let honest: Vec<_> = (0..20).map(|_| exchange(&server, &identity).map(drop)).collect();
        stop.store(true, Relaxed);
        assert!(honest.iter().all(Result::is_ok), "{honest:?}");
    });
    let counters = server.counts();
    assert_eq!((counters.established, counters.refused_full, counters.timed_out), (20, 0, 0));
}

#[test]
fn a_flood_of_bytes_is_cut_off() {
    let identity = TestCertificate::new();
    let server = limited(&identity, |_| {});
    let mut flood = TcpStream::connect(server.listen_addresses()[0]).unwrap();
    // One sound head of a record after the other, without end.
    let record = [&[22, 3, 1, 0x40, 0][..], &[1, 0xff, 0xff, 0xff], &[0; 0x3ffc]].concat();
    while flood.write_all(&record).is_ok() {}
    await_counters(&server, |counters| counters.too_long + counters.handshake_failed == 1);
}
