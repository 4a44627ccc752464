//! Facts of an end: its CPU, kernel and distribution, and the interface of a connection. An
//! unreadable fact is absent.

use std::fs;
use std::net::{IpAddr, TcpStream};

use horolog_record::{Host, PathEndpoint};
use horolog_sys::netlink::{Link, Netlink};
use horolog_sys::tcp;

/// Returns this program and its version.
pub(super) fn program() -> String {
    format!("horolog {}", env!("CARGO_PKG_VERSION"))
}

/// Returns the facts of this end of a connection.
#[must_use]
pub(crate) fn near_end(stream: &TcpStream) -> PathEndpoint {
    let local = stream.local_addr().ok().map(|local| local.ip().to_canonical());
    let link = local.and_then(interface_of);
    let mut end = machine();
    end.congestion_control = tcp::congestion_control(stream).ok();
    if let Some(link) = link {
        end.nic = kind(&link);
        end.mtu = Some(link.mtu.into());
        end.interface = Some(link.name);
    }
    end
}

/// Returns the facts of this host, without a connection.
#[must_use]
pub(crate) fn machine() -> PathEndpoint {
    let host = Host::read();
    PathEndpoint {
        hostname: line("/proc/sys/kernel/hostname"),
        cpu: host.cpu,
        cores: Some(host.cores as u64),
        kernel: host.kernel,
        distribution: fs::read_to_string("/etc/os-release").ok().and_then(|text| pretty(&text)),
        program: Some(program()),
        ..PathEndpoint::default()
    }
}

/// Parses the facts that a far end sent; `None` if there are none but its program.
#[must_use]
pub(crate) fn far_end(facts: &[u8]) -> Option<PathEndpoint> {
    let end = super::protocol::facts(facts);
    (end != PathEndpoint::default()).then_some(end)
}

fn line(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Returns the name in os-release(5).
fn pretty(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_owned()).filter(|name| !name.is_empty())
}

/// Returns the interface that has an address of this host.
fn interface_of(local: IpAddr) -> Option<Link> {
    let mut netlink = Netlink::open().ok()?;
    let addresses = netlink.addresses().ok()?;
    let found = addresses.iter().find(|one| one.prefix.address() == local);
    // All of 127.0.0.0/8 is loopback's.
    let found = found.or_else(|| addresses.iter().find(|one| one.prefix.contains(local)))?;
    netlink.link_by_index(found.index).ok()
}

/// Returns the kind of an interface: of a virtual one its type, of a NIC its driver.
fn kind(link: &Link) -> Option<String> {
    if let Some(kind) = &link.kind {
        return Some(kind.clone());
    }
    if link.name == "lo" {
        return Some("loopback".to_owned());
    }
    // In a network namespace of its own a process may see the files of another one's interfaces;
    // such a name leads nowhere, or to an interface that is as virtual as this one is.
    let driver = fs::read_link(format!("/sys/class/net/{}/device/driver", link.name)).ok()?;
    Some(driver.file_name()?.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn this_end_is_described() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let end = near_end(&stream);
        assert_eq!((end.interface.as_deref(), end.nic.as_deref()), (Some("lo"), Some("loopback")));
        assert!(end.mtu.is_some() && end.kernel.is_some() && end.cores.is_some());
    }

    #[test]
    fn a_distribution_has_a_name() {
        let text = "ID=debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n";
        assert_eq!(pretty(text).unwrap(), "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(pretty("ID=x\nPRETTY_NAME=\n"), None);
    }
}
