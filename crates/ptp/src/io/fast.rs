//! Registration of a port with the XDP program, which then answers `Delay_Req` messages for it. The
//! port is withdrawn while it does not answer them itself.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use horolog_wire::ethernet::MacAddress;
use horolog_wire::prefix::Prefix;
use horolog_wire::ptp::monitor::NetSyncMonitorResponse;
use horolog_xdp::{PtpPort, PtpTransport, Responder, supports_redirect};

use crate::delay::DelayResponder;
use crate::settings::PtpPortTransport;

/// Registration of a port with the XDP program. Dropping it removes the port from the program.
pub(super) struct XdpPortRegistration {
    responder: Arc<Responder>,
    interface: u32,
    transport: PtpTransport,
    mac: MacAddress,
    addresses: BTreeSet<IpAddr>,
    /// Prefixes whose NetSync Monitor requests are answered.
    monitor_prefixes: BTreeSet<(IpAddr, u8)>,
    /// True if XDP can send more frames on the interface than it received, as Monitor responses
    /// require.
    supports_copies: bool,
    published: Option<PtpPort>,
}

impl XdpPortRegistration {
    /// Creates the registration; the program does not answer for the port yet.
    pub(super) fn new(
        responder: Arc<Responder>,
        interface: u32,
        transport: PtpPortTransport,
        mac: MacAddress,
    ) -> Self {
        let transport = match transport {
            PtpPortTransport::Udp4 => PtpTransport::Ipv4,
            PtpPortTransport::Udp6 => PtpTransport::Ipv6,
            PtpPortTransport::Ethernet => PtpTransport::Ethernet,
        };
        Self {
            responder,
            interface,
            transport,
            mac,
            addresses: BTreeSet::new(),
            monitor_prefixes: BTreeSet::new(),
            supports_copies: false,
            published: None,
        }
    }

    /// Updates the addresses of the interface and the prefixes whose NetSync Monitor requests are
    /// answered. A failed update is repeated at the next call.
    pub(super) fn refresh(
        &mut self,
        local_addresses: impl Iterator<Item = IpAddr>,
        admitted: &[Prefix],
    ) {
        self.supports_copies = supports_redirect(self.interface);
        self.set_monitor_prefixes(admitted);
        self.set_addresses(local_addresses);
    }

    fn set_monitor_prefixes(&mut self, admitted: &[Prefix]) {
        let ours = admitted.iter().filter(|prefix| self.is_of_transport(&prefix.address()));
        let wanted: BTreeSet<_> =
            ours.map(Prefix::network).map(|own| (own.address(), own.length())).collect();
        let changes = wanted.symmetric_difference(&self.monitor_prefixes);
        for &prefix in changes {
            let admit = wanted.contains(&prefix);
            let (interface, transport) = (self.interface, self.transport);
            if self.responder.set_monitor_client(interface, transport, prefix, admit).is_err() {
                return;
            }
        }
        self.monitor_prefixes = wanted;
    }

    fn set_addresses(&mut self, local_addresses: impl Iterator<Item = IpAddr>) {
        let wanted: BTreeSet<IpAddr> =
            local_addresses.filter(|address| self.is_of_transport(address)).collect();
        let changes = wanted.symmetric_difference(&self.addresses);
        for &address in changes {
            // Requests to an address that the program did not accept are answered by the sockets;
            // the update is repeated later.
            if self.responder.set_ptp_address(address, wanted.contains(&address)).is_err() {
                return;
            }
        }
        self.addresses = wanted;
    }

    /// Makes the program answer with the data `port`; `None` stops it, as does a missing source
    /// address. If the program cannot be changed, the next call tries again.
    pub(super) fn set_responder(&mut self, port: Option<DelayResponder<'_>>) {
        let port = port.and_then(|port| self.xdp_port(&port));
        if self.published != port
            && self.responder.set_ptp_port(self.interface, self.transport, port.as_ref()).is_ok()
        {
            self.published = port;
        }
    }

    const fn is_of_transport(&self, address: &IpAddr) -> bool {
        match self.transport {
            PtpTransport::Ipv4 => address.is_ipv4(),
            PtpTransport::Ipv6 => address.is_ipv6(),
            PtpTransport::Ethernet => false,
        }
    }

    fn xdp_port(&self, port: &DelayResponder<'_>) -> Option<PtpPort> {
        let address = match self.transport {
            PtpTransport::Ethernet => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            _ => self.source_address(),
        };
        address.map(|address| PtpPort {
            clock: port.identity.clock,
            port: port.identity.port,
            domain: port.domain,
            sdo_id: port.sdo_id,
            log_min_delay_req: port.log_min_delay_req,
            multicast: port.multicast,
            hybrid: port.hybrid,
            mac: self.mac.0,
            address,
            monitor: port.monitor.as_ref().filter(|_| self.supports_copies).map(monitor_tlv),
        })
    }

    /// Returns the source address of messages to the group. For an IPv6 group of global scope the
    /// kernel prefers an address of that scope (RFC 6724, rule 2).
    fn source_address(&self) -> Option<IpAddr> {
        let is_local =
            |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let global = self.addresses.iter().find(|address| !is_local(address));
        global.or_else(|| self.addresses.first()).copied()
    }
}

impl Drop for XdpPortRegistration {
    fn drop(&mut self) {
        self.set_responder(None);
        self.set_addresses(std::iter::empty());
        self.set_monitor_prefixes(&[]);
    }
}

fn monitor_tlv(response: &NetSyncMonitorResponse<'_>) -> Vec<u8> {
    let mut bytes = vec![0; NetSyncMonitorResponse::tlv_len(response.address.len())];
    response.emit(&mut bytes);
    bytes
}
