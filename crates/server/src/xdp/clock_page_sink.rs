//! Publication of clock pages to the XDP program, with updates of the addresses in its maps.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use horolog_source::{ClockPage, ClockPageSink, ClockPages};
use horolog_sys::netlink::{InterfaceAddress, Link, Netlink};
use horolog_xdp::{ClockPageUpdate, Responder, ResponderClockPageWriter, StationAddress, XdpError};

use crate::sockets::listen::{ListenAddressSet, ListenAddressesByTimeline, SharedListenAddresses};

/// Interval at which this host's addresses are read.
const ADDRESSES_EVERY: Duration = Duration::from_secs(1);

/// Listen addresses, and the addresses that are stored in the program's maps.
#[derive(Default)]
struct XdpAddressTable {
    listen: SharedListenAddresses,
    addresses: BTreeSet<SocketAddr>,
    broadcasts: BTreeSet<Ipv4Addr>,
    stations: BTreeSet<StationAddress>,
}

/// Removes stored entries that are not `wanted`, and adds those that are missing, by calling
/// `change` with true to add. After an error, `stored` is unchanged.
fn update_entries<T: Ord + Copy>(
    stored: &mut BTreeSet<T>,
    wanted: BTreeSet<T>,
    change: impl Fn(T, bool) -> Result<(), XdpError>,
) -> Result<(), XdpError> {
    stored.difference(&wanted).try_for_each(|&gone| change(gone, false))?;
    wanted.difference(stored).try_for_each(|&new| change(new, true))?;
    *stored = wanted;
    Ok(())
}

/// Sink that publishes clock pages to the program, and updates the addresses in its maps.
pub(crate) struct XdpClockPageSink {
    clock: ResponderClockPageWriter,
    responder: Arc<Responder>,
    netlink: Netlink,
    listeners: XdpAddressTable,
    /// Time when this host's addresses were read, and the listen addresses then.
    addresses_read_at: Option<(Instant, Arc<ListenAddressesByTimeline>)>,
}

impl XdpClockPageSink {
    /// Creates the sink of a program whose maps have no addresses yet.
    pub(crate) fn new(
        clock: ResponderClockPageWriter,
        responder: Arc<Responder>,
        netlink: Netlink,
        listen: &SharedListenAddresses,
    ) -> Self {
        let listeners =
            XdpAddressTable { listen: Arc::clone(listen), ..XdpAddressTable::default() };
        Self { clock, responder, netlink, listeners, addresses_read_at: None }
    }

    /// Updates the addresses in the program's maps from the listen addresses and this host's
    /// addresses and links.
    pub(crate) fn listen(
        &mut self,
        addresses: &[InterfaceAddress],
        links: &[Link],
    ) -> Result<(), XdpError> {
        let own: Vec<IpAddr> = addresses.iter().map(|own| own.prefix.address()).collect();
        let Self { responder, listeners, .. } = self;
        let listen = listeners.listen.load_full();
        let set =
            ListenAddressSet::resolve(&listen.stepped, &own).with_smeared(&listen.smeared, &own);
        // Before the addresses, so that no request to a broadcast address is answered.
        let broadcasts = addresses.iter().filter_map(|own| own.prefix.broadcast()).collect();
        update_entries(&mut listeners.broadcasts, broadcasts, |address, refuse| {
            responder.set_broadcast(address, refuse)
        })?;
        let stations = links.iter().filter_map(StationAddress::from_link).collect();
        update_entries(&mut listeners.stations, stations, |station, serve| {
            responder.set_station(station, serve)
        })?;
        let wanted = set.addresses().iter().copied().collect();
        update_entries(&mut listeners.addresses, wanted, |at, serve| {
            if serve {
                responder.answer_with_timeline(at, set.timeline(at))
            } else {
                responder.stop_answering(at)
            }
        })?;
        self.addresses_read_at = Some((Instant::now(), listen));
        Ok(())
    }
}

impl ClockPageSink for XdpClockPageSink {
    fn publish(&mut self, pages: &ClockPages) -> io::Result<()> {
        self.clock.publish(&clock_update(&pages.stepped), &clock_update(&pages.smeared));
        let due = self.addresses_read_at.as_ref().is_none_or(|(read_at, listen)| {
            read_at.elapsed() >= ADDRESSES_EVERY || *listen != *self.listeners.listen.load()
        });
        if due {
            let addresses = self.netlink.addresses().map_err(io::Error::other)?;
            let links = self.netlink.links().map_err(io::Error::other)?;
            self.listen(&addresses, &links).map_err(io::Error::other)?;
        }
        Ok(())
    }
}

/// Returns the clock values of a page in the form of the program.
#[must_use]
pub fn clock_update(page: &ClockPage) -> ClockPageUpdate {
    let variables = &page.variables;
    ClockPageUpdate {
        timebase: page.timebase,
        leap: variables.leap as u8,
        leap_after: page.leap_after as u8,
        stratum: variables.packet_stratum(),
        precision: variables.precision,
        root_delay: variables.root_delay.to_bits(),
        root_dispersion: variables.root_dispersion.to_bits(),
        reference_id: variables.reference_id,
        reference: variables.reference.to_bits(),
        tai_minus_utc_s: page.tai_minus_utc_s,
    }
}
