//! What a node does wrong because the plan says so: which of its messages it loses or delays, and
//! how much more it computes. Pure.

use horolog_record::CycleTestFaultKind as FaultKind;
use horolog_time::{Span, SplitMix64};

use super::plan::Plan;
use crate::node::Fate;

/// The faults of one node.
pub(super) struct Faults<'a> {
    plan: &'a Plan,
    node: u16,
    chance: SplitMix64,
}

impl<'a> Faults<'a> {
    pub(super) fn new(plan: &'a Plan, node: u16) -> Self {
        let chance = SplitMix64::new(plan.seed ^ (u64::from(node) + 1) << 48);
        Self { plan, node, chance }
    }

    /// By how much computing is multiplied in a period that is released then, and by which faults.
    pub(super) fn slowness(&self, due_ns: u64) -> (f64, impl Iterator<Item = u16> + '_) {
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

    /// What becomes of a message to another node in a period that is released then, and by which
    /// fault.
    pub(super) fn fate(&mut self, due_ns: u64) -> (Fate, Option<u16>) {
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
                return (if is_lost { Fate::Lost } else { Fate::Delayed(delay) }, Some(at));
            }
        }
        (Fate::Sent, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "schema = \"horolog.test/1\"\nname = \"a\"\ntime = \"9s\"\nperiod = \"50ms\"\n\
        [[stage]]\nname = \"s\"\nmessage = 9\n\
        [[fault]]\nkind = \"slow\"\nat = \"1s\"\nfor = \"1s\"\nnode = 2\nfactor = 3\n\
        [[fault]]\nkind = \"lost-message\"\nat = \"3s\"\nfor = \"1s\"\nnode = 2\nshare = 0.5\n\
        [[fault]]\nkind = \"late-message\"\nat = \"5s\"\nfor = \"1s\"\ndelay = \"4ms\"\n";

    #[test]
    fn each_node_has_its_own() {
        let plan = Plan::parse(PLAN).unwrap();
        let (first, mut second) = (Faults::new(&plan, 0), Faults::new(&plan, 1));
        let at = |ms: u64| ms * 1_000_000;
        let slowness = |faults: &Faults<'_>, ms| {
            let (factor, which) = faults.slowness(at(ms));
            (factor, which.collect::<Vec<_>>())
        };
        assert_eq!(slowness(&first, 1_500), (1.0, vec![]));
        assert_eq!(slowness(&second, 1_500), (3.0, vec![0]));
        assert_eq!(slowness(&second, 2_000), (1.0, vec![]));
        assert_eq!(second.fate(at(2_000)), (Fate::Sent, None));
        let lost = (0..1_000).filter(|_| second.fate(at(3_500)) == (Fate::Lost, Some(1))).count();
        assert!((400..600).contains(&lost), "{lost}");
        let late = (Fate::Delayed(Span::from_ms(4)), Some(2));
        for node in 0..2 {
            assert_eq!(Faults::new(&plan, node).fate(at(5_000)), late);
        }
    }
}
