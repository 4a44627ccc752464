//! Far end of one connection: reads the hello, sends the welcome, does the job and reports. Every
//! wait and every size is bounded.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::tcp;

use super::bounds::ConnectionByteBudget;
use super::protocol::{
    AdmissionVerdict, ByteBudgetKind, ConnectionJob, FarEndReport, HELLO_LEN, TcpHello, TcpWelcome,
    format_facts,
};
use super::row::{
    WAIT_CHECK_INTERVAL, WELCOME_DELAY, add_held_sample, held_sample_delay, tcp_info_summary,
};
use super::serve::{TcpFarEndLimits, TcpFarEndState};

/// Timeout of the hello.
const HELLO_TIMEOUT: Duration = Duration::from_secs(2);
/// Grace period of a connection beyond the requested time.
const GRACE_PERIOD: Duration = Duration::from_secs(5);
/// Time for which a connection stays open after its budget is exhausted, so that the report
/// arrives: closing a socket with unread data resets the connection.
const REPORT_LINGER: Duration = Duration::from_millis(500);
/// Maximum number of bytes read or written at once.
const CHUNK_BYTES_MAX: usize = 256 << 10;
/// Minimum receive buffer size of a stream in bytes.
const SINK_BUFFER_BYTES_MIN: usize = 128 << 10;

/// Serves a connection from the hello to its end. `verdict` and `limit` are the decision on the
/// number of connections.
pub(super) fn serve_connection(
    mut stream: &TcpStream,
    shared: &TcpFarEndState,
    (verdict, limit): (AdmissionVerdict, u32),
) -> io::Result<()> {
    stream.set_read_timeout(Some(HELLO_TIMEOUT))?;
    stream.set_write_timeout(Some(HELLO_TIMEOUT))?;
    let mut bytes = [0; HELLO_LEN];
    stream.read_exact(&mut bytes)?;
    let parsed = TcpHello::parse(&bytes);
    let (verdict, limit) = match parsed {
        _ if verdict != AdmissionVerdict::Accepted => (verdict, limit),
        None => (AdmissionVerdict::InvalidHello, 0),
        Some(hello) => match check_hello(&hello, &shared.settings.limits) {
            (AdmissionVerdict::Accepted, _) => {
                budget_verdict(shared.hourly_budget.time_until_available(Instant::now()))
            }
            refused => refused,
        },
    };
    shared.counters.count_verdict(verdict);
    let facts = match verdict {
        AdmissionVerdict::Accepted => format_facts(&shared.settings.facts(stream)),
        _ => Vec::new(),
    };
    if parsed.is_some_and(|hello| hello.flags.delay_welcome)
        && verdict == AdmissionVerdict::Accepted
    {
        thread::sleep(WELCOME_DELAY);
    }
    let facts_bytes = facts.len() as u16;
    let welcome = TcpWelcome { verdict, facts_bytes, limit };
    // In one write, so that no part waits for an acknowledgement.
    stream.write_all(&[&welcome.emit()[..], &facts].concat())?;
    match parsed {
        Some(hello) if verdict == AdmissionVerdict::Accepted => {
            TcpFarEndSession::new(stream, hello, shared)?.run_job()
        }
        _ => stream.shutdown(Shutdown::Write),
    }
}

/// Checks that a hello is valid and within the limits; returns the verdict, and the exceeded limit
/// or 0.
fn check_hello(hello: &TcpHello, limits: &TcpFarEndLimits) -> (AdmissionVerdict, u32) {
    let time_ms = u32::try_from(limits.time.as_millis()).unwrap_or(u32::MAX);
    let bytes = [hello.request_bytes, hello.head_bytes, hello.body_bytes];
    if hello.time_ms.saturating_add(hello.warm_up_ms) > time_ms {
        (AdmissionVerdict::TooLong, time_ms)
    } else if bytes.into_iter().any(|bytes| bytes > limits.message_bytes) {
        (AdmissionVerdict::TooLarge, limits.message_bytes)
    } else if bytes == [0; 3] && hello.job != ConnectionJob::Facts
        || hello.job == ConnectionJob::Exchange && (hello.request_bytes == 0 || hello.batch == 0)
        || hello.job == ConnectionJob::Send && hello.head_bytes == 0
    {
        (AdmissionVerdict::InvalidHello, 0)
    } else {
        (AdmissionVerdict::Accepted, 0)
    }
}

/// Returns the verdict for a time `wait` until the hourly budget suffices, and that time in s,
/// rounded up; 0 if the connection is accepted.
fn budget_verdict(wait: Duration) -> (AdmissionVerdict, u32) {
    if wait.is_zero() {
        return (AdmissionVerdict::Accepted, 0);
    }
    (
        AdmissionVerdict::BudgetExhausted,
        u32::try_from(wait.as_secs().saturating_add(1)).unwrap_or(u32::MAX),
    )
}

/// Reason why a job ended before the near end was finished.
enum FarEndStopReason {
    BudgetReached(ByteBudgetKind),
    IoError(io::Error),
}

impl From<io::Error> for FarEndStopReason {
    fn from(error: io::Error) -> Self {
        Self::IoError(error)
    }
}

impl From<ByteBudgetKind> for FarEndStopReason {
    fn from(bound: ByteBudgetKind) -> Self {
        Self::BudgetReached(bound)
    }
}

struct TcpFarEndSession<'a> {
    stream: &'a TcpStream,
    hello: TcpHello,
    buffer: Vec<u8>,
    /// File with the body, if it is sent by sendfile.
    body: Option<File>,
    report: FarEndReport,
    deadline: Instant,
    budget: ConnectionByteBudget<'a>,
    shared: &'a TcpFarEndState,
}

impl<'a> TcpFarEndSession<'a> {
    fn new(stream: &'a TcpStream, hello: TcpHello, shared: &'a TcpFarEndState) -> io::Result<Self> {
        let limits = &shared.settings.limits;
        let flags = hello.flags;
        stream.set_nodelay(flags.no_delay)?;
        if flags.quick_ack_once {
            tcp::set_quick_ack(stream, true)?;
        }
        stream.set_read_timeout(Some(if flags.observe {
            held_sample_delay()
        } else {
            WAIT_CHECK_INTERVAL
        }))?;
        stream.set_write_timeout(Some(WAIT_CHECK_INTERVAL))?;
        let buffer_min =
            if hello.job == ConnectionJob::Receive { SINK_BUFFER_BYTES_MIN } else { 1 };
        let message = hello.request_bytes.max(hello.head_bytes).max(hello.body_bytes) as usize;
        let body = if flags.send_file && hello.body_bytes > 0 {
            Some(tcp::memory_file(&vec![0; (hello.body_bytes as usize).min(CHUNK_BYTES_MAX)])?)
        } else {
            None
        };
        let requested_ms = u64::from(hello.time_ms) + u64::from(hello.warm_up_ms);
        Ok(Self {
            stream,
            hello,
            buffer: vec![0; message.clamp(buffer_min, CHUNK_BYTES_MAX)],
            body,
            report: FarEndReport::default(),
            deadline: Instant::now() + Duration::from_millis(requested_ms) + GRACE_PERIOD,
            budget: ConnectionByteBudget::new(&shared.hourly_budget, limits.bytes),
            shared,
        })
    }

    fn run_job(&mut self) -> io::Result<()> {
        let done = match self.hello.job {
            ConnectionJob::Facts => Ok(true),
            ConnectionJob::Exchange => self.run_exchanges(),
            ConnectionJob::Receive => self.receive_stream().map(|()| true),
            ConnectionJob::Send => self.send_stream().map(|()| true),
        };
        self.budget.return_unused(Instant::now());
        let shared = self.shared;
        let limits = &shared.settings.limits;
        shared.counters.count_payload(limits.bytes - self.budget.remaining());
        match done {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(FarEndStopReason::BudgetReached(bound)) => {
                self.report.exhausted_budget = Some(bound);
                self.report.budget_bytes = match bound {
                    ByteBudgetKind::Connection => limits.bytes,
                    ByteBudgetKind::Hour => limits.bytes_per_hour,
                };
            }
            Err(FarEndStopReason::IoError(error)) => return Err(error),
        }
        self.report.tcp =
            tcp::info(self.stream).map(|info| tcp_info_summary(&info)).unwrap_or_default();
        let report = self.report.emit();
        self.write_all(&report)?;
        self.stream.shutdown(Shutdown::Write)?;
        if self.report.exhausted_budget.is_some() {
            thread::sleep(REPORT_LINGER);
        }
        Ok(())
    }

    /// Answers requests until the near end sends no more. Returns true if the near end expects a
    /// report, false if the connection is to be closed.
    fn run_exchanges(&mut self) -> Result<bool, FarEndStopReason> {
        let flags = self.hello.flags;
        let request = self.hello.request_bytes as usize;
        let reply_bytes = u64::from(self.hello.head_bytes) + u64::from(self.hello.body_bytes);
        let exchange_bytes = reply_bytes.saturating_add(request as u64);
        let mut in_batch = 0;
        while self.read_request(request)? == request {
            self.budget.spend(exchange_bytes, Instant::now)?;
            let begun = Instant::now();
            if flags.cork && in_batch == 0 {
                tcp::set_cork(self.stream, true)?;
            }
            self.write_reply()?;
            in_batch += 1;
            if in_batch == self.hello.batch {
                in_batch = 0;
                if flags.close_to_uncork {
                    return Ok(false);
                }
                if flags.cork && !flags.forget_cork {
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

    fn write_reply(&mut self) -> io::Result<()> {
        self.write_message(self.hello.head_bytes as usize)?;
        let body = self.hello.body_bytes as usize;
        let Some(file) = self.body.take() else { return self.write_message(body) };
        let mut left = body;
        while left > 0 {
            match tcp::send_file(self.stream, file.as_fd(), 0, left.min(CHUNK_BYTES_MAX)) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => left -= sent,
                Err(error) => self.check_timeout(error)?,
            }
        }
        self.body = Some(file);
        Ok(())
    }

    fn receive_stream(&mut self) -> Result<(), FarEndStopReason> {
        let warm_up = Duration::from_millis(self.hello.warm_up_ms.into());
        let mut begun: Option<Instant> = None;
        let mut last = Instant::now();
        // Like an application that reads messages: at most one at a time.
        let message = self.hello.request_bytes.max(1) as usize;
        let ended = loop {
            if self.hello.flags.quick_ack_each {
                tcp::set_quick_ack(self.stream, true)?;
            }
            let received = self.read_available(message)?;
            if received == 0 {
                break Ok(());
            }
            if let Err(bound) = self.budget.spend(received as u64, Instant::now) {
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

    fn send_stream(&mut self) -> Result<(), FarEndStopReason> {
        let time = u64::from(self.hello.time_ms) + u64::from(self.hello.warm_up_ms);
        let until = Instant::now() + Duration::from_millis(time);
        let length = self.hello.head_bytes;
        while Instant::now() < until {
            self.budget.spend(length.into(), Instant::now)?;
            self.write_message(length as usize)?;
            self.report.exchanges += 1;
        }
        Ok(())
    }

    /// Receives and discards `wanted` bytes; returns the number of bytes, fewer at the end of the
    /// stream.
    fn read_request(&mut self, wanted: usize) -> io::Result<usize> {
        if self.hello.flags.quick_ack_each {
            tcp::set_quick_ack(self.stream, true)?;
        }
        let mut got = 0;
        while got < wanted {
            match self.read_available(wanted - got)? {
                0 => break,
                received => got += received,
            }
        }
        Ok(got)
    }

    fn read_available(&mut self, most: usize) -> io::Result<usize> {
        let room = most.min(self.buffer.len());
        loop {
            match (&mut &*self.stream).read(&mut self.buffer[..room]) {
                Ok(received) => return Ok(received),
                Err(error) => self.check_timeout(error)?,
            }
        }
    }

    /// Writes `length` zero bytes, in as few writes as the buffer allows.
    fn write_message(&mut self, length: usize) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            match (&mut &*self.stream).write(&self.buffer[..left.min(self.buffer.len())]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => left -= sent,
                Err(error) => self.check_timeout(error)?,
            }
        }
        Ok(())
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match (&mut &*self.stream).write(bytes) {
                Ok(sent) => bytes = &bytes[sent..],
                Err(error) => self.check_timeout(error)?,
            }
        }
        Ok(())
    }

    /// Handles an I/O error: `Ok` to retry, after sampling held-back data if requested; a timeout
    /// error after the connection's deadline.
    fn check_timeout(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock if Instant::now() < self.deadline => {
                if self.hello.flags.observe
                    && let Ok(info) = tcp::info(self.stream)
                {
                    add_held_sample(&info, self.hello.flags.cork, &mut self.report.held_samples);
                }
                Ok(())
            }
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            _ => Err(error),
        }
    }
}
