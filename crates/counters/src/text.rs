//! The page as text for people. Pure.

use std::fmt::Write;

use crate::{Page, UdpCounters};

/// The page, a line for each thing that counts.
#[must_use]
pub fn text(page: &Page) -> String {
    let mut out = String::new();
    write(&mut out, page).unwrap_or_default(); // a string has no end
    out
}

fn write(out: &mut String, page: &Page) -> std::fmt::Result {
    writeln!(out, "counters at {}", page.read_at)?;
    for one in &page.interfaces {
        writeln!(
            out,
            "interface {}: received {}, sent {}, dropped {} in and {} out, missed {}, errors {} in \
             and {} out",
            one.name,
            one.rx_packets,
            one.tx_packets,
            one.rx_dropped,
            one.tx_dropped,
            one.rx_missed,
            one.rx_errors,
            one.tx_errors
        )?;
    }
    if let Some(one) = &page.softnet {
        let (processed, dropped, squeezed) = (one.processed, one.dropped, one.squeezed);
        writeln!(out, "softnet: processed {processed}, dropped {dropped}, squeezed {squeezed}")?;
    }
    for (name, udp) in [("IPv4", &page.udp_ipv4), ("IPv6", &page.udp_ipv6)] {
        if let Some(udp) = udp {
            write_udp(out, name, udp)?;
        }
    }
    for one in &page.sockets {
        let at = std::net::SocketAddr::new(one.address, one.port);
        writeln!(out, "socket {at}: dropped {}, {} bytes waiting", one.dropped, one.queued_bytes)?;
    }
    for one in &page.servers {
        writeln!(
            out,
            "server {}: received {}, answered {}, turned away {}",
            one.program, one.received, one.answered, one.limited
        )?;
    }
    for one in &page.unread {
        writeln!(out, "not read: {}: {}", one.what, one.why)?;
    }
    Ok(())
}

fn write_udp(out: &mut String, name: &str, udp: &UdpCounters) -> std::fmt::Result {
    writeln!(
        out,
        "UDP over {name}: taken {}, sent {}, no room {}, no port {}, wrong checksum {}, no room to \
         send {}",
        udp.in_datagrams,
        udp.out_datagrams,
        udp.receive_buffer_errors,
        udp.no_ports,
        udp.checksum_errors,
        udp.send_buffer_errors
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Interface, Server, Softnet, Unread};

    #[test]
    fn everything_has_a_line() {
        let page = Page {
            interfaces: vec![Interface { name: "eth0".into(), ..Interface::default() }],
            softnet: Some(Softnet::default()),
            udp_ipv4: Some(UdpCounters::default()),
            udp_ipv6: Some(UdpCounters::default()),
            servers: vec![Server { program: "chronyd".into(), ..Server::default() }],
            unread: vec![Unread { what: "horolog".into(), why: "it is silent".into() }],
            ..Page::default()
        };
        let text = text(&page);
        for sign in ["interface eth0", "softnet", "over IPv4", "over IPv6", "server chronyd"] {
            assert!(text.contains(sign), "{text}");
        }
        assert_eq!(text.lines().count(), 7, "{text}");
        assert!(text.ends_with("not read: horolog: it is silent\n"), "{text}");
    }
}
