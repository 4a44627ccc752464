//! A grandmaster on its interfaces: the sockets of each port, and a thread that hands what comes to
//! [`Port`] and sends what it makes. What is answered is decided there.

mod ethernet;
mod fast;
mod link;
mod precedence;
mod served;
mod status;
mod thread;
mod udp;

use std::net::IpAddr;
use std::sync::Arc;

use horolog_sys::netlink::{Netlink, NetlinkError};
use horolog_wire::ethernet::MacAddress;

use crate::ServerConfig;
use crate::hardware::Conversions;
use crate::page::PageReader;
use crate::ptp::{ClockSettings, PortSettings, PtpConfig, Transport};
use crate::xdp::XdpBody;
use ethernet::EthernetLink;
use fast::FastPath;
use link::Link;
use link::LinkError;
pub use served::ptp_at;
use status::SharedStatus;
pub use status::{Announced, PtpPortStatus, PtpStatus};
use thread::PortThread;
pub(crate) use thread::PtpThreads;
use udp::UdpLink;

/// Why there can be no PTP; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum PtpStartError {
    /// The way of a port.
    #[error("--ptp: {0}")]
    Link(#[from] LinkError),
    /// An interface could not be looked up.
    #[error("--ptp: {0}")]
    Netlink(#[from] NetlinkError),
    /// An interface was named that carries no Ethernet.
    #[error("--ptp {0}: it carries no Ethernet; name an interface that does, as `ip link` shows")]
    NotEthernet(String),
    /// An interface has no address of a family.
    #[error("--ptp {0}: it has no {1} address; give it one, or choose another --ptp-transport")]
    NoAddress(String, &'static str),
}

/// A port whose sockets are open, while nobody serves it yet.
struct OpenPort {
    interface: String,
    index: u32,
    settings: PortSettings,
    link: Box<dyn Link>,
    /// To look up this machine's addresses, which may be forbidden later.
    netlink: Netlink,
}

/// All ports, while nobody serves them yet.
pub(crate) struct OpenPtp {
    clock: ClockSettings,
    ports: Vec<OpenPort>,
}

/// Where a port is to be.
struct Place {
    interface: String,
    index: u32,
    mac: MacAddress,
    settings: PortSettings,
}

/// Looks up where the ports of a configuration are to be, and opens none of them.
fn places(ptp: &PtpConfig) -> Result<Vec<Place>, PtpStartError> {
    let mut places = Vec::new();
    if !ptp.is_on() {
        return Ok(places);
    }
    let mut netlink = Netlink::open()?;
    let addresses = netlink.addresses()?;
    for name in &ptp.interfaces {
        let link = netlink.link_by_name(name)?;
        let mac = link.mac.filter(|mac| *mac != [0; 6]).map(MacAddress);
        let mac = mac.ok_or_else(|| PtpStartError::NotEthernet(name.clone()))?;
        let own = addresses.iter().filter(|address| address.index == link.index);
        let own: Vec<IpAddr> = own.map(|address| address.prefix.address()).collect();
        for &transport in &ptp.transports {
            let number = places.len() as u16 + 1;
            let mut settings = ptp.port(number, transport, mac);
            settings.address = protocol_address(transport, mac, &own)
                .ok_or(PtpStartError::NoAddress(name.clone(), transport.name()))?;
            places.push(Place { interface: name.clone(), index: link.index, mac, settings });
        }
    }
    Ok(places)
}

impl OpenPtp {
    /// Whether the ports of a configuration can be, as far as that is known without opening them.
    pub(crate) fn check(config: &ServerConfig) -> Result<(), PtpStartError> {
        places(&config.ptp).map(drop)
    }

    /// Opens the ports of a configuration; there may be none.
    pub(crate) fn open(config: &ServerConfig) -> Result<Self, PtpStartError> {
        let places = places(&config.ptp)?;
        let identity = places.first().map_or(0, |place| clock_identity(place.mac));
        let clock = config.ptp.clock(identity, places.len() as u16);
        let mut ports = Vec::new();
        for Place { interface, index, mac, settings } in places {
            let hardware = config.timestamps.hardware.contains(&interface);
            let name = interface.as_str();
            let link: Box<dyn Link> = match settings.transport {
                Transport::Udp4 => Box::new(UdpLink::open(name, index, false, hardware)?),
                Transport::Udp6 => Box::new(UdpLink::open(name, index, true, hardware)?),
                Transport::Ethernet => Box::new(EthernetLink::open(name, mac, hardware)?),
            };
            let netlink = Netlink::open()?;
            ports.push(OpenPort { interface, index, settings, link, netlink });
        }
        Ok(Self { clock, ports })
    }

    /// Serves them; requests for the delay in XDP, where that is in place.
    pub(crate) fn start(
        self,
        config: &ServerConfig,
        page: &PageReader,
        conversions: &Arc<Conversions>,
        xdp: Option<&XdpBody>,
    ) -> std::io::Result<Option<PtpThreads>> {
        if self.ports.is_empty() {
            return Ok(None);
        }
        let mut threads = PtpThreads::new(self.clock.clone());
        for port in self.ports {
            // A card's timestamps are better than what a program can take.
            let in_hardware = config.timestamps.hardware.contains(&port.interface);
            let xdp = xdp.filter(|xdp| !in_hardware && xdp.is_at(&port.interface));
            let PortSettings { transport, mac, .. } = port.settings;
            let fast = xdp.map(|xdp| FastPath::new(xdp.responder(), port.index, transport, mac));
            threads.spawn(PortThread {
                interface: port.interface,
                index: port.index,
                link: port.link,
                netlink: port.netlink,
                settings: port.settings,
                clock: self.clock.clone(),
                page: page.clone(),
                conversions: Arc::clone(conversions),
                clock_class: config.ptp.clock_class,
                allow: config.ptp.unicast_allow.clone(),
                fast,
                status: SharedStatus::default(),
            })?;
        }
        Ok(Some(threads))
    }
}

/// The identity of a clock with this address: an EUI-64 made of an EUI-48 (IEEE 1588-2008, clause
/// 7.5.2.2.2, which is what other implementations still do).
const fn clock_identity(MacAddress([maker @ .., x, y, z]): MacAddress) -> u64 {
    let [first, second, third] = maker;
    u64::from_be_bytes([first, second, third, 0xff, 0xfe, x, y, z])
}

/// What the port is reached by, as messages state it.
fn protocol_address(transport: Transport, mac: MacAddress, own: &[IpAddr]) -> Option<Vec<u8>> {
    let first = |fits: fn(&IpAddr) -> bool| own.iter().copied().find(fits);
    match transport {
        Transport::Ethernet => Some(mac.0.to_vec()),
        Transport::Udp4 | Transport::Udp6 => {
            let is_ours =
                if transport == Transport::Udp4 { IpAddr::is_ipv4 } else { IpAddr::is_ipv6 };
            first(is_ours).map(|ip| match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            })
        }
    }
}
