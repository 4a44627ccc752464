//! Execution of a run of write patterns, from options to record.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use horolog_io::target::require_unicast;
use horolog_record::{
    CongestionWindowSample, Finding, FindingCode, Host, PATH_STALL_SCHEMA, PathEndFacts,
    PathStallResult, Severity, StallEvidenceKind, StallKernelSettings, StallMeasurement, TcpTarget,
    WritePattern, rfc3339_now,
};
use horolog_sys::netlink::Netlink;
use horolog_sys::tcp;
use horolog_sys::zone::zone_index;

use super::capture::RunningStallCapture;
use super::cell::{self, WritePatternOutcome};
use super::claims::{self, FinTerminatedExchange, StallClaimInput};
use super::flow::TrackedConnections;
use super::judge::{self, saturating_ns};
use super::options::PathStallOptions;
use super::plan::{self, WritePatternPlan};
use super::{advice, kernel, window};
use crate::path::tcp::protocol::{ConnectionFlags, ConnectionJob, TcpHello};
use crate::path::tcp::{
    MeasurementEarlyEndReason, TcpNearEndSession, TcpPathError, finding, near_end, run_watched,
    same_host_finding,
};

/// Run of write patterns whose far end has answered.
pub struct PathStallRun {
    options: PathStallOptions,
    address: SocketAddr,
    near: PathEndFacts,
    far: Option<PathEndFacts>,
    kernel: StallKernelSettings,
    mss_bytes: u32,
}

/// Outcome of all patterns.
#[derive(Default)]
struct StallRunOutcome {
    cells: Vec<StallMeasurement>,
    threshold_ns: u64,
    last_with_end: Option<FinTerminatedExchange>,
    window: Vec<CongestionWindowSample>,
    /// Reason why the far end was lost; `None` if it was not.
    early_end: Option<MeasurementEarlyEndReason>,
    /// True if the last measurement was cut short: the last cell or, without cells, the window.
    is_truncated: bool,
}

impl StallRunOutcome {
    /// Returns the measurements by which claims are tested. A truncated measurement is left out,
    /// and so are the batches of an option unless all of them were run.
    fn complete_cells(&self, plans: &[WritePatternPlan]) -> Vec<StallMeasurement> {
        let whole = self.cells.len() - usize::from(self.is_truncated && !self.cells.is_empty());
        let (ran, missed) = plans.split_at(whole.min(plans.len()));
        let is_missed = |plan: &WritePatternPlan| {
            let like = |other: &WritePatternPlan| {
                (other.pattern, other.option) == (plan.pattern, plan.option)
            };
            plan.pattern == WritePattern::Batch && missed.iter().any(like)
        };
        let cells = self.cells.iter().zip(ran).filter(|(_, plan)| !is_missed(plan));
        cells.map(|(cell, _)| cell.clone()).collect()
    }

    /// Returns the steps of the congestion window; none if they are incomplete.
    fn complete_window(&self) -> &[CongestionWindowSample] {
        if self.is_truncated && self.cells.is_empty() { &[] } else { &self.window }
    }
}

impl PathStallRun {
    /// Checks the options, resolves the far end and requests the facts about its host.
    ///
    /// # Errors
    ///
    /// If the options are invalid, the far end is unreachable or refuses, or this host has no
    /// `TCP_INFO`.
    pub fn open(options: PathStallOptions) -> Result<Self, TcpPathError> {
        options.check()?;
        let address = options.target.resolve(options.family, None)?;
        require_unicast(address.ip())?;
        let longest = WritePatternPlan::single(options.count).hello();
        let hello =
            TcpHello { job: ConnectionJob::Facts, flags: ConnectionFlags::default(), ..longest };
        let over = AtomicBool::new(false);
        let session = TcpNearEndSession::open(address, &hello, &over)?;
        let info = tcp::info(&session.stream)
            .map_err(|error| TcpPathError::Environment(format!("no TCP_INFO: {error}")))?;
        let near = near_end(&session.stream);
        let kernel = kernel::read_kernel_settings(Some(&session.stream), Some(address.ip()));
        let far = session.far_end;
        Ok(Self { options, address, near, far, kernel, mss_bytes: info.mss })
    }

    /// Returns the number of measurements: each pattern with each of its options, plus one for the
    /// window.
    #[must_use]
    pub fn row_count(&self) -> u64 {
        self.pattern_plans(self.mss_bytes).len() as u64 + 1
    }

    fn pattern_plans(&self, mss_bytes: u32) -> Vec<WritePatternPlan> {
        let mut plans = vec![WritePatternPlan::single(self.options.count)];
        plans.extend(plan::all_patterns(self.options.count, &self.options.batches, mss_bytes));
        plans
    }

    /// Measures the window and runs one pattern after the other, until all are done, the far end is
    /// lost, or `is_over` returns true. Calls `progress` with the number of each pattern, from 1.
    #[must_use]
    pub fn run(self, progress: &dyn Fn(u64), is_over: &dyn Fn() -> bool) -> PathStallResult {
        let started = rfc3339_now();
        let (mut capture, capture_finding) = self.start_capture();
        let is_stopped = AtomicBool::new(false);
        let stall_outcome = self.run_patterns(progress, is_over, &is_stopped, capture.as_ref());
        let dropped = capture.as_mut().map_or(0, RunningStallCapture::finish);
        let plans = self.pattern_plans(self.mss_bytes);
        let whole = stall_outcome.complete_cells(&plans);
        let measured = StallClaimInput {
            cells: &whole,
            is_complete: whole.len() == plans.len(),
            window: stall_outcome.complete_window(),
            kernel: &self.kernel,
            congestion_control: self.near.congestion_control.as_deref(),
            final_write: stall_outcome.last_with_end,
            threshold_ns: stall_outcome.threshold_ns,
        };
        let claims = claims::all_claims(&measured);
        let mut findings = advice::pattern_findings(&stall_outcome.cells);
        findings.extend(same_host_finding(&self.near, self.far.as_ref()));
        findings.extend(capture_finding);
        findings.extend(
            stall_outcome.early_end.as_ref().map(|loss| loss.finding(self.address, "pattern")),
        );
        findings.extend((dropped > 0).then(|| dropped_packets_finding(dropped)));
        if is_stopped.load(Ordering::Relaxed) {
            let message = "The run was interrupted before all patterns were tried.".to_owned();
            findings.push(finding(FindingCode::Interrupted, Severity::Note, message, ""));
        }
        PathStallResult {
            schema: PATH_STALL_SCHEMA.to_owned(),
            started,
            command: self.options.command.clone(),
            host: Host::read(),
            target: Some(TcpTarget {
                address: self.address,
                name: self.options.target.name().map(str::to_owned),
            }),
            near: self.near,
            far: self.far,
            kernel: self.kernel,
            evidence: evidence_kind(capture.is_some()),
            stall_min_ns: saturating_ns(self.options.stall_min),
            cells: stall_outcome.cells,
            window: stall_outcome.window,
            claims,
            watched: None,
            limits: Vec::new(),
            findings,
        }
    }

    fn run_patterns(
        &self,
        progress: &dyn Fn(u64),
        is_over: &dyn Fn() -> bool,
        is_stopped: &AtomicBool,
        capture: Option<&RunningStallCapture>,
    ) -> StallRunOutcome {
        let mut stall_outcome = StallRunOutcome::default();
        let mut threshold = self.options.stall_min;
        let mut mss_bytes = self.mss_bytes;
        let pause = self.options.pause;
        let measure_window = || window::measure_window(self.address, mss_bytes, pause, is_stopped);
        match run_watched(is_over, is_stopped, measure_window) {
            // On loopback the segment size may have grown with the window.
            Ok((steps, mss)) => (stall_outcome.window, mss_bytes) = (steps, mss),
            Err(error) => stall_outcome.early_end = Some(error.into()),
        }
        stall_outcome.is_truncated =
            is_stopped.load(Ordering::Relaxed) || stall_outcome.early_end.is_some();
        for (done, plan) in (1..).zip(&self.pattern_plans(mss_bytes)) {
            progress(done);
            if is_over() {
                is_stopped.store(true, Ordering::Relaxed);
            }
            if is_stopped.load(Ordering::Relaxed) || stall_outcome.early_end.is_some() {
                return stall_outcome;
            }
            let mut outcome = match run_watched(is_over, is_stopped, || {
                cell::run_pattern(self.address, plan, is_stopped)
            }) {
                Ok(outcome) => outcome,
                Err(error) => WritePatternOutcome {
                    early_end: Some(error.into()),
                    ..WritePatternOutcome::default()
                },
            };
            if plan.pattern == WritePattern::Single {
                threshold = judge::stall_threshold(&outcome.exchanges, self.options.stall_min);
                stall_outcome.threshold_ns = saturating_ns(threshold);
            }
            if plan.pattern == WritePattern::LastWithEnd {
                stall_outcome.last_with_end = final_write_exchange(plan, &mut outcome, threshold);
            }
            let acks =
                capture.map(|capture| capture.with_flows(TrackedConnections::take_ack_counts));
            stall_outcome.cells.push(judge::measurement(plan, &outcome, threshold, acks));
            stall_outcome.early_end = outcome.early_end;
            stall_outcome.is_truncated =
                is_stopped.load(Ordering::Relaxed) || stall_outcome.early_end.is_some();
        }
        stall_outcome
    }

    /// Starts the packet capture; returns it, or a finding if it is requested but not possible.
    fn start_capture(&self) -> (Option<RunningStallCapture>, Option<Finding>) {
        if !self.options.packets {
            return (None, None);
        }
        let route = Netlink::open()
            .and_then(|mut link| link.route_get(self.address.ip(), zone_index(self.address)));
        let interface = route.map_or(0, |route| route.index);
        let flows = TrackedConnections::new(self.address.port(), self.options.stall_min);
        match RunningStallCapture::start(interface, self.address.port(), flows) {
            Ok(capture) => (Some(capture), None),
            Err(error) => (None, Some(capture_failed_finding(&error))),
        }
    }
}

/// Reduces an outcome to its last exchange, which ends with FIN. The exchanges before it make the
/// other end delay acknowledgements, and stall as two small writes do. Returns `None`, and leaves
/// no exchange, unless all were run.
fn final_write_exchange(
    plan: &WritePatternPlan,
    outcome: &mut WritePatternOutcome,
    threshold: Duration,
) -> Option<FinTerminatedExchange> {
    let last = outcome.exchanges.pop();
    let is_whole = outcome.exchanges.len() + 1 == plan.exchanges as usize;
    let stalls_before = outcome.exchanges.drain(..).any(|before| before.duration >= threshold);
    let last = last.filter(|_| is_whole)?;
    outcome.exchanges.push(last);
    Some(FinTerminatedExchange {
        duration_ns: saturating_ns(last.duration),
        previous_stalled: stalls_before,
    })
}

pub(super) const fn evidence_kind(has_packets: bool) -> StallEvidenceKind {
    if has_packets { StallEvidenceKind::Packets } else { StallEvidenceKind::TcpInfo }
}

pub(super) fn capture_failed_finding(error: &std::io::Error) -> Finding {
    let message = format!(
        "Packets could not be captured ({error}): mechanisms are inferred from TCP_INFO and timing \
         only."
    );
    let advice = "Run it as root, or with CAP_NET_RAW, to capture the acknowledgements.";
    finding(FindingCode::EngineFallback, Severity::Note, message, advice)
}

pub(super) fn dropped_packets_finding(dropped: u64) -> Finding {
    let message = format!("{dropped} packets were dropped before capture.");
    finding(
        FindingCode::CaptureIncomplete,
        Severity::Warning,
        message,
        "Capture less traffic at a time.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_judged_by_what_ran_to_its_end() {
        let plans =
            [vec![WritePatternPlan::single(3)], plan::all_patterns(3, &[2, 3], 1_448)].concat();
        let threshold = Duration::from_millis(10);
        let cell =
            |plan| judge::measurement(plan, &WritePatternOutcome::default(), threshold, None);
        let whole = |cells: usize, is_cut| {
            let cells = plans[..cells].iter().map(cell).collect();
            StallRunOutcome { cells, is_truncated: is_cut, ..StallRunOutcome::default() }
                .complete_cells(&plans)
        };
        assert_eq!(whole(plans.len(), false).len(), plans.len());
        assert!(whole(0, true).is_empty() && whole(1, true).is_empty());
        let first = plans.iter().position(|plan| plan.pattern == WritePattern::Batch).unwrap();
        let of_batch = |cells: &[StallMeasurement]| {
            cells.iter().filter(|cell| cell.pattern == WritePattern::Batch).count()
        };
        assert_eq!(of_batch(&whole(first + 1, false)), 0, "one of two batches of an option");
        assert_eq!(whole(first, false).len(), first);
        let last = plans.iter().rposition(|plan| plan.pattern == WritePattern::Batch).unwrap();
        assert!(of_batch(&whole(last + 1, true)) < of_batch(&whole(last + 1, false)));
    }

    #[test]
    fn the_exchange_with_the_end_is_measured_alone() {
        let plan =
            WritePatternPlan { pattern: WritePattern::LastWithEnd, ..WritePatternPlan::single(3) };
        let exchange = |ms| cell::WritePatternExchange {
            duration: Duration::from_millis(ms),
            longest_read: 1,
        };
        let threshold = Duration::from_millis(10);
        let of = |times: &[u64]| {
            let exchanges = times.iter().map(|ms| exchange(*ms)).collect();
            let mut outcome = WritePatternOutcome { exchanges, ..WritePatternOutcome::default() };
            let last = final_write_exchange(&plan, &mut outcome, threshold);
            (last.map(|last| (last.duration_ns, last.previous_stalled)), outcome.exchanges)
        };
        assert_eq!(of(&[1, 40, 2]), (Some((2_000_000, true)), vec![exchange(2)]));
        assert_eq!(of(&[1, 2, 40]), (Some((40_000_000, false)), vec![exchange(40)]));
        assert_eq!(of(&[1, 40]), (None, Vec::new()), "it did not come so far");
        assert_eq!(of(&[]), (None, Vec::new()));
    }
}
