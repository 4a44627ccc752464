//! Hardware timestamping of a running server: a thread periodically compares the PHCs with the
//! system clock, so that their timestamps can be converted. Each is an [`InterfacePhc`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use horolog_io::{BatchPacket, HardwareTimestamp, InterfacePhc, InterfacePhcError, PhcConversion};
use horolog_sys::explain::explain;
use horolog_sys::hardware_timestamps::{EnabledHardwareTimestamps, TimestampPurpose};
use horolog_time::{Monotonic, Timestamp};

use crate::periodic::PeriodicThread;
use crate::{ClockPage, ServerConfig};

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

/// Conversions of PHC timestamps, by interface index.
#[derive(Debug, Default)]
pub(crate) struct PhcConversions(ArcSwap<Vec<(u32, PhcConversion)>>);

impl PhcConversions {
    /// Converts a hardware timestamp to the monotonic clock; `None` without a recent comparison of
    /// its PHC.
    pub(crate) fn monotonic_of(&self, time: HardwareTimestamp) -> Option<Timestamp<Monotonic>> {
        let known = self.0.load();
        let (_, conversion) = known.iter().find(|(interface, _)| *interface == time.interface)?;
        conversion.monotonic_of(time.ns)
    }

    /// Returns the best timestamp of a packet that was read by `now`, and its source: the hardware
    /// timestamp if it can be converted, otherwise the kernel's. `None` without any timestamp.
    pub(crate) fn best_timestamp<A>(
        &self,
        packet: &BatchPacket<'_, A>,
        page: &ClockPage,
        now: Timestamp<Monotonic>,
    ) -> Option<(Timestamp<Monotonic>, TimestampSource)> {
        let hardware = packet.hardware.and_then(|time| self.monotonic_of(time));
        let by_kernel = |instant| (page.monotonic_of(instant, now), TimestampSource::Kernel);
        match hardware {
            Some(instant) => Some((instant, TimestampSource::Hardware)),
            None => packet.received_at.map(by_kernel),
        }
    }
}

/// Source of the timestamp of a packet: kernel or NIC.
#[derive(Clone, Copy)]
pub(crate) enum TimestampSource {
    Kernel,
    Hardware,
}

impl TimestampSource {
    /// Returns `kernel` or `hardware`, according to this source.
    pub(crate) fn choose<T>(self, kernel: T, hardware: T) -> T {
        match self {
            Self::Kernel => kernel,
            Self::Hardware => hardware,
        }
    }
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
        publish(&conversions, &clocks);
        if clocks.is_empty() {
            return Ok(HardwareTimestamping { conversions, thread: PeriodicThread::default() });
        }
        let published = Arc::clone(&conversions);
        let compare = move || {
            clocks.iter_mut().for_each(InterfacePhc::compare);
            publish(&published, &clocks);
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

fn publish(conversions: &PhcConversions, compared: &[InterfacePhc]) {
    let known = compared.iter().map(|one| (one.index(), one.conversion())).collect();
    conversions.0.store(Arc::new(known));
}

#[cfg(test)]
mod tests {
    use horolog_io::CrossTimestamp;

    use super::*;

    #[test]
    fn a_timestamp_is_converted_by_its_own_interface() {
        let monotonic = Timestamp::from_ns(1_000);
        let at = |hardware_ns| PhcConversion::new(CrossTimestamp { hardware_ns, monotonic });
        let conversions = PhcConversions(ArcSwap::from_pointee(vec![(3, at(50)), (7, at(90))]));
        let time = |interface| conversions.monotonic_of(HardwareTimestamp { interface, ns: 90 });
        assert_eq!(time(3), Some(Timestamp::from_ns(1_040)));
        assert_eq!(time(7), Some(Timestamp::from_ns(1_000)));
        assert_eq!(time(4), None);
    }

    #[test]
    fn an_interface_without_is_named() {
        let mut config = ServerConfig::default();
        assert!(HardwareTimestamping::open(&config).is_ok());
        config.timestamps.hardware = vec!["lo".to_owned()];
        let error = HardwareTimestamping::open(&config).err().unwrap().to_string();
        assert!(error.starts_with("--timestamps: 'lo' has no hardware timestamps"), "{error}");
    }
}
