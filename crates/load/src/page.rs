//! The server's side of the counters, as a page on its machine tells them (`horolog counters`). It
//! is read before and after each trial; a reading that fails is a doubt about the losses' places,
//! and never the end of a run.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use horolog_counters::{Interface, Page, Query, Remote, RemoteError, Token};
use horolog_http::Url;

use crate::places::{InterfaceCounters, ServerCounters, UdpCounters};

/// Where the page is, and what opens it.
#[derive(Clone, Debug)]
pub struct PageOptions {
    /// The page's place.
    pub url: Url,
    /// The token that it wants.
    pub token: Token,
}

/// What the page told at one instant of the server's side; what it did not is absent.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Told {
    pub(crate) interface: Option<InterfaceCounters>,
    /// Frames that the server sent back by XDP and that did not fit into the other end of a veth.
    pub(crate) xdp_tx_errors: u64,
    pub(crate) udp: Option<UdpCounters>,
    pub(crate) server: Option<ServerCounters>,
}

/// The page that is read before and after each trial.
#[derive(Debug)]
pub(crate) struct PageWatch {
    remote: Remote,
    ipv4: bool,
    doubts: PageDoubts,
}

/// What the page did not tell.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PageDoubts {
    /// How often it was to be read.
    pub readings: usize,
    /// How often it could not be read.
    pub failed: usize,
    /// Why not, the first time.
    pub reason: Option<String>,
    /// What it could not read of its machine, each with the reason.
    pub unread: BTreeSet<String>,
}

impl PageWatch {
    /// Reads the page for the first time, so that a wrong place or token is known before anything
    /// is measured.
    pub(crate) fn open(options: PageOptions, target: SocketAddr) -> Result<Self, RemoteError> {
        let query = Query { address: Some(target.ip()), port: Some(target.port()) };
        let remote = Remote::new(&options.url, options.token, &query)?;
        let doubts = PageDoubts { unread: unread(&remote.read()?), ..PageDoubts::default() };
        Ok(Self { remote, ipv4: target.is_ipv4(), doubts })
    }

    /// Reads it. Nothing is told by a page that cannot be read.
    pub(crate) fn read(&mut self) -> Told {
        self.doubts.readings += 1;
        match self.remote.read() {
            Ok(page) => {
                self.doubts.unread.append(&mut unread(&page));
                Told::of(&page, self.ipv4)
            }
            Err(error) => {
                self.doubts.failed += 1;
                self.doubts.reason.get_or_insert_with(|| error.to_string());
                Told::default()
            }
        }
    }

    pub(crate) const fn doubts(&self) -> &PageDoubts {
        &self.doubts
    }
}

fn unread(page: &Page) -> BTreeSet<String> {
    let plain = |text: &str| text.replace(char::is_control, " ");
    page.unread.iter().map(|one| plain(&format!("{}: {}", one.what, one.why))).collect()
}

impl Told {
    fn of(page: &Page, ipv4: bool) -> Self {
        // It was asked for one; where it shows more it does not say which is the server's.
        let interface = match &page.interfaces[..] {
            [one] => Some(one),
            _ => None,
        };
        let sum = |count: fn(&horolog_counters::Server) -> u64| {
            page.servers.iter().fold(0, |sum: u64, server| sum.saturating_add(count(server)))
        };
        let udp = if ipv4 { page.udp_ipv4 } else { page.udp_ipv6 };
        Self {
            interface: interface.map(of_interface),
            xdp_tx_errors: interface.map_or(0, |interface| interface.xdp_tx_errors),
            udp,
            server: (!page.servers.is_empty()).then(|| ServerCounters {
                received: sum(|server| server.received),
                answered: sum(|server| server.answered),
            }),
        }
    }
}

const fn of_interface(interface: &Interface) -> InterfaceCounters {
    InterfaceCounters {
        rx_packets: interface.rx_packets,
        tx_packets: interface.tx_packets,
        tx_dropped: interface.tx_dropped,
        rx_dropped: interface.rx_dropped,
        rx_dropped_at_peer: 0,
        rx_missed: interface.rx_missed,
    }
}

#[cfg(test)]
mod tests {
    use horolog_counters::{Server, Unread};

    use super::*;

    #[test]
    fn a_page_is_the_server_s_side() {
        let server = |received, answered| Server { received, answered, ..Server::default() };
        let page = Page {
            interfaces: vec![Interface { rx_missed: 3, xdp_tx_errors: 2, ..Interface::default() }],
            udp_ipv6: Some(UdpCounters { no_ports: 4, ..UdpCounters::default() }),
            servers: vec![server(5, 4), server(u64::MAX, 1)],
            unread: vec![Unread { what: "a\nb".into(), why: "c".into() }],
            ..Page::default()
        };
        let told = Told::of(&page, true);
        assert_eq!(told.interface.unwrap().rx_missed, 3);
        assert_eq!((told.xdp_tx_errors, told.udp), (2, None));
        assert_eq!(told.server, Some(ServerCounters { received: u64::MAX, answered: 5 }));
        assert_eq!(Told::of(&page, false).udp.unwrap().no_ports, 4);
        assert_eq!(unread(&page), BTreeSet::from(["a b: c".to_owned()]));
        let two = Page { interfaces: vec![Interface::default(); 2], ..Page::default() };
        assert_eq!(Told::of(&two, true), Told::default());
    }
}
