//! Configuration of the calibration: inputs of sentences and pulses, and outputs of the result.

use std::path::PathBuf;
use std::str::FromStr;

use horolog_discipline::OscillatorModel;
use horolog_sys::serial;
use horolog_time::{NS_PER_S, Span};

use super::gpsd_line;
use crate::gpsd;
use crate::spec::{GNSS_SPEED, check_device_present, parse_absolute_path, spec_error};
use crate::{PulseSpec, SourceError, SourceSpecError};

/// Default address of gpsd.
const GPSD: &str = "127.0.0.1:2947";
/// Smallest holdover limit: a shorter one would end with a single missed pulse.
const HOLDOVER_LIMIT_MIN: Span = Span::from_ns(10 * NS_PER_S);
/// Smallest step threshold: smaller offsets do not justify a step of the time served to clients.
const STEP_MIN: Span = Span::from_ms(1);
/// Smallest configurable sentence lag; no receiver is reliably faster.
const SENTENCE_LAG_MIN: Span = Span::from_ms(50);
/// Smallest log size in bytes; a smaller log would rotate constantly.
const LOG_BYTES_MIN: u64 = 1 << 16;

/// Input of sentences.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SentenceInput {
    /// Serial line, and its speed in bits per second.
    Serial(PathBuf, u32),
    /// gpsd at `HOST:PORT`, which forwards the receiver's sentences.
    Gpsd(String),
}

impl FromStr for SentenceInput {
    type Err = SourceSpecError;

    /// Parses `DEVICE`, `DEVICE:BAUD`, `gpsd` or `gpsd:HOST:PORT`.
    fn from_str(text: &str) -> Result<Self, SourceSpecError> {
        if text == "gpsd" {
            return Ok(Self::Gpsd(GPSD.into()));
        }
        if let Some(address) = text.strip_prefix("gpsd:") {
            return match gpsd::split_address(address) {
                Ok(_) => Ok(Self::Gpsd(address.to_owned())),
                Err(_) => spec_error("write gpsd or gpsd:HOST:PORT, as in gpsd:127.0.0.1:2947"),
            };
        }
        let (device, speed) = match text.rsplit_once(':') {
            Some((device, speed)) => (device, speed.parse().ok()),
            None => (text, Some(GNSS_SPEED)),
        };
        let hint = "write the path of a serial line, as in /dev/ttyS0 or /dev/ttyS0:115200, or \
                    gpsd";
        let Some(speed) = speed.filter(|speed| serial::is_supported_speed(*speed)) else {
            let speeds = serial::speeds().map(|speed| speed.to_string()).join(", ");
            return spec_error(format!("unsupported speed; choose one of {speeds}"));
        };
        Ok(Self::Serial(parse_absolute_path(Some(device), hint)?, speed))
    }
}

/// Settings of the clock-error log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClockErrorLogConfig {
    /// Path of the file; the previous file has the suffix `.1`.
    pub path: PathBuf,
    /// Size of the file, in bytes, at which it is rotated.
    pub bytes_max: u64,
}

/// Configuration of a calibration.
#[derive(Clone, PartialEq, Debug)]
pub struct CalibrationConfig {
    /// Input of sentences.
    pub sentences: SentenceInput,
    /// Pulse input; without one the time is known only to about a second.
    pub pulse: Option<PulseSpec>,
    /// True if the system clock is steered.
    pub controls_clock: bool,
    /// Longest time for which estimates are served after the last pulse.
    pub holdover_limit: Span,
    /// Smallest offset at which the clock is stepped after the start; `None` if it is only slewed.
    pub step_threshold: Option<Span>,
    /// Oscillator model by which the uncertainty grows in holdover.
    pub oscillator: OscillatorModel,
    /// Maximum time from a pulse to the start of its sentence.
    pub sentence_lag: Span,
    /// Log of every pulse and correction; `None` without one.
    pub error_log: Option<ClockErrorLogConfig>,
    /// Units of SHM outputs, as of the NTP SHM driver.
    pub shm_outputs: Vec<u8>,
    /// Paths of SOCK outputs, as of the chronyd SOCK driver.
    pub sock_outputs: Vec<PathBuf>,
    /// True if outputs also receive time by sentences alone, whose error is up to a second.
    pub coarse_output: bool,
}

impl CalibrationConfig {
    /// Default and largest permitted sentence lag: a later sentence could be an early one of the
    /// next second.
    pub const SENTENCE_LAG_DEFAULT: Span = Span::from_ms(950);

    /// Returns the name of the source in messages.
    #[must_use]
    pub fn name(&self) -> String {
        let sentences = match &self.sentences {
            SentenceInput::Serial(path, _) => format!("gnss:{}", path.display()),
            SentenceInput::Gpsd(address) => format!("gnss:gpsd:{address}"),
        };
        match &self.pulse {
            Some(pulse) => format!("{sentences} with {}", pulse.text),
            None => sentences,
        }
    }

    /// Returns the paths of the devices that are reopened after they have vanished.
    #[must_use]
    pub fn devices(&self) -> Vec<PathBuf> {
        let line = match &self.sentences {
            SentenceInput::Serial(path, _) => Some(path.clone()),
            SentenceInput::Gpsd(_) => None,
        };
        let pulse = self.pulse.as_ref().map(|pulse| pulse.path().to_owned());
        line.into_iter().chain(pulse).collect()
    }

    /// Checks that the devices and hosts of the options and the directory of the log are present,
    /// without opening a device.
    ///
    /// # Errors
    ///
    /// Names the first that is missing, in one line.
    pub fn check_present(&self) -> Result<(), SourceError> {
        self.devices().iter().try_for_each(|device| check_device_present(device))?;
        if let SentenceInput::Gpsd(address) = &self.sentences {
            gpsd_line::resolve(address)?;
        }
        let Some(ClockErrorLogConfig { path, .. }) = &self.error_log else { return Ok(()) };
        let unwritable = |why: &str| {
            let path = path.display();
            Err(SourceError::Unusable(format!("cannot write the clock-error log {path}: {why}")))
        };
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        if path.is_dir() {
            return unwritable("it is a directory");
        }
        match directory {
            Some(directory) if !directory.is_dir() => unwritable("no such directory"),
            _ => Ok(()),
        }
    }

    /// Checks the pulse input, the limits of times and of the log's size, and that no SHM unit
    /// occurs twice; the error is the first violation.
    pub fn check(&self) -> Result<(), SourceSpecError> {
        if let Some(pulse) = &self.pulse {
            pulse.check()?;
        }
        if self.holdover_limit < HOLDOVER_LIMIT_MIN {
            return spec_error("the holdover limit is at least 10 s");
        }
        if self.step_threshold.is_some_and(|threshold| threshold < STEP_MIN) {
            return spec_error("the step threshold is at least 1 ms; smaller offsets are slewed");
        }
        if !(SENTENCE_LAG_MIN..=Self::SENTENCE_LAG_DEFAULT).contains(&self.sentence_lag) {
            return spec_error("the offset of a sentence is 50 ms to 950 ms after its pulse");
        }
        if self.error_log.as_ref().is_some_and(|log| log.bytes_max < LOG_BYTES_MIN) {
            return spec_error("the size of a clock-error log is at least 65536 bytes");
        }
        let has_duplicate = |units: &[u8]| {
            units.iter().enumerate().any(|(index, unit)| units[..index].contains(unit))
        };
        if has_duplicate(&self.shm_outputs) {
            return spec_error("a shared memory unit occurs twice");
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn config(pulse: Option<&str>) -> CalibrationConfig {
        CalibrationConfig {
            sentences: SentenceInput::Serial("/dev/ttyS0".into(), 9_600),
            pulse: pulse.map(|pulse| pulse.parse().unwrap()),
            controls_clock: false,
            holdover_limit: Span::from_ns(60 * NS_PER_S),
            step_threshold: None,
            oscillator: OscillatorModel::RASPBERRY_PI,
            sentence_lag: CalibrationConfig::SENTENCE_LAG_DEFAULT,
            error_log: None,
            shm_outputs: Vec::new(),
            sock_outputs: Vec::new(),
            coarse_output: false,
        }
    }

    #[test]
    fn inputs_are_read() {
        let line = |speed| Ok(SentenceInput::Serial("/dev/ttyS0".into(), speed));
        assert_eq!("/dev/ttyS0".parse(), line(9_600));
        assert_eq!("/dev/ttyS0:115200".parse(), line(115_200));
        assert_eq!("gpsd".parse(), Ok(SentenceInput::Gpsd(GPSD.into())));
        assert_eq!("gpsd:[::1]:2947".parse(), Ok(SentenceInput::Gpsd("[::1]:2947".into())));
        for bad in ["", "ttyS0", "/dev/ttyS0:", "/dev/ttyS0:1200", "gpsd:there", "gpsd:"] {
            let message = bad.parse::<SentenceInput>().unwrap_err().to_string();
            assert!(!message.contains('\n'), "{bad}: {message}");
        }
    }

    #[test]
    fn what_is_not_there_is_found_before_it_is_opened() {
        let line = |path: &str| SentenceInput::Serial(path.into(), 9_600);
        let gpsd = SentenceInput::Gpsd("there.is.none.invalid:2947".into());
        let there = CalibrationConfig { sentences: line("/dev/null"), ..config(None) };
        there.check_present().unwrap();
        let log = |path: &str| Some(ClockErrorLogConfig { path: path.into(), bytes_max: 1 << 20 });
        for (missing, expected) in [
            (CalibrationConfig { sentences: line("/dev/nosuch"), ..config(None) }, "/dev/nosuch"),
            (CalibrationConfig { sentences: line("/etc"), ..config(None) }, "not a device"),
            (CalibrationConfig { sentences: gpsd, ..config(None) }, "resolvable host name"),
            (CalibrationConfig { error_log: log("/nosuch/log"), ..there.clone() }, "/nosuch/log"),
            (CalibrationConfig { error_log: log("/etc"), ..there.clone() }, "directory"),
        ] {
            let fault = missing.check_present().unwrap_err().to_string();
            assert!(fault.contains(expected), "{fault}");
        }
        let named = CalibrationConfig { error_log: log("log"), ..there };
        named.check_present().unwrap();
    }

    #[test]
    fn rules() {
        let plain = config(Some("/dev/pps0"));
        assert_eq!(plain.check(), Ok(()));
        assert_eq!(plain.name(), "gnss:/dev/ttyS0 with /dev/pps0");
        assert_eq!(plain.devices(), [PathBuf::from("/dev/ttyS0"), "/dev/pps0".into()]);
        let short = CalibrationConfig { holdover_limit: Span::from_ms(9_999), ..plain.clone() };
        assert!(short.check().is_err());
        let small = Span::from_ns(999_999);
        let step = CalibrationConfig { step_threshold: Some(small), ..plain.clone() };
        assert!(step.check().is_err());
        for lag in [Span::from_ms(49), Span::from_ms(951)] {
            assert!(CalibrationConfig { sentence_lag: lag, ..plain.clone() }.check().is_err());
        }
        let log = ClockErrorLogConfig { path: "/a".into(), bytes_max: 1_000 };
        let small = CalibrationConfig { error_log: Some(log), ..plain.clone() };
        assert!(small.check().is_err());
        let twice = CalibrationConfig { shm_outputs: vec![2, 3, 2], ..plain };
        assert!(twice.check().is_err());
    }
}
