//! The leader's clock for those who ask by NTP (RFC 5905): its members measure by it how far their
//! clocks are off. It says that it is nobody's source of time.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use horolog_sys::clock::Realtime;
use horolog_sys::datagram::{Envelope, Wait, send_to};
use horolog_sys::socket::Socket;
use horolog_time::{Clock, NtpShort, NtpTimestamp, Timestamp, Utc, measure_precision};
use horolog_wire::ntp::{HEADER_LEN, Header, Leap, Mode};

/// How often the thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(100);
/// Far from any source, so that no client would take it for one (RFC 5905, MAXSTRAT less one).
const STRATUM: u8 = 15;

/// A thread that answers, until this is dropped.
#[derive(Debug)]
pub(crate) struct Responder {
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Responder {
    /// Answers at this address.
    pub(crate) fn start(local: SocketAddr) -> io::Result<Self> {
        let socket = Socket::udp(local)?;
        socket.bind(local)?;
        socket.tell_receive_time(false)?;
        let ends = Arc::new(AtomicBool::new(false));
        let to_end = Arc::clone(&ends);
        let work = move || {
            let precision = measure_precision(&Realtime);
            let mut envelope = Envelope::new();
            let mut bytes = [0; 2 * HEADER_LEN];
            while !to_end.load(Ordering::Relaxed) {
                // A socket that fails answers nobody, which those who ask see.
                if socket.wait_readable(LOOK).unwrap_or(false) {
                    answer(&socket, &mut envelope, &mut bytes, precision);
                }
            }
        };
        let thread = thread::Builder::new().name("clock for members".into()).spawn(work)?;
        Ok(Self { ends, thread: Some(thread) })
    }
}

impl Drop for Responder {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It has nothing to tell.
            let _ = thread.join();
        }
    }
}

fn answer(socket: &Socket, envelope: &mut Envelope, bytes: &mut [u8], precision: i8) {
    let Ok(received) = envelope.receive(socket.as_fd(), bytes, Wait::Never) else { return };
    let came = received.control.received_at.unwrap_or_else(|| Realtime.now());
    let answer = reply(&bytes[..received.len], came, Realtime.now(), precision);
    if let Some((reply, remote)) = answer.zip(received.remote) {
        // One that is lost is asked again.
        let _ = send_to(socket.as_fd(), &reply, remote);
    }
}

/// The reply to a plain request of a client.
fn reply(
    request: &[u8],
    came: Timestamp<Utc>,
    now: Timestamp<Utc>,
    precision: i8,
) -> Option<[u8; HEADER_LEN]> {
    let (request, rest) = Header::parse(request).ok()?;
    if request.mode != Mode::Client || !(1..=4).contains(&request.version) || !rest.is_empty() {
        return None;
    }
    let header = Header {
        leap: Leap::None,
        version: request.version,
        mode: Mode::Server,
        stratum: STRATUM,
        poll: request.poll,
        precision,
        root_delay: NtpShort::from_bits(0),
        root_dispersion: NtpShort::from_bits(0),
        reference_id: *b"LOCL",
        reference: NtpTimestamp::from_utc(now),
        origin: request.transmit,
        receive: NtpTimestamp::from_utc(came),
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
        let asked = NtpTimestamp::from_bits(0x1234_5678_9abc_def0);
        Header::request(4, asked).emit(&mut request);
        let (came, now) = (Timestamp::from_ns(1_000_000_000), Timestamp::from_ns(1_000_100_000));
        let reply_bytes = reply(&request, came, now, -24).unwrap();
        let (said, rest) = Header::parse(&reply_bytes).unwrap();
        assert!(rest.is_empty() && said.mode == Mode::Server && said.stratum == STRATUM);
        assert_eq!((said.origin, said.receive), (asked, NtpTimestamp::from_utc(came)));
        assert_eq!(said.transmit, NtpTimestamp::from_utc(now));
        assert_eq!(reply(&reply_bytes, came, now, -24), None, "a reply is no request");
        assert_eq!(reply(&request[1..], came, now, -24), None);
        assert_eq!(reply(&[&request[..], b"more"].concat(), came, now, -24), None);
    }
}
