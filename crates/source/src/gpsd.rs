//! gpsd as a time source, by its JSON reports over TCP: PPS and TOFF contain the system clock at a
//! second of the receiver, TPV contains the receiver's fix.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use horolog_discipline::{PlausibilityReason, PlausibilityRuleParameters};
use horolog_sys::explain::explain;
use horolog_sys::zone;
use horolog_time::{Monotonic, NS_PER_S, Span, Timestamp, Utc};
use serde::Deserialize;

use crate::gnss::FixStates;
use crate::reference::{ReferenceClock, ReferenceClockSettings, SentenceLag, precision_span};
use crate::shm::report_or_refusal;
use crate::{ClockReadings, PollableTimeSource, REPORT_AGE_MAX, SourceError, SourceEstimate};

/// Timeout of a connection attempt, for all addresses together.
const CONNECT_TIMEOUT: Duration = Duration::from_millis(500);
/// Polls between two attempts to connect.
const RETRY_INTERVAL: u32 = 5;
/// Maximum length of a line of gpsd, in bytes.
const LINE_MAX: usize = 16_384;
/// Maximum number of bytes read at one poll.
const READ_MAX: usize = 1 << 18;
/// Maximum number of characters of gpsd's text that a message quotes.
const QUOTED_CHARACTERS_MAX: usize = 60;
/// Time without samples after which the reason is reported.
const IDLE_TIMEOUT: Span = Span::from_ns(3 * NS_PER_S);
const WATCH: &[u8] = b"?WATCH={\"enable\":true,\"json\":true,\"pps\":true};\n";
/// log2 of the error bound, in seconds, of a TOFF without a precision (gpsd up to 3.22). A TOFF of
/// this precision (half a second) or worse was derived from a sentence, whose lag gpsd does not
/// know.
const TOFF_PRECISION: i32 = -1;
/// Lowest mode of TPV with a fix.
const MODE_WITH_FIX: i64 = 2;
/// TPV `status` values without a satellite fix: dead reckoning and simulation.
const STATUSES_WITHOUT_FIX: [i64; 2] = [5, 8];

/// Line of gpsd, reduced to the fields that are used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GpsdLine {
    /// PPS or TOFF: the system clock at a second of the receiver.
    Sample {
        /// Path of the device of the receiver.
        device: String,
        /// True for PPS, which a pulse marks; false for TOFF.
        pulse: bool,
        /// True time at the second.
        true_time: Timestamp<Utc>,
        /// Reading of the system clock.
        system: Timestamp<Utc>,
        /// log2 of the error bound in seconds.
        precision: i32,
    },
    /// TPV: device of the receiver, and true if it has a fix.
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
    /// Integer, which some versions write with a decimal point.
    precision: Option<f64>,
    mode: Option<i64>,
    status: Option<i64>,
    message: Option<String>,
    devices: Option<Vec<serde::de::IgnoredAny>>,
}

impl GpsdLine {
    /// Parses a line; `None` if it is not a valid report of gpsd.
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
                true_time: time(line.real_sec, line.real_nsec)?,
                system: time(line.clock_sec, line.clock_nsec)?,
                precision: match line.precision {
                    // Values out of range saturate.
                    Some(precision) => precision.round() as i32,
                    None => (kind == "TOFF").then_some(TOFF_PRECISION)?,
                },
            }),
            "TPV" => {
                let is_none =
                    line.status.is_some_and(|status| STATUSES_WITHOUT_FIX.contains(&status));
                let has_fix = line.mode.is_some_and(|mode| mode >= MODE_WITH_FIX);
                Some(Self::Fix(line.device, has_fix && !is_none))
            }
            _ => Some(Self::Other),
        }
    }

    /// Describes why a line contains no time.
    #[must_use]
    pub fn no_time_reason(line: &[u8]) -> String {
        let Ok(RawGpsdLine { class, message, devices, precision, .. }) =
            serde_json::from_slice(line)
        else {
            let text = String::from_utf8_lossy(line);
            let text: String = text.trim().chars().filter(|char| !char.is_control()).collect();
            let text: String = text.chars().take(QUOTED_CHARACTERS_MAX).collect();
            return format!("not a gpsd report: '{text}'; check that gpsd listens there");
        };
        match (&*class, devices, precision) {
            ("ERROR", ..) => {
                let message: String =
                    message.unwrap_or_default().chars().take(QUOTED_CHARACTERS_MAX).collect();
                format!("gpsd reports an error: {}", message.escape_default())
            }
            ("DEVICES", Some(devices), _) if devices.is_empty() => {
                "gpsd has no device; add one: gpsdctl add DEVICE".to_owned()
            }
            ("PPS", _, None) => "PPS lacks its precision".to_owned(),
            ("PPS" | "TOFF", ..) => format!("{class} lacks a readable time"),
            _ => {
                let class: String = class.chars().take(QUOTED_CHARACTERS_MAX).collect();
                format!("gpsd sends neither PPS nor TOFF; the last was {}", class.escape_default())
            }
        }
    }
}

/// Splits an address `HOST:PORT` into host and port.
pub(crate) fn split_address(address: &str) -> Result<(&str, u16), SourceError> {
    match zone::split_host(address) {
        Ok((host, Some(port))) => Ok((host, port)),
        _ => Err(SourceError::Unusable(format!(
            "invalid address '{address}'; write HOST:PORT, as in 127.0.0.1:2947"
        ))),
    }
}

/// Resolves an address `HOST:PORT`.
pub(crate) fn resolve_address(address: &str) -> Result<Vec<SocketAddr>, SourceError> {
    let (host, port) = split_address(address)?;
    zone::resolve(host, port).map_err(|error| {
        SourceError::Unusable(format!("cannot resolve the address {address}: {error}"))
    })
}

/// Time source that polls gpsd.
pub(crate) struct GpsdSource {
    name: String,
    address: String,
    /// Resolved addresses; the first one is tried first.
    resolved: Vec<SocketAddr>,
    stream: Option<TcpStream>,
    pending: Vec<u8>,
    polls_until_retry: u32,
    fixes: FixStates<String>,
    /// Instant of the last sample, or of the connection; `None` without a connection.
    last_sample: Option<Timestamp<Monotonic>>,
    /// Reason why the last line without a time has none.
    no_time_reason: Option<String>,
    /// Instant of the last PPS, `None` before the first; TOFF is ignored while PPS arrive.
    last_pulse: Option<Timestamp<Monotonic>>,
    lag: SentenceLag,
    clock: ReferenceClock,
}

impl GpsdSource {
    /// Opens the source. The address is resolved only here, because resolution may block, and other
    /// sources wait while this one is polled.
    pub(crate) fn open(
        name: String,
        address: String,
        claim: ReferenceClockSettings,
    ) -> Result<Self, SourceError> {
        let resolved = resolve_address(&address)?;
        Ok(Self::new(name, address, resolved, claim))
    }

    fn new(
        name: String,
        address: String,
        resolved: Vec<SocketAddr>,
        claim: ReferenceClockSettings,
    ) -> Self {
        Self {
            name,
            address,
            resolved,
            stream: None,
            pending: Vec::new(),
            polls_until_retry: 0,
            fixes: FixStates::default(),
            last_sample: None,
            no_time_reason: None,
            last_pulse: None,
            lag: SentenceLag::from_claim(&claim),
            clock: ReferenceClock::new(claim),
        }
    }

    fn connect(&mut self) -> io::Result<TcpStream> {
        let deadline = Instant::now() + CONNECT_TIMEOUT;
        let mut error = io::Error::from(io::ErrorKind::NotFound);
        for _ in 0..self.resolved.len() {
            let remaining = deadline.saturating_duration_since(Instant::now());
            if remaining.is_zero() {
                break;
            }
            match TcpStream::connect_timeout(&self.resolved[0], remaining) {
                Ok(mut stream) => {
                    stream.write_all(WATCH)?;
                    stream.set_nonblocking(true)?;
                    return Ok(stream);
                }
                Err(connect_error) => error = connect_error,
            }
            // The next attempt starts with another address, since this one may have used up the
            // timeout.
            self.resolved.rotate_left(1);
        }
        Err(error)
    }

    /// Reads the available input; after an error the connection is dropped.
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

    /// Processes the complete lines; returns true if one of them was a usable sample.
    fn apply_lines(&mut self, readings: &ClockReadings) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let mut lines: Vec<&[u8]> = pending.split(|byte| *byte == b'\n').collect();
        let rest = lines.pop().unwrap_or_default();
        let (mut has_sample, mut reason) = (false, None);
        for line in lines {
            let parsed = GpsdLine::parse(line);
            // TPV accompanies PPS and TOFF, so it does not replace the reason why one of them was
            // unusable.
            let is_fix = matches!(parsed, Some(GpsdLine::Fix(..))) && reason.is_some();
            let is_sample = matches!(parsed, Some(GpsdLine::Sample { .. }));
            if !is_fix && !is_sample && !line.trim_ascii().is_empty() {
                reason = Some(GpsdLine::no_time_reason(line));
            }
            has_sample |= parsed.is_some_and(|line| self.apply_line(line, readings));
        }
        if rest.len() <= LINE_MAX {
            self.pending = rest.to_vec();
        }
        self.no_time_reason = reason.or(self.no_time_reason.take());
        has_sample
    }

    fn apply_line(&mut self, line: GpsdLine, readings: &ClockReadings) -> bool {
        match line {
            GpsdLine::Fix(device, has_fix) => {
                self.fixes.record(device, has_fix, readings.monotonic);
            }
            GpsdLine::Sample { device, pulse, true_time: truth, system, precision } => {
                if !self.fixes.may_have_fix(&device) {
                    return false;
                }
                if pulse {
                    self.last_pulse = Some(readings.monotonic);
                }
                let is_superseded =
                    self.last_pulse.is_some_and(|when| readings.monotonic - when <= REPORT_AGE_MAX);
                if pulse || !is_superseded {
                    let is_coarse = !pulse && precision >= TOFF_PRECISION;
                    let SentenceLag { middle, bound } = self.lag;
                    let (truth, uncertainty) = if is_coarse {
                        (truth + middle, bound)
                    } else {
                        (truth, precision_span(precision))
                    };
                    self.clock.push_sample(readings, system, truth, uncertainty);
                    return true;
                }
            }
            GpsdLine::Other => {}
        }
        false
    }
}

impl PollableTimeSource for GpsdSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        if self.stream.is_none() && self.polls_until_retry > 0 {
            self.polls_until_retry -= 1;
            return Ok(None);
        }
        if let Err(error) = self.receive() {
            self.stream = None;
            self.pending.clear();
            self.polls_until_retry = RETRY_INTERVAL;
            (self.last_sample, self.no_time_reason) = (None, None);
            let why = explain(&error);
            return Err(SourceError::NoData(format!("gpsd at {}: {why}", self.address)));
        }
        self.fixes.expire(readings.monotonic);
        let has_sample = self.apply_lines(readings);
        if self.fixes.has_no_fix() {
            return Err(SourceError::Unusable("the receiver has no fix".into()));
        }
        let last_sample = *self.last_sample.get_or_insert(readings.monotonic);
        if has_sample {
            self.last_sample = Some(readings.monotonic);
            return report_or_refusal(&mut self.clock, readings);
        }
        match &self.no_time_reason {
            Some(why) if readings.monotonic - last_sample > IDLE_TIMEOUT => {
                Err(SourceError::NoData(why.clone()))
            }
            _ => Ok(None),
        }
    }

    fn judge_by(&mut self, basis: PlausibilityRuleParameters) {
        self.clock.judge_by(basis);
    }

    fn vouch(&mut self, ahead: Span, support: PlausibilityReason) {
        self.clock.vouch(ahead, support);
    }
}

#[cfg(test)]
mod tests;
