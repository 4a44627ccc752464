//! Growth of the congestion window from its initial size, and its size after a pause.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::CongestionWindowSample;
use horolog_sys::tcp;

use super::judge::saturating_ns;
use crate::path::tcp::protocol::{ConnectionFlags, ConnectionJob, TcpHello};
use crate::path::tcp::{ConnectionEndReason, TcpNearEndSession, TcpPathError};

/// Number of bursts before and after the pause.
const BURSTS: [u32; 2] = [6, 2];
/// Length of a burst in segments, more than any initial window, and its maximum in bytes.
const BURST_SEGMENTS: u32 = 64;
const BURST_BYTES_MAX: u32 = 1 << 20;
const TIME_MS: u32 = 5_000;

/// Sends bursts, each answered by one byte. Returns one step per burst, up to the end of the run or
/// the loss of the connection, and the final segment size in bytes.
pub(super) fn measure_window(
    address: SocketAddr,
    mss_bytes: u32,
    pause: Duration,
    is_over: &AtomicBool,
) -> Result<(Vec<CongestionWindowSample>, u32), TcpPathError> {
    let burst = mss_bytes.saturating_mul(BURST_SEGMENTS).clamp(2, BURST_BYTES_MAX);
    let hello = TcpHello {
        job: ConnectionJob::Exchange,
        flags: ConnectionFlags { no_delay: true, ..ConnectionFlags::default() },
        request_bytes: burst,
        head_bytes: 1,
        body_bytes: 0,
        batch: 1,
        time_ms: TIME_MS.saturating_add(u32::try_from(pause.as_millis()).unwrap_or(u32::MAX)),
        warm_up_ms: 0,
    };
    let mut session = TcpNearEndSession::open(address, &hello, is_over)?;
    let payload = vec![0; burst as usize];
    let mut steps = Vec::new();
    for (part, count) in BURSTS.into_iter().enumerate() {
        if part > 0 {
            thread::sleep(pause);
        }
        for index in 0..count {
            let after_pause = part > 0 && index == 0;
            let sent_bytes = u64::from(burst) * steps.len() as u64;
            match send_burst(&mut session, &payload) {
                Ok((cwnd, took)) => steps.push(CongestionWindowSample {
                    sent_bytes,
                    after_pause,
                    cwnd: cwnd.into(),
                    exchange_ns: saturating_ns(took),
                }),
                // The loss of the far end is reported by the next pattern.
                Err(_) => return Ok((steps, mss_bytes)),
            }
        }
    }
    let mss_bytes = tcp::info(&session.stream).map_or(mss_bytes, |info| info.mss);
    Ok((steps, mss_bytes))
}

/// Sends one burst; returns the congestion window before it and the duration of the exchange.
fn send_burst(
    session: &mut TcpNearEndSession<'_>,
    payload: &[u8],
) -> Result<(u32, Duration), ConnectionEndReason> {
    let begun = Instant::now();
    // The first byte is sent separately: with it the kernel applies the restart after idle, and one
    // byte does not let the window grow.
    let (first, rest) = payload.split_at(1);
    session.write_all(first)?;
    let cwnd = tcp::info(&session.stream)?.cwnd;
    session.write_all(rest)?;
    session.read_reply(&mut [0])?;
    Ok((cwnd, begun.elapsed()))
}
