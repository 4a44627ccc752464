//! Growth of the congestion window from its initial size, and the effect of a pause on it.

use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use horolog_record::CongestionWindowStep;
use horolog_sys::tcp;

use super::judge::ns;
use crate::path::tcp::protocol::{ConnectionFlags, ConnectionJob, Hello};
use crate::path::tcp::{ConnectionLoss, TcpPathError, TcpSession};

/// Bursts before the pause and after it.
const BURSTS: [u32; 2] = [6, 2];
/// Length of a burst, more than any initial window: in segments, and in bytes at most.
const SEGMENTS: u32 = 64;
const BYTES_MAX: u32 = 1 << 20;
const TIME_MS: u32 = 5_000;

/// Sends bursts, each answered by one byte. Returns the steps until the end or the loss of the
/// connection, and the final segment size.
pub(super) fn run(
    address: SocketAddr,
    mss_bytes: u32,
    pause: Duration,
    is_over: &AtomicBool,
) -> Result<(Vec<CongestionWindowStep>, u32), TcpPathError> {
    let burst = mss_bytes.saturating_mul(SEGMENTS).clamp(2, BYTES_MAX);
    let hello = Hello {
        work: ConnectionJob::Exchange,
        flags: ConnectionFlags { no_delay: true, ..ConnectionFlags::default() },
        request_bytes: burst,
        head_bytes: 1,
        body_bytes: 0,
        batch: 1,
        time_ms: TIME_MS.saturating_add(u32::try_from(pause.as_millis()).unwrap_or(u32::MAX)),
        warm_up_ms: 0,
    };
    let mut session = TcpSession::open(address, &hello, is_over)?;
    let payload = vec![0; burst as usize];
    let mut steps = Vec::new();
    for (part, count) in BURSTS.into_iter().enumerate() {
        if part > 0 {
            thread::sleep(pause);
        }
        for index in 0..count {
            let after_pause = part > 0 && index == 0;
            let sent_bytes = u64::from(burst) * steps.len() as u64;
            match step(&mut session, &payload) {
                Ok((cwnd, took)) => steps.push(CongestionWindowStep {
                    sent_bytes,
                    after_pause,
                    cwnd: cwnd.into(),
                    exchange_ns: ns(took),
                }),
                // Keep the steps; the loss of the far end is reported elsewhere.
                Err(_) => return Ok((steps, mss_bytes)),
            }
        }
    }
    let mss_bytes = tcp::info(&session.stream).map_or(mss_bytes, |info| info.mss);
    Ok((steps, mss_bytes))
}

/// Sends one burst; returns the window before it and its duration.
fn step(session: &mut TcpSession<'_>, payload: &[u8]) -> Result<(u32, Duration), ConnectionLoss> {
    let begun = Instant::now();
    // The kernel evaluates the pause when the first byte is written, and that byte alone does not
    // let the window grow.
    let (first, rest) = payload.split_at(1);
    session.write(first)?;
    let cwnd = tcp::info(&session.stream)?.cwnd;
    session.write(rest)?;
    session.read(&mut [0])?;
    Ok((cwnd, begun.elapsed()))
}
