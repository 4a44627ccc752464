//! Counter snapshot as text for people. Pure.

use std::fmt::Write;

use crate::{CounterSnapshot, UdpCounts};

/// Renders the snapshot as text, one line for each interface, the softnet backlogs, each IP version
/// of UDP, and each socket, server and unavailable counter.
#[must_use]
pub fn render_text(snapshot: &CounterSnapshot) -> String {
    let mut out = String::new();
    write_snapshot(&mut out, snapshot).unwrap_or_default(); // a string has no end
    out
}

fn write_snapshot(out: &mut String, snapshot: &CounterSnapshot) -> std::fmt::Result {
    writeln!(out, "counters at {}", snapshot.read_at)?;
    for one in &snapshot.interfaces {
        writeln!(
            out,
            "interface {}: received {}, sent {}, dropped {} in and {} out, missed {}, errors {} in \
             and {} out, not sent by XDP {}",
            one.name,
            one.rx_packets,
            one.tx_packets,
            one.rx_dropped,
            one.tx_dropped,
            one.rx_missed,
            one.rx_errors,
            one.tx_errors,
            one.xdp_tx_errors
        )?;
    }
    if let Some(one) = &snapshot.softnet {
        let (processed, dropped, squeezed) = (one.processed, one.dropped, one.squeezed);
        writeln!(out, "softnet: processed {processed}, dropped {dropped}, squeezed {squeezed}")?;
    }
    for (name, udp) in [("IPv4", &snapshot.udp_ipv4), ("IPv6", &snapshot.udp_ipv6)] {
        if let Some(udp) = udp {
            write_udp(out, name, udp)?;
        }
    }
    for one in &snapshot.sockets {
        let at = std::net::SocketAddr::new(one.address, one.port);
        writeln!(out, "socket {at}: dropped {}, {} bytes waiting", one.dropped, one.queued_bytes)?;
    }
    for one in &snapshot.servers {
        writeln!(
            out,
            "server {}: received {}, answered {}, refused {}",
            one.program, one.received, one.answered, one.limited
        )?;
    }
    for one in &snapshot.unavailable {
        writeln!(out, "not read: {}: {}", one.item, one.reason)?;
    }
    Ok(())
}

fn write_udp(out: &mut String, name: &str, udp: &UdpCounts) -> std::fmt::Result {
    writeln!(
        out,
        "UDP over {name}: received {}, sent {}, no port {}, errors {}, of those full receive \
         buffer {} and wrong checksum {}, full send buffer {}",
        udp.in_datagrams,
        udp.out_datagrams,
        udp.no_ports,
        udp.in_errors,
        udp.receive_buffer_errors,
        udp.checksum_errors,
        udp.send_buffer_errors
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        InterfaceCounts, ServerCounts, SoftnetCounts, UdpSocketCounts, UnavailableCounter,
    };

    #[test]
    fn every_counter_is_printed() {
        let udp = UdpCounts {
            in_datagrams: 21,
            no_ports: 22,
            in_errors: 23,
            out_datagrams: 24,
            receive_buffer_errors: 25,
            send_buffer_errors: 26,
            checksum_errors: 27,
        };
        let page = CounterSnapshot {
            schema: String::new(),
            read_at: "now".into(),
            interfaces: vec![InterfaceCounts {
                name: "eth0".into(),
                rx_packets: 1,
                tx_packets: 2,
                rx_errors: 3,
                tx_errors: 4,
                rx_dropped: 5,
                tx_dropped: 6,
                rx_missed: 7,
                xdp_tx_errors: 8,
            }],
            softnet: Some(SoftnetCounts { processed: 11, dropped: 12, squeezed: 13 }),
            udp_ipv4: Some(udp),
            udp_ipv6: Some(UdpCounts { in_datagrams: 31, ..udp }),
            sockets: vec![UdpSocketCounts {
                address: [127, 0, 0, 1].into(),
                port: 123,
                queued_bytes: 41,
                dropped: 42,
            }],
            servers: vec![ServerCounts {
                program: "chronyd".into(),
                received: 51,
                answered: 52,
                limited: 53,
            }],
            unavailable: vec![UnavailableCounter {
                item: "horolog".into(),
                reason: "it is silent".into(),
            }],
        };
        let udp = "sent 24, no port 22, errors 23, of those full receive buffer 25 and wrong \
                   checksum 27, full send buffer 26";
        let expected = [
            "counters at now".to_owned(),
            "interface eth0: received 1, sent 2, dropped 5 in and 6 out, missed 7, errors 3 in and \
             4 out, not sent by XDP 8"
                .to_owned(),
            "softnet: processed 11, dropped 12, squeezed 13".to_owned(),
            format!("UDP over IPv4: received 21, {udp}"),
            format!("UDP over IPv6: received 31, {udp}"),
            "socket 127.0.0.1:123: dropped 42, 41 bytes waiting".to_owned(),
            "server chronyd: received 51, answered 52, refused 53".to_owned(),
            "not read: horolog: it is silent".to_owned(),
        ];
        assert_eq!(render_text(&page).lines().collect::<Vec<_>>(), expected);
    }
}
