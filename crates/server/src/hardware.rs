//! Timestamps by the interfaces' own clocks while a server runs: compares each clock with the
//! system's again and again, and converts what they say. One such clock is an [`InterfaceClock`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use horolog_io::{Conversion, HardwareTime, InterfaceClock, InterfaceClockError, Packet};
use horolog_sys::hardware_timestamps::{HardwareTimestamps, Purpose};
use horolog_time::{Monotonic, Timestamp};

use crate::periodic::Periodic;
use crate::{Page, ServerConfig};

/// How often clocks are compared. An ordinary oscillator's rate changes by far less than 10 parts
/// per billion in that time, which is 5 ns.
const INTERVAL: Duration = Duration::from_millis(500);

/// Why hardware timestamps cannot be had; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum HardwareStartError {
    /// The interface has none, or its clock cannot be read.
    #[error("--timestamps: {0}")]
    Interface(#[from] InterfaceClockError),
    /// The thread that compares the clocks could not be started.
    #[error("cannot start a thread: {0}; see the limits on processes and memory (ulimit -a)")]
    Thread(#[source] io::Error),
}

/// The conversion for each interface, by its index; there are few.
#[derive(Debug, Default)]
pub(crate) struct Conversions(ArcSwap<Vec<(u32, Conversion)>>);

impl Conversions {
    /// The instant of a hardware timestamp; `None` where its clock is not known well enough.
    pub(crate) fn monotonic_of(&self, time: HardwareTime) -> Option<Timestamp<Monotonic>> {
        let known = self.0.load();
        let (_, conversion) = known.iter().find(|(interface, _)| *interface == time.interface)?;
        conversion.monotonic_of(time.ns)
    }

    /// The better timestamp that stands beside a packet that was read by `now`: the one by the
    /// interface's clock where it can be converted.
    pub(crate) fn stamp_of<A>(
        &self,
        packet: &Packet<'_, A>,
        page: &Page,
        now: Timestamp<Monotonic>,
    ) -> Option<(Timestamp<Monotonic>, By)> {
        let hardware = packet.hardware.and_then(|time| self.monotonic_of(time));
        let by_kernel = |instant| (page.monotonic_of(instant, now), By::Kernel);
        match hardware {
            Some(instant) => Some((instant, By::Hardware)),
            None => packet.received_at.map(by_kernel),
        }
    }
}

/// Who took a timestamp.
#[derive(Clone, Copy)]
pub(crate) enum By {
    Kernel,
    Hardware,
}

impl By {
    /// Of two, what belongs to this one.
    pub(crate) fn choose<T>(self, kernel: T, hardware: T) -> T {
        match self {
            Self::Kernel => kernel,
            Self::Hardware => hardware,
        }
    }
}

/// Hardware timestamps that are on; dropping it switches them off.
#[derive(Debug)]
pub(crate) struct Hardware {
    conversions: Arc<Conversions>,
    thread: Periodic,
}

/// Hardware timestamps that are on, while nobody compares the clocks yet.
pub(crate) struct OpenHardware(Vec<InterfaceClock>);

impl OpenHardware {
    /// Compares the clocks from now on.
    pub(crate) fn start(self) -> Result<Hardware, HardwareStartError> {
        let Self(mut compared) = self;
        let conversions = Arc::<Conversions>::default();
        publish(&conversions, &compared);
        if compared.is_empty() {
            return Ok(Hardware { conversions, thread: Periodic::default() });
        }
        let published = Arc::clone(&conversions);
        let compare = move || {
            compared.iter_mut().for_each(InterfaceClock::compare);
            publish(&published, &compared);
        };
        let thread = Periodic::start("hardware-clocks", INTERVAL, move || compare);
        Ok(Hardware { conversions, thread: thread.map_err(HardwareStartError::Thread)? })
    }
}

impl Hardware {
    /// Switches them on at all the interfaces that the configuration names, or at none.
    pub(crate) fn open(config: &ServerConfig) -> Result<OpenHardware, HardwareStartError> {
        let open = |name: &String| InterfaceClock::open(name, purpose(config, name));
        let interfaces = config.timestamps.hardware.iter();
        Ok(OpenHardware(interfaces.map(open).collect::<Result<_, _>>()?))
    }

    /// Whether the drivers of these interfaces offer them, without switching them on.
    pub(crate) fn check(config: &ServerConfig) -> Result<(), HardwareStartError> {
        let check = |name: &String| HardwareTimestamps::check(name, purpose(config, name));
        let checked = config.timestamps.hardware.iter().try_for_each(check);
        checked.map_err(|error| InterfaceClockError::from(error).into())
    }

    /// What converts their timestamps.
    pub(crate) fn conversions(&self) -> Arc<Conversions> {
        Arc::clone(&self.conversions)
    }

    /// Whether the thread has ended without being told to.
    pub(crate) fn has_died(&self) -> bool {
        self.thread.has_died()
    }
}

/// What an interface's timestamps are for.
fn purpose(config: &ServerConfig, interface: &String) -> Purpose {
    let ptp = &config.ptp;
    match (ptp.interfaces.contains(interface), ptp.one_step) {
        (false, _) => Purpose::Ntp,
        (true, false) => Purpose::Ptp,
        (true, true) => Purpose::PtpOneStep,
    }
}

fn publish(conversions: &Conversions, compared: &[InterfaceClock]) {
    let known = compared.iter().map(|one| (one.index(), one.conversion())).collect();
    conversions.0.store(Arc::new(known));
}

#[cfg(test)]
mod tests {
    use horolog_io::Crossing;

    use super::*;

    #[test]
    fn a_timestamp_is_converted_by_its_own_interface() {
        let monotonic = Timestamp::from_ns(1_000);
        let at = |hardware_ns| Conversion::new(Crossing { hardware_ns, monotonic });
        let conversions = Conversions(ArcSwap::from_pointee(vec![(3, at(50)), (7, at(90))]));
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
