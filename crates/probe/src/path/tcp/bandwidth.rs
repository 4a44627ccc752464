//! Messages of one size in one direction, as many as go: the receiver counts.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use horolog_record::{Slots, TcpBandwidth, TcpDirection, TcpFigures, ZeroCopyCounts};
use horolog_sys::tcp::{self, ZeroCopySender};

use super::client::{Session, keep_tail};
use super::error::PathError;
use super::latency::{Row, flags, ns};
use super::looks::Teller;
use super::loss::{Loss, Lost};
use super::options::{TcpOptions, ms};
use super::protocol::{Flags, Hello, REPORT_LEN, Report, Work};
use super::row::{figures, together};

/// Room for what comes, of which a read takes a message at most.
const ROOM: usize = 256 << 10;

/// What one connection came to.
#[derive(Default)]
struct Outcome {
    bytes: u64,
    duration_ns: u64,
    tcp: Option<TcpFigures>,
    zero_copy: Option<ZeroCopyCounts>,
    lost: Option<Loss>,
}

/// Measures messages of one size; connections tell in `slots` how it goes.
pub(super) fn measure(
    address: SocketAddr,
    size: u64,
    direction: TcpDirection,
    options: &TcpOptions,
    is_over: &AtomicBool,
    slots: Option<&Slots>,
) -> Result<Row<TcpBandwidth>, PathError> {
    let settings = &options.settings;
    let hello = hello(size as u32, direction, options);
    let sessions = (0..settings.connections).map(|_| Session::open(address, &hello, is_over));
    let sessions = sessions.collect::<Result<Vec<_>, _>>()?;
    let start = Barrier::new(sessions.len());
    let one = |index: usize, mut session: Session<'_>| {
        start.wait();
        let teller = Teller::new(slots, index);
        match direction {
            TcpDirection::Out => send(&mut session, size as usize, options, teller),
            TcpDirection::Back => receive(&mut session, size as usize, options, teller),
        }
    };
    let outcomes: Vec<Outcome> = thread::scope(|scope| {
        let one = &one;
        let spawned = |(index, session)| scope.spawn(move || one(index, session));
        let running: Vec<_> = sessions.into_iter().enumerate().map(spawned).collect();
        running.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    Ok(summed(outcomes, size, direction))
}

fn hello(size: u32, direction: TcpDirection, options: &TcpOptions) -> Hello {
    let (work, request_bytes, head_bytes) = match direction {
        TcpDirection::Out => (Work::Sink, size, 0),
        TcpDirection::Back => (Work::Source, 0, size),
    };
    Hello {
        work,
        // A cork around a message would be taken off at once by the next one. The receiver of a
        // stream that begins with a dialogue would acknowledge it as one: late, which has Nagle's
        // algorithm send more and smaller parts.
        flags: Flags { cork: false, settle: true, ..flags(&options.settings) },
        request_bytes,
        head_bytes,
        body_bytes: 0,
        batch: 1,
        time_ms: ms(options.time()),
        warm_up_ms: ms(options.warm_up()),
    }
}

fn summed(outcomes: Vec<Outcome>, size: u64, direction: TcpDirection) -> Row<TcpBandwidth> {
    let duration_ns = outcomes.iter().map(|outcome| outcome.duration_ns).max().unwrap_or(0);
    let received_bytes = outcomes.iter().fold(0_u64, |sum, one| sum.saturating_add(one.bytes));
    // Connections do not end at the very same time, so each has its own rate.
    let rate_of = |one: &Outcome| match one.duration_ns {
        0 => 0.0,
        ns => one.bytes as f64 * 1e9 / ns as f64,
    };
    let rate: f64 = outcomes.iter().map(rate_of).sum();
    let tcp: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.tcp).collect();
    let zero_copy = outcomes.iter().filter_map(|outcome| outcome.zero_copy);
    let zero_copy = zero_copy.reduce(|one, other| ZeroCopyCounts {
        sends: one.sends.saturating_add(other.sends),
        copied: one.copied.saturating_add(other.copied),
    });
    let figures = TcpBandwidth {
        size_bytes: size,
        direction,
        received_bytes,
        duration_ns,
        rate,
        message_rate: rate / size as f64,
        zero_copy,
        tcp: together(&tcp),
    };
    Row { figures, lost: outcomes.into_iter().find_map(|outcome| outcome.lost) }
}

fn send(
    session: &mut Session<'_>,
    size: usize,
    options: &TcpOptions,
    teller: Teller<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let payload = vec![0; size];
    let counted_from = Instant::now() + options.warm_up();
    let meter = Meter { teller, counted_from, until: counted_from + options.time(), bytes: 0 };
    let sent = if options.settings.zero_copy {
        send_zero_copy(session, payload, meter, &mut outcome)
    } else {
        send_copies(session, &payload, meter)
    };
    outcome.tcp = tcp::info(&session.stream).ok().map(|info| figures(&info));
    let ended = sent.and_then(|()| session.finish());
    if let Ok(report) | Err(Lost::Bound(_, report)) = &ended {
        outcome.bytes = report.bytes;
        outcome.duration_ns = report.duration_ns;
    }
    outcome.lost = ended.err().and_then(|lost| lost.loss());
    outcome
}

/// How long is sent, and what this end has handed over so far, for those who look on: the result
/// has what the far end received.
struct Meter<'a> {
    teller: Teller<'a>,
    counted_from: Instant,
    until: Instant,
    bytes: u64,
}

impl Meter<'_> {
    /// Whether to go on, behind so many more bytes.
    fn goes_on(&mut self, sent: usize) -> bool {
        let now = Instant::now();
        if now > self.counted_from {
            self.bytes += sent as u64;
        }
        self.teller.bytes(now, self.bytes);
        now < self.until
    }
}

fn send_copies(
    session: &mut Session<'_>,
    payload: &[u8],
    mut meter: Meter<'_>,
) -> Result<(), Lost> {
    let mut sent = 0;
    while meter.goes_on(sent) && !session.is_over() {
        session.write(payload)?;
        sent = payload.len();
    }
    Ok(())
}

fn send_zero_copy(
    session: &Session<'_>,
    payload: Vec<u8>,
    mut meter: Meter<'_>,
    outcome: &mut Outcome,
) -> Result<(), Lost> {
    let size = payload.len();
    let mut sender = ZeroCopySender::new(&session.stream, payload.into_boxed_slice())?;
    let mut since = None;
    let (mut from, mut last) = (0, 0);
    while meter.goes_on(std::mem::take(&mut last)) && !session.is_over() {
        match sender.send(from) {
            Ok(sent) => {
                last = sent;
                from = if from + sent == size { 0 } else { from + sent };
                since = None;
            }
            Err(error) => session.tick(error, &mut since)?,
        }
    }
    sender.finish()?;
    let (sends, copied) = sender.told();
    outcome.zero_copy = Some(ZeroCopyCounts { sends: sends.into(), copied: copied.into() });
    Ok(())
}

fn receive(
    session: &mut Session<'_>,
    size: usize,
    options: &TcpOptions,
    teller: Teller<'_>,
) -> Outcome {
    let mut outcome = Outcome::default();
    let ended = take_all(session, size, options, &mut outcome, teller);
    if let Ok(report) | Err(Lost::Bound(_, report)) = &ended {
        outcome.tcp = Some(report.tcp);
    }
    outcome.lost = ended.err().and_then(|lost| lost.loss());
    outcome
}

/// Reads to the end of the stream; the last bytes are the far end's report.
fn take_all(
    session: &mut Session<'_>,
    size: usize,
    options: &TcpOptions,
    outcome: &mut Outcome,
    mut teller: Teller<'_>,
) -> Result<Box<Report>, Lost> {
    let mut buffer = vec![0; size.min(ROOM)];
    let mut tail = [0; REPORT_LEN];
    let mut counted_from = None;
    let mut last = Instant::now();
    loop {
        if options.settings.quick_ack {
            tcp::set_quick_ack(&session.stream, true)?;
        }
        let came = session.read_some(&mut buffer)?;
        if came == 0 {
            break;
        }
        if session.is_over() {
            return Err(Lost::Ended);
        }
        keep_tail(&mut tail, &buffer[..came]);
        last = Instant::now();
        if last > *counted_from.get_or_insert(last + options.warm_up()) {
            outcome.bytes += came as u64;
        }
        teller.bytes(last, outcome.bytes);
    }
    outcome.bytes = outcome.bytes.saturating_sub(REPORT_LEN as u64);
    let begun = counted_from.unwrap_or(last);
    outcome.duration_ns = ns(last.saturating_duration_since(begun));
    let gone = || Lost::Gone(std::io::ErrorKind::UnexpectedEof.into());
    Report::parse(&tail).ok_or_else(gone)?.whole()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_add_up_by_their_own_rates() {
        let one = |bytes, duration_ns| Outcome { bytes, duration_ns, ..Outcome::default() };
        let outcomes = vec![one(1_000, 1_000_000_000), one(1_000, 500_000_000), one(0, 0)];
        let row = summed(outcomes, 100, TcpDirection::Out).figures;
        assert_eq!((row.received_bytes, row.duration_ns), (2_000, 1_000_000_000));
        assert!((row.rate - 3_000.0).abs() < 1e-6 && (row.message_rate - 30.0).abs() < 1e-9);
    }
}
