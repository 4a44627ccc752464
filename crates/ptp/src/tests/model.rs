//! Ports that face each other over a link: they settle with one master, and when that goes away
//! another takes over.

use proptest::prelude::*;

use super::*;

/// A port, its clock, and whether it is there.
struct Node {
    port: ClockPort,
    clock: PtpClockProperties,
    there: bool,
}

/// A link on which all hear what any says to the group.
struct Link {
    nodes: Vec<Node>,
    now: Timestamp<Monotonic>,
}

impl Link {
    /// Clocks with these first ranks.
    fn new(priorities: &[u8]) -> Self {
        let node = |(index, &priority1): (usize, &u8)| {
            let identity = 0x0200_5eff_fe10_0000 + index as u64;
            let clock =
                ClockSettings { priority1, ..ClockSettings::new(identity, PtpProfile::DefaultE2e) };
            let port = ClockPort::new(clock, settings(PtpProfile::DefaultE2e), START);
            Node { port, clock: GOOD, there: true }
        };
        Self { nodes: priorities.iter().enumerate().map(node).collect(), now: START }
    }

    /// Runs from one instant at which something is due to the next, for so many seconds.
    fn run(&mut self, duration_s: i64) {
        let end = self.now + seconds(duration_s);
        while self.now < end {
            for index in 0..self.nodes.len() {
                self.step(index);
            }
            let next = self.nodes.iter().filter(|node| node.there).map(|node| node.port.next_due());
            self.now = next.min().unwrap_or(end).min(end);
        }
    }

    fn step(&mut self, index: usize) {
        let now = self.now;
        let mut out = RecordingOutbox::default();
        let node = &mut self.nodes[index];
        if !node.there {
            return;
        }
        node.port.process_due(&node.clock, now, &mut out);
        for sent in out.0 {
            assert_eq!(sent.to, PtpDestination::Group);
            let others = self.nodes.iter_mut().enumerate();
            for (_, node) in others.filter(|(other, node)| *other != index && node.there) {
                let arrival = ReceivedPtpMessage { group: true, ..arrival(&sent.bytes) };
                let mut answers = RecordingOutbox::default();
                node.port.receive(&arrival, &node.clock, now, &mut answers);
                assert!(answers.0.is_empty(), "masters do not answer one another");
            }
        }
    }

    /// The masters that are there.
    fn masters(&self) -> Vec<usize> {
        let is_master = |node: &Node| node.there && node.port.state() == PortState::Master;
        (0..self.nodes.len()).filter(|&index| is_master(&self.nodes[index])).collect()
    }
}

#[test]
fn two_ports_settle_with_one_master_and_the_other_takes_over() {
    let mut link = Link::new(&[128, 127]);
    link.run(20);
    assert_eq!(link.masters(), [1]);
    assert_eq!(link.nodes[0].port.state(), PortState::Passive);
    link.nodes[1].there = false;
    link.run(3);
    assert!(link.masters().is_empty(), "not before three intervals without an Announce");
    link.run(5);
    assert_eq!(link.masters(), [0]);
    link.nodes[1].there = true;
    link.run(10);
    assert_eq!(link.masters(), [1]);
}

#[test]
fn a_clock_that_loses_its_source_makes_way() {
    let mut link = Link::new(&[128, 128]);
    link.run(20);
    assert_eq!(link.masters(), [0], "the lower identity");
    link.nodes[0].clock = PtpClockProperties { clock_class: 7, ..GOOD };
    link.run(10);
    assert_eq!(link.masters(), [1]);
    link.nodes[0].clock = GOOD;
    link.run(10);
    assert_eq!(link.masters(), [0]);
    link.nodes[0].clock = UNUSABLE;
    link.run(10);
    assert_eq!(link.masters(), [1]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_number_settles_with_the_best(
        priorities in proptest::collection::vec(0u8..4, 1..8),
        gone in 0usize..8,
    ) {
        let mut link = Link::new(&priorities);
        link.run(40);
        let best = |link: &Link| {
            let there = (0..priorities.len()).filter(|&index| link.nodes[index].there);
            there.min_by_key(|&index| (priorities[index], index)).into_iter().collect::<Vec<_>>()
        };
        prop_assert_eq!(link.masters(), best(&link));
        link.nodes[gone % priorities.len()].there = false;
        link.run(40);
        prop_assert_eq!(link.masters(), best(&link));
    }
}
