//! PHC of a NIC as the source of packet timestamps: compared with the system clock before use, and
//! shared by the servers that are reached through the NIC.

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

/// Maximum age of a comparison when packets are timestamped. A typical oscillator's rate changes
/// by far less than 10 parts per billion in that time.
const COMPARED_EVERY: Duration = Duration::from_millis(250);

/// PHC of a NIC.
pub(crate) trait NicClock: Send {
    /// Ensures that the last comparison of the clocks is fresh.
    fn compare(&mut self);
    /// Converts a timestamp to the system clock, if it is of this NIC.
    fn convert(&self, time: HardwareTimestamp) -> Option<PacketTimestamp>;
    /// Returns its description for the result.
    fn describe(&self) -> PhcTimestampSource;
}

struct SharedNicClock {
    clock: InterfacePhc,
    compared: Instant,
}

/// PHC of an interface.
#[derive(Clone)]
pub(crate) struct SystemNicClock(Arc<Mutex<SharedNicClock>>);

impl SystemNicClock {
    fn with<T>(&self, act: impl FnOnce(&mut SharedNicClock) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl NicClock for SystemNicClock {
    fn compare(&mut self) {
        self.with(|shared| {
            if shared.compared.elapsed() >= COMPARED_EVERY {
                shared.clock.compare();
                shared.compared = Instant::now();
            }
        });
    }

    fn convert(&self, time: HardwareTimestamp) -> Option<PacketTimestamp> {
        self.with(|shared| {
            let clock = &shared.clock;
            let ours = time.interface == clock.index();
            let monotonic = clock.conversion().monotonic_of(time.ns).filter(|_| ours)?;
            let ns = monotonic.as_ns() + clock.realtime_minus_monotonic().as_ns();
            Some(PacketTimestamp::hardware(Timestamp::from_ns(ns), clock.error_bound()))
        })
    }

    fn describe(&self) -> PhcTimestampSource {
        self.with(|shared| {
            let (interface, clock) = shared.clock.name_and_clock();
            PhcTimestampSource {
                interface: interface.to_owned(),
                clock,
                conversion_uncertainty_ns: shared.clock.error_bound().as_ns().unsigned_abs(),
            }
        })
    }
}

/// NICs with timestamping enabled; dropping this and the clocks it returned disables it.
#[derive(Default)]
pub(crate) struct NicClocks(BTreeMap<String, Result<SystemNicClock, String>>);

impl NicClocks {
    /// Returns the clock of `interface`, or of the interface that the route to `address` uses; or
    /// the reason for which there is none.
    pub(crate) fn for_target(
        &mut self,
        address: SocketAddr,
        interface: Option<&str>,
    ) -> Result<SystemNicClock, String> {
        let name = match interface {
            Some(name) => name.to_owned(),
            None => interface_to(address)?,
        };
        let open = || match InterfacePhc::open(&name, TimestampPurpose::Ntp) {
            Ok(clock) => {
                let shared = SharedNicClock { clock, compared: Instant::now() };
                Ok(SystemNicClock(Arc::new(Mutex::new(shared))))
            }
            Err(error) => Err(error.to_string()),
        };
        self.0.entry(name.clone()).or_insert_with(open).clone()
    }
}

fn interface_to(address: SocketAddr) -> Result<String, String> {
    let find = || {
        let mut netlink = Netlink::open()?;
        let route = netlink.route_get(address.ip(), zone_index(address))?;
        netlink.link_by_index(route.index)
    };
    find().map(|link| link.name).map_err(|error| error.to_string())
}
