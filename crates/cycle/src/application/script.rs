//! Script of the simulated sources: the time, source, node, length and injected error of each
//! report. Pure; instants are ns of the run, and the random numbers begin with the plan's seed, so
//! the same plan yields the same script.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use horolog_record::CycleTestFaultKind as FaultKind;
use horolog_time::SplitMix64;

use super::plan::{ArrivalProfile, Delivery, ReportSource, Size, TestPlan};

/// Maximum number of reports held back to be sent late; further ones are sent in time.
const DELAYED_MAX: usize = 65_536;

/// Report to be sent now, or that would have been.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct ScheduledReport {
    /// Time at which it is sent.
    pub(super) send_ns: u64,
    /// Intended send time without injected delay.
    pub(super) due_ns: u64,
    /// Its source.
    pub(super) source: u16,
    /// Node that receives it.
    pub(super) node: u16,
    /// Its number among those of the source for the node.
    pub(super) number: u64,
    /// Its length.
    pub(super) len: usize,
    /// Error injected into it.
    pub(super) error: Option<InjectedError>,
}

/// Error injected into a report.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct InjectedError {
    /// Fault of the plan that causes it.
    pub(super) fault: usize,
    /// Kind of the error.
    pub(super) kind: ErrorKind,
}

/// Kinds of injected errors.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum ErrorKind {
    /// This bit of it is inverted.
    BitFlipped(u64),
    /// It is not sent.
    Lost,
    /// It is sent later than intended.
    Late,
}

/// The simulated sources.
pub(super) struct Script<'a> {
    plan: &'a TestPlan,
    until_ns: u64,
    sources: Vec<ReportSourceState<'a>>,
    delayed: BinaryHeap<Reverse<ScheduledReport>>,
    /// Copies of a report for several nodes.
    ready: Vec<ScheduledReport>,
    rng: SplitMix64,
}

/// Source with its next report.
struct ReportSourceState<'a> {
    source: &'a ReportSource,
    rate: f64,
    last_rate: f64,
    due_ns: f64,
    left_of_burst: u32,
    nodes: Vec<u16>,
    turn: usize,
    numbers: Vec<u64>,
    rng: SplitMix64,
}

impl<'a> Script<'a> {
    /// Makes the script for this multiple of the plan's rates; no report is due from `until_ns` on.
    pub(super) fn new(plan: &'a TestPlan, load: f64, until_ns: u64) -> Self {
        let of = |(at, source): (u64, &'a ReportSource)| {
            let nodes = if source.nodes.is_empty() {
                (0..plan.nodes).collect()
            } else {
                source.nodes.clone()
            };
            let last_rate = match source.profile {
                ArrivalProfile::Ramp(rate) => rate,
                _ => source.rate,
            };
            let mut next = ReportSourceState {
                source,
                rate: source.rate * load,
                last_rate: last_rate * load,
                due_ns: 0.0,
                left_of_burst: 0,
                numbers: vec![0; nodes.len()],
                nodes,
                turn: 0,
                rng: SplitMix64::new(plan.seed ^ (at + 1) << 32),
            };
            // Sources do not begin together: each is offset by a random share of a gap.
            next.due_ns = next.rng.unit() * 1e9 / next.rate;
            if let ArrivalProfile::Burst(count) = source.profile {
                next.due_ns *= f64::from(count);
                next.left_of_burst = count;
            }
            next
        };
        Self {
            plan,
            until_ns,
            sources: (0..).zip(&plan.sources).map(of).collect(),
            delayed: BinaryHeap::new(),
            ready: Vec::new(),
            rng: SplitMix64::new(plan.seed),
        }
    }

    /// Returns the next send time; `None` if no report is left.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let delayed = self.delayed.peek().map(|Reverse(report)| report.send_ns);
        let due = self.first().map(|at| self.sources[at].due_ns as u64);
        let ready = self.ready.first().map(|report| report.send_ns);
        [delayed, due, ready].into_iter().flatten().min()
    }

    /// Returns the source whose report is due first.
    fn first(&self) -> Option<usize> {
        let open = |at: &usize| (self.sources[*at].due_ns as u64) < self.until_ns;
        let all = (0..self.sources.len()).filter(open);
        all.min_by(|a, b| self.sources[*a].due_ns.total_cmp(&self.sources[*b].due_ns))
    }

    /// Takes the next report to be sent, if its time has come.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<ScheduledReport> {
        loop {
            if let Some(report) = self.ready.pop() {
                if let Some(report) = self.inject_error(report) {
                    return Some(report);
                }
                continue;
            }
            let delayed_ns = self.delayed.peek().map(|Reverse(report)| report.send_ns);
            let due = self.first().map(|at| (at, self.sources[at].due_ns as u64));
            if let Some(delayed_ns) = delayed_ns
                && delayed_ns <= now_ns
                && due.is_none_or(|(_, due_ns)| delayed_ns <= due_ns)
            {
                return self.delayed.pop().map(|Reverse(report)| report);
            }
            let (at, _) = due.filter(|(_, due_ns)| *due_ns <= now_ns)?;
            self.sources[at].report(at as u16, self.until_ns, &mut self.ready);
            // Nodes receive theirs in their order.
            self.ready.reverse();
        }
    }

    /// Injects the errors into a report; `None` if it is delayed or lost.
    fn inject_error(&mut self, report: ScheduledReport) -> Option<ScheduledReport> {
        let faults = self.plan.faults.iter().enumerate();
        let mut meant = faults.filter(|(_, fault)| {
            fault.is_of_reports()
                && fault.is_at(report.due_ns)
                && fault.source.is_none_or(|source| source == report.source)
        });
        let chance = &mut self.rng;
        let Some((at, fault)) = meant.find(|(_, fault)| chance.unit() < fault.share) else {
            return Some(report);
        };
        let injected = |kind| Some(InjectedError { fault: at, kind });
        match fault.kind {
            FaultKind::DataError => {
                let bit = self.rng.below(report.len * 8) as u64;
                Some(ScheduledReport { error: injected(ErrorKind::BitFlipped(bit)), ..report })
            }
            FaultKind::Late if self.delayed.len() < DELAYED_MAX => {
                let send_ns = report.due_ns.saturating_add(fault.delay_ns);
                self.delayed.push(Reverse(ScheduledReport {
                    send_ns,
                    error: injected(ErrorKind::Late),
                    ..report
                }));
                None
            }
            FaultKind::Late => Some(report),
            _ => Some(ScheduledReport { error: injected(ErrorKind::Lost), ..report }),
        }
    }

    /// Returns the next number of each source for each of its nodes.
    pub(super) fn ends(&self) -> impl Iterator<Item = (u16, u16, u64)> + '_ {
        (0..).zip(&self.sources).flat_map(|(source, next)| {
            let nodes = next.nodes.iter().zip(&next.numbers);
            nodes.map(move |(node, number)| (source, *node, *number))
        })
    }
}

impl ReportSourceState<'_> {
    /// Appends the due report, a copy for each node that receives it, and schedules the next one.
    fn report(&mut self, source: u16, until_ns: u64, copies: &mut Vec<ScheduledReport>) {
        let due_ns = self.due_ns as u64;
        let len = self.len();
        let targets = match self.source.to {
            Delivery::All => 0..self.nodes.len(),
            Delivery::Turn => {
                self.turn = (self.turn + 1) % self.nodes.len();
                self.turn..self.turn + 1
            }
        };
        for at in targets {
            let number = self.numbers[at];
            self.numbers[at] += 1;
            let node = self.nodes[at];
            copies.push(ScheduledReport {
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
            Size::Between(least, most) => {
                *least as usize + self.rng.below((most - least) as usize + 1)
            }
            Size::OneOf(sizes) => sizes[self.rng.below(sizes.len())] as usize,
        }
    }

    fn gap_ns(&mut self, until_ns: u64) -> f64 {
        match self.source.profile {
            ArrivalProfile::Constant => 1e9 / self.rate,
            // 1 minus a number below 1 is above 0, so the logarithm is finite.
            ArrivalProfile::Poisson => -(1.0 - self.rng.unit()).ln() * 1e9 / self.rate,
            ArrivalProfile::Burst(count) => {
                self.left_of_burst = self.left_of_burst.saturating_sub(1);
                if self.left_of_burst > 0 {
                    return 0.0;
                }
                self.left_of_burst = count;
                f64::from(count) * 1e9 / self.rate
            }
            ArrivalProfile::Ramp(_) => {
                let way = (self.due_ns / until_ns.max(1) as f64).min(1.0);
                1e9 / (self.rate + (self.last_rate - self.rate) * way)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::application::SAMPLE;

    const SECOND: u64 = 1_000_000_000;

    fn plan(source: &str, more: &str) -> TestPlan {
        let head = "schema = \"horolog.test/2\"\nname = \"a\"\ntime = \"100s\"\nperiod = \"50ms\"\n\
                    [[stage]]\nname = \"s\"\nintake = true\n[[source]]\nname = \"r\"\n";
        TestPlan::parse(&[head, source, "\n", more].concat()).unwrap()
    }

    fn all(plan: &TestPlan, load: f64) -> Vec<ScheduledReport> {
        let mut script = Script::new(plan, load, 10 * SECOND);
        let mut reports = Vec::new();
        while let Some(next_ns) = script.next_ns() {
            while let Some(report) = script.take(next_ns) {
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
                    Some(ErrorKind::BitFlipped(bit)) => assert!(bit < report.len as u64 * 8),
                    Some(ErrorKind::Late) => assert_eq!(late_ns, 70_000_000),
                    _ => assert_eq!((kind, late_ns), ("lost", 0)),
                }
            }
        }
    }

    #[test]
    fn the_same_plan_yields_the_same_reports_and_each_end_is_one_past_the_last() {
        let plan = TestPlan::parse(SAMPLE).unwrap();
        let first = all(&plan, 1.5);
        assert_eq!(first, all(&plan, 1.5));
        let mut script = Script::new(&plan, 1.5, 10 * SECOND);
        while let Some(next_ns) = script.next_ns() {
            script.take(next_ns);
        }
        for (source, node, end) in script.ends() {
            let of = first.iter().filter(|report| (report.source, report.node) == (source, node));
            assert_eq!(of.map(|report| report.number + 1).max().unwrap_or(0), end);
        }
    }
}
