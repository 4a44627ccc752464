//! PHC of a NIC as the source of packet timestamps: compared regularly with the system clock, and
//! shared by the pollers of the servers that are reached through this NIC.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use horolog_io::{HardwareTimestamp, InterfacePhc};
use horolog_record::PhcTimestampSource;
use horolog_sys::hardware_timestamps::TimestampPurpose;
use horolog_sys::netlink::Netlink;
use horolog_sys::zone::zone_index;
use horolog_time::Timestamp;

use super::packet_timestamp::PacketTimestamp;

/// Maximum age of the comparison between PHC and system clock when a request is sent. The rate of a
/// typical oscillator changes by far less than 10 ppb in that time.
const COMPARISON_INTERVAL: Duration = Duration::from_millis(250);

/// PHC that converts hardware timestamps; a trait for tests.
pub(crate) trait NicClock: Send {
    /// Compares the PHC with the system clock unless a recent comparison exists.
    fn compare_if_due(&mut self);
    /// Converts a hardware timestamp to the system clock; `None` if it is of another NIC or cannot
    /// be converted.
    fn convert(&self, time: HardwareTimestamp) -> Option<PacketTimestamp>;
    /// Returns the description of the PHC for the result.
    fn describe(&self) -> PhcTimestampSource;
}

/// PHC of an interface, and the instant of its last comparison with the system clock.
struct PhcWithComparisonInstant {
    clock: InterfacePhc,
    compared_at: Instant,
}

/// Handle of an interface's PHC, shared by several pollers.
#[derive(Clone)]
pub(crate) struct NicClockHandle(Arc<Mutex<PhcWithComparisonInstant>>);

impl NicClockHandle {
    fn with_clock<T>(&self, act: impl FnOnce(&mut PhcWithComparisonInstant) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl NicClock for NicClockHandle {
    fn compare_if_due(&mut self) {
        self.with_clock(|shared| {
            if shared.compared_at.elapsed() >= COMPARISON_INTERVAL {
                shared.clock.compare();
                shared.compared_at = Instant::now();
            }
        });
    }

    fn convert(&self, time: HardwareTimestamp) -> Option<PacketTimestamp> {
        self.with_clock(|shared| {
            let clock = &shared.clock;
            let is_of_interface = time.interface == clock.index();
            let monotonic = clock.conversion().monotonic_of(time.ns).filter(|_| is_of_interface)?;
            let ns = monotonic.as_ns() + clock.realtime_minus_monotonic().as_ns();
            Some(PacketTimestamp::hardware(Timestamp::from_ns(ns), clock.error_bound()))
        })
    }

    fn describe(&self) -> PhcTimestampSource {
        self.with_clock(|shared| {
            let (interface, clock) = shared.clock.name_and_clock();
            PhcTimestampSource {
                interface: interface.to_owned(),
                clock,
                conversion_uncertainty_ns: shared.clock.error_bound().as_ns().unsigned_abs(),
            }
        })
    }
}

/// PHCs in use by interface; dropping this and all clocks that it returned disables hardware
/// timestamping.
#[derive(Default)]
pub(crate) struct NicClocksByInterface(BTreeMap<String, Result<NicClockHandle, String>>);

impl NicClocksByInterface {
    /// Returns the PHC of `interface`, or of the interface on the route to `address`; an error is
    /// the reason why there is none.
    pub(crate) fn for_target(
        &mut self,
        address: SocketAddr,
        interface: Option<&str>,
    ) -> Result<NicClockHandle, String> {
        let name = match interface {
            Some(name) => name.to_owned(),
            None => interface_of_route(address)?,
        };
        let open = || match InterfacePhc::open(&name, TimestampPurpose::Ntp) {
            Ok(clock) => {
                let shared = PhcWithComparisonInstant { clock, compared_at: Instant::now() };
                Ok(NicClockHandle(Arc::new(Mutex::new(shared))))
            }
            Err(error) => Err(error.to_string()),
        };
        self.0.entry(name.clone()).or_insert_with(open).clone()
    }
}

fn interface_of_route(address: SocketAddr) -> Result<String, String> {
    let find = || {
        let mut netlink = Netlink::open()?;
        let route = netlink.route_get(address.ip(), zone_index(address))?;
        netlink.link_by_index(route.index)
    };
    find().map(|link| link.name).map_err(|error| error.to_string())
}
