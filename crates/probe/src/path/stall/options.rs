//! What to search for stalls, and within which bounds.

use std::time::Duration;

use horolog_io::target::{Family, TargetName};

use crate::path::tcp::PathError;

/// Most exchanges of one pattern.
pub const COUNT_MAX: u32 = 300;
/// Most writes in a batch.
pub const BATCH_MAX: u32 = 256;
const BATCHES_MAX: usize = 256;
/// Below this a stall cannot be told from what a busy machine does.
const STALL_MIN: Duration = Duration::from_millis(2);
const STALL_MAX: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);

/// A search for stalls.
#[derive(Clone, Debug)]
pub struct StallOptions {
    /// The far end.
    pub target: TargetName,
    /// The version of IP, where its name has addresses of both.
    pub family: Option<Family>,
    /// Exchanges of each pattern under each option.
    pub count: u32,
    /// Writes in a batch, one number for each batch that is tried.
    pub batches: Vec<u32>,
    /// How much longer than one that waits for nothing an exchange takes that stalled.
    pub stall_min: Duration,
    /// How long a connection is left alone before its window is looked at again.
    pub pause: Duration,
    /// Whether to look at the packets where this process may.
    pub packets: bool,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl StallOptions {
    pub(super) fn check(&self) -> Result<(), PathError> {
        let number = |reason: String| Err(PathError::Number(reason));
        if !(2..=COUNT_MAX).contains(&self.count) {
            return number(format!(
                "the number of exchanges must be from 2 to {COUNT_MAX}, not {}",
                self.count
            ));
        }
        if self.batches.len() > BATCHES_MAX {
            return number(format!("at most {BATCHES_MAX} batches can be tried"));
        }
        if let Some(wrong) = self.batches.iter().find(|one| !(1..=BATCH_MAX).contains(*one)) {
            return number(format!("a batch has from 1 to {BATCH_MAX} writes, not {wrong}"));
        }
        if !(STALL_MIN..=STALL_MAX).contains(&self.stall_min) {
            return number(format!(
                "a stall is from {STALL_MIN:?} to {STALL_MAX:?}, not {:?}",
                self.stall_min
            ));
        }
        if self.pause > PAUSE_MAX {
            return number(format!("a pause takes at most {PAUSE_MAX:?}, not {:?}", self.pause));
        }
        Ok(())
    }
}
