//! The responder's replies to PTP delay requests: ports, and the interfaces that they answer on.

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use zerocopy::IntoBytes;

use crate::abi::{
    PTP_MONITOR_MAX, PTP_PORT_HYBRID, PTP_PORT_MONITOR, PTP_PORT_MULTICAST, PtpMonitorClientPrefix,
    PtpPortFields, PtpPortKey, ptp_monitor_len,
};
use crate::object;
use crate::responder::Responder;
use crate::{XdpError, test_run::TestRunOutcome};

/// Transport of PTP messages, in the order of `enum ptp_transport`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum PtpTransport {
    /// UDP over IPv4.
    Ipv4,
    /// UDP over IPv6.
    Ipv6,
    /// Ethernet without IP.
    Ethernet,
}

impl PtpTransport {
    /// Returns the length of an address of this transport, in bytes.
    const fn address_len(self) -> usize {
        match self {
            Self::Ipv4 => 4,
            Self::Ipv6 => 16,
            Self::Ethernet => 6,
        }
    }
}

/// `MONITOR_PARTS`: packets of one reply to `NetSync` Monitor.
const MONITOR_PARTS: u32 = 3;

/// PTP port in master state, with the fields for replies to delay requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PtpPort {
    /// Clock identity of the port, eight bytes.
    pub clock: u64,
    /// Port number in the port identity, from 1.
    pub port: u16,
    /// PTP domain.
    pub domain: u8,
    /// `sdoId` of its profile, 12 bits.
    pub sdo_id: u16,
    /// Mean interval of delay requests announced in multicast replies, log2 of seconds.
    pub log_min_delay_req: i8,
    /// True if multicast requests are answered.
    pub multicast: bool,
    /// True if unicast requests in hybrid mode are answered.
    pub hybrid: bool,
    /// MAC address of the interface, to which unicast requests must be addressed.
    pub mac: [u8; 6],
    /// Source address of multicast replies; ignored over Ethernet.
    pub address: IpAddr,
    /// TLV for replies to `NetSync` Monitor; without one, or with one whose length does not fit the
    /// addresses of the transport, these requests are not answered.
    pub monitor: Option<Vec<u8>>,
}

impl Responder {
    /// Answers delay requests that arrive by the interface with this index over `transport` as
    /// `port`; `None` stops that. Requests are passed to the network stack while the clock page is
    /// expired or unsynchronised.
    pub fn set_ptp_port(
        &self,
        interface: u32,
        transport: PtpTransport,
        port: Option<&PtpPort>,
    ) -> Result<(), XdpError> {
        let key = PtpPortKey { interface, transport: transport as u32 };
        let ports = self.loaded.map("ptp_ports")?;
        let result = match port {
            Some(port) => {
                let fields = port_fields(transport, port);
                ports.update(key.as_bytes(), fields.as_bytes(), MapFlags::ANY)
            }
            None => ports.delete(key.as_bytes()),
        };
        ignore_not_found(result)
    }

    /// Starts or stops answering PTP requests to an address of this host over UDP.
    pub fn set_ptp_address(&self, address: IpAddr, serve: bool) -> Result<(), XdpError> {
        let addresses = self.loaded.map("ptp_addresses")?;
        let key = to_ipv6_mapped(address);
        ignore_not_found(if serve {
            addresses.update(&key, &[1], MapFlags::ANY)
        } else {
            addresses.delete(&key)
        })
    }

    /// Lets the programs that answer NTP pass other frames on to those that answer PTP.
    pub fn chain_ptp(&self) -> Result<(), XdpError> {
        let masters = self.loaded.map("masters")?;
        let programs = ["respond_delay", "respond_delay_by_redirect", "respond_monitor"];
        for (index, name) in (0_u32..).zip(programs) {
            let program = self.loaded.program(name)?.as_fd().as_raw_fd().cast_unsigned();
            masters
                .update(&index.to_ne_bytes(), &program.to_ne_bytes(), MapFlags::ANY)
                .map_err(|error| XdpError::Map(object::to_io_error(&error)))?;
        }
        Ok(())
    }

    /// Enables replies to `NetSync` Monitor by the interface with this index, three packets for
    /// each request. The interface must have a program in native mode and accept redirected frames
    /// (see [`supports_redirect`](crate::supports_redirect)).
    pub fn enable_monitor(&self, interface: u32) -> Result<(), XdpError> {
        let failed = |error: libbpf_rs::Error| XdpError::Map(object::to_io_error(&error));
        let options = libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_sys::bpf_map_create_opts>() as libbpf_sys::size_t,
            ..Default::default()
        };
        let program = self.loaded.program("finish_copy")?.as_raw_fd().cast_unsigned();
        // struct bpf_devmap_val of linux/bpf.h: a copy's egress interface, and the program that
        // changes it.
        let value = [interface, program].map(u32::to_ne_bytes).concat();
        let (key_size, value_size) = (size_of::<u32>() as u32, value.len() as u32);
        let name = Some("copies");
        let kind = MapType::Devmap;
        let copies = MapHandle::create(kind, name, key_size, value_size, MONITOR_PARTS, &options)
            .map_err(failed)?;
        for key in 0..MONITOR_PARTS {
            copies.update(&key.to_ne_bytes(), &value, MapFlags::ANY).map_err(failed)?;
        }
        let inner = copies.as_fd().as_raw_fd().to_ne_bytes();
        let all = self.loaded.map("ptp_copies")?;
        all.update(&interface.to_ne_bytes(), &inner, MapFlags::ANY).map_err(failed)
    }

    /// Adds (`admit`) or removes a prefix, of this address and length in bits, of clients whose
    /// `NetSync` Monitor requests the port of this interface and transport answers. Over Ethernet
    /// every client is answered.
    pub fn set_monitor_client(
        &self,
        interface: u32,
        transport: PtpTransport,
        (address, length): (IpAddr, u8),
        admit: bool,
    ) -> Result<(), XdpError> {
        let port = PtpPortKey { interface, transport: transport as u32 };
        let mut key = PtpMonitorClientPrefix {
            length: 8 * size_of::<PtpPortKey>() as u32 + u32::from(length),
            port,
            address: [0; 16],
        };
        match address {
            IpAddr::V4(address) => key.address[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => key.address = address.octets(),
        }
        let clients = self.loaded.map("ptp_clients")?;
        ignore_not_found(if admit {
            clients.update(key.as_bytes(), &[1], MapFlags::ANY)
        } else {
            clients.delete(key.as_bytes())
        })
    }

    /// Runs the program that answers PTP once over a frame, as if it had arrived at the loopback
    /// interface, without sending anything.
    pub fn test_run_ptp(&self, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
        crate::test_run::run_once(self.loaded.program("respond_delay")?, frame)
    }

    /// Runs the program that finishes the copies of a reply once over a frame, without sending it.
    /// The copy becomes the part of the reply that follows those finished before on this CPU.
    pub fn test_run_copy(&self, frame: &[u8]) -> Result<TestRunOutcome, XdpError> {
        crate::test_run::run_once(self.loaded.program("finish_copy_alone")?, frame)
    }
}

fn ignore_not_found(result: libbpf_rs::Result<()>) -> Result<(), XdpError> {
    match result {
        Err(error) if error.kind() != libbpf_rs::ErrorKind::NotFound => {
            Err(XdpError::Map(object::to_io_error(&error)))
        }
        _ => Ok(()),
    }
}

const fn to_ipv6_mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn port_fields(transport: PtpTransport, port: &PtpPort) -> PtpPortFields {
    let multicast = if port.multicast { PTP_PORT_MULTICAST } else { 0 };
    let hybrid = if port.hybrid { PTP_PORT_HYBRID } else { 0 };
    let mut tlv = [0; PTP_MONITOR_MAX];
    let fits = |tlv: &&Vec<u8>| tlv.len() == ptp_monitor_len(transport.address_len());
    let monitor = port.monitor.as_ref().filter(fits).map_or(0, |bytes| {
        tlv[..bytes.len()].copy_from_slice(bytes);
        PTP_PORT_MONITOR
    });
    PtpPortFields {
        clock: port.clock.to_be_bytes(),
        port: port.port.to_be_bytes(),
        domain: port.domain,
        sdo_major: (port.sdo_id >> 8) as u8,
        sdo_minor: port.sdo_id as u8,
        log_min_delay_req: port.log_min_delay_req,
        flags: multicast | hybrid | monitor,
        reserved: 0,
        mac: port.mac,
        reserved2: [0; 2],
        address: to_ipv6_mapped(port.address),
        monitor: tlv,
    }
}
