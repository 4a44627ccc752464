//! Faults that a node injects according to the plan: loss and delay of its messages, and longer
//! computation. Pure.

use horolog_record::CycleTestFaultKind as FaultKind;
use horolog_time::{Span, SplitMix64};

use super::plan::ApplicationTestPlan;
use crate::node::MessageDisposition;

/// Injector of the faults of the plan at one node: decides which messages and computations they
/// affect.
pub(super) struct NodeFaultInjector<'a> {
    plan: &'a ApplicationTestPlan,
    node: u16,
    rng: SplitMix64,
}

impl<'a> NodeFaultInjector<'a> {
    pub(super) fn new(plan: &'a ApplicationTestPlan, node: u16) -> Self {
        let rng = SplitMix64::new(plan.seed ^ (u64::from(node) + 1) << 48);
        Self { plan, node, rng }
    }

    /// Returns the factor by which the active slow faults multiply the computation of a period
    /// released at `due_ns` of the run (1 if none is active), and the indices of these faults.
    pub(super) fn compute_factor(&self, due_ns: u64) -> (f64, impl Iterator<Item = u16> + '_) {
        let slow_faults = move || {
            (0..).zip(&self.plan.faults).filter(move |(_, fault)| {
                fault.kind == FaultKind::Slow
                    && fault.node == Some(self.node)
                    && fault.is_active_at(due_ns)
            })
        };
        let factor = slow_faults().map(|(_, fault)| fault.factor).product();
        (factor, slow_faults().map(|(at, _)| at))
    }

    /// Draws the disposition of a message in a period released at `due_ns` of the run: that of the
    /// first active message fault whose share the draw meets, with its index in the plan; otherwise
    /// `Sent` and `None`.
    pub(super) fn disposition(&mut self, due_ns: u64) -> (MessageDisposition, Option<u16>) {
        let node = self.node;
        let active_faults = (0..).zip(&self.plan.faults).filter(move |(_, fault)| {
            fault.is_message_fault()
                && fault.node.is_none_or(|other| other == node)
                && fault.is_active_at(due_ns)
        });
        for (at, fault) in active_faults {
            if self.rng.next_f64() < fault.share {
                let delay = Span::from_ns(fault.delay_ns as i64);
                let is_lost = fault.kind == FaultKind::LostMessage;
                return (
                    if is_lost {
                        MessageDisposition::Dropped
                    } else {
                        MessageDisposition::Delayed(delay)
                    },
                    Some(at),
                );
            }
        }
        (MessageDisposition::Sent, None)
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
        let plan = ApplicationTestPlan::parse(PLAN).unwrap();
        let (first, mut second) =
            (NodeFaultInjector::new(&plan, 0), NodeFaultInjector::new(&plan, 1));
        let at = |ms: u64| ms * 1_000_000;
        let slowness = |faults: &NodeFaultInjector<'_>, ms| {
            let (factor, which) = faults.compute_factor(at(ms));
            (factor, which.collect::<Vec<_>>())
        };
        assert_eq!(slowness(&first, 1_500), (1.0, vec![]));
        assert_eq!(slowness(&second, 1_500), (3.0, vec![0]));
        assert_eq!(slowness(&second, 2_000), (1.0, vec![]));
        assert_eq!(second.disposition(at(2_000)), (MessageDisposition::Sent, None));
        let lost = (0..1_000)
            .filter(|_| second.disposition(at(3_500)) == (MessageDisposition::Dropped, Some(1)))
            .count();
        assert!((400..600).contains(&lost), "{lost}");
        let late = (MessageDisposition::Delayed(Span::from_ms(4)), Some(2));
        for node in 0..2 {
            assert_eq!(NodeFaultInjector::new(&plan, node).disposition(at(5_000)), late);
        }
    }
}
