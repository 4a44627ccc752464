//! Rate limits: packets of a group and copies of a relay per second. The generic cell rate
//! algorithm (ITU-T I.371), with one atomic theoretical arrival time for each limit; it reads no
//! clock. The XDP engine charges the same arrival times by the same rule, so that the rates apply
//! to both engines together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use horolog_xdp::RelayTheoreticalArrivalTimes;

use crate::GroupCounters;
use crate::table::{CHILDREN_MAX, GROUPS_MAX, Group, RoutingTable};

const NS_PER_S: u64 = 1_000_000_000;
/// Burst tolerance of a rate, in ns.
const BURST_NS: u64 = NS_PER_S / 10;
/// Maximum number of attempts to charge a limit; if concurrent changes defeat all of them, the
/// limit counts as exceeded.
const ATTEMPTS_MAX: usize = 16;

/// Returns the time that this number of units takes at `rate` units per second, in ns; at least 1.
pub(crate) fn cost_ns(units: u64, rate: u64) -> u64 {
    let ns = u128::from(units) * u128::from(NS_PER_S) / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX).max(1)
}

/// Returns the burst tolerance (GCRA's τ) of a group's packets, in ns; at least one packet.
pub(crate) fn packet_tolerance_ns(rate: u64) -> u64 {
    BURST_NS.max(cost_ns(1, rate))
}

/// Returns the burst tolerance (GCRA's τ) of all copies, in ns; at least the copies of one packet.
pub(crate) fn copy_tolerance_ns(rate: u64) -> u64 {
    BURST_NS.max(cost_ns(CHILDREN_MAX as u64, rate))
}

/// Charges a limit by `cost_ns`; returns false if it is exceeded. `arrival_time` is GCRA's
/// theoretical arrival time: that of the next unit if units arrived evenly.
fn try_charge(arrival_time: &AtomicU64, cost_ns: u64, tolerance_ns: u64, now_ns: u64) -> bool {
    for _ in 0..ATTEMPTS_MAX {
        let last = arrival_time.load(Relaxed);
        let next = last.max(now_ns).saturating_add(cost_ns);
        if next - now_ns > tolerance_ns {
            return false;
        }
        if arrival_time.compare_exchange(last, next, Relaxed, Relaxed).is_ok() {
            return true;
        }
    }
    false
}

/// Caps a theoretical arrival time at `tolerance_ns` ahead of now, so that a raised limit takes
/// effect at once.
fn cap_lead(arrival_time: &AtomicU64, tolerance_ns: u64, now_ns: u64) {
    arrival_time.fetch_min(now_ns.saturating_add(tolerance_ns), Relaxed);
}

/// Caps the theoretical arrival times that the XDP engine shares, by the limits of a table. Call it
/// after the XDP engine has switched to that table: until then the engine charges by the old
/// limits.
pub(crate) fn cap_leads(
    rate_state: &RelayTheoreticalArrivalTimes,
    table: &RoutingTable,
    now_ns: u64,
) {
    for group in table.groups() {
        if let Some(arrival_time) = rate_state.packet_arrival(group.index as u32) {
            cap_lead(arrival_time, packet_tolerance_ns(group.spec.rate), now_ns);
        }
    }
    cap_lead(rate_state.copy_arrival(), copy_tolerance_ns(table.copy_rate()), now_ns);
}

/// Rate limiter of a relay: the state of its limits.
#[derive(Debug)]
pub struct RelayRateLimiter {
    rate_state: RateStateStorage,
    /// Counters of the group that last used each group index, to detect a change of its user.
    owners: Box<[Weak<GroupCounters>]>,
}

#[derive(Debug)]
enum RateStateStorage {
    /// Arrival times of this process: of groups by their index, and of all copies.
    Private(Box<[AtomicU64]>, AtomicU64),
    Shared(RelayTheoreticalArrivalTimes),
}

impl Default for RelayRateLimiter {
    fn default() -> Self {
        let groups = std::iter::repeat_with(AtomicU64::default).take(GROUPS_MAX).collect();
        Self::from_state(RateStateStorage::Private(groups, AtomicU64::default()))
    }
}

impl From<RelayTheoreticalArrivalTimes> for RelayRateLimiter {
    /// Makes limits that the XDP engine shares: times are then on the monotonic clock.
    fn from(rate_state: RelayTheoreticalArrivalTimes) -> Self {
        Self::from_state(RateStateStorage::Shared(rate_state))
    }
}

impl RelayRateLimiter {
    fn from_state(rate_state: RateStateStorage) -> Self {
        Self { rate_state, owners: std::iter::repeat_with(Weak::new).take(GROUPS_MAX).collect() }
    }

    /// Applies a table: a group that has taken the index of another starts without its lead, and no
    /// lead exceeds the present tolerances.
    pub(crate) fn apply_table(&mut self, table: &RoutingTable, now_ns: u64) {
        for group in table.groups() {
            let (Some(arrival_time), Some(owner)) =
                (self.rate_state.packet_arrival(group.index), self.owners.get(group.index))
            else {
                continue;
            };
            if std::ptr::eq(owner.as_ptr(), Arc::as_ptr(&group.counters)) {
                cap_lead(arrival_time, packet_tolerance_ns(group.spec.rate), now_ns);
            } else {
                arrival_time.store(0, Relaxed);
                self.owners[group.index] = Arc::downgrade(&group.counters);
            }
        }
        cap_lead(self.rate_state.copy_arrival(), copy_tolerance_ns(table.copy_rate()), now_ns);
    }

    /// Charges the group's rate with one more packet at `now_ns`, on a clock that never goes back;
    /// returns false, without charging, if it is exceeded.
    pub(crate) fn admits_packet(&mut self, group: &Group, now_ns: u64) -> bool {
        let (arrival_time, rate) = (self.rate_state.packet_arrival(group.index), group.spec.rate);
        arrival_time.is_some_and(|arrival_time| {
            try_charge(arrival_time, cost_ns(1, rate), packet_tolerance_ns(rate), now_ns)
        })
    }

    /// Charges the relay's copy rate with this number of copies at `now_ns`; returns false, without
    /// charging, if it is exceeded.
    pub(crate) fn admits_copies(
        &mut self,
        table: &RoutingTable,
        copies: usize,
        now_ns: u64,
    ) -> bool {
        let rate = table.copy_rate();
        try_charge(
            self.rate_state.copy_arrival(),
            cost_ns(copies as u64, rate),
            copy_tolerance_ns(rate),
            now_ns,
        )
    }
}

impl RateStateStorage {
    fn packet_arrival(&self, index: usize) -> Option<&AtomicU64> {
        match self {
            Self::Private(groups, _) => groups.get(index),
            Self::Shared(rate_state) => rate_state.packet_arrival(index as u32),
        }
    }

    fn copy_arrival(&self) -> &AtomicU64 {
        match self {
            Self::Private(_, copies) => copies,
            Self::Shared(rate_state) => rate_state.copy_arrival(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GroupSpec;
    use crate::tests::{group, spec};

    #[test]
    fn who_may_do_more_waits_for_no_debt_of_before() {
        let mut wanted = spec(vec![group("a", "192.0.2.1:5000", &["192.0.2.2:5000"])]);
        (wanted.copy_rate, wanted.groups[0].rate) = (1, 1);
        let slow = RoutingTable::new(&wanted, None).unwrap();
        let (mut limits, now_ns) = (RelayRateLimiter::default(), 7 * NS_PER_S);
        limits.apply_table(&slow, now_ns);
        assert!(limits.admits_packet(&slow.groups()[0], now_ns));
        assert!(limits.admits_copies(&slow, CHILDREN_MAX, now_ns));
        (wanted.copy_rate, wanted.groups[0].rate) = (1_000_000, 100_000);
        let fast = RoutingTable::new(&wanted, Some(&slow)).unwrap();
        limits.apply_table(&fast, now_ns);
        let soon_ns = now_ns + NS_PER_S / 1_000;
        assert!(limits.admits_packet(&fast.groups()[0], soon_ns));
        assert!(limits.admits_copies(&fast, 100, soon_ns));
        assert!(!limits.admits_copies(&fast, CHILDREN_MAX, soon_ns), "no more than the rate");
    }

    #[test]
    fn group_at_a_reused_index_owes_nothing() {
        let one = |name: &str| GroupSpec { rate: 1, ..group(name, "192.0.2.1:5000", &[]) };
        let before = RoutingTable::new(&spec(vec![one("a")]), None).unwrap();
        let after = RoutingTable::new(&spec(vec![one("b")]), Some(&before)).unwrap();
        assert_eq!(before.groups()[0].index, after.groups()[0].index);
        let mut limits = RelayRateLimiter::default();
        for table in [&before, &after] {
            limits.apply_table(table, 1);
            assert!(limits.admits_packet(&table.groups()[0], 1));
            // The same once more forgives nothing that is owed by the present rate.
            limits.apply_table(table, 1);
            assert!(!limits.admits_packet(&table.groups()[0], 1));
        }
    }

    #[test]
    fn rate_holds_over_any_duration() {
        for (rate, every_ns) in [(1_000, 10_000), (10, 1_000_000), (1, 100_000_000)] {
            let (word, mut passed) = (AtomicU64::default(), 0);
            let seconds = 10;
            for now_ns in (0..seconds * NS_PER_S).step_by(every_ns) {
                passed += u64::from(try_charge(
                    &word,
                    cost_ns(1, rate),
                    packet_tolerance_ns(rate),
                    now_ns,
                ));
            }
            let burst = (rate * BURST_NS / NS_PER_S).max(1);
            let wanted = rate * seconds;
            assert!((wanted..=wanted + burst).contains(&passed), "{rate}: {passed}");
        }
    }

    #[test]
    fn the_largest_packet_passes_at_the_lowest_rate() {
        let word = AtomicU64::default();
        let charge =
            |copies, now_ns| try_charge(&word, cost_ns(copies, 1), copy_tolerance_ns(1), now_ns);
        assert!(charge(1_024, 5));
        assert!(!charge(1, 6));
        assert!(charge(1, 6 + 1_000 * NS_PER_S));
    }

    #[test]
    fn no_number_overflows() {
        let late = AtomicU64::new(u64::MAX);
        assert!(try_charge(&late, cost_ns(u64::MAX, 1), u64::MAX, 0));
        assert!(!try_charge(&late, cost_ns(1, 0), packet_tolerance_ns(1), 0));
    }
}
