//! The calibration: a receiver's sentences and pulses become the error of the system clock, in a
//! thread of their own that no request touches. It is a source of time like others; it may steer
//! the clock, where nobody else does, and gives what it knows on to other programs.

mod calibrator;
mod config;
mod counts;
mod error_log;
mod gpsd_line;
mod pulse_input;
mod status;
mod thread;
mod told;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use horolog_sys::adjtimex::kernel_clock;
use horolog_sys::capability::{Capabilities, Capability};
use horolog_sys::clock::{MonotonicClock, realtime_minus_monotonic};
use horolog_time::{Clock, Monotonic, Timestamp};

use crate::gnss::{Reader, serial};
use crate::output::Outputs;
use crate::{FIRST_WORD, Fault, Look, Report, Source, Standing, Steering, SystemClock, who_steers};
use calibrator::Calibrator;
use error_log::{ErrorLog, ErrorLogFile};
use pulse_input::PulseInput;
use thread::CalibrationThread;

pub use config::{CalibrationConfig, ErrorLogConfig, SentenceInput};
pub use counts::Counts;
pub use status::{AllanStatus, CalibrationStatus};

/// What thread and source share: a whole state under a lock that nobody holds while they wait.
type Shared = Arc<Mutex<Calibrator>>;

fn lock(shared: &Shared) -> MutexGuard<'_, Calibrator> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The system's clocks, as a source looks at them.
fn look() -> Look {
    Look {
        realtime_minus_monotonic: realtime_minus_monotonic().offset,
        monotonic: MonotonicClock.now(),
        kernel: kernel_clock().ok(),
        leaps_s: 0,
        leaps: crate::KnownLeaps::default(),
    }
}

/// Everything that needs privileges is open, and no thread runs yet.
pub struct OpenCalibration {
    name: String,
    shared: Shared,
    reader: Reader,
    pulse: Option<PulseInput>,
    log: Option<ErrorLogFile>,
}

impl OpenCalibration {
    /// Opens what the options name.
    ///
    /// # Errors
    ///
    /// What is not there, or that another steers the clock, in one line.
    pub fn open(config: &CalibrationConfig) -> Result<Self, Fault> {
        let reader = match &config.sentences {
            SentenceInput::Serial(path, speed) => serial(path, *speed)?,
            SentenceInput::Gpsd(address) => gpsd_line::open(address)?,
        };
        let pulse = config.pulse.as_ref().map(PulseInput::open).transpose()?;
        let outputs = Outputs::open(&config.shm_outputs, &config.sock_outputs)?;
        let log = config.error_log.as_ref().map(open_log).transpose()?;
        let mut control = config.controls_clock.then(|| Steering::new(SystemClock));
        if control.is_some() {
            may_steer()?;
        }
        let frequency_ppb = match &mut control {
            Some(control) => control
                .uncontested()
                .map_err(|error| Fault::Unusable(format!("{error}; give --no-clock-control")))?,
            None => kernel_clock().map_or(0.0, |kernel| kernel.frequency_ppb),
        };
        let calibrator = Calibrator::new(config, control, frequency_ppb, outputs);
        let shared = Arc::new(Mutex::new(calibrator));
        Ok(Self { name: config.name(), shared, reader, pulse, log })
    }

    /// Starts the thread and that of the log, with the rights that are left, the former on this
    /// core where one is free for it.
    pub fn start(self, core: Option<usize>) -> std::io::Result<Calibration> {
        lock(&self.shared).log = self.log.map(ErrorLog::start).transpose()?;
        let thread =
            CalibrationThread::start(Arc::clone(&self.shared), self.reader, self.pulse, core)?;
        Ok(Calibration { name: self.name, shared: self.shared, thread })
    }
}

fn open_log(config: &ErrorLogConfig) -> Result<ErrorLogFile, Fault> {
    ErrorLogFile::open(config).map_err(|error| {
        let path = config.path.display();
        Fault::Unusable(format!("the clock-error log {path} cannot be written: {error}"))
    })
}

/// Whether nothing speaks against steering the system clock.
fn may_steer() -> Result<(), Fault> {
    if let Some(other) = who_steers() {
        return Err(Fault::Unusable(format!(
            "{other} steers the system clock already; stop it, or give --no-clock-control"
        )));
    }
    let may = Capabilities::effective().is_ok_and(|all| all.has(Capability::SysTime));
    may.then_some(()).ok_or_else(|| {
        Fault::Unusable(
            "the system clock may not be steered without CAP_SYS_TIME; give --no-clock-control"
                .into(),
        )
    })
}

/// A calibration that runs; dropping it ends its thread.
pub struct Calibration {
    name: String,
    shared: Shared,
    thread: CalibrationThread,
}

impl std::fmt::Debug for Calibration {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calibration").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Calibration {
    /// Its word as a source.
    #[must_use]
    pub fn source(&self) -> Box<dyn Source> {
        let (name, shared) = (self.name.clone(), Arc::clone(&self.shared));
        Box::new(Calibrated { name, shared, begins: None })
    }

    /// For `horolog status`.
    #[must_use]
    pub fn status(&self) -> CalibrationStatus {
        let (status, stability) = {
            let calibrator = lock(&self.shared);
            (calibrator.status(&look()), calibrator.stability())
        };
        let (core, real_time) = (self.thread.core(), self.thread.is_real_time());
        CalibrationStatus { allan: status::allan(&stability), core, real_time, ..status }
    }

    /// What has become of it since the last call, each in one line for the user.
    #[must_use]
    pub fn notices(&self) -> Vec<String> {
        lock(&self.shared).take_notices()
    }

    /// Whether the thread has ended without being told to.
    #[must_use]
    pub fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

/// The source.
struct Calibrated {
    name: String,
    shared: Shared,
    /// Until when its first word is awaited; `None` before it is asked first.
    begins: Option<Timestamp<Monotonic>>,
}

impl Source for Calibrated {
    fn name(&self) -> &str {
        &self.name
    }

    fn poll(&mut self, look: &Look) -> Result<Option<Report>, Fault> {
        let mut calibrator = lock(&self.shared);
        calibrator.know_leaps(look.leaps);
        let begins = *self.begins.get_or_insert(look.monotonic + FIRST_WORD);
        match calibrator.report(look) {
            Ok(report) => {
                self.begins = Some(look.monotonic);
                Ok(Some(report))
            }
            // Its thread, its line and the first sentences take their time.
            Err(_) if look.monotonic < begins => Ok(None),
            Err(fault) => Err(fault),
        }
    }

    fn judged(&mut self, standing: Standing) {
        lock(&self.shared).judged(standing);
    }
}
