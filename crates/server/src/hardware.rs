//! Hardware timestamps of a running server: compares each PHC with the system clock periodically
//! and converts its timestamps. One such clock is an [`InterfacePhc`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use horolog_io::{BatchPacket, HardwareTime, InterfacePhc, InterfacePhcError, PhcConversion};
use horolog_sys::explain::explain;
use horolog_sys::hardware_timestamps::{HardwareTimestamps, TimestampPurpose};
use horolog_time::{Monotonic, Timestamp};

use crate::periodic::Periodic;
use crate::{ClockPage, ServerConfig};

/// Interval between comparisons of the clocks. The rate of an ordinary oscillator changes by far
/// less than 10 parts per billion in that time, which is 5 ns.
const INTERVAL: Duration = Duration::from_millis(500);

/// Reason for which hardware timestamps are unavailable; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum HardwareStartError {
    /// Interface without hardware timestamps, or with a clock that cannot be read.
    #[error("--timestamps: {0}")]
    Interface(#[from] InterfacePhcError),
    /// Failure to start the thread that compares the clocks.
    #[error("cannot start a thread: {why}; check the limits on processes and memory (ulimit \
             -a)", why = explain(.0))]
    Thread(#[source] io::Error),
}

/// Conversions of the few interfaces, by interface index.
#[derive(Debug, Default)]
pub(crate) struct PhcConversions(ArcSwap<Vec<(u32, PhcConversion)>>);

impl PhcConversions {
    /// Returns the instant of a hardware timestamp; `None` if its clock is not known accurately
    /// enough.
    pub(crate) fn monotonic_of(&self, time: HardwareTime) -> Option<Timestamp<Monotonic>> {
        let known = self.0.load();
        let (_, conversion) = known.iter().find(|(interface, _)| *interface == time.interface)?;
        conversion.monotonic_of(time.ns)
    }

    /// Returns the better timestamp of a packet read by `now`: the hardware one if it can be
    /// converted.
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

/// Source of a timestamp.
#[derive(Clone, Copy)]
pub(crate) enum TimestampSource {
    Kernel,
    Hardware,
}

impl TimestampSource {
    /// Returns the value that belongs to this source.
    pub(crate) fn choose<T>(self, kernel: T, hardware: T) -> T {
        match self {
            Self::Kernel => kernel,
            Self::Hardware => hardware,
        }
    }
}

/// Enabled hardware timestamps; dropping it disables them.
#[derive(Debug)]
pub(crate) struct Hardware {
    conversions: Arc<PhcConversions>,
    thread: Periodic,
}

/// Enabled hardware timestamps whose clocks are not yet compared.
pub(crate) struct OpenHardware(Vec<InterfacePhc>);

impl OpenHardware {
    /// Starts comparing the clocks.
    pub(crate) fn start(self) -> Result<Hardware, HardwareStartError> {
        let Self(mut compared) = self;
        let conversions = Arc::<PhcConversions>::default();
        publish(&conversions, &compared);
        if compared.is_empty() {
            return Ok(Hardware { conversions, thread: Periodic::default() });
        }
        let published = Arc::clone(&conversions);
        let compare = move || {
            compared.iter_mut().for_each(InterfacePhc::compare);
            publish(&published, &compared);
        };
        let thread = Periodic::start("hardware-clocks", INTERVAL, move || compare);
        Ok(Hardware { conversions, thread: thread.map_err(HardwareStartError::Thread)? })
    }
}

impl Hardware {
    /// Enables them at all configured interfaces, or at none.
    pub(crate) fn open(config: &ServerConfig) -> Result<OpenHardware, HardwareStartError> {
        let open = |name: &String| InterfacePhc::open(name, purpose(config, name));
        let interfaces = config.timestamps.hardware.iter();
        Ok(OpenHardware(interfaces.map(open).collect::<Result<_, _>>()?))
    }

    /// Checks that the drivers of these interfaces support them, without enabling them.
    pub(crate) fn check(config: &ServerConfig) -> Result<(), HardwareStartError> {
        let check = |name: &String| HardwareTimestamps::check(name, purpose(config, name));
        let checked = config.timestamps.hardware.iter().try_for_each(check);
        checked.map_err(|error| InterfacePhcError::from(error).into())
    }

    /// Returns the conversions of their timestamps.
    pub(crate) fn conversions(&self) -> Arc<PhcConversions> {
        Arc::clone(&self.conversions)
    }

    /// Returns true if the thread has ended without being stopped.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

/// Returns the purpose of an interface's timestamps.
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
    use horolog_io::ClockPair;

    use super::*;

    #[test]
    fn a_timestamp_is_converted_by_its_own_interface() {
        let monotonic = Timestamp::from_ns(1_000);
        let at = |hardware_ns| PhcConversion::new(ClockPair { hardware_ns, monotonic });
        let conversions = PhcConversions(ArcSwap::from_pointee(vec![(3, at(50)), (7, at(90))]));
        let time = |interface| conversions.monotonic_of(HardwareTime { interface, ns: 90 });
        assert_eq!(time(3), Some(Timestamp::from_ns(1_040)));
        assert_eq!(time(7), Some(Timestamp::from_ns(1_000)));
        assert_eq!(time(4), None);
    }

    #[test]
    fn an_interface_without_is_named() {
        let mut config = ServerConfig::default();
        assert!(Hardware::open(&config).is_ok());
        config.timestamps.hardware = vec!["lo".to_owned()];
        let error = Hardware::open(&config).err().unwrap().to_string();
        assert!(error.starts_with("--timestamps: 'lo' has no hardware timestamps"), "{error}");
    }
}
