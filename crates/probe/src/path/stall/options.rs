//! Options of `path stall`, with their bounds.

use std::time::Duration;

use horolog_io::target::{AddressFamily, TargetName};
use horolog_time::Span;

use crate::path::tcp::TcpPathError;

/// Maximum number of exchanges of one pattern.
pub const COUNT_MAX: u32 = 300;
/// Maximum number of writes in a batch.
pub const BATCH_MAX: u32 = 256;
const BATCHES_MAX: usize = 256;
/// Minimum stall threshold; less cannot be distinguished from the noise of a busy host.
const STALL_THRESHOLD_MIN: Duration = Duration::from_millis(2);
const STALL_THRESHOLD_MAX: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// Options of a run of write patterns.
#[derive(Clone, Debug)]
pub struct PathStallOptions {
    /// Far end to measure against.
    pub target: TargetName,
    /// IP version, if the name has addresses of both.
    pub family: Option<AddressFamily>,
    /// Exchanges of each pattern under each option.
    pub count: u32,
    /// Batch sizes, in writes.
    pub batches: Vec<u32>,
    /// Minimum time by which a stalled exchange exceeds one without a wait.
    pub stall_min: Duration,
    /// Idle time before the congestion window is measured again.
    pub pause: Duration,
    /// True to capture packets if permitted.
    pub packets: bool,
    /// Command line, for the record.
    pub command: Vec<String>,
}

impl PathStallOptions {
    pub(super) fn check(&self) -> Result<(), TcpPathError> {
        let invalid_number = |reason: String| Err(TcpPathError::InvalidNumber(reason));
        if !(2..=COUNT_MAX).contains(&self.count) {
            return invalid_number(format!(
                "the number of exchanges must be from 2 to {COUNT_MAX}, not {}",
                self.count
            ));
        }
        if self.batches.len() > BATCHES_MAX {
            return invalid_number(format!("at most {BATCHES_MAX} batches can be tried"));
        }
        if let Some(wrong) = self.batches.iter().find(|one| !(1..=BATCH_MAX).contains(*one)) {
            return invalid_number(format!(
                "a batch has from 1 to {BATCH_MAX} writes, not {wrong}"
            ));
        }
        if !(STALL_THRESHOLD_MIN..=STALL_THRESHOLD_MAX).contains(&self.stall_min) {
            return invalid_number(format!(
                "a stall is from {} to {}, not {}",
                Span::from(STALL_THRESHOLD_MIN),
                Span::from(STALL_THRESHOLD_MAX),
                Span::from(self.stall_min)
            ));
        }
        if self.pause > PAUSE_MAX {
            let (most, pause) = (Span::from(PAUSE_MAX), Span::from(self.pause));
            return invalid_number(format!("a pause lasts at most {most}, not {pause}"));
        }
        Ok(())
    }
}
