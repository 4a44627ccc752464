//! PTP ports on their interfaces: the sockets of each port, and a thread that passes received
//! messages to a [`crate::ClockPort`] and sends the messages that result.

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

use horolog_io::PhcConversions;
use horolog_source::ClockPageReader;
use horolog_sys::netlink::{Netlink, NetlinkError};
use horolog_wire::ethernet::MacAddress;
use horolog_wire::prefix::Prefix;
use horolog_xdp::Responder;

use crate::config::PtpConfig;
use crate::settings::{ClockSettings, PortSettings, PtpPortTransport};
use ethernet::PtpEthernetSocket;
use fast::XdpPortRegistration;
use link::PtpPortSockets;
use link::PtpSocketError;
pub use served::ptp_time_of_page;
use status::SharedPortStatus;
pub use status::{AnnouncedClock, PtpPortStatus, PtpStatus};
use thread::PortThread;
pub use thread::PtpThreads;
use udp::PtpUdpSockets;

/// Reason for which PTP could not start; its text is one line for the user.
#[derive(Debug, thiserror::Error)]
pub enum PtpStartError {
    /// Failure to open the sockets of a port.
    #[error("--ptp: {0}")]
    Link(#[from] PtpSocketError),
    /// Failure to find an interface.
    #[error("--ptp: {0}")]
    Netlink(#[from] NetlinkError),
    /// Interface that is not Ethernet.
    #[error("--ptp {0}: not an Ethernet interface; name one that is, as `ip link` shows")]
    NotEthernet(String),
    /// Interface without an address of the IP version of a transport.
    #[error(
        "--ptp {0}: the interface has no {1} address; add one, or choose another \
             --ptp-transport"
    )]
    NoAddress(String, &'static str),
}

/// Port with open sockets, before its thread is started.
struct OpenPtpPort {
    interface: String,
    index: u32,
    settings: PortSettings,
    /// True if the sockets use hardware timestamps.
    hardware: bool,
    link: Box<dyn PtpPortSockets>,
    /// Netlink socket for reading this host's addresses; opening one later may not be permitted.
    netlink: Netlink,
}

/// Open ports, before their threads are started.
pub struct OpenPtpPorts {
    clock: ClockSettings,
    ports: Vec<OpenPtpPort>,
    clock_class: Option<u8>,
    unicast_allow: Vec<Prefix>,
}

/// PTP port as configured: interface, MAC address and settings.
struct ConfiguredPtpPort {
    interface: String,
    index: u32,
    mac: MacAddress,
    settings: PortSettings,
}

/// Returns the ports as configured, one for each interface and transport; none is opened.
fn port_bindings(ptp: &PtpConfig) -> Result<Vec<ConfiguredPtpPort>, PtpStartError> {
    let mut bindings = Vec::new();
    if !ptp.is_on() {
        return Ok(bindings);
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
            let number = bindings.len() as u16 + 1;
            let mut settings = ptp.port(number, transport, mac);
            settings.address = protocol_address(transport, mac, &own)
                .ok_or(PtpStartError::NoAddress(name.clone(), transport.name()))?;
            bindings.push(ConfiguredPtpPort {
                interface: name.clone(),
                index: link.index,
                mac,
                settings,
            });
        }
    }
    Ok(bindings)
}

impl OpenPtpPorts {
    /// Checks that the interfaces of the configured ports exist, are Ethernet and have an address
    /// of each transport, without opening the ports.
    pub fn check(config: &PtpConfig) -> Result<(), PtpStartError> {
        port_bindings(config).map(drop)
    }

    /// Opens the configured ports, if any. `hardware` lists the interfaces with hardware
    /// timestamps.
    pub fn open(config: &PtpConfig, hardware: &[String]) -> Result<Self, PtpStartError> {
        let bindings = port_bindings(config)?;
        let identity = bindings.first().map_or(0, |binding| clock_identity(binding.mac));
        let clock = config.clock(identity, bindings.len() as u16);
        let mut ports = Vec::new();
        for ConfiguredPtpPort { interface, index, mac, settings } in bindings {
            let hardware = hardware.contains(&interface);
            let name = interface.as_str();
            let link: Box<dyn PtpPortSockets> = match settings.transport {
                PtpPortTransport::Udp4 => {
                    Box::new(PtpUdpSockets::open(name, index, false, hardware)?)
                }
                PtpPortTransport::Udp6 => {
                    Box::new(PtpUdpSockets::open(name, index, true, hardware)?)
                }
                PtpPortTransport::Ethernet => {
                    Box::new(PtpEthernetSocket::open(name, mac, hardware)?)
                }
            };
            let netlink = Netlink::open()?;
            ports.push(OpenPtpPort { interface, index, settings, hardware, link, netlink });
        }
        let (clock_class, unicast_allow) = (config.clock_class, config.unicast_allow.clone());
        Ok(Self { clock, ports, clock_class, unicast_allow })
    }

    /// Starts a thread per port; `None` without ports. `responder` returns the XDP program if it is
    /// attached to the named interface; it answers the delay requests of the port unless hardware
    /// timestamps are used there.
    pub fn start(
        self,
        page: &ClockPageReader,
        conversions: &Arc<PhcConversions>,
        responder: impl Fn(&str) -> Option<Arc<Responder>>,
    ) -> std::io::Result<Option<PtpThreads>> {
        if self.ports.is_empty() {
            return Ok(None);
        }
        let mut threads = PtpThreads::new(self.clock.clone());
        for port in self.ports {
            // XDP takes no hardware timestamps, which would be better.
            let responder = if port.hardware { None } else { responder(&port.interface) };
            let PortSettings { transport, mac, .. } = port.settings;
            let xdp_registration = responder
                .map(|program| XdpPortRegistration::new(program, port.index, transport, mac));
            threads.spawn(PortThread {
                interface: port.interface,
                index: port.index,
                link: port.link,
                netlink: port.netlink,
                settings: port.settings,
                clock: self.clock.clone(),
                page: page.clone(),
                conversions: Arc::clone(conversions),
                clock_class: self.clock_class,
                allow: self.unicast_allow.clone(),
                xdp_registration,
                status: SharedPortStatus::default(),
            })?;
        }
        Ok(Some(threads))
    }
}

/// Returns the clock identity for a MAC address: an EUI-64 made from the EUI-48 (IEEE 1588-2008,
/// clause 7.5.2.2.2; other implementations still do the same).
const fn clock_identity(MacAddress([maker @ .., x, y, z]): MacAddress) -> u64 {
    let [first, second, third] = maker;
    u64::from_be_bytes([first, second, third, 0xff, 0xfe, x, y, z])
}

/// Returns the protocol address of a port, for messages; `None` without an address of its IP
/// version.
fn protocol_address(
    transport: PtpPortTransport,
    mac: MacAddress,
    local_addresses: &[IpAddr],
) -> Option<Vec<u8>> {
    let first = |fits: fn(&IpAddr) -> bool| local_addresses.iter().copied().find(fits);
    match transport {
        PtpPortTransport::Ethernet => Some(mac.0.to_vec()),
        PtpPortTransport::Udp4 | PtpPortTransport::Udp6 => {
            let is_ours =
                if transport == PtpPortTransport::Udp4 { IpAddr::is_ipv4 } else { IpAddr::is_ipv6 };
            first(is_ours).map(|ip| match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            })
        }
    }
}
