//! A faulty device over a simulated one, each fault by itself and all of them together.

use std::collections::BTreeMap;

use horolog_time::{SimulatedClock, Timestamp, Utc};
use proptest::prelude::*;

use super::*;
use crate::simulated::{SimulatedDevice, SimulatedLink};

const PACKETS: u32 = 2_000;

/// Sends numbered packets through a device with these faults; returns what arrived, in order, and
/// the account.
fn run(plan: FaultInjectionPlan) -> (Vec<Vec<u8>>, FaultCounts) {
    let clock = Arc::new(SimulatedClock::new(0));
    let link = SimulatedLink {
        clock: Arc::clone(&clock),
        delay: Span::ZERO,
        queue_packets: 9_999,
        phc_offset: None,
    };
    let [left, mut right] = SimulatedDevice::<()>::pair(&link, [(), ()]);
    let mut sender = FaultyDevice::new(left, plan, clock, 16, 8);
    let mut batch = Batch::new(10, 8);
    for first in (0..PACKETS).step_by(10) {
        batch.clear();
        for number in first..first + 10 {
            assert!(batch.push((), &number.to_be_bytes()));
        }
        assert_eq!(sender.send(&mut batch).unwrap(), 10);
    }
    // What was held back or is late leaves in the course of these.
    sender.sending.release_held();
    sender.receive(&mut batch, Duration::from_secs(1)).unwrap();
    sender.receive(&mut batch, Duration::ZERO).unwrap();
    let mut arrived = Vec::new();
    while right.receive(&mut batch, Duration::ZERO).unwrap() > 0 {
        arrived.extend(batch.iter().map(|packet| packet.bytes.to_vec()));
    }
    (arrived, sender.counts())
}

fn numbers(arrived: &[Vec<u8>]) -> Vec<u32> {
    arrived.iter().map(|bytes| u32::from_be_bytes(bytes[..].try_into().unwrap())).collect()
}

/// One fault, at a probability of 1 in 10, and its count.
fn one_fault(
    set: impl Fn(&mut FaultInjectionPlan),
    count: impl Fn(&FaultCounts) -> u64,
) -> Vec<Vec<u8>> {
    let mut plan = FaultInjectionPlan { seed: 7, ..FaultInjectionPlan::default() };
    set(&mut plan);
    let (arrived, counts) = run(plan);
    let expected = u64::from(PACKETS) / 10;
    // Five standard deviations of a binomial distribution: sqrt(2000 * 0.1 * 0.9) = 13.4.
    assert!(count(&counts).abs_diff(expected) < 67, "{counts:?}");
    arrived
}

#[test]
fn without_faults_all_pass_in_order() {
    let (arrived, counts) = run(FaultInjectionPlan::default());
    assert_eq!(numbers(&arrived), (0..PACKETS).collect::<Vec<_>>());
    assert_eq!(counts, FaultCounts { packets: PACKETS.into(), ..FaultCounts::default() });
}

#[test]
fn a_cut_packet_is_shorter_and_a_corrupted_one_differs_by_a_bit() {
    let cut = one_fault(|plan| plan.truncation = 0.1, |counts| counts.truncated);
    assert!(cut.len() == PACKETS as usize && cut.iter().any(Vec::is_empty));
    let corrupted = one_fault(|plan| plan.corruption = 0.1, |counts| counts.corrupted);
    let bits = numbers(&corrupted)
        .into_iter()
        .zip(0..)
        .map(|(got, sent): (u32, u32)| (got ^ sent).count_ones());
    assert!(bits.clone().all(|bits| bits <= 1) && bits.sum::<u32>() > 0);
}

#[test]
fn a_reordered_packet_comes_after_its_follower() {
    let arrived = numbers(&one_fault(|plan| plan.reordering = 0.1, |counts| counts.reordered));
    assert!(arrived.windows(2).any(|pair| pair[0] == pair[1] + 1));
    assert!(arrived.iter().zip(0..).all(|(got, place): (&u32, u32)| got.abs_diff(place) <= 1));
}

#[test]
fn delayed_packets_come_when_their_time_has_come() {
    let arrived = numbers(&one_fault(
        |plan| {
            plan.delay = 0.1;
            plan.delay_by = Span::from_ms(500);
        },
        |counts| counts.delayed,
    ));
    assert_eq!(arrived.len(), PACKETS as usize);
    // The clock stands still while packets are sent, so the late ones come last, in order.
    let turn = arrived.windows(2).position(|pair| pair[0] > pair[1]).unwrap() + 1;
    assert!(arrived[..turn].is_sorted() && arrived[turn..].is_sorted());
    assert!(arrived.len() - turn > 100);
}

#[test]
fn a_received_packet_that_is_late_bears_a_later_timestamp() {
    let clock = Arc::new(SimulatedClock::new(0));
    let link = SimulatedLink {
        clock: Arc::clone(&clock),
        delay: Span::from_ms(1),
        queue_packets: 8,
        phc_offset: None,
    };
    let [mut left, right] = SimulatedDevice::<()>::pair(&link, [(), ()]);
    let delay_by = Span::from_ms(20);
    let plan = FaultInjectionPlan { delay: 1.0, delay_by, ..FaultInjectionPlan::default() };
    let mut receiver = FaultyDevice::new(right, plan, Arc::clone(&clock) as _, 8, 8);
    let mut batch = Batch::new(8, 8);
    assert!(batch.push((), b"late"));
    left.send(&mut batch).unwrap();
    assert_eq!(receiver.receive(&mut batch, Duration::from_secs(1)).unwrap(), 0);
    assert_eq!(receiver.receive(&mut batch, Duration::from_secs(1)).unwrap(), 1);
    let due = Span::from_ms(21);
    assert_eq!(batch.packet(0).received_at, Some(Timestamp::from_ns(due.as_ns())));
    assert_eq!(Clock::<Utc>::now(&*clock), Timestamp::from_ns(due.as_ns()));
}

/// A device that receives what it sent and gives back what was to be timestamped.
struct Mirror {
    sent: Vec<(Vec<u8>, bool)>,
}

const RECEIVED_AT_NS: i64 = 5;

impl BatchDevice for Mirror {
    type Address = ();

    fn receive(&mut self, batch: &mut Batch<()>, _: Duration) -> io::Result<usize> {
        batch.clear();
        for (bytes, _) in self.sent.drain(..) {
            assert!(batch.push_received((), &bytes, Timestamp::from_ns(RECEIVED_AT_NS)));
        }
        Ok(batch.len())
    }

    fn send(&mut self, batch: &mut Batch<()>) -> io::Result<usize> {
        self.sent
            .extend(batch.iter().map(|packet| (packet.bytes.to_vec(), packet.wants_timestamp)));
        Ok(batch.len())
    }

    fn receive_transmitted(&mut self, batch: &mut Batch<()>) -> io::Result<usize> {
        batch.clear();
        for (bytes, _) in self.sent.iter().filter(|(_, stamp)| *stamp) {
            assert!(batch.push((), bytes));
        }
        Ok(batch.len())
    }
}

#[test]
fn metadata_of_a_packet_passes_with_it() {
    let clock = Arc::new(SimulatedClock::new(0));
    let plan =
        FaultInjectionPlan { delay: 1.0, delay_by: Span::ZERO, ..FaultInjectionPlan::default() };
    let mut faulty = FaultyDevice::new(Mirror { sent: Vec::new() }, plan, clock, 8, 8);
    let mut batch = Batch::new(8, 8);
    for bytes in [b"plain", b"timed"] {
        assert!(batch.push((), bytes));
    }
    *batch.packet_mut(1).wants_timestamp = true;
    assert_eq!(faulty.send(&mut batch).unwrap(), 2);
    assert_eq!(faulty.receive_transmitted(&mut batch).unwrap(), 1);
    assert_eq!(batch.packet(0).bytes, b"timed");
    assert_eq!(faulty.receive(&mut batch, Duration::ZERO).unwrap(), 2);
    let received = batch.iter().map(|packet| packet.received_monotonic);
    assert!(received.eq([Some(Timestamp::from_ns(RECEIVED_AT_NS)); 2]));
}

proptest! {
    #[test]
    fn packets_are_lost_and_doubled_as_counted_and_never_otherwise(
        seed: u64, loss in 0.0..0.5, duplication in 0.0..0.5, reordering in 0.0..0.5, delay in 0.0..0.5)
    {
        let plan = FaultInjectionPlan {
            seed, loss, duplication, reordering, delay, delay_by: Span::from_ms(1),
            ..FaultInjectionPlan::default()
        };
        let (arrived, counts) = run(plan);
        prop_assert_eq!(run(plan), (arrived.clone(), counts), "the same seed, the same damage");
        let mut copies = BTreeMap::new();
        for number in numbers(&arrived) {
            *copies.entry(number).or_insert(0u64) += 1;
        }
        prop_assert_eq!(copies.len() as u64, u64::from(PACKETS) - counts.lost);
        prop_assert_eq!(copies.values().filter(|&&n| n == 2).count() as u64, counts.duplicated);
        prop_assert!(copies.values().all(|&n| n <= 2));
    }
}
