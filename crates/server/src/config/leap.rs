//! Options for leap seconds, stepped or smeared, and their rules.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use horolog_time::leap::SMEAR_DEFAULT;

use super::ConfigError;

/// Range of the duration of a smear. At the lower limit the smear's rate is 500 ppm, the most that
/// the clock discipline of the NTP reference implementation follows (RFC 5905, appendix A.1.1,
/// `MAXFREQ`).
pub const SMEARS: RangeInclusive<Duration> =
    Duration::from_secs(2_000)..=Duration::from_hours(7 * 24);

/// Behaviour of the system clock at a leap second. It must be configured, because it becomes
/// apparent only after the leap.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum SystemLeapBehaviour {
    /// The kernel or a daemon steps the clock within half a second of the leap, or within two
    /// seconds if the kernel has the leap pending. If a disciplined clock does not step, the server
    /// reports itself as unsynchronised for an hour.
    #[default]
    Steps,
    /// The clock does not step, and the daemon slews the second away afterwards at an unknown rate.
    /// The server reports itself as unsynchronised for an hour from the leap on.
    Slews,
    /// The clock is smeared, like those that it follows. It is served unchanged, and no leap second
    /// is announced.
    Smears,
}

/// Options for leap seconds, stepped or smeared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeapConfig {
    /// File with the list of leap seconds; without one, leap seconds are those of the kernel and of
    /// the selected source.
    pub file: Option<PathBuf>,
    /// TAI minus UTC at the start, in seconds; by default from the list, a source or the kernel.
    pub tai_offset_s: Option<i16>,
    /// Behaviour of the system clock at a leap second.
    pub system: SystemLeapBehaviour,
    /// Duration of the smear around a leap second.
    pub smear: Duration,
    /// Addresses and ports that serve smeared time, in addition to those that serve UTC.
    pub smear_listen: Vec<SocketAddr>,
}

impl Default for LeapConfig {
    /// Uses no list and no smear.
    fn default() -> Self {
        Self {
            file: None,
            tai_offset_s: None,
            system: SystemLeapBehaviour::default(),
            smear: Duration::from_nanos(SMEAR_DEFAULT.as_ns() as u64),
            smear_listen: Vec::new(),
        }
    }
}

impl LeapConfig {
    /// Returns the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !SMEARS.contains(&self.smear) {
            return Err(ConfigError::Smear(self.smear));
        }
        let Some(&first) = self.smear_listen.first() else { return Ok(()) };
        if self.system == SystemLeapBehaviour::Smears {
            return Err(ConfigError::SmearedTwice(first));
        }
        if self.file.is_none() {
            return Err(ConfigError::SmearWithoutFile(first));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_smear_needs_a_file_and_a_clock_that_is_not_smeared() {
        assert_eq!(LeapConfig::default().check(), Ok(()));
        let at: SocketAddr = "10.0.0.1:124".parse().unwrap();
        let smeared = LeapConfig { smear_listen: vec![at], ..LeapConfig::default() };
        assert_eq!(smeared.check(), Err(ConfigError::SmearWithoutFile(at)));
        let with_file = LeapConfig { file: Some("list".into()), ..smeared };
        assert_eq!(with_file.check(), Ok(()));
        let twice = LeapConfig { system: SystemLeapBehaviour::Smears, ..with_file };
        assert_eq!(twice.check(), Err(ConfigError::SmearedTwice(at)));
    }

    #[test]
    fn a_smear_is_no_faster_than_clients_can_follow() {
        for (seconds, right) in [(1_999, false), (2_000, true), (604_800, true), (604_801, false)] {
            let smear = Duration::from_secs(seconds);
            let config = LeapConfig { smear, ..LeapConfig::default() };
            assert_eq!(config.check().is_ok(), right, "{seconds}");
        }
    }
}
