//! Publication of a port to the XDP program, which then responds to delay requests for it;
//! nothing is published while the port does not respond itself.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use horolog_sys::netlink::Prefix;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::ptp::monitor::MonitorResponse;
use horolog_xdp::{PtpPort, PtpTransport, Responder, supports_redirect};

use crate::ptp::{FastPort, PtpPortTransport};

/// Registration of a port with the program; dropping it removes the port from the program.
pub(super) struct FastPath {
    responder: Arc<Responder>,
    interface: u32,
    transport: PtpTransport,
    mac: MacAddress,
    addresses: BTreeSet<IpAddr>,
    /// Prefixes for which NetSync Monitor is answered.
    admitted: BTreeSet<(IpAddr, u8)>,
    /// True if the interface can send more frames than it received.
    copies: bool,
    published: Option<PtpPort>,
}

impl FastPath {
    /// Creates the registration of a port that the program does not answer for yet.
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
            admitted: BTreeSet::new(),
            copies: false,
            published: None,
        }
    }

    /// Updates the present addresses of the interface and the prefixes admitted to NetSync Monitor.
    pub(super) fn refresh(&mut self, own: impl Iterator<Item = IpAddr>, admitted: &[Prefix]) {
        self.copies = supports_redirect(self.interface);
        self.admit(admitted);
        self.listen(own);
    }

    fn admit(&mut self, admitted: &[Prefix]) {
        let ours = admitted.iter().filter(|prefix| self.is_ours(&prefix.address()));
        let wanted: BTreeSet<_> =
            ours.map(Prefix::network).map(|own| (own.address(), own.length())).collect();
        let changes = wanted.symmetric_difference(&self.admitted);
        for &prefix in changes {
            let admit = wanted.contains(&prefix);
            let (interface, transport) = (self.interface, self.transport);
            if self.responder.set_monitor_client(interface, transport, prefix, admit).is_err() {
                return;
            }
        }
        self.admitted = wanted;
    }

    fn listen(&mut self, own: impl Iterator<Item = IpAddr>) {
        let wanted: BTreeSet<IpAddr> = own.filter(|address| self.is_ours(address)).collect();
        let changes = wanted.symmetric_difference(&self.addresses);
        for &address in changes {
            // Addresses that the program did not accept are left to the sockets; it is retried.
            if self.responder.set_ptp_address(address, wanted.contains(&address)).is_err() {
                return;
            }
        }
        self.addresses = wanted;
    }

    /// Makes the program respond as this port, or not at all.
    pub(super) fn serve(&mut self, port: Option<FastPort<'_>>) {
        let port = port.and_then(|port| self.port(&port));
        if self.published != port
            && self.responder.set_ptp_port(self.interface, self.transport, port.as_ref()).is_ok()
        {
            self.published = port;
        }
    }

    const fn is_ours(&self, address: &IpAddr) -> bool {
        match self.transport {
            PtpTransport::Ipv4 => address.is_ipv4(),
            PtpTransport::Ipv6 => address.is_ipv6(),
            PtpTransport::Ethernet => false,
        }
    }

    fn port(&self, port: &FastPort<'_>) -> Option<PtpPort> {
        let address = match self.transport {
            PtpTransport::Ethernet => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            _ => self.source(),
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
            monitor: port.monitor.as_ref().filter(|_| self.copies).map(tlv),
        })
    }

    /// Returns the source address of messages to the group. To an IPv6 group with global scope the
    /// kernel sends from an address of that scope, if there is one (RFC 6724, rule 2).
    fn source(&self) -> Option<IpAddr> {
        let is_local =
            |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        let global = self.addresses.iter().find(|address| !is_local(address));
        global.or_else(|| self.addresses.first()).copied()
    }
}

impl Drop for FastPath {
    fn drop(&mut self) {
        self.serve(None);
        self.listen(std::iter::empty());
        self.admit(&[]);
    }
}

fn tlv(response: &MonitorResponse<'_>) -> Vec<u8> {
    let mut bytes = vec![0; MonitorResponse::tlv_len(response.address.len())];
    response.emit(&mut bytes);
    bytes
}
