//! Timestamps by the interfaces' own clocks while a server runs: switches them on, compares each
//! clock with the system's again and again, and converts what they say. How two readings make a
//! conversion stands in [`crate::hardware_clock`].

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use horolog_io::HardwareTime;
use horolog_sys::clock::{ClockOffset, realtime_minus_monotonic};
use horolog_sys::hardware_timestamps::{HardwareError, HardwareTimestamps};
use horolog_sys::packet::interface_index;
use horolog_sys::phc::{PhcDevice, PhcReading};
use horolog_time::{Monotonic, Span, Timestamp};

use crate::course::{agree, follow};
use crate::hardware_clock::{Conversion, Crossing};
use crate::periodic::Periodic;

/// How often clocks are compared. An ordinary oscillator's rate changes by far less than 10 parts
/// per billion in that time, which is 5 ns.
const INTERVAL: Duration = Duration::from_millis(500);

/// Why hardware timestamps cannot be had; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum HardwareStartError {
    /// The interface has none.
    #[error("--timestamps: {0}")]
    Interface(#[from] HardwareError),
    /// Its clock cannot be read.
    #[error("--timestamps: the clock of '{interface}', /dev/ptp{clock}, cannot be read: {source}")]
    Clock {
        /// The interface.
        interface: String,
        /// The number of its clock.
        clock: u32,
        /// Why.
        source: io::Error,
    },
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

/// One interface whose clock is compared.
struct Compared {
    index: u32,
    device: PhcDevice,
    conversion: Conversion,
    /// `CLOCK_REALTIME` minus `CLOCK_MONOTONIC`, as well as it is known.
    offset: ClockOffset,
    // Put back when this is dropped.
    _switched: HardwareTimestamps,
}

/// Hardware timestamps that are on; dropping it switches them off.
#[derive(Debug)]
pub(crate) struct Hardware {
    conversions: Arc<Conversions>,
    thread: Periodic,
}

/// Hardware timestamps that are on, while nobody compares the clocks yet.
pub(crate) struct OpenHardware(Vec<Compared>);

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
            for one in &mut compared {
                // A clock that cannot be read is not followed, and soon not believed.
                let read = || one.device.read();
                if let Ok((crossing, offset)) = cross(one.offset, realtime_minus_monotonic, read) {
                    (one.conversion, one.offset) = (one.conversion.follow(crossing), offset);
                }
            }
            publish(&published, &compared);
        };
        let thread = Periodic::start("hardware-clocks", INTERVAL, move || compare);
        Ok(Hardware { conversions, thread: thread.map_err(HardwareStartError::Thread)? })
    }
}

impl Hardware {
    /// Switches them on at all of these interfaces, or at none.
    pub(crate) fn open(interfaces: &[String]) -> Result<OpenHardware, HardwareStartError> {
        interfaces.iter().map(|name| compare(name)).collect::<Result<_, _>>().map(OpenHardware)
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

fn compare(name: &str) -> Result<Compared, HardwareStartError> {
    let switched = HardwareTimestamps::switch_on(name)?;
    let clock = switched.clock();
    let unreadable =
        |source| HardwareStartError::Clock { interface: name.to_owned(), clock, source };
    let index = interface_index(name).map_err(unreadable)?;
    let path = format!("/dev/ptp{clock}");
    let mut device = PhcDevice::open(Path::new(&path)).map_err(unreadable)?;
    let known = realtime_minus_monotonic();
    let (first, offset) =
        cross(known, realtime_minus_monotonic, || device.read()).map_err(unreadable)?;
    let conversion = Conversion::new(first);
    Ok(Compared { index, device, conversion, offset, _switched: switched })
}

/// Reads an interface's clock, which the kernel compares with `CLOCK_REALTIME`, and takes the
/// middle of its two readings to the scale that nobody steps. With the better one of the offsets by
/// which it does so; an error where the system clock was stepped meanwhile.
fn cross(
    known: ClockOffset,
    measure: impl Fn() -> ClockOffset,
    read: impl FnOnce() -> io::Result<PhcReading>,
) -> io::Result<(Crossing, ClockOffset)> {
    let before = measure();
    let reading = read()?;
    let after = measure();
    if !agree(before, after) {
        return Err(io::Error::other("the system clock was set meanwhile"));
    }
    let offset = follow(follow(known, before), after);
    let middle = reading.before + Span::from_ns((reading.after - reading.before).as_ns() / 2);
    let monotonic = Timestamp::from_ns(middle.as_ns() - offset.offset.as_ns());
    Ok((Crossing { hardware_ns: reading.phc_ns, monotonic }, offset))
}

fn publish(conversions: &Conversions, compared: &[Compared]) {
    let known = compared.iter().map(|one| (one.index, one.conversion)).collect();
    conversions.0.store(Arc::new(known));
}

#[cfg(test)]
mod tests {
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
    fn a_step_of_the_system_clock_does_not_move_an_instant() {
        let offset = |s: i64| ClockOffset {
            offset: Span::from_ns(1_700_000_000_000_000_000 + s * 1_000_000_000),
            uncertainty: Span::from_ns(50),
        };
        let reading = |monotonic_ns: i64, by: ClockOffset| {
            let middle = Timestamp::from_ns(monotonic_ns + by.offset.as_ns());
            let half = Span::from_ns(300);
            PhcReading { before: middle - half, phc_ns: monotonic_ns + 7, after: middle + half }
        };
        let at = |ns| Crossing { hardware_ns: ns + 7, monotonic: Timestamp::from_ns(ns) };
        let mut known = offset(0);
        for (ns, now) in [(1_000, offset(0)), (2_000, offset(-1)), (3_000, offset(400))] {
            let (crossing, offset) = cross(known, || now, || Ok(reading(ns, now))).unwrap();
            assert_eq!(crossing, at(ns));
            known = offset;
        }
        let measured = std::cell::Cell::new(0);
        let stepping = || offset(measured.replace(1));
        assert!(cross(offset(0), stepping, || Ok(reading(4_000, offset(0)))).is_err());
    }

    #[test]
    fn an_interface_without_is_named() {
        let error = Hardware::open(&["lo".to_owned()]).err().unwrap().to_string();
        assert!(error.starts_with("--timestamps: 'lo' has no hardware timestamps"), "{error}");
        assert!(Hardware::open(&[]).is_ok());
    }
}
