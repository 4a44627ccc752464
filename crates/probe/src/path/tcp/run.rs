//! Execution of a TCP measurement from its options to its record.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use horolog_io::target::require_unicast;
use horolog_record::{
    Finding, FindingCode, Host, LiveSampler, PATH_TCP_SCHEMA, PartPlan, PathEndFacts,
    PathTcpResult, ProgressSlots, RunObserver, Severity, TcpBandwidthRow, TcpDirection,
    TcpLatencyRow, TcpTarget, rfc3339_now,
};

use super::super::report_row;
use super::client::TcpNearEndSession;
use super::early_end::MeasurementEarlyEndReason;
use super::error::TcpPathError;
use super::latency::{TcpRowOutcome, is_set};
use super::live::{bandwidth_row_summary, latency_row_summary};
use super::options::{PathTcpOptions, ceil_ms};
use super::protocol::{ConnectionFlags, ConnectionJob, TcpHello};
use super::{bandwidth, facts, latency};

/// Interval between checks of whether the run is to end.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// TCP measurement whose far end has answered.
pub struct PathTcpRun {
    options: PathTcpOptions,
    address: SocketAddr,
    near_end: PathEndFacts,
    far_end: Option<PathEndFacts>,
}

/// Planned row: message size in bytes, and direction of a transfer.
#[derive(Clone, Copy)]
enum TcpRowPlan {
    Latency(u64),
    Bandwidth(u64, TcpDirection),
}

/// Outcome of a measured row.
enum MeasuredTcpRow {
    Latency(TcpRowOutcome<TcpLatencyRow>),
    Bandwidth(TcpRowOutcome<TcpBandwidthRow>),
}

impl TcpRowPlan {
    /// Returns the row's name for the live view.
    fn name(self) -> String {
        match self {
            Self::Latency(size) => format!("latency {size} B"),
            Self::Bandwidth(size, TcpDirection::Forward) => format!("out {size} B"),
            Self::Bandwidth(size, TcpDirection::Backward) => format!("back {size} B"),
        }
    }
}

impl PathTcpRun {
    /// Checks the options, resolves the far end and requests the facts about its host.
    ///
    /// # Errors
    ///
    /// If the options are invalid, or the far end is unreachable or refuses.
    pub fn open(options: PathTcpOptions) -> Result<Self, TcpPathError> {
        options.check()?;
        let address = options.target.resolve(options.family, None)?;
        require_unicast(address.ip())?;
        let hello = TcpHello {
            job: ConnectionJob::Facts,
            flags: ConnectionFlags::default(),
            request_bytes: message_bytes_max(&options),
            head_bytes: 0,
            body_bytes: 0,
            batch: 1,
            time_ms: ceil_ms(options.time()),
            warm_up_ms: ceil_ms(options.warm_up()),
        };
        let is_stopped = AtomicBool::new(false);
        let session = TcpNearEndSession::open(address, &hello, &is_stopped)?;
        let near = facts::near_end(&session.stream);
        let far = session.far_end;
        Ok(Self { options, address, near_end: near, far_end: far })
    }

    fn row_plans(&self) -> Vec<TcpRowPlan> {
        let options = &self.options;
        let mut steps: Vec<_> =
            options.latency_sizes.iter().map(|size| TcpRowPlan::Latency(*size)).collect();
        for size in &options.bandwidth_sizes {
            let directions = options.directions;
            steps.extend(
                directions.forward.then_some(TcpRowPlan::Bandwidth(*size, TcpDirection::Forward)),
            );
            steps.extend(
                directions.backward.then_some(TcpRowPlan::Bandwidth(*size, TcpDirection::Backward)),
            );
        }
        steps
    }

    /// Measures row by row, until all are done, the far end is lost, or `is_over` returns true.
    ///
    /// # Errors
    ///
    /// If the far end refuses the connections of the first row.
    pub fn run(
        self,
        is_over: &dyn Fn() -> bool,
        observer: &mut (dyn RunObserver + Send),
    ) -> Result<PathTcpResult, TcpPathError> {
        let mut result = self.empty_result();
        let is_stopped = AtomicBool::new(false);
        let mut sampler = LiveSampler::new(observer);
        let steps = self.row_plans();
        for (index, step) in steps.iter().enumerate() {
            let plan = self.part_plan((index, steps.len()), *step);
            sampler.observer.part_started(&plan);
            if is_over() {
                is_stopped.store(true, Ordering::Relaxed);
            }
            if is_set(&is_stopped) {
                result.findings.push(interrupted_finding());
                return Ok(result);
            }
            let row = (*step, &plan);
            let work = || self.run_row(row, &is_stopped, &mut result, &mut sampler);
            let lost = match run_watched(is_over, &is_stopped, work) {
                Ok(lost) => lost,
                Err(error) if index == 0 => return Err(error),
                Err(error) => Some(error.into()),
            };
            if let Some(loss) = lost {
                result.findings.push(loss.finding(self.address, "row"));
                return Ok(result);
            }
        }
        if is_set(&is_stopped) {
            result.findings.push(interrupted_finding());
        }
        result.findings.extend(zero_copy_finding(&result));
        Ok(result)
    }

    /// Measures one row and adds it to the result; returns the reason if the far end was lost.
    fn run_row(
        &self,
        (step, plan): (TcpRowPlan, &PartPlan),
        is_stopped: &AtomicBool,
        result: &mut PathTcpResult,
        sampler: &mut LiveSampler<'_>,
    ) -> Result<Option<MeasurementEarlyEndReason>, TcpPathError> {
        let connections = self.options.settings.connections;
        let measured = sampler.sample_during(plan, connections as usize, |slots| {
            self.measure_row(step, is_stopped, slots)
        })?;
        let counts_and_summary = match &measured {
            MeasuredTcpRow::Latency(row) => latency_row_summary(&row.figures, connections),
            MeasuredTcpRow::Bandwidth(row) => bandwidth_row_summary(&row.figures),
        };
        report_row(sampler, plan, counts_and_summary);
        Ok(match measured {
            MeasuredTcpRow::Latency(row) => {
                result.latency.push(row.figures);
                row.early_end
            }
            MeasuredTcpRow::Bandwidth(row) => {
                result.bandwidth.push(row.figures);
                row.early_end
            }
        })
    }

    /// Returns the plan of a row for the observer; `count` is the number of rows.
    fn part_plan(&self, (index, count): (usize, usize), step: TcpRowPlan) -> PartPlan {
        PartPlan {
            index,
            count: Some(count),
            name: step.name(),
            duration_s: Some((self.options.warm_up() + self.options.time()).as_secs_f64()),
            is_transfer: matches!(step, TcpRowPlan::Bandwidth(..)),
            ..PartPlan::default()
        }
    }

    fn measure_row(
        &self,
        step: TcpRowPlan,
        is_stopped: &AtomicBool,
        slots: Option<&ProgressSlots>,
    ) -> Result<MeasuredTcpRow, TcpPathError> {
        let (address, options) = (self.address, &self.options);
        match step {
            TcpRowPlan::Latency(size) => {
                latency::measure_latency(address, size, options, is_stopped, slots)
                    .map(MeasuredTcpRow::Latency)
            }
            TcpRowPlan::Bandwidth(size, direction) => {
                bandwidth::measure_bandwidth(address, size, direction, options, is_stopped, slots)
                    .map(MeasuredTcpRow::Bandwidth)
            }
        }
    }

    fn empty_result(&self) -> PathTcpResult {
        let shared = super::row::same_host_finding(&self.near_end, self.far_end.as_ref());
        PathTcpResult {
            schema: PATH_TCP_SCHEMA.to_owned(),
            started: rfc3339_now(),
            command: self.options.command.clone(),
            host: Host::read(),
            target: TcpTarget {
                address: self.address,
                name: self.options.target.name().map(str::to_owned),
            },
            near: self.near_end.clone(),
            far: self.far_end.clone(),
            settings: self.options.settings,
            latency: Vec::new(),
            bandwidth: Vec::new(),
            limits: Vec::new(),
            findings: shared.into_iter().collect(),
        }
    }
}

fn message_bytes_max(options: &PathTcpOptions) -> u32 {
    let sizes = options.latency_sizes.iter().chain(&options.bandwidth_sizes);
    sizes.copied().max().and_then(|size| u32::try_from(size).ok()).unwrap_or(0)
}

/// Runs `work` in a thread and returns its result; sets `is_stopped` when `is_over` returns true.
pub(crate) fn run_watched<T: Send>(
    is_over: &dyn Fn() -> bool,
    is_stopped: &AtomicBool,
    work: impl FnOnce() -> T + Send,
) -> T {
    let (done, end) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(move || {
            // The receiver waits until this has arrived.
            let _ = done.send(work());
        });
        loop {
            match end.recv_timeout(CHECK_INTERVAL) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Timeout) => {
                    if is_over() {
                        is_stopped.store(true, Ordering::Relaxed);
                    }
                }
                // The work panicked; the scope will as well.
                Err(RecvTimeoutError::Disconnected) => panic!("the measuring thread has ended"),
            }
        }
    })
}

fn interrupted_finding() -> Finding {
    let message = "The run was interrupted before all rows were measured.".to_owned();
    finding(FindingCode::Interrupted, Severity::Note, message, "")
}

/// Returns a finding if the kernel copied data of zero-copy sends.
fn zero_copy_finding(result: &PathTcpResult) -> Option<Finding> {
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
