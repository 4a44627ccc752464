//! gpsd as a source, by its JSON reports over TCP: PPS and TOFF report the system clock at a second
//! of the receiver's, and TPV the receiver's fix.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use horolog_discipline::{Plausibility, Support};
use horolog_sys::explain::explain;
use horolog_sys::zone;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use serde::Deserialize;

use crate::gnss::Fixes;
use crate::reference::{ReferenceClaim, ReferenceClock, SentenceLag, precision_span};
use crate::shm::answer;
use crate::{ClockReadings, STALE, SourceError, SourceEstimate, TimeSource};

/// Timeout of connecting, to all addresses together.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Polls between two attempts to connect.
const RETRY_INTERVAL: u32 = 5;
/// Maximum length of a line of gpsd, in bytes.
const LINE_MAX: usize = 16_384;
/// Maximum number of bytes read at one poll.
const READ_MAX: usize = 1 << 18;
/// Maximum number of characters shown of an invalid line.
const SHOWN_MAX: usize = 60;
/// Time without samples before that is reported.
const QUIET: Span = Span::from_ns(3 * NS_PER_S);
const WATCH: &[u8] = b"?WATCH={\"enable\":true,\"json\":true,\"pps\":true};\n";
/// log2 of the maximum error of a TOFF in seconds if gpsd does not report it, as its version 3.22
/// does not. One of this precision, half a second, or a worse one was made of a sentence, whose lag
/// gpsd does not know.
const TOFF_PRECISION: i32 = -1;
/// Lowest mode of TPV with a fix.
const MODE_WITH_FIX: i64 = 2;
/// Values of `status` that are no fix by satellites: dead reckoning alone, and a simulation.
const NO_FIX: [i64; 2] = [5, 8];

/// Line of gpsd, as far as it is of use here.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GpsdLine {
    /// Time at a second of the receiver.
    Sample {
        /// The receiver's device.
        device: String,
        /// True if a pulse marked it.
        pulse: bool,
        /// The true time.
        truth: Timestamp<Utc>,
        /// Reading of the system clock.
        system: Timestamp<Utc>,
        /// log2 of its maximum error in seconds.
        precision: i32,
    },
    /// Fix state of the receiver at this device.
    Fix(String, bool),
    /// Any other line.
    Other,
}

#[derive(Deserialize)]
struct RawGpsdLine {
    class: String,
    #[serde(default)]
    device: String,
    real_sec: Option<i64>,
    real_nsec: Option<i64>,
    clock_sec: Option<i64>,
    clock_nsec: Option<i64>,
    /// Whole number, which some write with a point.
    precision: Option<f64>,
    mode: Option<i64>,
    status: Option<i64>,
    message: Option<String>,
    devices: Option<Vec<serde::de::IgnoredAny>>,
}

impl GpsdLine {
    /// Parses a line; `None` if it is not JSON of gpsd's kind.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line: RawGpsdLine = serde_json::from_slice(line).ok()?;
        let time = |seconds: Option<i64>, nanoseconds: Option<i64>| {
            let nanoseconds = nanoseconds.filter(|ns| (0..NS_PER_S).contains(ns))?;
            Some(Timestamp::from_timespec(seconds?, nanoseconds))
        };
        match line.class.as_str() {
            kind @ ("PPS" | "TOFF") => Some(Self::Sample {
                device: line.device,
                pulse: kind == "PPS",
                truth: time(line.real_sec, line.real_nsec)?,
                system: time(line.clock_sec, line.clock_nsec)?,
                precision: match line.precision {
                    // Values out of range saturate.
                    Some(precision) => precision.round() as i32,
                    None => (kind == "TOFF").then_some(TOFF_PRECISION)?,
                },
            }),
            "TPV" => {
                let is_none = line.status.is_some_and(|status| NO_FIX.contains(&status));
                let has_fix = line.mode.is_some_and(|mode| mode >= MODE_WITH_FIX);
                Some(Self::Fix(line.device, has_fix && !is_none))
            }
            _ => Some(Self::Other),
        }
    }

    /// Returns the reason for which a line names no time, in words.
    #[must_use]
    pub fn complaint(line: &[u8]) -> String {
        let Ok(RawGpsdLine { class, message, devices, precision, .. }) =
            serde_json::from_slice(line)
        else {
            let text = String::from_utf8_lossy(line);
            let text: String = text.trim().chars().filter(|char| !char.is_control()).collect();
            let text: String = text.chars().take(SHOWN_MAX).collect();
            return format!("not a gpsd report: '{text}'; check that gpsd listens there");
        };
        match (&*class, devices, precision) {
            ("ERROR", ..) => {
                let message: String = message.unwrap_or_default().chars().take(SHOWN_MAX).collect();
                format!("gpsd reports an error: {}", message.escape_default())
            }
            ("DEVICES", Some(devices), _) if devices.is_empty() => {
                "gpsd has no device; add one: gpsdctl add DEVICE".to_owned()
            }
            ("PPS", _, None) => "PPS lacks its precision".to_owned(),
            ("PPS" | "TOFF", ..) => format!("{class} lacks a readable time"),
            _ => {
                let class: String = class.chars().take(SHOWN_MAX).collect();
                format!("gpsd sends neither PPS nor TOFF; the last was {}", class.escape_default())
            }
        }
    }
}

/// Splits an address `HOST:PORT` into host and port.
pub(crate) fn split(address: &str) -> Result<(&str, u16), SourceError> {
    match zone::split_host(address) {
        Ok((host, Some(port))) => Ok((host, port)),
        _ => Err(SourceError::Unusable(format!(
            "invalid address '{address}'; write HOST:PORT, as in 127.0.0.1:2947"
        ))),
    }
}

/// Resolves an address `HOST:PORT`.
pub(crate) fn resolve(address: &str) -> Result<Vec<SocketAddr>, SourceError> {
    let (host, port) = split(address)?;
    zone::resolve(host, port).map_err(|error| {
        SourceError::Unusable(format!("cannot resolve the address {address}: {error}"))
    })
}

/// Time source by gpsd.
pub(crate) struct Gpsd {
    name: String,
    address: String,
    /// Resolved addresses; the first one is tried first.
    resolved: Vec<SocketAddr>,
    stream: Option<TcpStream>,
    pending: Vec<u8>,
    retry: u32,
    fixes: Fixes<String>,
    /// Instant of the last sample, or of the connection.
    fed: Option<Timestamp<Monotonic>>,
    /// Reason for which the last line without a time has none.
    complaint: Option<String>,
    /// Instant of the last pulse; while they come, samples without one do not count.
    pulse: Option<Timestamp<Monotonic>>,
    lag: SentenceLag,
    clock: ReferenceClock,
}

impl Gpsd {
    /// Resolves the address, which may take long and so happens only here: other sources wait while
    /// this one is polled.
    pub(crate) fn open(
        name: String,
        address: String,
        claim: ReferenceClaim,
    ) -> Result<Self, SourceError> {
        let resolved = resolve(&address)?;
        Ok(Self::new(name, address, resolved, claim))
    }

    fn new(
        name: String,
        address: String,
        resolved: Vec<SocketAddr>,
        claim: ReferenceClaim,
    ) -> Self {
        Self {
            name,
            address,
            resolved,
            stream: None,
            pending: Vec::new(),
            retry: 0,
            fixes: Fixes::default(),
            fed: None,
            complaint: None,
            pulse: None,
            lag: SentenceLag::of(&claim),
            clock: ReferenceClock::new(claim),
        }
    }

    fn connect(&mut self) -> io::Result<TcpStream> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..self.resolved.len() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            match TcpStream::connect_timeout(&self.resolved[0], left) {
                Ok(mut stream) => {
                    stream.write_all(WATCH)?;
                    stream.set_nonblocking(true)?;
                    return Ok(stream);
                }
                Err(refused) => error = refused,
            }
            // The next attempt begins with another one, in case this one has taken all the time.
            self.resolved.rotate_left(1);
        }
        Err(error)
    }

    /// Reads the available input; after an error the connection is of no use any more.
    fn receive(&mut self) -> io::Result<()> {
        let mut stream = match self.stream.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let mut buffer = [0; 4_096];
        let mut total = 0;
        while total < READ_MAX {
            match stream.read(&mut buffer) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => {
                    self.pending.extend_from_slice(&buffer[..length]);
                    total += length;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        self.stream = Some(stream);
        Ok(())
    }

    /// Takes the complete lines; returns true if one of them was a sample.
    fn take_lines(&mut self, readings: &ClockReadings) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let mut lines: Vec<&[u8]> = pending.split(|byte| *byte == b'\n').collect();
        let rest = lines.pop().unwrap_or_default();
        let (mut some, mut complaint) = (false, None);
        for line in lines {
            let parsed = GpsdLine::parse(line);
            // TPV comes together with the lines that should name the time, and hides none of their
            // errors.
            let is_fix = matches!(parsed, Some(GpsdLine::Fix(..))) && complaint.is_some();
            let is_sample = matches!(parsed, Some(GpsdLine::Sample { .. }));
            if !is_fix && !is_sample && !line.trim_ascii().is_empty() {
                complaint = Some(GpsdLine::complaint(line));
            }
            some |= parsed.is_some_and(|line| self.take(line, readings));
        }
        if rest.len() <= LINE_MAX {
            self.pending = rest.to_vec();
        }
        self.complaint = complaint.or(self.complaint.take());
        some
    }

    fn take(&mut self, line: GpsdLine, readings: &ClockReadings) -> bool {
        match line {
            GpsdLine::Fix(device, has_fix) => self.fixes.note(device, has_fix, readings.monotonic),
            GpsdLine::Sample { device, pulse, truth, system, precision } => {
                if !self.fixes.may_have_fix(&device) {
                    return false;
                }
                if pulse {
                    self.pulse = Some(readings.monotonic);
                }
                let superseded = self.pulse.is_some_and(|when| readings.monotonic - when <= STALE);
                if pulse || !superseded {
                    let is_coarse = !pulse && precision >= TOFF_PRECISION;
                    let SentenceLag { middle, bound } = self.lag;
                    let (truth, uncertainty) = if is_coarse {
                        (truth + middle, bound)
                    } else {
                        (truth, precision_span(precision))
                    };
                    self.clock.take(readings, system, truth, uncertainty);
                    return true;
                }
            }
            GpsdLine::Other => {}
        }
        false
    }
}

impl TimeSource for Gpsd {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        if self.stream.is_none() && self.retry > 0 {
            self.retry -= 1;
            return Ok(None);
        }
        if let Err(error) = self.receive() {
            self.stream = None;
            self.pending.clear();
            self.retry = RETRY_INTERVAL;
            (self.fed, self.complaint) = (None, None);
            let why = explain(&error);
            return Err(SourceError::NoData(format!("gpsd at {}: {why}", self.address)));
        }
        self.fixes.expire(readings.monotonic);
        let some = self.take_lines(readings);
        if self.fixes.is_none() {
            return Err(SourceError::Unusable("the receiver has no fix".into()));
        }
        let fed = *self.fed.get_or_insert(readings.monotonic);
        if some {
            self.fed = Some(readings.monotonic);
            return answer(&mut self.clock, readings);
        }
        match &self.complaint {
            Some(why) if readings.monotonic - fed > QUIET => Err(SourceError::NoData(why.clone())),
            _ => Ok(None),
        }
    }

    fn judge_by(&mut self, basis: Plausibility) {
        self.clock.judge_by(basis);
    }

    fn vouch(&mut self, ahead: Span, support: Support) {
        self.clock.vouch(ahead, support);
    }
}

#[cfg(test)]
mod tests;
