//! Far end of one connection: read the greeting, respond to it, do the work, report. Every wait and
//! every number is bounded.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::tcp;

use super::bounds::ConnectionBudget;
use super::protocol::{
    AdmissionVerdict, ByteBudget, ConnectionJob, FarEndReport, HELLO_LEN, Hello, TcpWelcome,
    facts_text,
};
use super::row::{SETTLE, TICK, count_held, figures, observe_wait};
use super::serve::{FarEndState, TcpLimits};

/// Timeout of a greeting.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Grace period of a connection beyond the requested time.
const GRACE: Duration = Duration::from_secs(5);
/// Time for which a connection that ended at a bound stays open, so that its report arrives: a
/// socket that is closed with unread data retransmits nothing.
const LINGER: Duration = Duration::from_millis(500);
/// Most bytes read or written at once.
const CHUNK_MAX: usize = 256 << 10;
/// Least buffer size of a sink.
const SINK_CHUNK: usize = 128 << 10;

/// Serves a connection from its greeting to its end. The verdict is by the number of connections.
pub(super) fn run(
    mut stream: &TcpStream,
    shared: &FarEndState,
    (verdict, limit): (AdmissionVerdict, u32),
) -> io::Result<()> {
    stream.set_read_timeout(Some(HELLO_TIMEOUT))?;
    stream.set_write_timeout(Some(HELLO_TIMEOUT))?;
    let mut bytes = [0; HELLO_LEN];
    stream.read_exact(&mut bytes)?;
    let parsed = Hello::parse(&bytes);
    let (verdict, limit) = match parsed {
        _ if verdict != AdmissionVerdict::Accepted => (verdict, limit),
        None => (AdmissionVerdict::Malformed, 0),
        Some(hello) => match judge(&hello, &shared.settings.limits) {
            (AdmissionVerdict::Accepted, _) => spent(shared.hour.wait(Instant::now())),
            refused => refused,
        },
    };
    shared.counters.verdict(verdict);
    let facts = match verdict {
        AdmissionVerdict::Accepted => facts_text(&shared.settings.facts(stream)),
        _ => Vec::new(),
    };
    if parsed.is_some_and(|hello| hello.flags.settle) && verdict == AdmissionVerdict::Accepted {
        thread::sleep(SETTLE);
    }
    let facts_bytes = facts.len() as u16;
    let welcome = TcpWelcome { verdict, facts_bytes, limit };
    // In one write, so that no half of it waits for an acknowledgement.
    stream.write_all(&[&welcome.emit()[..], &facts].concat())?;
    match parsed {
        Some(hello) if verdict == AdmissionVerdict::Accepted => {
            FarEndSession::new(stream, hello, shared)?.work()
        }
        _ => stream.shutdown(Shutdown::Write),
    }
}

/// Checks a greeting against the limits.
fn judge(hello: &Hello, limits: &TcpLimits) -> (AdmissionVerdict, u32) {
    let time_ms = u32::try_from(limits.time.as_millis()).unwrap_or(u32::MAX);
    let bytes = [hello.request_bytes, hello.head_bytes, hello.body_bytes];
    if hello.time_ms.saturating_add(hello.warm_up_ms) > time_ms {
        (AdmissionVerdict::TooLong, time_ms)
    } else if bytes.into_iter().any(|bytes| bytes > limits.message_bytes) {
        (AdmissionVerdict::TooLarge, limits.message_bytes)
    } else if bytes == [0; 3] && hello.work != ConnectionJob::Facts
        || hello.work == ConnectionJob::Exchange && (hello.request_bytes == 0 || hello.batch == 0)
        || hello.work == ConnectionJob::Source && hello.head_bytes == 0
    {
        (AdmissionVerdict::Malformed, 0)
    } else {
        (AdmissionVerdict::Accepted, 0)
    }
}

/// Returns the verdict by the time until there are bytes for a connection.
fn spent(wait: Duration) -> (AdmissionVerdict, u32) {
    if wait.is_zero() {
        return (AdmissionVerdict::Accepted, 0);
    }
    (
        AdmissionVerdict::BudgetExhausted,
        u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX),
    )
}

/// Reason for which the work on a connection ended before the near end had finished.
enum ConnectionStopReason {
    At(ByteBudget),
    By(io::Error),
}

impl From<io::Error> for ConnectionStopReason {
    fn from(error: io::Error) -> Self {
        Self::By(error)
    }
}

impl From<ByteBudget> for ConnectionStopReason {
    fn from(bound: ByteBudget) -> Self {
        Self::At(bound)
    }
}

struct FarEndSession<'a> {
    stream: &'a TcpStream,
    hello: Hello,
    buffer: Vec<u8>,
    /// Body, if it is sent from a file.
    body: Option<File>,
    report: FarEndReport,
    ends: Instant,
    allowance: ConnectionBudget<'a>,
    shared: &'a FarEndState,
}

impl<'a> FarEndSession<'a> {
    fn new(stream: &'a TcpStream, hello: Hello, shared: &'a FarEndState) -> io::Result<Self> {
        let limits = &shared.settings.limits;
        let flags = hello.flags;
        stream.set_nodelay(flags.no_delay)?;
        if flags.quick_ack_once {
            tcp::set_quick_ack(stream, true)?;
        }
        stream.set_read_timeout(Some(if flags.observe { observe_wait() } else { TICK }))?;
        stream.set_write_timeout(Some(TICK))?;
        let least = if hello.work == ConnectionJob::Sink { SINK_CHUNK } else { 1 };
        let message = hello.request_bytes.max(hello.head_bytes).max(hello.body_bytes) as usize;
        let body = if flags.send_file && hello.body_bytes > 0 {
            Some(tcp::memory_file(&vec![0; (hello.body_bytes as usize).min(CHUNK_MAX)])?)
        } else {
            None
        };
        let requested_ms = u64::from(hello.time_ms) + u64::from(hello.warm_up_ms);
        Ok(Self {
            stream,
            hello,
            buffer: vec![0; message.clamp(least, CHUNK_MAX)],
            body,
            report: FarEndReport::default(),
            ends: Instant::now() + Duration::from_millis(requested_ms) + GRACE,
            allowance: ConnectionBudget::new(&shared.hour, limits.bytes),
            shared,
        })
    }

    fn work(&mut self) -> io::Result<()> {
        let done = match self.hello.work {
            ConnectionJob::Facts => Ok(true),
            ConnectionJob::Exchange => self.exchange(),
            ConnectionJob::Sink => self.sink().map(|()| true),
            ConnectionJob::Source => self.source().map(|()| true),
        };
        self.allowance.end(Instant::now());
        let shared = self.shared;
        let limits = &shared.settings.limits;
        shared.counters.carried(limits.bytes - self.allowance.left());
        match done {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(ConnectionStopReason::At(bound)) => {
                self.report.bound = Some(bound);
                self.report.bound_bytes = match bound {
                    ByteBudget::Connection => limits.bytes,
                    ByteBudget::Hour => limits.bytes_in_hour,
                };
            }
            Err(ConnectionStopReason::By(error)) => return Err(error),
        }
        self.report.tcp = tcp::info(self.stream).map(|info| figures(&info)).unwrap_or_default();
        let report = self.report.emit();
        self.write(&report)?;
        self.stream.shutdown(Shutdown::Write)?;
        if self.report.bound.is_some() {
            thread::sleep(LINGER);
        }
        Ok(())
    }

    /// Answers until the near end sends no more; returns true if a report is expected.
    fn exchange(&mut self) -> Result<bool, ConnectionStopReason> {
        let flags = self.hello.flags;
        let request = self.hello.request_bytes as usize;
        let answer = u64::from(self.hello.head_bytes) + u64::from(self.hello.body_bytes);
        let both = answer.saturating_add(request as u64);
        let mut in_batch = 0;
        while self.receive(request)? == request {
            self.allowance.spend(both, Instant::now)?;
            let begun = Instant::now();
            if flags.cork && in_batch == 0 {
                tcp::set_cork(self.stream, true)?;
            }
            self.answer()?;
            in_batch += 1;
            if in_batch == self.hello.batch {
                in_batch = 0;
                if flags.close {
                    return Ok(false);
                }
                if flags.cork && !flags.forget {
                    tcp::set_cork(self.stream, false)?;
                }
            }
            let took = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.report.service_max_ns = self.report.service_max_ns.max(took);
            self.report.exchanges += 1;
            self.report.bytes += request as u64;
        }
        Ok(true)
    }

    fn answer(&mut self) -> io::Result<()> {
        self.write_message(self.hello.head_bytes as usize)?;
        let body = self.hello.body_bytes as usize;
        let Some(file) = self.body.take() else { return self.write_message(body) };
        let mut left = body;
        while left > 0 {
            match tcp::send_file(self.stream, file.as_fd(), 0, left.min(CHUNK_MAX)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => left -= sent,
                Err(error) => self.tick(error)?,
            }
        }
        self.body = Some(file);
        Ok(())
    }

    fn sink(&mut self) -> Result<(), ConnectionStopReason> {
        let warm_up = Duration::from_millis(self.hello.warm_up_ms.into());
        let mut begun: Option<Instant> = None;
        let mut last = Instant::now();
        // As an application that reads messages: no more than one at a time.
        let message = self.hello.request_bytes.max(1) as usize;
        let ended = loop {
            if self.hello.flags.quick_ack_each {
                tcp::set_quick_ack(self.stream, true)?;
            }
            let received = self.read_some(message)?;
            if received == 0 {
                break Ok(());
            }
            if let Err(bound) = self.allowance.spend(received as u64, Instant::now) {
                break Err(bound.into());
            }
            last = Instant::now();
            let counted_from = *begun.get_or_insert(last + warm_up);
            if last > counted_from {
                self.report.bytes += received as u64;
            }
        };
        let took = begun.map_or(Duration::ZERO, |begun| last.saturating_duration_since(begun));
        self.report.duration_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        ended
    }

    fn source(&mut self) -> Result<(), ConnectionStopReason> {
        let time = u64::from(self.hello.time_ms) + u64::from(self.hello.warm_up_ms);
        let until = Instant::now() + Duration::from_millis(time);
        let length = self.hello.head_bytes;
        while Instant::now() < until {
            self.allowance.spend(length.into(), Instant::now)?;
            self.write_message(length as usize)?;
            self.report.exchanges += 1;
        }
        Ok(())
    }

    /// Reads and discards bytes; returns the number of bytes before the end of the stream.
    fn receive(&mut self, wanted: usize) -> io::Result<usize> {
        if self.hello.flags.quick_ack_each {
            tcp::set_quick_ack(self.stream, true)?;
        }
        let mut got = 0;
        while got < wanted {
            match self.read_some(wanted - got)? {
                0 => break,
                received => got += received,
            }
        }
        Ok(got)
    }

    fn read_some(&mut self, most: usize) -> io::Result<usize> {
        let room = most.min(self.buffer.len());
        loop {
            match (&mut &*self.stream).read(&mut self.buffer[..room]) {
                Ok(received) => return Ok(received),
                Err(error) => self.tick(error)?,
            }
        }
    }

    /// Writes `length` bytes, in one write or in as many as it takes.
    fn write_message(&mut self, length: usize) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            match (&mut &*self.stream).write(&self.buffer[..left.min(self.buffer.len())]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => left -= sent,
                Err(error) => self.tick(error)?,
            }
        }
        Ok(())
    }

    fn write(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&mut &*self.stream).write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => self.tick(error)?,
            }
        }
        Ok(())
    }

    /// Handles an expired wait: the end of the connection's time, or a sample of the data held by
    /// the socket.
    fn tick(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock if Instant::now() < self.ends => {
                if self.hello.flags.observe
                    && let Ok(info) = tcp::info(self.stream)
                {
                    count_held(&info, self.hello.flags.cork, &mut self.report.held);
                }
                Ok(())
            }
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            _ => Err(error),
        }
    }
}
