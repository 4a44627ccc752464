//! Options of a TCP measurement, with their bounds.

use std::time::Duration;

use horolog_io::target::{AddressFamily, TargetName};
use horolog_record::TcpSettings;

use super::error::TcpPathError;

/// Maximum message size in bytes.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Maximum number of message sizes in a run.
pub const SIZES_MAX: usize = 1_000;
/// Maximum number of parallel connections.
pub const CONNECTIONS_MAX: u32 = 64;
/// Longest measurement of one row.
pub const TIME_MAX: Duration = Duration::from_mins(1);
const TIME_MIN: Duration = Duration::from_millis(10);
/// Longest warm-up of a row.
const WARM_UP_MAX: Duration = Duration::from_secs(10);

/// Directions of transfers to measure.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpDirections {
    /// Near to far end.
    pub forward: bool,
    /// Far to near end.
    pub backward: bool,
}

/// Options of a TCP measurement.
#[derive(Clone, Debug)]
pub struct PathTcpOptions {
    /// Far end to measure against.
    pub target: TargetName,
    /// IP version, if the name has addresses of both.
    pub family: Option<AddressFamily>,
    /// Message sizes for round trips, in bytes; empty for no latency measurement.
    pub latency_sizes: Vec<u64>,
    /// Message sizes for transfers, in bytes.
    pub bandwidth_sizes: Vec<u64>,
    /// Directions of transfers to measure.
    pub directions: TcpDirections,
    /// Number of connections, their socket options, and times.
    pub settings: TcpSettings,
    /// Command line, for the record.
    pub command: Vec<String>,
}

impl PathTcpOptions {
    pub(super) fn check(&self) -> Result<(), TcpPathError> {
        let sizes = || self.latency_sizes.iter().chain(&self.bandwidth_sizes);
        let count = sizes().count();
        if count == 0 || count > SIZES_MAX {
            return Err(TcpPathError::SizeCount(count));
        }
        if let Some(size) = sizes().find(|size| !(1..=MESSAGE_BYTES_MAX).contains(*size)) {
            return Err(TcpPathError::MessageSize(*size));
        }
        let settings = &self.settings;
        if !(1..=CONNECTIONS_MAX).contains(&settings.connections) {
            return Err(TcpPathError::ConnectionCount(settings.connections));
        }
        let time = Duration::from_nanos(settings.time_ns);
        if !(TIME_MIN..=TIME_MAX).contains(&time) {
            return Err(TcpPathError::Duration(time));
        }
        if Duration::from_nanos(settings.warm_up_ns) > WARM_UP_MAX {
            let reason = format!("a warm-up lasts at most {} s", WARM_UP_MAX.as_secs());
            return Err(TcpPathError::InvalidNumber(reason));
        }
        Ok(())
    }

    pub(super) const fn time(&self) -> Duration {
        Duration::from_nanos(self.settings.time_ns)
    }

    pub(super) const fn warm_up(&self) -> Duration {
        Duration::from_nanos(self.settings.warm_up_ns)
    }
}

/// Converts a duration to whole ms, rounded up.
pub(super) fn ceil_ms(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
