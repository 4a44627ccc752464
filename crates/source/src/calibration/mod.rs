//! Calibration: a thread that estimates the error of the system clock from a receiver's sentences
//! and pulses, independent of request processing. It is a time source; it may steer the clock if no
//! other program does, and outputs samples to other programs.

mod calibrator;
mod config;
mod error_log;
mod gpsd_line;
mod pulse_input;
mod receiver_leaps;
mod status;
mod thread;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_discipline::{PlausibilityReason, PlausibilityRuleParameters};
use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::capability::{Capabilities, Capability};
use horolog_sys::clock::{ClockMonotonic, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Span, Timestamp};

use crate::gnss::{ReceiverLineReader, open_serial};
use crate::output::SampleOutputs;
use crate::{
    ClockReadings, ClockSteering, FIRST_REPORT_TIMEOUT, PollableTimeSource, SelectionState,
    SourceError, SourceEstimate, SystemClock, find_steerer,
};
use calibrator::Calibrator;
use error_log::{ClockErrorLog, ClockErrorLogFile};
use pulse_input::PulseInput;
use thread::CalibrationThread;

pub use config::{CalibrationConfig, ClockErrorLogConfig, SentenceInput};
pub use status::{AllanDeviationAtTau, CalibrationStatus, NamedCounts};

/// State shared by thread and source. The lock is never held while waiting.
type SharedCalibrator = Arc<Mutex<Calibrator>>;

fn lock(shared: &SharedCalibrator) -> MutexGuard<'_, Calibrator> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the system's clocks as for a poll of a source; the leap seconds of the server are left at
/// none.
fn read_clocks() -> ClockReadings {
    ClockReadings {
        realtime_minus_monotonic: realtime_minus_monotonic().offset,
        monotonic: ClockMonotonic.now(),
        kernel: kernel_clock().ok(),
        leaps_s: 0,
        leaps: crate::ServerLeapSeconds::default(),
    }
}

/// Calibration with its privileged resources open, before its thread is started.
pub struct PreparedCalibration {
    name: String,
    shared: SharedCalibrator,
    reader: ReceiverLineReader,
    pulse: Option<PulseInput>,
    log: Option<ClockErrorLogFile>,
}

impl PreparedCalibration {
    /// Opens the configured devices. If the server has other sources, a serial line, pulse device
    /// or host of gpsd may be absent at first; opening it is then retried. `plausibility` limits
    /// acceptable times.
    ///
    /// # Errors
    ///
    /// Names the missing device, the output or log that cannot be opened, the program that steers
    /// the clock, or the missing capability, in one line.
    pub fn open(
        config: &CalibrationConfig,
        has_other_source: bool,
        plausibility: PlausibilityRuleParameters,
    ) -> Result<Self, SourceError> {
        let reader = match &config.sentences {
            SentenceInput::Serial(path, speed) => open_serial(path, *speed, has_other_source)?,
            SentenceInput::Gpsd(address) => gpsd_line::open(address, has_other_source)?,
        };
        let open = |spec| PulseInput::open(spec, has_other_source);
        let pulse = config.pulse.as_ref().map(open).transpose()?;
        let outputs = SampleOutputs::open(&config.shm_outputs, &config.sock_outputs)?;
        let log = config.error_log.as_ref().map(open_log).transpose()?;
        let mut steering = config.controls_clock.then(|| ClockSteering::new(SystemClock));
        if steering.is_some() {
            check_can_steer()?;
        }
        let frequency_ppb = match &mut steering {
            Some(control) => control.verify_frequency().map_err(|error| {
                SourceError::Unusable(format!("{error}; use --no-clock-control"))
            })?,
            None => kernel_clock().map_or(0.0, |kernel| kernel.frequency_ppb),
        };
        let calibrator = Calibrator::new(config, plausibility, steering, frequency_ppb, outputs);
        let shared = Arc::new(Mutex::new(calibrator));
        Ok(Self { name: config.name(), shared, reader, pulse, log })
    }

    /// Starts the thread of the calibration, pinned to `core` if given, and that of its log, with
    /// the present privileges.
    pub fn start(self, core: Option<usize>) -> std::io::Result<RunningCalibration> {
        lock(&self.shared).log = self.log.map(ClockErrorLog::start).transpose()?;
        let thread =
            CalibrationThread::start(Arc::clone(&self.shared), self.reader, self.pulse, core)?;
        Ok(RunningCalibration { name: self.name, shared: self.shared, thread })
    }
}

fn open_log(config: &ClockErrorLogConfig) -> Result<ClockErrorLogFile, SourceError> {
    ClockErrorLogFile::open(config).map_err(|error| {
        let path = config.path.display();
        SourceError::Unusable(format!("cannot write the clock-error log {path}: {error}"))
    })
}

/// Checks that no other program steers the system clock and that this process may.
fn check_can_steer() -> Result<(), SourceError> {
    if let Some(other) = find_steerer() {
        return Err(SourceError::Unusable(format!(
            "{other} already steers the system clock; stop it, or use --no-clock-control"
        )));
    }
    let has_capability = Capabilities::effective().is_ok_and(|all| all.has(Capability::SysTime));
    has_capability.then_some(()).ok_or_else(|| {
        SourceError::Unusable(
            "steering the system clock requires CAP_SYS_TIME; use --no-clock-control".into(),
        )
    })
}

/// Running calibration; dropping it ends its thread.
pub struct RunningCalibration {
    name: String,
    shared: SharedCalibrator,
    thread: CalibrationThread,
}

impl std::fmt::Debug for RunningCalibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RunningCalibration").field("name", &self.name).finish_non_exhaustive()
    }
}

impl RunningCalibration {
    /// Returns the time source that reports the calibration's estimates.
    #[must_use]
    pub fn source(&self) -> Box<dyn PollableTimeSource> {
        let (name, shared) = (self.name.clone(), Arc::clone(&self.shared));
        Box::new(CalibrationTimeSource { name, shared, first_report_deadline: None })
    }

    /// Returns the calibration's part of the output of `horolog status`.
    #[must_use]
    pub fn status(&self) -> CalibrationStatus {
        let (status, stability) = {
            let calibrator = lock(&self.shared);
            (calibrator.status(&read_clocks()), calibrator.stability())
        };
        let (core, real_time) = (self.thread.core(), self.thread.is_real_time());
        CalibrationStatus { allan: status::allan_deviations(&stability), core, real_time, ..status }
    }

    /// Returns the notices since the last call, one line each.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        lock(&self.shared).take_notices()
    }

    /// Returns true if the thread has ended without being stopped.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

/// Time source of the calibration.
struct CalibrationTimeSource {
    name: String,
    shared: SharedCalibrator,
    /// Deadline of the first report; `None` before the first poll.
    first_report_deadline: Option<Timestamp<Monotonic>>,
}

impl PollableTimeSource for CalibrationTimeSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, readings: &ClockReadings) -> Result<Option<SourceEstimate>, SourceError> {
        let mut calibrator = lock(&self.shared);
        calibrator.update_known_leaps(readings.leaps);
        let first_report_deadline =
            *self.first_report_deadline.get_or_insert(readings.monotonic + FIRST_REPORT_TIMEOUT);
        match calibrator.estimate(readings) {
            Ok(report) => {
                self.first_report_deadline = Some(readings.monotonic);
                Ok(Some(report))
            }
            Err(error) => match calibrator.unconfirmed_estimate(readings) {
                // The selector decides whether the other sources confirm the claim.
                Some(claim) => Ok(Some(claim)),
                // Starting the thread, the line and the first sentences take some time.
                None if readings.monotonic < first_report_deadline => Ok(None),
                None => Err(error),
            },
        }
    }

    fn selection_changed(&mut self, state: SelectionState) {
        lock(&self.shared).selection_changed(state);
    }

    fn vouch(&mut self, ahead: Span, support: PlausibilityReason) {
        lock(&self.shared).vouch(ahead, support);
    }

    fn unconfirmed_clock_setting(&self) -> Option<Span> {
        lock(&self.shared).unconfirmed_clock_setting()
    }
}
