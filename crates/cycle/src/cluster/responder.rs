//! NTP server (RFC 5905) with the leader's clock, by which members measure their clock offsets. Its
//! stratum makes it unsuitable as a time source.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::ClockRealtime;
use horolog_sys::datagram::{MsghdrBuffers, WaitMode, send_to};
use horolog_sys::socket::DatagramSocket;
use horolog_time::{Clock, NtpShort, NtpTimestamp, Timestamp, Utc, measure_precision};
use horolog_wire::ntp::{AssociationMode, HEADER_LEN, Header, LeapIndicator};

/// Interval at which the thread checks whether it must stop.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Largest valid stratum (RFC 5905, MAXSTRAT - 1), so that other clients would select any other
/// server.
const STRATUM: u8 = 15;

/// Thread that replies to NTP requests until this value is dropped.
#[derive(Debug)]
pub(crate) struct NtpResponder {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NtpResponder {
    /// Starts replying on this address.
    pub(crate) fn start(local: SocketAddr) -> io::Result<Self> {
        let socket = DatagramSocket::udp(local)?;
        socket.bind_to_host(local)?;
        socket.enable_receive_timestamps(false)?;
        socket.enable_unicast_detection(local)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stop_requested = Arc::clone(&stop);
        let work = move || {
            let precision = measure_precision(&ClockRealtime);
            let mut envelope = MsghdrBuffers::new();
            let mut bytes = [0; 2 * HEADER_LEN];
            while !stop_requested.load(Ordering::Relaxed) {
                // A socket that fails sends no replies, which the members detect.
                if socket.wait_readable(POLL_INTERVAL).unwrap_or(false) {
                    process_request(&socket, &mut envelope, &mut bytes, precision);
                }
            }
        };
        let thread = thread::Builder::new().name("clock for members".into()).spawn(work)?;
        Ok(Self { stop, thread: Some(thread) })
    }
}

impl Drop for NtpResponder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}

fn process_request(
    socket: &DatagramSocket,
    envelope: &mut MsghdrBuffers,
    bytes: &mut [u8],
    precision: i8,
) {
    let Ok(received) = envelope.receive(socket.as_fd(), bytes, WaitMode::NonBlocking) else {
        return;
    };
    if !received.is_unicast() {
        return;
    }
    let received_at = received.control.received_at.unwrap_or_else(|| ClockRealtime.now());
    let reply = build_reply(&bytes[..received.len], received_at, ClockRealtime.now(), precision);
    if let Some((reply, remote)) = reply.zip(received.remote) {
        // A client repeats its request if a reply is lost.
        let _ = send_to(socket.as_fd(), &reply, remote);
    }
}

/// Returns the reply to a client request of version 1 to 4 without extension fields and MAC; `None`
/// for any other packet.
fn build_reply(
    request: &[u8],
    received_at: Timestamp<Utc>,
    now: Timestamp<Utc>,
    precision: i8,
) -> Option<[u8; HEADER_LEN]> {
    let (request, rest) = Header::parse(request).ok()?;
    if request.mode != AssociationMode::Client
        || !(1..=4).contains(&request.version)
        || !rest.is_empty()
    {
        return None;
    }
    let header = Header {
        leap: LeapIndicator::None,
        version: request.version,
        mode: AssociationMode::Server,
        stratum: STRATUM,
        poll: request.poll,
        precision,
        root_delay: NtpShort::from_bits(0),
        root_dispersion: NtpShort::from_bits(0),
        reference_id: *b"LOCL",
        reference: NtpTimestamp::from_utc(now),
        origin: request.transmit,
        receive: NtpTimestamp::from_utc(received_at),
        transmit: NtpTimestamp::from_utc(now),
    };
    let mut bytes = [0; HEADER_LEN];
    header.emit(&mut bytes);
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_answered_with_both_instants_and_nothing_else_is() {
        let mut request = [0; HEADER_LEN];
        let origin = NtpTimestamp::from_bits(0x1234_5678_9abc_def0);
        Header::request(4, origin).emit(&mut request);
        let (received_at, now) =
            (Timestamp::from_ns(1_000_000_000), Timestamp::from_ns(1_000_100_000));
        let reply_bytes = build_reply(&request, received_at, now, -24).unwrap();
        let (header, rest) = Header::parse(&reply_bytes).unwrap();
        assert!(
            rest.is_empty() && header.mode == AssociationMode::Server && header.stratum == STRATUM
        );
        assert_eq!((header.origin, header.receive), (origin, NtpTimestamp::from_utc(received_at)));
        assert_eq!(header.transmit, NtpTimestamp::from_utc(now));
        assert_eq!(build_reply(&reply_bytes, received_at, now, -24), None, "a reply is no request");
        assert_eq!(build_reply(&request[1..], received_at, now, -24), None);
        assert_eq!(build_reply(&[&request[..], b"more"].concat(), received_at, now, -24), None);
    }
}
