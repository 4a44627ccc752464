//! What a server is told of leap seconds, stepped or smeared, and the rules that this must keep.

use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use horolog_time::leap::SMEAR_DEFAULT;

use super::ConfigError;

/// How long a smear may last. Its rate at the lower end, 500 ppm, is the most that the NTP
/// reference implementation's clock discipline follows (RFC 5905, appendix A.1.1, `MAXFREQ`).
pub const SMEARS: RangeInclusive<Duration> =
    Duration::from_secs(2_000)..=Duration::from_hours(7 * 24);

/// What the system clock does at a leap second. It cannot be seen from the clock itself before it
/// is too late, so it has to be told.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum LeapSystem {
    /// It steps, or the daemon steps it, within half a second of the leap. Where a clock that
    /// somebody disciplines does not, the server says that it is unsynchronised for an hour.
    #[default]
    Steps,
    /// It runs on, and the daemon slews the second away afterwards in a way that nobody can follow:
    /// the server is unsynchronised for an hour from the leap on.
    Slews,
    /// It is smeared itself, as the clocks are that it follows: it is served as it is, and no leap
    /// second is announced.
    Smears,
}

/// Options for leap seconds, stepped or smeared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeapConfig {
    /// The list of leap seconds; what the kernel was told counts where there is none.
    pub file: Option<PathBuf>,
    /// TAI minus UTC at the start, in seconds; the list's, or what the kernel was told, where it is
    /// not given.
    pub tai_offset_s: Option<i16>,
    /// What the system clock does at a leap second.
    pub system: LeapSystem,
    /// How long a smear lasts.
    pub smear: Duration,
    /// Addresses and ports at which smeared time is served, beside those that serve UTC.
    pub smear_listen: Vec<SocketAddr>,
}

impl Default for LeapConfig {
    /// No file, no smear.
    fn default() -> Self {
        Self {
            file: None,
            tai_offset_s: None,
            system: LeapSystem::default(),
            smear: Duration::from_nanos(SMEAR_DEFAULT.as_ns() as u64),
            smear_listen: Vec::new(),
        }
    }
}

impl LeapConfig {
    /// Finds the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if !SMEARS.contains(&self.smear) {
            return Err(ConfigError::Smear(self.smear));
        }
        let Some(&first) = self.smear_listen.first() else { return Ok(()) };
        if self.system == LeapSystem::Smears {
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
        let twice = LeapConfig { system: LeapSystem::Smears, ..with_file };
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
