//! gpsd, asked for its JSON reports over TCP: PPS and TOFF say what the system clock showed at a
//! second of the receiver's, and TPV whether the receiver has a fix.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use horolog_time::{Monotonic, NS_PER_S, Timestamp, Utc};
use serde::Deserialize;

use crate::reference::{Claim, ReferenceClock, precision_span};
use crate::shm::answer;
use crate::{Fault, Look, Report, STALE, Source};

/// How long connecting may take, to all addresses together.
const PATIENCE: Duration = Duration::from_millis(500);
/// Polls between two attempts to connect.
const RETRY_INTERVAL: u32 = 5;
/// No line of gpsd is longer, in bytes.
const LINE_MAX: usize = 16_384;
/// Bytes that are read at one poll.
const READ_MAX: usize = 1 << 18;
const WATCH: &[u8] = b"?WATCH={\"enable\":true,\"json\":true,\"pps\":true};\n";
/// log2 of the seconds that a TOFF may be wrong by where gpsd does not say, as its version
/// 3.22 does not: half a second.
const TOFF_PRECISION: i32 = -1;
/// The least that TPV says when there is a fix.
const MODE_WITH_FIX: i64 = 2;

/// What a line of gpsd says, as far as it is of use here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GpsdLine {
    /// The time at a second of the receiver.
    Sample {
        /// Whether a pulse marked it.
        pulse: bool,
        /// The true time.
        truth: Timestamp<Utc>,
        /// What the system clock showed.
        system: Timestamp<Utc>,
        /// log2 of the seconds that it may be wrong by.
        precision: i32,
    },
    /// Whether the receiver has a fix.
    Fix(bool),
    /// Something else.
    Other,
}

#[derive(Deserialize)]
struct Line {
    class: String,
    real_sec: Option<i64>,
    real_nsec: Option<i64>,
    clock_sec: Option<i64>,
    clock_nsec: Option<i64>,
    precision: Option<i32>,
    mode: Option<i64>,
}

impl GpsdLine {
    /// Reads a line; `None` when it is not JSON of gpsd's kind.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        let line: Line = serde_json::from_slice(line).ok()?;
        let time = |seconds: Option<i64>, nanoseconds: Option<i64>| {
            let nanoseconds = nanoseconds.filter(|ns| (0..NS_PER_S).contains(ns))?;
            Some(Timestamp::from_timespec(seconds?, nanoseconds))
        };
        match line.class.as_str() {
            kind @ ("PPS" | "TOFF") => Some(Self::Sample {
                pulse: kind == "PPS",
                truth: time(line.real_sec, line.real_nsec)?,
                system: time(line.clock_sec, line.clock_nsec)?,
                precision: line.precision.or((kind == "TOFF").then_some(TOFF_PRECISION))?,
            }),
            "TPV" => Some(Self::Fix(line.mode? >= MODE_WITH_FIX)),
            _ => Some(Self::Other),
        }
    }
}

/// What an address `HOST:PORT` stands for.
pub(crate) fn resolve(address: &str) -> Result<Vec<SocketAddr>, Fault> {
    let resolved = address.to_socket_addrs().map_err(|error| {
        Fault::Unusable(format!("the address {address} cannot be resolved: {error}"))
    })?;
    Ok(resolved.collect())
}

/// The source.
pub(crate) struct Gpsd {
    name: String,
    address: String,
    /// What the address stands for; the first one is tried first.
    resolved: Vec<SocketAddr>,
    stream: Option<TcpStream>,
    pending: Vec<u8>,
    retry: u32,
    has_fix: bool,
    /// When the last pulse came; while they come, samples without one do not count.
    pulse: Option<Timestamp<Monotonic>>,
    clock: ReferenceClock,
}

impl Gpsd {
    /// Resolves the address, which may take long and so happens only here: other sources wait while
    /// this one is asked.
    pub(crate) fn open(name: String, address: String, claim: Claim) -> Result<Self, Fault> {
        let resolved = resolve(&address)?;
        Ok(Self::new(name, address, resolved, claim))
    }

    fn new(name: String, address: String, resolved: Vec<SocketAddr>, claim: Claim) -> Self {
        Self {
            name,
            address,
            resolved,
            stream: None,
            pending: Vec::new(),
            retry: 0,
            has_fix: true,
            pulse: None,
            clock: ReferenceClock::new(claim),
        }
    }

    fn connect(&mut self) -> io::Result<TcpStream> {
        let deadline = Instant::now() + PATIENCE;
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
            // The next attempt begins with another one, should this one have taken all the time.
            self.resolved.rotate_left(1);
        }
        Err(error)
    }

    /// Reads what has come; an error means that the connection is of no use any more.
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

    /// Takes the whole lines that have come; says whether one of them was a sample.
    fn take_lines(&mut self, look: &Look) -> bool {
        let pending = std::mem::take(&mut self.pending);
        let mut lines: Vec<&[u8]> = pending.split(|byte| *byte == b'\n').collect();
        let rest = lines.pop().unwrap_or_default();
        let mut some = false;
        for line in lines {
            some |= GpsdLine::parse(line).is_some_and(|line| self.take(line, look));
        }
        if rest.len() <= LINE_MAX {
            self.pending = rest.to_vec();
        }
        some
    }

    fn take(&mut self, line: GpsdLine, look: &Look) -> bool {
        match line {
            GpsdLine::Fix(has_fix) => self.has_fix = has_fix,
            GpsdLine::Sample { pulse, truth, system, precision } => {
                if pulse {
                    self.pulse = Some(look.monotonic);
                }
                let superseded = self.pulse.is_some_and(|when| look.monotonic - when <= STALE);
                if self.has_fix && (pulse || !superseded) {
                    self.clock.take(look, system, truth, precision_span(precision));
                    return true;
                }
            }
            GpsdLine::Other => {}
        }
        false
    }
}

impl Source for Gpsd {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, look: &Look) -> Result<Option<Report>, Fault> {
        if self.stream.is_none() && self.retry > 0 {
            self.retry -= 1;
            return Ok(None);
        }
        if let Err(error) = self.receive() {
            self.stream = None;
            self.pending.clear();
            self.retry = RETRY_INTERVAL;
            return Err(Fault::Silent(format!("gpsd at {}: {error}", self.address)));
        }
        let some = self.take_lines(look);
        if !self.has_fix {
            return Err(Fault::Unusable("the receiver has no fix".into()));
        }
        if some { answer(&mut self.clock, look) } else { Ok(None) }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader};
    use std::net::TcpListener;

    use horolog_time::Span;

    use super::*;
    use crate::reference::tests::{CLAIM, look};

    fn sample(class: &str, truth_ns: i64, system_ns: i64) -> String {
        let split = |ns: i64| (ns.div_euclid(NS_PER_S), ns.rem_euclid(NS_PER_S));
        let ((real, real_ns), (clock, clock_ns)) = (split(truth_ns), split(system_ns));
        format!(
            "{{\"class\":\"{class}\",\"device\":\"/dev/ttyS0\",\"real_sec\":{real},\
             \"real_nsec\":{real_ns},\"clock_sec\":{clock},\"clock_nsec\":{clock_ns},\
             \"precision\":-20,\"more\":[1]}}\r\n"
        )
    }

    #[test]
    fn lines_of_gpsd() {
        let line = sample("PPS", 1_700_000_000 * NS_PER_S, 1_699_999_999_999_999_000);
        let expected = GpsdLine::Sample {
            pulse: true,
            truth: Timestamp::from_timespec(1_700_000_000, 0),
            system: Timestamp::from_ns(1_699_999_999_999_999_000),
            precision: -20,
        };
        assert_eq!(GpsdLine::parse(line.as_bytes()), Some(expected));
        // As version 3.22 sends it.
        let toff = "{\"class\":\"TOFF\",\"device\":\"/dev/pts/0\",\"real_sec\":1795374400, \
                    \"real_nsec\":0,\"clock_sec\":1795374397,\"clock_nsec\":306120836}\r";
        let expected = GpsdLine::Sample {
            pulse: false,
            truth: Timestamp::from_timespec(1_795_374_400, 0),
            system: Timestamp::from_timespec(1_795_374_397, 306_120_836),
            precision: TOFF_PRECISION,
        };
        assert_eq!(GpsdLine::parse(toff.as_bytes()), Some(expected));
        assert_eq!(GpsdLine::parse(toff.replace("TOFF", "PPS").as_bytes()), None);
        let fix = |line: &str| GpsdLine::parse(line.as_bytes());
        assert_eq!(fix("{\"class\":\"TPV\",\"mode\":3}"), Some(GpsdLine::Fix(true)));
        assert_eq!(fix("{\"class\":\"TPV\",\"mode\":1}"), Some(GpsdLine::Fix(false)));
        assert_eq!(fix("{\"class\":\"VERSION\"}"), Some(GpsdLine::Other));
        assert_eq!(fix("{\"class\":\"PPS\",\"real_sec\":1}"), None);
        assert_eq!(
            fix(&line.replace("\"clock_nsec\":999999000", "\"clock_nsec\":1000000000")),
            None
        );
        assert_eq!(fix("nonsense"), None);
    }

    #[test]
    fn an_address_is_resolved_once_and_named_when_it_cannot_be() {
        let Err(fault) = Gpsd::open("gpsd".into(), ":2947".into(), CLAIM) else {
            panic!("there is no host without a name");
        };
        assert!(fault.to_string().starts_with("the address :2947 cannot be resolved"), "{fault}");
        // Nobody listens at the first address; what it is called is not looked up again.
        let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let resolved = vec![closed, listener.local_addr().unwrap()];
        let mut gpsd = Gpsd::new("gpsd".into(), ":2947".into(), resolved, CLAIM);
        assert_eq!(gpsd.poll(&look(1_000)), Ok(None));
        listener.accept().unwrap();
    }

    #[test]
    fn pulses_go_before_the_rest_and_without_a_fix_nothing_counts() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let mut gpsd = Gpsd::open("gpsd".into(), address, CLAIM).unwrap();
        let now = look(5_000);
        let system = now.realtime().as_ns();
        assert_eq!(gpsd.poll(&now), Ok(None));
        let (mut stream, _) = listener.accept().unwrap();
        let mut asked = String::new();
        BufReader::new(stream.try_clone().unwrap()).read_line(&mut asked).unwrap();
        assert!(asked.starts_with("?WATCH={") && asked.contains("\"pps\":true"), "{asked}");

        let mut say = |gpsd: &mut Gpsd, text: &str, at_ms: i64| {
            stream.write_all(text.as_bytes()).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            gpsd.poll(&look(at_ms))
        };
        let pulse = sample("PPS", system + 1_000, system);
        let vague = sample("TOFF", system + 400_000_000, system + 1);
        let (head, tail) = pulse.split_at(40);
        assert_eq!(say(&mut gpsd, head, 5_000), Ok(None), "half a line");
        let report = say(&mut gpsd, &format!("{tail}{vague}"), 5_001).unwrap().unwrap();
        assert_eq!(report.offset, Span::from_ns(1_500));
        let lost = say(&mut gpsd, "{\"class\":\"TPV\",\"mode\":1}\n", 6_000);
        assert!(matches!(lost, Err(Fault::Unusable(_))), "{lost:?}");
        drop(stream);
        assert!(matches!(gpsd.poll(&look(7_000)), Err(Fault::Silent(_))));
        assert_eq!(gpsd.poll(&look(8_000)), Ok(None), "it does not connect at every poll");
    }
}
