//! Hardware timestamping of a running server: a thread periodically compares the PHCs with the
//! system clock, so that their timestamps can be converted. Each is an [`InterfacePhc`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use horolog_io::{InterfacePhc, InterfacePhcError, PhcConversions};
use horolog_sys::explain::explain;
use horolog_sys::hardware_timestamps::{EnabledHardwareTimestamps, TimestampPurpose};

use crate::config::ServerConfig;
use crate::periodic::PeriodicThread;

/// Interval between comparisons of the clocks. The frequency of an ordinary oscillator changes by
/// far less than 10 ppb in that time, which is 5 ns.
const COMPARISON_INTERVAL: Duration = Duration::from_millis(500);

/// Reason for which hardware timestamps are unavailable; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum HardwareTimestampingError {
    /// Interface without hardware timestamps, or with a PHC that cannot be read.
    #[error("--timestamps: {0}")]
    Interface(#[from] InterfacePhcError),
    /// Failure to start the thread that compares the clocks.
    #[error("cannot start a thread: {why}; check the limits on processes and memory (ulimit \
             -a)", why = explain(.0))]
    Thread(#[source] io::Error),
}

/// Enabled hardware timestamps and the thread that compares the PHCs. Dropping it disables them.
#[derive(Debug)]
pub(crate) struct HardwareTimestamping {
    conversions: Arc<PhcConversions>,
    thread: PeriodicThread,
}

/// Enabled hardware timestamps whose PHCs are not compared periodically yet.
pub(crate) struct OpenHardwareTimestamping(Vec<InterfacePhc>);

impl OpenHardwareTimestamping {
    /// Starts the thread that compares the PHCs.
    pub(crate) fn start(self) -> Result<HardwareTimestamping, HardwareTimestampingError> {
        let Self(mut clocks) = self;
        let conversions = Arc::<PhcConversions>::default();
        conversions.publish(&clocks);
        if clocks.is_empty() {
            return Ok(HardwareTimestamping { conversions, thread: PeriodicThread::default() });
        }
        let published = Arc::clone(&conversions);
        let compare = move || {
            clocks.iter_mut().for_each(InterfacePhc::compare);
            published.publish(&clocks);
        };
        let thread = PeriodicThread::start("hardware-clocks", COMPARISON_INTERVAL, move || compare);
        Ok(HardwareTimestamping {
            conversions,
            thread: thread.map_err(HardwareTimestampingError::Thread)?,
        })
    }
}

impl HardwareTimestamping {
    /// Enables hardware timestamps on all configured interfaces; on an error, on none.
    pub(crate) fn open(
        config: &ServerConfig,
    ) -> Result<OpenHardwareTimestamping, HardwareTimestampingError> {
        let open = |name: &String| InterfacePhc::open(name, purpose(config, name));
        let interfaces = config.timestamps.hardware.iter();
        Ok(OpenHardwareTimestamping(interfaces.map(open).collect::<Result<_, _>>()?))
    }

    /// Checks that the drivers support the configured hardware timestamps, without enabling them.
    pub(crate) fn check(config: &ServerConfig) -> Result<(), HardwareTimestampingError> {
        let check = |name: &String| EnabledHardwareTimestamps::check(name, purpose(config, name));
        let checked = config.timestamps.hardware.iter().try_for_each(check);
        checked.map_err(|error| InterfacePhcError::from(error).into())
    }

    /// Returns the conversions of the PHC timestamps.
    pub(crate) fn conversions(&self) -> Arc<PhcConversions> {
        Arc::clone(&self.conversions)
    }

    /// Returns true if the thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

/// Returns the purpose of the hardware timestamps of an interface: NTP, PTP, or PTP with one-step
/// Sync.
fn purpose(config: &ServerConfig, interface: &String) -> TimestampPurpose {
    let ptp = &config.ptp;
    match (ptp.interfaces.contains(interface), ptp.one_step) {
        (false, _) => TimestampPurpose::Ntp,
        (true, false) => TimestampPurpose::Ptp,
        (true, true) => TimestampPurpose::PtpOneStep,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_without_is_named() {
        let mut config = ServerConfig::default();
        assert!(HardwareTimestamping::open(&config).is_ok());
        config.timestamps.hardware = vec!["lo".to_owned()];
        let error = HardwareTimestamping::open(&config).err().unwrap().to_string();
        assert!(error.starts_with("--timestamps: 'lo' has no hardware timestamps"), "{error}");
    }
}
