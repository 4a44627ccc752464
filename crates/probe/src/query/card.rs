//! The clock of a network card, by which packets are timestamped as they pass: compared with the
//! system's before it is believed, and shared by the servers that are reached through the card.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use horolog_io::{HardwareTime, InterfaceClock};
use horolog_record::HardwareClock;
use horolog_sys::hardware_timestamps::Purpose;
use horolog_sys::netlink::Netlink;
use horolog_time::Timestamp;

use super::stamp::Stamp;

/// How old a comparison may be when packets are timestamped. An ordinary oscillator's rate changes
/// by far less than 10 parts per billion in that time.
const COMPARED_EVERY: Duration = Duration::from_millis(250);

/// A card's clock.
pub(crate) trait Card: Send {
    /// Sees that the last comparison of the clocks is fresh.
    fn compare(&mut self);
    /// A timestamp by the system's clock, if it is this card's.
    fn stamp(&self, time: HardwareTime) -> Option<Stamp>;
    /// What the result says of it.
    fn describe(&self) -> HardwareClock;
}

struct Shared {
    clock: InterfaceClock,
    compared: Instant,
}

/// The card of an interface.
#[derive(Clone)]
pub(crate) struct SystemCard(Arc<Mutex<Shared>>);

impl SystemCard {
    fn with<T>(&self, act: impl FnOnce(&mut Shared) -> T) -> T {
        act(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Card for SystemCard {
    fn compare(&mut self) {
        self.with(|shared| {
            if shared.compared.elapsed() >= COMPARED_EVERY {
                shared.clock.compare();
                shared.compared = Instant::now();
            }
        });
    }

    fn stamp(&self, time: HardwareTime) -> Option<Stamp> {
        self.with(|shared| {
            let clock = &shared.clock;
            let ours = time.interface == clock.index();
            let monotonic = clock.conversion().monotonic_of(time.ns).filter(|_| ours)?;
            let ns = monotonic.as_ns() + clock.realtime_minus_monotonic().as_ns();
            Some(Stamp::hardware(Timestamp::from_ns(ns), clock.uncertainty()))
        })
    }

    fn describe(&self) -> HardwareClock {
        self.with(|shared| {
            let (interface, clock) = shared.clock.name();
            HardwareClock {
                interface: interface.to_owned(),
                clock,
                conversion_uncertainty_ns: shared.clock.uncertainty().as_ns().unsigned_abs(),
            }
        })
    }
}

/// The cards whose timestamps are on; dropping it and what it gave switches them off.
#[derive(Default)]
pub(crate) struct Cards(BTreeMap<String, Result<SystemCard, String>>);

impl Cards {
    /// The card of `interface`, or of the one that the route to `address` leads through; or why
    /// there is none.
    pub(crate) fn for_target(
        &mut self,
        address: IpAddr,
        interface: Option<&str>,
    ) -> Result<SystemCard, String> {
        let name = match interface {
            Some(name) => name.to_owned(),
            None => interface_to(address)?,
        };
        let open = || match InterfaceClock::open(&name, Purpose::Ntp) {
            Ok(clock) => {
                let shared = Shared { clock, compared: Instant::now() };
                Ok(SystemCard(Arc::new(Mutex::new(shared))))
            }
            Err(error) => Err(error.to_string()),
        };
        self.0.entry(name.clone()).or_insert_with(open).clone()
    }
}

fn interface_to(address: IpAddr) -> Result<String, String> {
    let find = || {
        let mut netlink = Netlink::open()?;
        let route = netlink.route_get(address, None)?;
        netlink.link_by_index(route.index)
    };
    find().map(|link| link.name).map_err(|error| error.to_string())
}
