//! Releases by packets: a period is released when its packet arrives, so the clocks of the nodes
//! need not agree.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use horolog_sys::clock::ClockMonotonic;
use horolog_sys::datagram::{MsghdrBuffers, WaitMode};
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use super::datagram::{DatagramHeader, DatagramKind, HEADER_LEN};
use super::periods::{PeriodRelease, ReleaseSource, ReleaseWaitOutcome};
use super::system_clock::SystemClockConverter;

/// Interval at which a waiting task checks whether the run has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Size of the receive buffer, in bytes: for a task that is some thousand periods behind.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;
/// Longest wait for the last packet after its expected arrival.
const LAST_PACKET_WAIT: Span = Span::from_ms(1_000);

/// Opens the socket for the packets of a task; returns it with its port.
pub(crate) fn open_release_socket(local: SocketAddr) -> io::Result<(DatagramSocket, u16)> {
    let socket = DatagramSocket::udp(local)?;
    socket.bind(local)?;
    socket.enable_receive_timestamps(false)?;
    socket.set_receive_buffer(RECEIVE_BUFFER_BYTES)?;
    socket.set_receive_timeout(POLL_INTERVAL)?;
    let port = socket.local_address()?.port();
    Ok((socket, port))
}

/// Source of a task's releases: the arrivals of packets.
pub(crate) struct PacketReleaseSource<'a> {
    socket: DatagramSocket,
    envelope: MsghdrBuffers,
    clock: SystemClockConverter,
    token: u64,
    last_expected: Timestamp<Monotonic>,
    stop: &'a AtomicU64,
}

impl<'a> PacketReleaseSource<'a> {
    /// Uses packets that carry `token`; the last one is expected at `last_expected`.
    pub(crate) fn new(
        socket: DatagramSocket,
        token: u64,
        last_expected: Timestamp<Monotonic>,
        stop: &'a AtomicU64,
    ) -> Self {
        let (envelope, clock) = (MsghdrBuffers::new(), SystemClockConverter::new());
        Self { socket, envelope, clock, token, last_expected, stop }
    }

    /// Receives the next packet, and returns its period (`None` at the end of releases) and its
    /// arrival. `None` if no packet of this run came within [`POLL_INTERVAL`].
    fn receive(&mut self) -> Option<(Option<u64>, Timestamp<Monotonic>)> {
        let mut bytes = [0; HEADER_LEN];
        let received =
            self.envelope.receive(self.socket.as_fd(), &mut bytes, WaitMode::Blocking).ok()?;
        let received_at =
            received.control.received_at.map(|received_at| self.clock.monotonic(received_at));
        let received_at = received_at.unwrap_or_else(|| ClockMonotonic.now());
        let header = DatagramHeader::from_bytes(bytes.get(..received.len)?)?;
        if header.sent_ns.cast_unsigned() != self.token {
            return None;
        }
        match header.kind {
            DatagramKind::Release => Some((Some(header.period), received_at)),
            DatagramKind::EndOfReleases => Some((None, received_at)),
            _ => None,
        }
    }
}

impl ReleaseSource for PacketReleaseSource<'_> {
    fn release(&mut self, period: u64) -> ReleaseWaitOutcome {
        let requested_at = ClockMonotonic.now();
        while self.stop.load(Ordering::Relaxed) == 0 {
            match self.receive() {
                Some((Some(released), due)) if released >= period => {
                    let begun = ClockMonotonic.now().max(due);
                    let is_overrun = due < requested_at;
                    return ReleaseWaitOutcome::Release(PeriodRelease {
                        period: released,
                        released_at: due,
                        started_at: begun,
                        is_overrun,
                    });
                }
                Some((None, _)) => return ReleaseWaitOutcome::Ended,
                // Duplicate, outdated or foreign packet, or none yet.
                Some((Some(_), _)) | None => {}
            }
            if ClockMonotonic.now() > self.last_expected + LAST_PACKET_WAIT {
                return ReleaseWaitOutcome::Ended;
            }
        }
        ReleaseWaitOutcome::Stopped
    }

    fn now(&mut self) -> Timestamp<Monotonic> {
        ClockMonotonic.now()
    }

    fn clock_steps(&self) -> u64 {
        self.clock.steps()
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn packets_release_periods_whichever_of_them_come() {
        let (socket, port) = open_release_socket(([127, 0, 0, 1], 0).into()).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let send_with = |kind, cycle, token| {
            let header =
                DatagramHeader { kind, node: 0, period: cycle, superstep: 0, sent_ns: token };
            sender.send_to(&header.to_bytes(), ("127.0.0.1", port)).unwrap();
        };
        let send = |kind, cycle| send_with(kind, cycle, 7);
        let stop = AtomicU64::new(0);
        let last = ClockMonotonic.now() + Span::from_ms(60_000);
        let mut pace = PacketReleaseSource::new(socket, 7, last, &stop);
        let before = ClockMonotonic.now();
        // The kernel takes a moment to have timestamps taken.
        for _ in 0..1_000 {
            send(DatagramKind::Release, 3);
            std::thread::sleep(Duration::from_millis(1));
            if matches!(
                pace.release(3),
                ReleaseWaitOutcome::Release(PeriodRelease { is_overrun: true, .. })
            ) {
                break;
            }
        }
        sender.send_to(b"no signal", ("127.0.0.1", port)).unwrap();
        send(DatagramKind::Release, 3);
        send(DatagramKind::Release, 2);
        send(DatagramKind::Ping, 9);
        send_with(DatagramKind::EndOfReleases, 0, 8);
        send(DatagramKind::Release, 5);
        send(DatagramKind::EndOfReleases, 0);
        let ReleaseWaitOutcome::Release(first) = pace.release(3) else { panic!("none came") };
        assert_eq!((first.period, first.is_overrun, pace.clock_steps()), (3, true, 0));
        assert!(
            before <= first.released_at && first.released_at <= first.started_at,
            "{before:?} {first:?}"
        );
        // The second was of a period that is over. As if the clock had been set since they came.
        pace.clock.was_ahead(Span::from_ms(-3_600_000));
        let ReleaseWaitOutcome::Release(next) = pace.release(4) else { panic!("none came") };
        assert_eq!((next.period, pace.clock_steps()), (5, 1));
        assert!(
            before <= next.released_at && next.released_at <= next.started_at,
            "{before:?} {next:?}"
        );
        assert_eq!(pace.release(6), ReleaseWaitOutcome::Ended);
        pace.last_expected = ClockMonotonic.now() - Span::from_ms(2_000);
        assert_eq!(pace.release(6), ReleaseWaitOutcome::Ended, "nothing comes any more");
        stop.store(1, Ordering::Relaxed);
        assert_eq!(pace.release(7), ReleaseWaitOutcome::Stopped);
    }
}
