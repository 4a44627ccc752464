//! Releases that come as packets: a period is released when its packet arrives, so a node needs no
//! clock that agrees with others.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use horolog_sys::clock::MonotonicClock;
use horolog_sys::datagram::{Envelope, Wait};
use horolog_sys::socket::Socket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::datagram::{HEADER_LEN, Header, Kind};
use super::periods::{Next, Pace, Release};
use super::system_clock::SystemClock;

/// How often it is looked whether the run is to end, while no packet comes.
const LOOK: Duration = Duration::from_millis(50);
/// Room for packets of a task that is late by some thousand periods.
const BUFFER_BYTES: usize = 4 << 20;
/// From when the last packet is expected, to when it is not waited for any longer.
const LATE_MAX: Span = Span::from_ms(1_000);

/// Where packets of a task come in, and its port.
pub(crate) fn open(address: IpAddr) -> io::Result<(Socket, u16)> {
    let local = SocketAddr::new(address, 0);
    let socket = Socket::udp(local)?;
    socket.bind(local)?;
    socket.tell_receive_time(false)?;
    socket.set_receive_buffer(BUFFER_BYTES)?;
    socket.set_receive_timeout(LOOK)?;
    let port = socket.local_address()?.port();
    Ok((socket, port))
}

/// The releases of a task by packets.
pub(crate) struct Signalled<'a> {
    socket: Socket,
    envelope: Envelope,
    clock: SystemClock,
    token: u64,
    last: Timestamp<Monotonic>,
    stop: &'a AtomicU64,
}

impl<'a> Signalled<'a> {
    /// Packets that carry `token`; the last of them is expected at `last`.
    pub(crate) fn new(
        socket: Socket,
        token: u64,
        last: Timestamp<Monotonic>,
        stop: &'a AtomicU64,
    ) -> Self {
        let (envelope, clock) = (Envelope::new(), SystemClock::new());
        Self { socket, envelope, clock, token, last, stop }
    }

    /// The next packet: of which period it is (`None` for the last of all), and when it came.
    fn receive(&mut self) -> Option<(Option<u64>, Timestamp<Monotonic>)> {
        let mut bytes = [0; HEADER_LEN];
        let received = self.envelope.receive(self.socket.as_fd(), &mut bytes, Wait::Asleep).ok()?;
        let came = received.control.received_at.map(|came| self.clock.monotonic(came));
        let came = came.unwrap_or_else(|| MonotonicClock.now());
        let header = Header::from_bytes(bytes.get(..received.len)?)?;
        if header.sent_ns.cast_unsigned() != self.token {
            return None;
        }
        match header.kind {
            Kind::Release => Some((Some(header.cycle), came)),
            Kind::Last => Some((None, came)),
            _ => None,
        }
    }
}

impl Pace for Signalled<'_> {
    fn release(&mut self, cycle: u64) -> Next {
        let asked = MonotonicClock.now();
        while self.stop.load(Ordering::Relaxed) == 0 {
            match self.receive() {
                Some((Some(released), due)) if released >= cycle => {
                    let begun = MonotonicClock.now().max(due);
                    let is_overrun = due < asked;
                    return Next::Release(Release { cycle: released, due, begun, is_overrun });
                }
                Some((None, _)) => return Next::Ended,
                // One that came twice or late, or none of ours.
                Some((Some(_), _)) | None => {}
            }
            if MonotonicClock.now() > self.last + LATE_MAX {
                return Next::Ended;
            }
        }
        Next::Stopped
    }

    fn now(&mut self) -> Timestamp<Monotonic> {
        MonotonicClock.now()
    }

    fn clock_sets(&self) -> u64 {
        self.clock.sets()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn packets_release_periods_whichever_of_them_come() {
        let (socket, port) = open([127, 0, 0, 1].into()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let send_with = |kind, cycle, token| {
            let header = Header { kind, node: 0, cycle, step: 0, sent_ns: token };
            sender.send_to(&header.to_bytes(), ("127.0.0.1", port)).unwrap();
        };
        let send = |kind, cycle| send_with(kind, cycle, 7);
        let stop = AtomicU64::new(0);
        let last = MonotonicClock.now() + Span::from_ms(60_000);
        let mut pace = Signalled::new(socket, 7, last, &stop);
        let before = MonotonicClock.now();
        // The kernel takes a moment to have timestamps taken.
        for _ in 0..1_000 {
            send(Kind::Release, 3);
            std::thread::sleep(Duration::from_millis(1));
            if matches!(pace.release(3), Next::Release(Release { is_overrun: true, .. })) {
                break;
            }
        }
        sender.send_to(b"no signal", ("127.0.0.1", port)).unwrap();
        send(Kind::Release, 3);
        send(Kind::Release, 2);
        send(Kind::Ping, 9);
        send_with(Kind::Last, 0, 8);
        send(Kind::Release, 5);
        send(Kind::Last, 0);
        let Next::Release(first) = pace.release(3) else { panic!("none came") };
        assert_eq!((first.cycle, first.is_overrun, pace.clock_sets()), (3, true, 0));
        assert!(before <= first.due && first.due <= first.begun, "{before:?} {first:?}");
        // The second was of a period that is over. As if the clock had been set since they came.
        pace.clock.was_ahead(Span::from_ms(-3_600_000));
        let Next::Release(next) = pace.release(4) else { panic!("none came") };
        assert_eq!((next.cycle, pace.clock_sets()), (5, 1));
        assert!(before <= next.due && next.due <= next.begun, "{before:?} {next:?}");
        assert_eq!(pace.release(6), Next::Ended);
        pace.last = MonotonicClock.now() - Span::from_ms(2_000);
        assert_eq!(pace.release(6), Next::Ended, "nothing comes any more");
        stop.store(1, Ordering::Relaxed);
        assert_eq!(pace.release(7), Next::Stopped);
    }
}
