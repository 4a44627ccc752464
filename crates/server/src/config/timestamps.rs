//! Which timestamps of requests and replies a server's sockets take, and the rules that this must
//! keep.

use super::ConfigError;

/// Timestamps that the sockets take.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TimestampsConfig {
    /// Whether replies in interleaved mode are timestamped on their way out at all.
    pub transmit: bool,
    /// The interfaces whose own clocks take the timestamps; the kernel takes those of the others.
    pub hardware: Vec<String>,
}

impl Default for TimestampsConfig {
    /// The kernel's.
    fn default() -> Self {
        Self { transmit: true, hardware: Vec::new() }
    }
}

/// Which rule they break; its text is one line for the user.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum TimestampsConfigError {
    /// None and some.
    #[error("--timestamps none and --timestamps {0}=hardware cannot both be; leave one out")]
    Contradiction(String),
    /// An interface twice.
    #[error("interface '{0}' is given twice; give each --timestamps {0}=hardware once")]
    Twice(String),
}

impl TimestampsConfig {
    /// Finds the first rule that the options break.
    pub(super) fn check(&self) -> Result<(), ConfigError> {
        if let (false, Some(interface)) = (self.transmit, self.hardware.first()) {
            return Err(TimestampsConfigError::Contradiction(interface.clone()).into());
        }
        for (index, interface) in self.hardware.iter().enumerate() {
            if self.hardware[..index].contains(interface) {
                return Err(TimestampsConfigError::Twice(interface.clone()).into());
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_refused() {
        let check = |transmit, hardware: &[&str]| {
            let hardware = hardware.iter().map(ToString::to_string).collect();
            TimestampsConfig { transmit, hardware }.check()
        };
        assert_eq!(TimestampsConfig::default().check(), Ok(()));
        assert_eq!((check(false, &[]), check(true, &["a", "b"])), (Ok(()), Ok(())));
        assert!(check(false, &["a"]).is_err() && check(true, &["a", "b", "a"]).is_err());
    }
}
