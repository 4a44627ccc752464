//! Faults that a node injects according to the plan: loss or delay of its messages, and additional
//! computation. Pure.

use horolog_record::CycleTestFaultKind as FaultKind;
use horolog_time::{Span, SplitMix64};

use super::plan::TestPlan;
use crate::node::Disposition;

/// Faults of one node.
pub(super) struct NodeFaults<'a> {
    plan: &'a TestPlan,
    node: u16,
    chance: SplitMix64,
}

impl<'a> NodeFaults<'a> {
    pub(super) fn new(plan: &'a TestPlan, node: u16) -> Self {
        let chance = SplitMix64::new(plan.seed ^ (u64::from(node) + 1) << 48);
        Self { plan, node, chance }
    }

    /// Returns the multiplier of computation in a period with this release, with the faults that
    /// cause it.
    pub(super) fn compute_factor(&self, due_ns: u64) -> (f64, impl Iterator<Item = u16> + '_) {
        let slow = move || {
            (0..).zip(&self.plan.faults).filter(move |(_, fault)| {
                fault.kind == FaultKind::Slow
                    && fault.node == Some(self.node)
                    && fault.is_at(due_ns)
            })
        };
        let factor = slow().map(|(_, fault)| fault.factor).product();
        (factor, slow().map(|(at, _)| at))
    }

    /// Returns the disposition of a message to another node in a period with this release, with the
    /// fault that causes it.
    pub(super) fn disposition(&mut self, due_ns: u64) -> (Disposition, Option<u16>) {
        let node = self.node;
        let of_this = (0..).zip(&self.plan.faults).filter(move |(_, fault)| {
            fault.is_of_messages()
                && fault.node.is_none_or(|other| other == node)
                && fault.is_at(due_ns)
        });
        for (at, fault) in of_this {
            if self.chance.unit() < fault.share {
                let delay = Span::from_ns(fault.delay_ns as i64);
                let is_lost = fault.kind == FaultKind::LostMessage;
                return (
                    if is_lost { Disposition::Drop } else { Disposition::Delayed(delay) },
                    Some(at),
                );
            }
        }
        (Disposition::Sent, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "schema = \"horolog.test/2\"\nname = \"a\"\ntime = \"9s\"\nperiod = \"50ms\"\n\
        [[stage]]\nname = \"s\"\nmessage = 9\n\
        [[fault]]\nkind = \"slow\"\nat = \"1s\"\nfor = \"1s\"\nnode = 2\nfactor = 3\n\
        [[fault]]\nkind = \"lost-message\"\nat = \"3s\"\nfor = \"1s\"\nnode = 2\nshare = 0.5\n\
        [[fault]]\nkind = \"late-message\"\nat = \"5s\"\nfor = \"1s\"\ndelay = \"4ms\"\n";

    #[test]
    fn each_node_has_its_own() {
        let plan = TestPlan::parse(PLAN).unwrap();
        let (first, mut second) = (NodeFaults::new(&plan, 0), NodeFaults::new(&plan, 1));
        let at = |ms: u64| ms * 1_000_000;
        let slowness = |faults: &NodeFaults<'_>, ms| {
            let (factor, which) = faults.compute_factor(at(ms));
            (factor, which.collect::<Vec<_>>())
        };
        assert_eq!(slowness(&first, 1_500), (1.0, vec![]));
        assert_eq!(slowness(&second, 1_500), (3.0, vec![0]));
        assert_eq!(slowness(&second, 2_000), (1.0, vec![]));
        assert_eq!(second.disposition(at(2_000)), (Disposition::Sent, None));
        let lost = (0..1_000)
            .filter(|_| second.disposition(at(3_500)) == (Disposition::Drop, Some(1)))
            .count();
        assert!((400..600).contains(&lost), "{lost}");
        let late = (Disposition::Delayed(Span::from_ms(4)), Some(2));
        for node in 0..2 {
            assert_eq!(NodeFaults::new(&plan, node).disposition(at(5_000)), late);
        }
    }
}
