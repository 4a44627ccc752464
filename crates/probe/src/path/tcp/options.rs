//! What to measure of TCP, and within which bounds.

use std::time::Duration;

use horolog_io::target::{Family, TargetName};
use horolog_record::TcpSettings;

use super::error::PathError;

/// Most payload of a message.
pub const MESSAGE_BYTES_MAX: u64 = 64 << 20;
/// Most sizes in a sweep.
pub const SIZES_MAX: usize = 1_000;
/// Most connections side by side.
pub const CONNECTIONS_MAX: u32 = 64;
/// Longest measurement of one row.
pub const TIME_MAX: Duration = Duration::from_mins(1);
const TIME_MIN: Duration = Duration::from_millis(10);
/// Longest time that is not counted.
const WARM_UP_MAX: Duration = Duration::from_secs(10);

/// Which transfers are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpDirections {
    /// To the far end.
    pub out: bool,
    /// From the far end.
    pub back: bool,
}

/// A measurement of TCP.
#[derive(Clone, Debug)]
pub struct TcpOptions {
    /// The far end.
    pub target: TargetName,
    /// The version of IP, where its name has addresses of both.
    pub family: Option<Family>,
    /// Sizes of messages whose round trips are measured, in bytes; none of them for no latency.
    pub latency_sizes: Vec<u64>,
    /// Sizes of messages that are transferred.
    pub bandwidth_sizes: Vec<u64>,
    /// Which way.
    pub directions: TcpDirections,
    /// How connections are used.
    pub settings: TcpSettings,
    /// The command line, for the record.
    pub command: Vec<String>,
}

impl TcpOptions {
    pub(super) fn check(&self) -> Result<(), PathError> {
        let sizes = || self.latency_sizes.iter().chain(&self.bandwidth_sizes);
        let count = sizes().count();
        if count == 0 || count > SIZES_MAX {
            return Err(PathError::Sizes(count));
        }
        if let Some(size) = sizes().find(|size| !(1..=MESSAGE_BYTES_MAX).contains(*size)) {
            return Err(PathError::Size(*size));
        }
        let settings = &self.settings;
        if !(1..=CONNECTIONS_MAX).contains(&settings.connections) {
            return Err(PathError::Connections(settings.connections));
        }
        let time = Duration::from_nanos(settings.time_ns);
        if !(TIME_MIN..=TIME_MAX).contains(&time) {
            return Err(PathError::Time(time));
        }
        if Duration::from_nanos(settings.warm_up_ns) > WARM_UP_MAX {
            let reason = format!("a warm-up takes at most {} s", WARM_UP_MAX.as_secs());
            return Err(PathError::Number(reason));
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

/// Times of the protocol are in ms; what is a part of one counts as a whole.
pub(super) fn ms(duration: Duration) -> u32 {
    u32::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
