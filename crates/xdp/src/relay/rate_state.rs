//! State of the rate limits that the XDP engine shares with another engine, so that both count
//! towards the same rates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::abi::{FanOutRateState, GroupEntry};
use crate::map::SharedArray;

/// Theoretical arrival times (GCRA) of each group and of all copies, in ns of the monotonic clock.
/// BPF programs update them concurrently, so changes require compare-and-exchange.
#[derive(Clone)]
pub struct RelayRateState {
    groups: Arc<SharedArray<GroupEntry>>,
    fan_out: Arc<SharedArray<FanOutRateState>>,
}

impl RelayRateState {
    pub(super) const fn new(
        groups: Arc<SharedArray<GroupEntry>>,
        fan_out: Arc<SharedArray<FanOutRateState>>,
    ) -> Self {
        Self { groups, fan_out }
    }

    /// Returns the theoretical arrival time of the group with this number; `None` if the number is
    /// out of range.
    #[must_use]
    pub fn packet_arrival(&self, number: u32) -> Option<&AtomicU64> {
        let offset = std::mem::offset_of!(GroupEntry, arrival);
        (number < self.groups.entries()).then(|| self.groups.atomic(number, offset))
    }

    /// Returns the theoretical arrival time of all copies.
    #[must_use]
    pub fn copy_arrival(&self) -> &AtomicU64 {
        self.fan_out.atomic(0, std::mem::offset_of!(FanOutRateState, arrival))
    }
}

impl fmt::Debug for RelayRateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayMeters").finish_non_exhaustive()
    }
}
