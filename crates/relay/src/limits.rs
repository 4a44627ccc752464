//! Rates: how many packets a group may have and how many copies a relay may make in a second. The
//! generic cell rate algorithm (ITU-T I.371), a word for each limit; it reads no clock. The
//! kernel's body charges the same words by the same rule, so that the rates are those of both
//! together.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use horolog_xdp::RelayMeters;

use crate::GroupBook;
use crate::table::{CHILDREN_MAX, GROUPS_MAX, Group, Table};

const NS_PER_S: u64 = 1_000_000_000;
/// A rate may be used up in bursts of so much of a second.
const BURST_NS: u64 = NS_PER_S / 10;
/// Who is overtaken by others as often as that is over the limit.
const ATTEMPTS: usize = 16;

/// What so many units take at `rate` units in a second.
pub(crate) fn cost_ns(units: u64, rate: u64) -> u64 {
    let ns = u128::from(units) * u128::from(NS_PER_S) / u128::from(rate.max(1));
    u64::try_from(ns).unwrap_or(u64::MAX).max(1)
}

/// How far a group may be ahead of its rate; one packet always may.
pub(crate) fn packets_ahead_ns(rate: u64) -> u64 {
    BURST_NS.max(cost_ns(1, rate))
}

/// How far all copies may be ahead of theirs; those of one packet always may.
pub(crate) fn copies_ahead_ns(rate: u64) -> u64 {
    BURST_NS.max(cost_ns(CHILDREN_MAX as u64, rate))
}

/// Charges a limit; false where that is too much. The word is when the next unit would come if
/// units came evenly ("theoretical arrival time").
fn charge(word: &AtomicU64, cost_ns: u64, ahead_ns: u64, now_ns: u64) -> bool {
    for _ in 0..ATTEMPTS {
        let last = word.load(Relaxed);
        let next = last.max(now_ns).saturating_add(cost_ns);
        if next - now_ns > ahead_ns {
            return false;
        }
        if word.compare_exchange(last, next, Relaxed, Relaxed).is_ok() {
            return true;
        }
    }
    false
}

/// Forgives what is beyond a limit that has come in the place of another: nobody is further ahead
/// than the present one lets him be, and who may do more waits for no debt of before.
fn forgive(word: &AtomicU64, ahead_ns: u64, now_ns: u64) {
    word.fetch_min(now_ns.saturating_add(ahead_ns), Relaxed);
}

/// Forgives what is beyond the limits of a table, in words that a body in the kernel charges too.
/// To be called once it charges by that table: what it did by the one before counts as well.
pub(crate) fn forgive_below(meters: &RelayMeters, table: &Table, now_ns: u64) {
    for group in table.groups() {
        if let Some(word) = meters.packets(group.place as u32) {
            forgive(word, packets_ahead_ns(group.spec.rate), now_ns);
        }
    }
    forgive(meters.copies(), copies_ahead_ns(table.copy_rate()), now_ns);
}

/// What the limits of a relay remember.
#[derive(Debug)]
pub struct Limits {
    words: Words,
    /// Whose the words of groups are, by place.
    owners: Box<[Weak<GroupBook>]>,
}

#[derive(Debug)]
enum Words {
    /// Of groups by their place, and of all copies.
    Own(Box<[AtomicU64]>, AtomicU64),
    Kernel(RelayMeters),
}

impl Default for Limits {
    fn default() -> Self {
        let groups = std::iter::repeat_with(AtomicU64::default).take(GROUPS_MAX).collect();
        Self::of(Words::Own(groups, AtomicU64::default()))
    }
}

impl From<RelayMeters> for Limits {
    /// Those of a body in the kernel too: times are then on the monotonic clock.
    fn from(meters: RelayMeters) -> Self {
        Self::of(Words::Kernel(meters))
    }
}

impl Limits {
    fn of(words: Words) -> Self {
        Self { words, owners: std::iter::repeat_with(Weak::new).take(GROUPS_MAX).collect() }
    }

    /// Goes by a table from now on: a group that has got the place of another begins without its
    /// debt, and nobody owes more than the present rates let him.
    pub(crate) fn take_over(&mut self, table: &Table, now_ns: u64) {
        for group in table.groups() {
            let (Some(word), Some(owner)) =
                (self.words.packets(group.place), self.owners.get(group.place))
            else {
                continue;
            };
            if std::ptr::eq(owner.as_ptr(), Arc::as_ptr(&group.book)) {
                forgive(word, packets_ahead_ns(group.spec.rate), now_ns);
            } else {
                word.store(0, Relaxed);
                self.owners[group.place] = Arc::downgrade(&group.book);
            }
        }
        forgive(self.words.copies(), copies_ahead_ns(table.copy_rate()), now_ns);
    }

    /// Whether the group may have one packet more at `now_ns` on a clock that never goes back.
    pub(crate) fn admits_packet(&mut self, group: &Group, now_ns: u64) -> bool {
        let (word, rate) = (self.words.packets(group.place), group.spec.rate);
        word.is_some_and(|word| charge(word, cost_ns(1, rate), packets_ahead_ns(rate), now_ns))
    }

    /// Whether the relay may make so many copies more.
    pub(crate) fn admits_copies(&mut self, table: &Table, copies: usize, now_ns: u64) -> bool {
        let rate = table.copy_rate();
        charge(self.words.copies(), cost_ns(copies as u64, rate), copies_ahead_ns(rate), now_ns)
    }
}

impl Words {
    fn packets(&self, place: usize) -> Option<&AtomicU64> {
        match self {
            Self::Own(groups, _) => groups.get(place),
            Self::Kernel(meters) => meters.packets(place as u32),
        }
    }

    fn copies(&self) -> &AtomicU64 {
        match self {
            Self::Own(_, copies) => copies,
            Self::Kernel(meters) => meters.copies(),
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
        let slow = Table::new(&wanted, None).unwrap();
        let (mut limits, now_ns) = (Limits::default(), 7 * NS_PER_S);
        limits.take_over(&slow, now_ns);
        assert!(limits.admits_packet(&slow.groups()[0], now_ns));
        assert!(limits.admits_copies(&slow, CHILDREN_MAX, now_ns));
        (wanted.copy_rate, wanted.groups[0].rate) = (1_000_000, 100_000);
        let fast = Table::new(&wanted, Some(&slow)).unwrap();
        limits.take_over(&fast, now_ns);
        let soon_ns = now_ns + NS_PER_S / 1_000;
        assert!(limits.admits_packet(&fast.groups()[0], soon_ns));
        assert!(limits.admits_copies(&fast, 100, soon_ns));
        assert!(!limits.admits_copies(&fast, CHILDREN_MAX, soon_ns), "no more than the rate");
    }

    #[test]
    fn who_gets_the_place_of_another_owes_nothing() {
        let one = |name: &str| GroupSpec { rate: 1, ..group(name, "192.0.2.1:5000", &[]) };
        let before = Table::new(&spec(vec![one("a")]), None).unwrap();
        let after = Table::new(&spec(vec![one("b")]), Some(&before)).unwrap();
        assert_eq!(before.groups()[0].place, after.groups()[0].place);
        let mut limits = Limits::default();
        for table in [&before, &after] {
            limits.take_over(table, 1);
            assert!(limits.admits_packet(&table.groups()[0], 1));
            // The same once more forgives nothing that is owed by the present rate.
            limits.take_over(table, 1);
            assert!(!limits.admits_packet(&table.groups()[0], 1));
        }
    }

    #[test]
    fn a_rate_is_kept_over_any_time() {
        for (rate, every_ns) in [(1_000, 10_000), (10, 1_000_000), (1, 100_000_000)] {
            let (word, mut passed) = (AtomicU64::default(), 0);
            let seconds = 10;
            for now_ns in (0..seconds * NS_PER_S).step_by(every_ns) {
                passed +=
                    u64::from(charge(&word, cost_ns(1, rate), packets_ahead_ns(rate), now_ns));
            }
            let burst = (rate * BURST_NS / NS_PER_S).max(1);
            let wanted = rate * seconds;
            assert!((wanted..=wanted + burst).contains(&passed), "{rate}: {passed}");
        }
    }

    #[test]
    fn the_largest_packet_passes_at_the_lowest_rate() {
        let word = AtomicU64::default();
        let charge = |copies, now_ns| charge(&word, cost_ns(copies, 1), copies_ahead_ns(1), now_ns);
        assert!(charge(1_024, 5));
        assert!(!charge(1, 6));
        assert!(charge(1, 6 + 1_000 * NS_PER_S));
    }

    #[test]
    fn no_number_overflows() {
        let late = AtomicU64::new(u64::MAX);
        assert!(charge(&late, cost_ns(u64::MAX, 1), u64::MAX, 0));
        assert!(!charge(&late, cost_ns(1, 0), packets_ahead_ns(1), 0));
    }
}
