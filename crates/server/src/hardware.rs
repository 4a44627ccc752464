//! Timestamps by the interfaces' own clocks while a server runs: compares each clock with the
//! system's again and again, and converts what they say. One such clock is an [`InterfaceClock`].

use std::io;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use horolog_io::{Conversion, HardwareTime, InterfaceClock, InterfaceClockError};
use horolog_time::{Monotonic, Timestamp};

use crate::periodic::Periodic;

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
    /// Switches them on at all of these interfaces, or at none.
    pub(crate) fn open(interfaces: &[String]) -> Result<OpenHardware, HardwareStartError> {
        let open = |name: &String| InterfaceClock::open(name);
        Ok(OpenHardware(interfaces.iter().map(open).collect::<Result<_, _>>()?))
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
        let error = Hardware::open(&["lo".to_owned()]).err().unwrap().to_string();
        assert!(error.starts_with("--timestamps: 'lo' has no hardware timestamps"), "{error}");
        assert!(Hardware::open(&[]).is_ok());
    }
}
