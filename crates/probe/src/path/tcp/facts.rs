//! Facts about the host of an end: CPU, kernel, distribution, and interface of the connection. An
//! unreadable fact is absent.

use std::fs;
use std::net::{IpAddr, TcpStream};

use horolog_record::{Host, PathEndFacts};
use horolog_sys::netlink::{Link, Netlink};
use horolog_sys::tcp;

/// Returns name and version of this program.
pub(super) fn program_version() -> String {
    format!("horolog {}", env!("CARGO_PKG_VERSION"))
}

/// Returns the facts about this host and its end of a connection.
#[must_use]
pub(crate) fn near_end(stream: &TcpStream) -> PathEndFacts {
    let local = stream.local_addr().ok().map(|local| local.ip().to_canonical());
    let link = local.and_then(interface_of);
    let mut end = host_facts();
    end.congestion_control = tcp::congestion_control(stream).ok();
    if let Some(link) = link {
        end.nic = interface_kind(&link);
        end.mtu = Some(link.mtu.into());
        end.interface = Some(link.name);
    }
    end
}

/// Returns the facts of this host, without a connection.
#[must_use]
pub(crate) fn host_facts() -> PathEndFacts {
    let host = Host::read();
    PathEndFacts {
        hostname: read_trimmed("/proc/sys/kernel/hostname"),
        cpu: host.cpu,
        cores: Some(host.cores as u64),
        kernel: host.kernel,
        distribution: fs::read_to_string("/etc/os-release")
            .ok()
            .and_then(|text| distribution_name(&text)),
        program: Some(program_version()),
        ..PathEndFacts::default()
    }
}

/// Parses the facts of the far end; `None` if there are none.
#[must_use]
pub(crate) fn parse_far_end(facts: &[u8]) -> Option<PathEndFacts> {
    let end = super::protocol::parse_facts(facts);
    (end != PathEndFacts::default()).then_some(end)
}

fn read_trimmed(path: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    Some(text.trim().to_owned()).filter(|line| !line.is_empty())
}

/// Returns the distribution's name (`PRETTY_NAME` of os-release(5)).
fn distribution_name(text: &str) -> Option<String> {
    let value = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(value.trim_matches(['"', '\'']).to_owned()).filter(|name| !name.is_empty())
}

/// Returns the interface with a local address.
fn interface_of(local: IpAddr) -> Option<Link> {
    let mut netlink = Netlink::open().ok()?;
    let addresses = netlink.addresses().ok()?;
    let found = addresses.iter().find(|one| one.prefix.address() == local);
    // All of 127.0.0.0/8 is loopback's.
    let found = found.or_else(|| addresses.iter().find(|one| one.prefix.contains(local)))?;
    netlink.link_by_index(found.index).ok()
}

/// Returns the type of a virtual interface, `loopback`, or the driver of a NIC; `None` if it is
/// unknown.
fn interface_kind(link: &Link) -> Option<String> {
    if let Some(kind) = &link.kind {
        return Some(kind.clone());
    }
    if link.name == "lo" {
        return Some("loopback".to_owned());
    }
    // In another network namespace `/sys` may show an equally named interface of the initial one;
    // its driver does not exist or is virtual as well.
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
        assert_eq!(distribution_name(text).unwrap(), "Debian GNU/Linux 12 (bookworm)");
        assert_eq!(distribution_name("ID=x\nPRETTY_NAME=\n"), None);
    }
}
