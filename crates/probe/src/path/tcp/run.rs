//! Execution of a TCP measurement from its options to its record.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use horolog_io::target::require_unicast;
use horolog_record::{
    Finding, FindingCode, Host, PATH_TCP_SCHEMA, PathEndpoint, PathTcpResult, ProgressSlots,
    Severity, TcpBandwidth, TcpDirection, TcpLatency, TcpTarget, rfc3339_now,
};

use super::super::live_sampler::{CurrentRow, PathObserver};
use super::client::TcpSession;
use super::early_end::EarlyEnd;
use super::error::TcpPathError;
use super::latency::{TcpRowOutcome, is_set};
use super::live::{TcpSampler, of_bandwidth, of_latency};
use super::options::{TcpOptions, ms};
use super::protocol::{ConnectionFlags, ConnectionJob, Hello};
use super::{bandwidth, facts, latency};

/// Interval between checks of whether the run is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Greeted far end with the planned measurements.
pub struct TcpRun {
    options: TcpOptions,
    address: SocketAddr,
    near: PathEndpoint,
    far: Option<PathEndpoint>,
}

/// Row of the sweep.
#[derive(Clone, Copy)]
enum SweepStep {
    Latency(u64),
    Bandwidth(u64, TcpDirection),
}

/// Outcome of one step of the sweep.
enum StepOutcome {
    Latency(TcpRowOutcome<TcpLatency>),
    Bandwidth(TcpRowOutcome<TcpBandwidth>),
}

impl SweepStep {
    /// Returns the row name for the observer.
    fn name(self) -> String {
        match self {
            Self::Latency(size) => format!("latency {size} B"),
            Self::Bandwidth(size, TcpDirection::Forward) => format!("out {size} B"),
            Self::Bandwidth(size, TcpDirection::Backward) => format!("back {size} B"),
        }
    }
}

impl TcpRun {
    /// Checks the options, resolves the far end and requests its facts.
    ///
    /// # Errors
    ///
    /// If the options are invalid, or the far end is unreachable or refuses.
    pub fn open(options: TcpOptions) -> Result<Self, TcpPathError> {
        options.check()?;
        let address = options.target.resolve(options.family, None)?;
        require_unicast(address.ip())?;
        let hello = Hello {
            work: ConnectionJob::Facts,
            flags: ConnectionFlags::default(),
            request_bytes: largest(&options),
            head_bytes: 0,
            body_bytes: 0,
            batch: 1,
            time_ms: ms(options.time()),
            warm_up_ms: ms(options.warm_up()),
        };
        let over = AtomicBool::new(false);
        let session = TcpSession::open(address, &hello, &over)?;
        let near = facts::near_end(&session.stream);
        let far = session.far;
        Ok(Self { options, address, near, far })
    }

    /// Returns the number of rows.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.steps().len() as u64
    }

    fn steps(&self) -> Vec<SweepStep> {
        let options = &self.options;
        let mut steps: Vec<_> =
            options.latency_sizes.iter().map(|size| SweepStep::Latency(*size)).collect();
        for size in &options.bandwidth_sizes {
            let directions = options.directions;
            steps.extend(
                directions.out.then_some(SweepStep::Bandwidth(*size, TcpDirection::Forward)),
            );
            steps.extend(
                directions.back.then_some(SweepStep::Bandwidth(*size, TcpDirection::Backward)),
            );
        }
        steps
    }

    /// Measures row by row, until all are done, the far end is lost, or the run is to end; the
    /// observer takes snapshots meanwhile.
    ///
    /// # Errors
    ///
    /// If the far end refuses the connections of the first row.
    pub fn run(
        self,
        progress: &dyn Fn(u64),
        is_over: &dyn Fn() -> bool,
        observer: Option<&dyn PathObserver>,
    ) -> Result<PathTcpResult, TcpPathError> {
        let mut result = self.empty();
        let over = AtomicBool::new(false);
        let mut sampler = observer.map(TcpSampler::new);
        for (done, step) in (0..).zip(self.steps()) {
            progress(done);
            if is_over() {
                over.store(true, Ordering::Relaxed);
            }
            if is_set(&over) {
                result.findings.push(interrupted());
                return Ok(result);
            }
            let row = (done as usize, step);
            let work = || self.step(row, &over, &mut result, sampler.as_mut());
            let lost = match watched(is_over, &over, work) {
                Ok(lost) => lost,
                Err(error) if done == 0 => return Err(error),
                Err(error) => Some(error.into()),
            };
            if let Some(loss) = lost {
                result.findings.push(loss.finding(self.address, "row"));
                return Ok(result);
            }
        }
        if is_set(&over) {
            result.findings.push(interrupted());
        }
        result.findings.extend(copied(&result));
        Ok(result)
    }

    /// Measures one row; also returns the reason for which the far end was lost, if it was.
    fn step(
        &self,
        (index, step): (usize, SweepStep),
        over: &AtomicBool,
        result: &mut PathTcpResult,
        sampler: Option<&mut TcpSampler<'_>>,
    ) -> Result<Option<EarlyEnd>, TcpPathError> {
        let connections = self.options.settings.connections;
        let name = step.name();
        let under = self.under(index, step, &name);
        let measured = match sampler.as_deref() {
            None => self.measure(step, over, None),
            Some(sampler) => {
                sampler.during(under, connections, |slots| self.measure(step, over, Some(slots)))
            }
        }?;
        if let Some(sampler) = sampler {
            sampler.end(
                under,
                match &measured {
                    StepOutcome::Latency(row) => of_latency(&row.figures, connections),
                    StepOutcome::Bandwidth(row) => of_bandwidth(&row.figures),
                },
            );
        }
        Ok(match measured {
            StepOutcome::Latency(row) => {
                result.latency.push(row.figures);
                row.lost
            }
            StepOutcome::Bandwidth(row) => {
                result.bandwidth.push(row.figures);
                row.lost
            }
        })
    }

    /// Returns a row as the observer sees it.
    fn under<'a>(&self, index: usize, step: SweepStep, name: &'a str) -> CurrentRow<'a> {
        let time = self.options.warm_up() + self.options.time();
        CurrentRow {
            index,
            name,
            rate: None,
            duration_s: Some(time.as_secs_f64()),
            is_transfer: matches!(step, SweepStep::Bandwidth(..)),
        }
    }

    fn measure(
        &self,
        step: SweepStep,
        over: &AtomicBool,
        slots: Option<&ProgressSlots>,
    ) -> Result<StepOutcome, TcpPathError> {
        let (address, options) = (self.address, &self.options);
        match step {
            SweepStep::Latency(size) => {
                latency::measure(address, size, options, over, slots).map(StepOutcome::Latency)
            }
            SweepStep::Bandwidth(size, direction) => {
                bandwidth::measure(address, size, direction, options, over, slots)
                    .map(StepOutcome::Bandwidth)
            }
        }
    }

    fn empty(&self) -> PathTcpResult {
        let shared = super::row::same_machine(&self.near, self.far.as_ref());
        PathTcpResult {
            schema: PATH_TCP_SCHEMA.to_owned(),
            started: rfc3339_now(),
            command: self.options.command.clone(),
            host: Host::read(),
            target: TcpTarget {
                address: self.address,
                name: self.options.target.name().map(str::to_owned),
            },
            near: self.near.clone(),
            far: self.far.clone(),
            settings: self.options.settings,
            latency: Vec::new(),
            bandwidth: Vec::new(),
            limits: Vec::new(),
            findings: shared.into_iter().collect(),
        }
    }
}

fn largest(options: &TcpOptions) -> u32 {
    let sizes = options.latency_sizes.iter().chain(&options.bandwidth_sizes);
    sizes.copied().max().and_then(|size| u32::try_from(size).ok()).unwrap_or(0)
}

/// Runs a long operation and meanwhile checks whether the run is to end; sets the flag if so.
pub(crate) fn watched<T: Send>(
    is_over: &dyn Fn() -> bool,
    over: &AtomicBool,
    work: impl FnOnce() -> T + Send,
) -> T {
    let (done, end) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // The receiver stays until this has arrived, or is gone with the process.
            let _ = done.send(work());
        });
        loop {
            match end.recv_timeout(CHECK_INTERVAL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {
                    if is_over() {
                        over.store(true, Ordering::Relaxed);
                    }
                }
                // The work panicked; the scope will as well.
                Err(RecvTimeoutError::Disconnected) => panic!("the measuring thread has ended"),
            }
        }
    })
}

fn interrupted() -> Finding {
    let message = "The run was interrupted before all rows were measured.".to_owned();
    finding(FindingCode::Interrupted, Severity::Note, message, "")
}

/// Reports that the kernel copied data that was to be sent without a copy.
fn copied(result: &PathTcpResult) -> Option<Finding> {
    let counts = result.bandwidth.iter().filter_map(|row| row.zero_copy);
    let (sends, copied) = counts.fold((0_u64, 0_u64), |(sends, copied), one| {
        (sends.saturating_add(one.sends), copied.saturating_add(one.copied))
    });
    (copied > 0).then(|| {
        let message = format!(
            "The kernel copied {copied} of {sends} zero-copy sends: loopback and virtual links do \
             not support zero-copy."
        );
        let advice = "Omit --zero-copy here; it costs more than it saves.";
        finding(FindingCode::ZeroCopyFallback, Severity::Warning, message, advice)
    })
}

pub(crate) fn finding(
    code: FindingCode,
    severity: Severity,
    message: String,
    advice: &str,
) -> Finding {
    Finding { code, severity, message, advice: advice.to_owned(), trial: None }
}
