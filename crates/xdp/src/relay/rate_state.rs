//! Shared state of the rate limits, so that packets of the same groups that another engine relays
//! count towards the same rates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::abi::{FanOut, GroupEntry};
use crate::map::SharedArray;

/// Theoretical arrival times (GCRA) of groups and of all copies, in ns of the monotonic clock. The
/// kernel's programs charge them too, at any time: changes must compare and exchange.
#[derive(Clone)]
pub struct RelayRateState {
    groups: Arc<SharedArray<GroupEntry>>,
    fan_out: Arc<SharedArray<FanOut>>,
}

impl RelayRateState {
    pub(super) const fn new(
        groups: Arc<SharedArray<GroupEntry>>,
        fan_out: Arc<SharedArray<FanOut>>,
    ) -> Self {
        Self { groups, fan_out }
    }

    /// Returns the time of the packets of the group with this number; `None` if it does not exist.
    #[must_use]
    pub fn packets(&self, number: u32) -> Option<&AtomicU64> {
        let offset = std::mem::offset_of!(GroupEntry, arrival);
        (number < self.groups.entries()).then(|| self.groups.atomic(number, offset))
    }

    /// Returns the time of all copies.
    #[must_use]
    pub fn copies(&self) -> &AtomicU64 {
        self.fan_out.atomic(0, std::mem::offset_of!(FanOut, arrival))
    }
}

impl fmt::Debug for RelayRateState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayMeters").finish_non_exhaustive()
    }
}
