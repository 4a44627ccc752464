//! Schedule of the simulated sources: the send time, source, node, length and injected fault of
//! each report. Pure. Times are in ns of the run. Random numbers start from the plan's seed, so the
//! same plan yields the same schedule.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use horolog_record::CycleTestFaultKind as FaultKind;
use horolog_time::SplitMix64;

use super::plan::{
    ApplicationTestPlan, ArrivalProfile, ReportDeliveryMode, ReportLengthDistribution,
    SimulatedSource,
};

/// Largest number of reports held back to be sent late; further ones are sent on time.
const DELAYED_MAX: usize = 65_536;

/// Report to be sent, or lost on purpose.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ScheduledSimulatedReport {
    /// Time at which the report is sent, in ns of the run; the due time if it is lost on purpose.
    pub(super) send_ns: u64,
    /// Intended send time without an injected delay, in ns of the run.
    pub(super) due_ns: u64,
    /// Index of the source.
    pub(super) source: u16,
    /// Index of the receiving node.
    pub(super) node: u16,
    /// Number of the report, counted by each source for each node from 0.
    pub(super) number: u64,
    /// Length in bytes.
    pub(super) len: usize,
    /// Injected fault, if any.
    pub(super) error: Option<InjectedReportFault>,
}

/// Fault injected into a report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct InjectedReportFault {
    /// Index in the plan of the fault that is injected.
    pub(super) fault: usize,
    /// Effect on the report.
    pub(super) kind: InjectedReportFaultKind,
}

/// Kind of a fault that is injected into a report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum InjectedReportFaultKind {
    /// The bit with this index is inverted.
    BitFlipped(u64),
    /// The report is not sent.
    Lost,
    /// The report is sent later than intended.
    Late,
}

/// Schedule of the reports of all simulated sources.
pub(super) struct SimulatedReportSchedule<'a> {
    plan: &'a ApplicationTestPlan,
    until_ns: u64,
    sources: Vec<SimulatedSourceState<'a>>,
    delayed: BinaryHeap<Reverse<ScheduledSimulatedReport>>,
    /// Copies of one report for several nodes, the next one last.
    ready: Vec<ScheduledSimulatedReport>,
    rng: SplitMix64,
}

/// State of a simulated source, with the time of its next report.
struct SimulatedSourceState<'a> {
    source: &'a SimulatedSource,
    rate: f64,
    last_rate: f64,
    due_ns: f64,
    burst_remaining: u32,
    nodes: Vec<u16>,
    turn: usize,
    numbers: Vec<u64>,
    rng: SplitMix64,
}

impl<'a> SimulatedReportSchedule<'a> {
    /// Creates the schedule for this factor of the plan's rates; no report is due from `until_ns`
    /// (in ns of the run) on, but late ones may still be sent then.
    pub(super) fn new(plan: &'a ApplicationTestPlan, load: f64, until_ns: u64) -> Self {
        let source_state = |(at, source): (u64, &'a SimulatedSource)| {
            let nodes = if source.nodes.is_empty() {
                (0..plan.nodes).collect()
            } else {
                source.nodes.clone()
            };
            let last_rate = match source.profile {
                ArrivalProfile::Ramp(rate) => rate,
                _ => source.rate,
            };
            let mut state = SimulatedSourceState {
                source,
                rate: source.rate * load,
                last_rate: last_rate * load,
                due_ns: 0.0,
                burst_remaining: 0,
                numbers: vec![0; nodes.len()],
                nodes,
                turn: 0,
                rng: SplitMix64::new(plan.seed ^ (at + 1) << 32),
            };
            // Sources start at different times: each is offset by a random share of an interval.
            state.due_ns = state.rng.next_f64() * 1e9 / state.rate;
            if let ArrivalProfile::Burst(count) = source.profile {
                state.due_ns *= f64::from(count);
                state.burst_remaining = count;
            }
            state
        };
        Self {
            plan,
            until_ns,
            sources: (0..).zip(&plan.sources).map(source_state).collect(),
            delayed: BinaryHeap::new(),
            ready: Vec::new(),
            rng: SplitMix64::new(plan.seed),
        }
    }

    /// Returns the next send time; `None` if no report is left.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let delayed = self.delayed.peek().map(|Reverse(report)| report.send_ns);
        let due = self.next_source().map(|at| self.sources[at].due_ns as u64);
        let ready = self.ready.first().map(|report| report.send_ns);
        [delayed, due, ready].into_iter().flatten().min()
    }

    /// Returns the index of the source with the earliest next report; `None` if all have ended.
    fn next_source(&self) -> Option<usize> {
        let has_report = |at: &usize| (self.sources[*at].due_ns as u64) < self.until_ns;
        let all = (0..self.sources.len()).filter(has_report);
        all.min_by(|a, b| self.sources[*a].due_ns.total_cmp(&self.sources[*b].due_ns))
    }

    /// Removes and returns the next report to be sent, or lost on purpose; `None` if none is due by
    /// `now_ns`.
    pub(super) fn pop_due(&mut self, now_ns: u64) -> Option<ScheduledSimulatedReport> {
        loop {
            if let Some(report) = self.ready.pop() {
                if let Some(report) = self.inject_error(report) {
                    return Some(report);
                }
                continue;
            }
            let delayed_ns = self.delayed.peek().map(|Reverse(report)| report.send_ns);
            let due = self.next_source().map(|at| (at, self.sources[at].due_ns as u64));
            if let Some(delayed_ns) = delayed_ns
                && delayed_ns <= now_ns
                && due.is_none_or(|(_, due_ns)| delayed_ns <= due_ns)
            {
                return self.delayed.pop().map(|Reverse(report)| report);
            }
            let (at, _) = due.filter(|(_, due_ns)| *due_ns <= now_ns)?;
            self.sources[at].push_report(at as u16, self.until_ns, &mut self.ready);
            // Reversed, so that the copies are popped in the order of the nodes.
            self.ready.reverse();
        }
    }

    /// Injects at most one fault into a report, the first of the plan that matches; `None` if the
    /// report is held back to be sent late.
    fn inject_error(
        &mut self,
        report: ScheduledSimulatedReport,
    ) -> Option<ScheduledSimulatedReport> {
        let faults = self.plan.faults.iter().enumerate();
        let mut matching = faults.filter(|(_, fault)| {
            fault.is_report_fault()
                && fault.is_active_at(report.due_ns)
                && fault.source.is_none_or(|source| source == report.source)
        });
        let rng = &mut self.rng;
        let Some((at, fault)) = matching.find(|(_, fault)| rng.next_f64() < fault.share) else {
            return Some(report);
        };
        let error = |kind| Some(InjectedReportFault { fault: at, kind });
        match fault.kind {
            FaultKind::DataError => {
                let bit = self.rng.next_below(report.len * 8) as u64;
                Some(ScheduledSimulatedReport {
                    error: error(InjectedReportFaultKind::BitFlipped(bit)),
                    ..report
                })
            }
            FaultKind::Late if self.delayed.len() < DELAYED_MAX => {
                let send_ns = report.due_ns.saturating_add(fault.delay_ns);
                self.delayed.push(Reverse(ScheduledSimulatedReport {
                    send_ns,
                    error: error(InjectedReportFaultKind::Late),
                    ..report
                }));
                None
            }
            FaultKind::Late => Some(report),
            _ => Some(ScheduledSimulatedReport {
                error: error(InjectedReportFaultKind::Lost),
                ..report
            }),
        }
    }

    /// Returns, for each source and each of its nodes, the number that the next report would have.
    pub(super) fn end_numbers(&self) -> impl Iterator<Item = (u16, u16, u64)> + '_ {
        (0..).zip(&self.sources).flat_map(|(source, state)| {
            let nodes = state.nodes.iter().zip(&state.numbers);
            nodes.map(move |(node, number)| (source, *node, *number))
        })
    }
}

impl SimulatedSourceState<'_> {
    /// Appends the next report, one copy for each receiving node, and schedules the one after it.
    fn push_report(
        &mut self,
        source: u16,
        until_ns: u64,
        copies: &mut Vec<ScheduledSimulatedReport>,
    ) {
        let due_ns = self.due_ns as u64;
        let len = self.len();
        let targets = match self.source.to {
            ReportDeliveryMode::All => 0..self.nodes.len(),
            ReportDeliveryMode::Turn => {
                self.turn = (self.turn + 1) % self.nodes.len();
                self.turn..self.turn + 1
            }
        };
        for at in targets {
            let number = self.numbers[at];
            self.numbers[at] += 1;
            let node = self.nodes[at];
            copies.push(ScheduledSimulatedReport {
                send_ns: due_ns,
                due_ns,
                source,
                node,
                number,
                len,
                error: None,
            });
        }
        self.due_ns += self.gap_ns(until_ns);
    }

    fn len(&mut self) -> usize {
        match &self.source.size {
            ReportLengthDistribution::Between(least, most) => {
                *least as usize + self.rng.next_below((most - least) as usize + 1)
            }
            ReportLengthDistribution::OneOf(sizes) => {
                sizes[self.rng.next_below(sizes.len())] as usize
            }
        }
    }

    fn gap_ns(&mut self, until_ns: u64) -> f64 {
        match self.source.profile {
            ArrivalProfile::Constant => 1e9 / self.rate,
            // 1 minus a number below 1 is above 0, so the logarithm is finite.
            ArrivalProfile::Poisson => -(1.0 - self.rng.next_f64()).ln() * 1e9 / self.rate,
            ArrivalProfile::Burst(count) => {
                self.burst_remaining = self.burst_remaining.saturating_sub(1);
                if self.burst_remaining > 0 {
                    return 0.0;
                }
                self.burst_remaining = count;
                f64::from(count) * 1e9 / self.rate
            }
            ArrivalProfile::Ramp(_) => {
                let progress = (self.due_ns / until_ns.max(1) as f64).min(1.0);
                1e9 / (self.rate + (self.last_rate - self.rate) * progress)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::SAMPLE_TEST_FILE;

    const SECOND: u64 = 1_000_000_000;

    fn plan(source: &str, more: &str) -> ApplicationTestPlan {
        let head = "schema = \"horolog.test/2\"\nname = \"a\"\ntime = \"100s\"\nperiod = \"50ms\"\n\
                    [[stage]]\nname = \"s\"\nintake = true\n[[source]]\nname = \"r\"\n";
        ApplicationTestPlan::parse(&[head, source, "\n", more].concat()).unwrap()
    }

    fn all(plan: &ApplicationTestPlan, load: f64) -> Vec<ScheduledSimulatedReport> {
        let mut script = SimulatedReportSchedule::new(plan, load, 10 * SECOND);
        let mut reports = Vec::new();
        while let Some(next_ns) = script.next_ns() {
            while let Some(report) = script.pop_due(next_ns) {
                assert!(report.send_ns <= next_ns && report.send_ns >= report.due_ns);
                reports.push(report);
            }
        }
        reports
    }

    #[test]
    fn reports_come_at_their_rates() {
        for (source, least, most) in [
            ("rate = 100\nsize = 64", 999, 1_001),
            ("rate = 100\nsize = 64\nto = \"all\"", 1_998, 2_002),
            ("rate = 100\nsize = 64\nprofile = \"burst\"\nburst = 25", 975, 1_025),
            ("rate = 100\nsize = 64\nprofile = \"ramp\"\nramp-to = 300", 1_900, 2_100),
            // The deviation of a Poisson process of 1,000 is 32.
            ("rate = 100\nsize = 64\nprofile = \"poisson\"", 850, 1_150),
        ] {
            let count = all(&plan(source, ""), 1.0).len();
            assert!((least..=most).contains(&count), "{source}: {count}");
            let double = all(&plan(source, ""), 2.0).len();
            assert!((2 * least - 50..=2 * most + 50).contains(&double), "{source}: {double}");
        }
    }

    #[test]
    fn bursts_come_at_once_and_nodes_take_turns() {
        let burst = "rate = 100\nsize = [64, 128]\nprofile = \"burst\"\nburst = 4";
        let reports = all(&plan(burst, ""), 1.0);
        assert!(
            reports.chunks_exact(4).all(|burst| burst.iter().all(|c| c.due_ns == burst[0].due_ns))
        );
        for node in [0, 1] {
            let numbers: Vec<_> = reports
                .iter()
                .filter(|report| report.node == node)
                .map(|report| report.number)
                .collect();
            assert!(numbers.iter().copied().eq(0..numbers.len() as u64));
            assert!(numbers.len() >= reports.len() / 2 - 1);
        }
        assert!(
            reports.iter().any(|report| report.len == 64)
                && reports.iter().any(|cue| cue.len == 128)
        );
    }

    #[test]
    fn faults_hit_their_share_in_their_time() {
        let fault = |kind: &str, more: &str| {
            format!("[[fault]]\nkind = \"{kind}\"\nat = \"2s\"\nfor = \"5s\"\nshare = 0.5\n{more}")
        };
        let source = "rate = 1000\nsize = \"50..90\"";
        for (kind, more) in [("data-error", ""), ("lost", ""), ("late", "delay = \"70ms\"")] {
            let reports = all(&plan(source, &fault(kind, more)), 1.0);
            assert!((9_999..10_002).contains(&reports.len()), "{kind}: {}", reports.len());
            let faulty: Vec<_> = reports.iter().filter(|report| report.error.is_some()).collect();
            assert!((2_300..2_700).contains(&faulty.len()), "{kind}: {}", faulty.len());
            for report in faulty {
                assert!((2 * SECOND..7 * SECOND).contains(&report.due_ns));
                let late_ns = report.send_ns - report.due_ns;
                match report.error.map(|injected| injected.kind) {
                    Some(InjectedReportFaultKind::BitFlipped(bit)) => {
                        assert!(bit < report.len as u64 * 8);
                    }
                    Some(InjectedReportFaultKind::Late) => assert_eq!(late_ns, 70_000_000),
                    _ => assert_eq!((kind, late_ns), ("lost", 0)),
                }
            }
        }
    }

    #[test]
    fn the_same_plan_yields_the_same_reports_and_each_end_is_one_past_the_last() {
        let plan = ApplicationTestPlan::parse(SAMPLE_TEST_FILE).unwrap();
        let first = all(&plan, 1.5);
        assert_eq!(first, all(&plan, 1.5));
        let mut script = SimulatedReportSchedule::new(&plan, 1.5, 10 * SECOND);
        while let Some(next_ns) = script.next_ns() {
            script.pop_due(next_ns);
        }
        for (source, node, end) in script.end_numbers() {
            let of = first.iter().filter(|report| (report.source, report.node) == (source, node));
            assert_eq!(of.map(|report| report.number + 1).max().unwrap_or(0), end);
        }
    }
}
