//! Execution of a search for stalls from its options to its record.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use horolog_io::target::require_unicast;
use horolog_record::{
    CongestionWindowStep, Finding, FindingCode, Host, PATH_STALL_SCHEMA, PathEndpoint,
    PathStallResult, Severity, StallEvidence, StallKernelSettings, StallMeasurement, StallPattern,
    TcpTarget, rfc3339_now,
};
use horolog_sys::netlink::Netlink;
use horolog_sys::tcp;
use horolog_sys::zone::zone_index;

use super::capture::StallCapture;
use super::cell::{self, PatternOutcome};
use super::claims::{self, LastWithEnd, StallClaimInput};
use super::flow::Flows;
use super::judge::{self, ns};
use super::options::StallOptions;
use super::plan::{self, PatternPlan};
use super::{advice, kernel, window};
use crate::path::tcp::protocol::{ConnectionFlags, ConnectionJob, Hello};
use crate::path::tcp::{
    EarlyEnd, TcpPathError, TcpSession, finding, near_end, same_machine, watched,
};

/// Greeted far end with the planned patterns.
pub struct StallRun {
    options: StallOptions,
    address: SocketAddr,
    near: PathEndpoint,
    far: Option<PathEndpoint>,
    kernel: StallKernelSettings,
    mss_bytes: u32,
}

/// Outcome of all patterns.
#[derive(Default)]
struct StallOutcome {
    cells: Vec<StallMeasurement>,
    threshold_ns: u64,
    last_with_end: Option<LastWithEnd>,
    window: Vec<CongestionWindowStep>,
    /// Reason for which the far end was lost.
    lost: Option<EarlyEnd>,
    /// True if the last part was cut short: the last cell or, without any, the window.
    is_cut: bool,
}

impl StallOutcome {
    /// Returns the cells that claims are judged by. A cell that was cut short supports no claim,
    /// nor do an option's batches before all of them were run.
    fn whole_cells(&self, plans: &[PatternPlan]) -> Vec<StallMeasurement> {
        let whole = self.cells.len() - usize::from(self.is_cut && !self.cells.is_empty());
        let (ran, missed) = plans.split_at(whole.min(plans.len()));
        let is_missed = |plan: &PatternPlan| {
            let like =
                |other: &PatternPlan| (other.pattern, other.option) == (plan.pattern, plan.option);
            plan.pattern == StallPattern::Batch && missed.iter().any(like)
        };
        let cells = self.cells.iter().zip(ran).filter(|(_, plan)| !is_missed(plan));
        cells.map(|(cell, _)| cell.clone()).collect()
    }

    /// Returns the steps of the window, if they were completed.
    fn whole_window(&self) -> &[CongestionWindowStep] {
        if self.is_cut && self.cells.is_empty() { &[] } else { &self.window }
    }
}

impl StallRun {
    /// Checks the options, resolves the far end and requests its facts.
    ///
    /// # Errors
    ///
    /// If the options are invalid, or the far end is unreachable or refuses.
    pub fn open(options: StallOptions) -> Result<Self, TcpPathError> {
        options.check()?;
        let address = options.target.resolve(options.family, None)?;
        require_unicast(address.ip())?;
        let longest = PatternPlan::single(options.count).hello();
        let hello =
            Hello { work: ConnectionJob::Facts, flags: ConnectionFlags::default(), ..longest };
        let over = AtomicBool::new(false);
        let session = TcpSession::open(address, &hello, &over)?;
        let info = tcp::info(&session.stream)
            .map_err(|error| TcpPathError::Environment(format!("no TCP_INFO: {error}")))?;
        let near = near_end(&session.stream);
        let kernel = kernel::read(Some(&session.stream), Some(address.ip()));
        let far = session.far;
        Ok(Self { options, address, near, far, kernel, mss_bytes: info.mss })
    }

    /// Returns the number of patterns, plus one for the window.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.plans(self.mss_bytes).len() as u64 + 1
    }

    fn plans(&self, mss_bytes: u32) -> Vec<PatternPlan> {
        let mut plans = vec![PatternPlan::single(self.options.count)];
        plans.extend(plan::all(self.options.count, &self.options.batches, mss_bytes));
        plans
    }

    /// Runs pattern by pattern, until all are done, the far end is lost, or the run is to end.
    #[must_use]
    pub fn run(self, progress: &dyn Fn(u64), is_over: &dyn Fn() -> bool) -> PathStallResult {
        let started = rfc3339_now();
        let (mut capture, unseen) = self.capture();
        let over = AtomicBool::new(false);
        let ran = self.patterns(progress, is_over, &over, capture.as_ref());
        let dropped = capture.as_mut().map_or(0, StallCapture::end);
        let plans = self.plans(self.mss_bytes);
        let whole = ran.whole_cells(&plans);
        let measured = StallClaimInput {
            cells: &whole,
            is_whole: whole.len() == plans.len(),
            window: ran.whole_window(),
            kernel: &self.kernel,
            congestion_control: self.near.congestion_control.as_deref(),
            last_with_end: ran.last_with_end,
            threshold_ns: ran.threshold_ns,
        };
        let claims = claims::all(&measured);
        let mut findings = advice::of_cells(&ran.cells);
        findings.extend(same_machine(&self.near, self.far.as_ref()));
        findings.extend(unseen);
        findings.extend(ran.lost.as_ref().map(|loss| loss.finding(self.address, "pattern")));
        findings.extend((dropped > 0).then(|| dropped_packets(dropped)));
        if over.load(Ordering::Relaxed) {
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
            evidence: evidence(capture.is_some()),
            stall_min_ns: ns(self.options.stall_min),
            cells: ran.cells,
            window: ran.window,
            claims,
            watched: None,
            limits: Vec::new(),
            findings,
        }
    }

    fn patterns(
        &self,
        progress: &dyn Fn(u64),
        is_over: &dyn Fn() -> bool,
        over: &AtomicBool,
        capture: Option<&StallCapture>,
    ) -> StallOutcome {
        let mut ran = StallOutcome::default();
        let mut threshold = self.options.stall_min;
        let mut mss_bytes = self.mss_bytes;
        let pause = self.options.pause;
        let grow = || window::run(self.address, mss_bytes, pause, over);
        match watched(is_over, over, grow) {
            // On loopback segments grow with the window.
            Ok((steps, mss)) => (ran.window, mss_bytes) = (steps, mss),
            Err(error) => ran.lost = Some(error.into()),
        }
        ran.is_cut = over.load(Ordering::Relaxed) || ran.lost.is_some();
        for (done, plan) in (1..).zip(&self.plans(mss_bytes)) {
            progress(done);
            if is_over() {
                over.store(true, Ordering::Relaxed);
            }
            if over.load(Ordering::Relaxed) || ran.lost.is_some() {
                return ran;
            }
            let mut outcome = match watched(is_over, over, || cell::run(self.address, plan, over)) {
                Ok(outcome) => outcome,
                Err(error) => {
                    PatternOutcome { lost: Some(error.into()), ..PatternOutcome::default() }
                }
            };
            if plan.pattern == StallPattern::Single {
                threshold = judge::threshold(&outcome.exchanges, self.options.stall_min);
                ran.threshold_ns = ns(threshold);
            }
            if plan.pattern == StallPattern::LastWithEnd {
                ran.last_with_end = last_with_end(plan, &mut outcome, threshold);
            }
            let acks = capture.map(|capture| capture.with(Flows::drain));
            ran.cells.push(judge::cell(plan, &outcome, threshold, acks));
            ran.lost = outcome.lost;
            ran.is_cut = over.load(Ordering::Relaxed) || ran.lost.is_some();
        }
        ran
    }

    /// Returns the capture if permitted, or the finding that explains its absence.
    fn capture(&self) -> (Option<StallCapture>, Option<Finding>) {
        if !self.options.packets {
            return (None, None);
        }
        let route = Netlink::open()
            .and_then(|mut link| link.route_get(self.address.ip(), zone_index(self.address)));
        let interface = route.map_or(0, |route| route.index);
        let flows = Flows::new(self.address.port(), self.options.stall_min);
        match StallCapture::start(interface, self.address.port(), flows) {
            Ok(capture) => (Some(capture), None),
            Err(error) => (None, Some(no_packets(&error))),
        }
    }
}

/// Reduces a pattern to its last exchange, which ends with the stream. The ones before it make the
/// other end delay its acknowledgements, and stall as two small writes do.
fn last_with_end(
    plan: &PatternPlan,
    outcome: &mut PatternOutcome,
    threshold: Duration,
) -> Option<LastWithEnd> {
    let last = outcome.exchanges.pop();
    let is_whole = outcome.exchanges.len() + 1 == plan.exchanges as usize;
    let stalls_before = outcome.exchanges.drain(..).any(|before| before.took >= threshold);
    let last = last.filter(|_| is_whole)?;
    outcome.exchanges.push(last);
    Some(LastWithEnd { took_ns: ns(last.took), stalls_before })
}

pub(super) const fn evidence(has_packets: bool) -> StallEvidence {
    if has_packets { StallEvidence::Packets } else { StallEvidence::TcpInfo }
}

pub(super) fn no_packets(error: &std::io::Error) -> Finding {
    let message = format!(
        "Packets could not be captured ({error}): mechanisms are inferred from TCP_INFO and timing \
         only."
    );
    let advice = "Run it as root, or with CAP_NET_RAW, to capture the acknowledgements.";
    finding(FindingCode::EngineFallback, Severity::Note, message, advice)
}

pub(super) fn dropped_packets(dropped: u64) -> Finding {
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
        let plans = [vec![PatternPlan::single(3)], plan::all(3, &[2, 3], 1_448)].concat();
        let threshold = Duration::from_millis(10);
        let cell = |plan| judge::cell(plan, &PatternOutcome::default(), threshold, None);
        let whole = |cells: usize, is_cut| {
            let cells = plans[..cells].iter().map(cell).collect();
            StallOutcome { cells, is_cut, ..StallOutcome::default() }.whole_cells(&plans)
        };
        assert_eq!(whole(plans.len(), false).len(), plans.len());
        assert!(whole(0, true).is_empty() && whole(1, true).is_empty());
        let first = plans.iter().position(|plan| plan.pattern == StallPattern::Batch).unwrap();
        let of_batch = |cells: &[StallMeasurement]| {
            cells.iter().filter(|cell| cell.pattern == StallPattern::Batch).count()
        };
        assert_eq!(of_batch(&whole(first + 1, false)), 0, "one of two batches of an option");
        assert_eq!(whole(first, false).len(), first);
        let last = plans.iter().rposition(|plan| plan.pattern == StallPattern::Batch).unwrap();
        assert!(of_batch(&whole(last + 1, true)) < of_batch(&whole(last + 1, false)));
    }

    #[test]
    fn the_exchange_with_the_end_is_measured_alone() {
        let plan = PatternPlan { pattern: StallPattern::LastWithEnd, ..PatternPlan::single(3) };
        let exchange =
            |ms| cell::StallExchange { took: Duration::from_millis(ms), longest_read: 1 };
        let threshold = Duration::from_millis(10);
        let of = |times: &[u64]| {
            let exchanges = times.iter().map(|ms| exchange(*ms)).collect();
            let mut outcome = PatternOutcome { exchanges, ..PatternOutcome::default() };
            let last = last_with_end(&plan, &mut outcome, threshold);
            (last.map(|last| (last.took_ns, last.stalls_before)), outcome.exchanges)
        };
        assert_eq!(of(&[1, 40, 2]), (Some((2_000_000, true)), vec![exchange(2)]));
        assert_eq!(of(&[1, 2, 40]), (Some((40_000_000, false)), vec![exchange(40)]));
        assert_eq!(of(&[1, 40]), (None, Vec::new()), "it did not come so far");
        assert_eq!(of(&[]), (None, Vec::new()));
    }
}
