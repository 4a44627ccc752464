//! What the far end does on one connection: read the greeting, answer it, do the work, report.
//! Every wait and every number is bounded.

use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::thread;
use std::time::{Duration, Instant};

use horolog_sys::tcp;

use super::protocol::{HELLO_LEN, Hello, Report, Verdict, Welcome, Work, facts_text};
use super::row::{SETTLE, TICK, figures, held, observe_wait};
use super::serve::{FarEndSettings, TcpLimits};

/// How long a greeting may take.
const HELLO_PATIENCE: Duration = Duration::from_secs(2);
/// What a connection may last beyond the time that was asked for.
const GRACE: Duration = Duration::from_secs(5);
/// Most that is read or written at once.
const CHUNK_MAX: usize = 256 << 10;
/// Least room for what a sink receives.
const SINK_CHUNK: usize = 128 << 10;

/// Serves a connection from its greeting to its end. The verdict is what the number of connections
/// allows.
pub(super) fn run(
    mut stream: &TcpStream,
    settings: &FarEndSettings,
    (verdict, limit): (Verdict, u32),
) -> io::Result<()> {
    stream.set_read_timeout(Some(HELLO_PATIENCE))?;
    stream.set_write_timeout(Some(HELLO_PATIENCE))?;
    let mut bytes = [0; HELLO_LEN];
    stream.read_exact(&mut bytes)?;
    let parsed = Hello::parse(&bytes);
    let (verdict, limit) = match parsed {
        _ if verdict != Verdict::Accepted => (verdict, limit),
        None => (Verdict::Malformed, 0),
        Some(hello) => judge(&hello, &settings.limits),
    };
    let facts = match verdict {
        Verdict::Accepted => facts_text(&settings.facts(stream)),
        _ => Vec::new(),
    };
    if parsed.is_some_and(|hello| hello.flags.settle) && verdict == Verdict::Accepted {
        thread::sleep(SETTLE);
    }
    let facts_bytes = facts.len() as u16;
    let welcome = Welcome { verdict, facts_bytes, limit };
    // In one write, so that no half of it waits for an acknowledgement.
    stream.write_all(&[&welcome.emit()[..], &facts].concat())?;
    match parsed {
        Some(hello) if verdict == Verdict::Accepted => {
            Session::new(stream, hello, settings)?.work()
        }
        _ => stream.shutdown(Shutdown::Write),
    }
}

/// Whether what was asked for is within the limits.
fn judge(hello: &Hello, limits: &TcpLimits) -> (Verdict, u32) {
    let time_ms = u32::try_from(limits.time.as_millis()).unwrap_or(u32::MAX);
    let bytes = [hello.request_bytes, hello.head_bytes, hello.body_bytes];
    if hello.time_ms.saturating_add(hello.warm_up_ms) > time_ms {
        (Verdict::TooLong, time_ms)
    } else if bytes.into_iter().any(|bytes| bytes > limits.message_bytes) {
        (Verdict::TooLarge, limits.message_bytes)
    } else if bytes == [0; 3] && hello.work != Work::Facts
        || hello.work == Work::Exchange && (hello.request_bytes == 0 || hello.batch == 0)
        || hello.work == Work::Source && hello.head_bytes == 0
    {
        (Verdict::Malformed, 0)
    } else {
        (Verdict::Accepted, 0)
    }
}

struct Session<'a> {
    stream: &'a TcpStream,
    hello: Hello,
    buffer: Vec<u8>,
    /// The body, where it comes from a file.
    body: Option<File>,
    report: Report,
    ends: Instant,
    bytes_left: u64,
}

impl<'a> Session<'a> {
    fn new(stream: &'a TcpStream, hello: Hello, settings: &FarEndSettings) -> io::Result<Self> {
        let flags = hello.flags;
        stream.set_nodelay(flags.no_delay)?;
        if flags.quick_ack_once {
            tcp::set_quick_ack(stream, true)?;
        }
        stream.set_read_timeout(Some(if flags.observe { observe_wait() } else { TICK }))?;
        stream.set_write_timeout(Some(TICK))?;
        let least = if hello.work == Work::Sink { SINK_CHUNK } else { 1 };
        let message = hello.request_bytes.max(hello.head_bytes).max(hello.body_bytes) as usize;
        let body = if flags.send_file && hello.body_bytes > 0 {
            Some(tcp::memory_file(&vec![0; (hello.body_bytes as usize).min(CHUNK_MAX)])?)
        } else {
            None
        };
        let asked = u64::from(hello.time_ms) + u64::from(hello.warm_up_ms);
        Ok(Self {
            stream,
            hello,
            buffer: vec![0; message.clamp(least, CHUNK_MAX)],
            body,
            report: Report::default(),
            ends: Instant::now() + Duration::from_millis(asked) + GRACE,
            bytes_left: settings.limits.bytes,
        })
    }

    fn work(&mut self) -> io::Result<()> {
        match self.hello.work {
            Work::Facts => {}
            Work::Exchange => {
                if !self.exchange()? {
                    return Ok(());
                }
            }
            Work::Sink => self.sink()?,
            Work::Source => self.source()?,
        }
        self.report.tcp = tcp::info(self.stream).map(|info| figures(&info)).unwrap_or_default();
        let report = self.report.emit();
        self.write(&report)?;
        self.stream.shutdown(Shutdown::Write)
    }

    /// Answers until the near end has no more; whether a report is wanted.
    fn exchange(&mut self) -> io::Result<bool> {
        let flags = self.hello.flags;
        let request = self.hello.request_bytes as usize;
        let mut in_batch = 0;
        while self.receive(request)? == request {
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
        self.bytes_left =
            self.bytes_left.checked_sub(body as u64).ok_or(io::ErrorKind::QuotaExceeded)?;
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

    fn sink(&mut self) -> io::Result<()> {
        let warm_up = Duration::from_millis(self.hello.warm_up_ms.into());
        let mut begun: Option<Instant> = None;
        let mut last = Instant::now();
        loop {
            if self.hello.flags.quick_ack_each {
                tcp::set_quick_ack(self.stream, true)?;
            }
            let came = self.read_some(usize::MAX)?;
            if came == 0 {
                break;
            }
            last = Instant::now();
            let counted_from = *begun.get_or_insert(last + warm_up);
            if last > counted_from {
                self.report.bytes += came as u64;
            }
        }
        let took = begun.map_or(Duration::ZERO, |begun| last.saturating_duration_since(begun));
        self.report.duration_ns = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        Ok(())
    }

    fn source(&mut self) -> io::Result<()> {
        let time = u64::from(self.hello.time_ms) + u64::from(self.hello.warm_up_ms);
        let until = Instant::now() + Duration::from_millis(time);
        while Instant::now() < until {
            self.write_message(self.hello.head_bytes as usize)?;
            self.report.exchanges += 1;
        }
        Ok(())
    }

    /// Reads as many bytes and forgets them; how many came before the end of the stream.
    fn receive(&mut self, wanted: usize) -> io::Result<usize> {
        if self.hello.flags.quick_ack_each {
            tcp::set_quick_ack(self.stream, true)?;
        }
        let mut got = 0;
        while got < wanted {
            match self.read_some(wanted - got)? {
                0 => break,
                came => got += came,
            }
        }
        Ok(got)
    }

    fn read_some(&mut self, most: usize) -> io::Result<usize> {
        let room = most.min(self.buffer.len());
        loop {
            match (&mut &*self.stream).read(&mut self.buffer[..room]) {
                Ok(came) => {
                    self.bytes_left = self
                        .bytes_left
                        .checked_sub(came as u64)
                        .ok_or(io::ErrorKind::QuotaExceeded)?;
                    return Ok(came);
                }
                Err(error) => self.tick(error)?,
            }
        }
    }

    /// Writes so many bytes in one write, or in as many as their number takes.
    fn write_message(&mut self, length: usize) -> io::Result<()> {
        let mut left = length;
        while left > 0 {
            match (&mut &*self.stream).write(&self.buffer[..left.min(self.buffer.len())]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(sent) => {
                    left -= sent;
                    self.bytes_left = self
                        .bytes_left
                        .checked_sub(sent as u64)
                        .ok_or(io::ErrorKind::QuotaExceeded)?;
                }
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

    /// What a wait that brought nothing means: the end of the connection's time, or a look at what
    /// the socket holds.
    fn tick(&mut self, error: io::Error) -> io::Result<()> {
        match error.kind() {
            io::ErrorKind::WouldBlock if Instant::now() < self.ends => {
                if self.hello.flags.observe
                    && let Ok(info) = tcp::info(self.stream)
                {
                    held(&info, self.hello.flags.cork, &mut self.report.held);
                }
                Ok(())
            }
            io::ErrorKind::Interrupted => Ok(()),
            io::ErrorKind::WouldBlock => Err(io::ErrorKind::TimedOut.into()),
            _ => Err(error),
        }
    }
}
