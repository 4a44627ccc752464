//! What a port tells the program in XDP, so that this answers requests for the delay in its place:
//! nothing while the port answers none itself.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use horolog_sys::netlink::Prefix;
use horolog_wire::ethernet::MacAddress;
use horolog_wire::ptp::monitor::Response;
use horolog_xdp::{PtpPort, PtpTransport, Responder, takes_redirects};

use crate::ptp::{FastPort, Transport};

/// The program's view of a port; dropping it takes the port off the program.
pub(super) struct FastPath {
    responder: Arc<Responder>,
    interface: u32,
    transport: PtpTransport,
    mac: MacAddress,
    addresses: BTreeSet<IpAddr>,
    /// Who is answered NetSync Monitor.
    admitted: BTreeSet<(IpAddr, u8)>,
    /// Whether the interface can send more frames than came.
    copies: bool,
    told: Option<PtpPort>,
}

impl FastPath {
    /// A port that the program does not answer as yet.
    pub(super) fn new(
        responder: Arc<Responder>,
        interface: u32,
        transport: Transport,
        mac: MacAddress,
    ) -> Self {
        let transport = match transport {
            Transport::Udp4 => PtpTransport::Ipv4,
            Transport::Udp6 => PtpTransport::Ipv6,
            Transport::Ethernet => PtpTransport::Ethernet,
        };
        Self {
            responder,
            interface,
            transport,
            mac,
            addresses: BTreeSet::new(),
            admitted: BTreeSet::new(),
            copies: false,
            told: None,
        }
    }

    /// Takes over the addresses that the interface has now, and who is admitted to NetSync Monitor.
    pub(super) fn look(&mut self, own: impl Iterator<Item = IpAddr>, admitted: &[Prefix]) {
        self.copies = takes_redirects(self.interface);
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
            if self.responder.admit_to_monitor(interface, transport, prefix, admit).is_err() {
                return;
            }
        }
        self.admitted = wanted;
    }

    fn listen(&mut self, own: impl Iterator<Item = IpAddr>) {
        let wanted: BTreeSet<IpAddr> = own.filter(|address| self.is_ours(address)).collect();
        let changes = wanted.symmetric_difference(&self.addresses);
        for &address in changes {
            // What the program does not take over goes up to the sockets; it is tried again.
            if self.responder.serve_ptp_at(address, wanted.contains(&address)).is_err() {
                return;
            }
        }
        self.addresses = wanted;
    }

    /// Has the program answer as this port, or not at all.
    pub(super) fn serve(&mut self, port: Option<FastPort<'_>>) {
        let port = port.and_then(|port| self.port(&port));
        if self.told != port
            && self.responder.serve_ptp(self.interface, self.transport, port.as_ref()).is_ok()
        {
            self.told = port;
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

    /// Where messages to the group come from. To one of IPv6 with global scope the kernel sends
    /// from an address of that scope, where there is one (RFC 6724, rule 2).
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

fn tlv(response: &Response<'_>) -> Vec<u8> {
    let mut bytes = vec![0; Response::tlv_len(response.address.len())];
    response.emit(&mut bytes);
    bytes
}
