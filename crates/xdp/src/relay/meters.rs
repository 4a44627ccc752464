//! What the limits remember, shared: so that what another body relays of the same groups counts
//! towards the same rates.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::abi::{FanOut, Group};
use crate::map::SharedArray;

/// The theoretical arrival times (GCRA) of groups and of all copies, in ns of the monotonic clock.
/// The kernel's programs charge them too, at any time: whoever changes one compares and exchanges.
#[derive(Clone)]
pub struct RelayMeters {
    groups: Arc<SharedArray<Group>>,
    fan_out: Arc<SharedArray<FanOut>>,
}

impl RelayMeters {
    pub(super) const fn new(
        groups: Arc<SharedArray<Group>>,
        fan_out: Arc<SharedArray<FanOut>>,
    ) -> Self {
        Self { groups, fan_out }
    }

    /// That of the packets of the group with this number; `None` where there is none such.
    #[must_use]
    pub fn packets(&self, number: u32) -> Option<&AtomicU64> {
        let offset = std::mem::offset_of!(Group, arrival);
        (number < self.groups.entries()).then(|| self.groups.atomic(number, offset))
    }

    /// That of all copies.
    #[must_use]
    pub fn copies(&self) -> &AtomicU64 {
        self.fan_out.atomic(0, std::mem::offset_of!(FanOut, arrival))
    }
}

impl fmt::Debug for RelayMeters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RelayMeters").finish_non_exhaustive()
    }
}
