//! The state of a relay as text and as metrics.

use std::collections::BTreeMap;

use crate::{
    ChildListing, GroupListing, LimitsListing, RelayListing, SCHEMA, XdpInterfaceListing,
    XdpLimits, metrics, render_text,
};

use super::{group, spec};

fn listing() -> RelayListing {
    let count = |name: &str| BTreeMap::from([(name.to_owned(), 3)]);
    let table = spec(vec![group("video", "239.1.2.3:5000", &["192.0.2.2:5000"])]);
    RelayListing {
        schema: SCHEMA.into(),
        engine: "xdp".into(),
        host_engine: "sendmmsg".into(),
        limits: LimitsListing {
            groups: 256,
            children: 1_024,
            kernel: Some(XdpLimits {
                packet_bytes: 3_500,
                interfaces: 64,
                children_per_interface: 256,
                addresses: 4_096,
                uncounted_ring_drops: Some("no tracepoint".into()),
            }),
        },
        interfaces: vec![
            XdpInterfaceListing { name: "eth0".into(), refused: None },
            XdpInterfaceListing { name: "tun0".into(), refused: Some("no native XDP".into()) },
        ],
        send_interface: Some("relay0".into()),
        groups: vec![GroupListing {
            name: "video".into(),
            engine: "sendmmsg".into(),
            xdp_unavailable: Some("it has no children".into()),
            packets: 10,
            bytes: 640,
            refused: count("source"),
            socket_dropped: Some(2),
            interface_missing: true,
            children: vec![ChildListing {
                address: table.groups[0].children[0],
                packets: 4,
                bytes: 256,
                dropped: count("too-large"),
                unreachable: true,
            }],
        }],
        table,
        receive_errors: 1,
        changes_refused: 5,
    }
}

#[test]
fn a_person_can_read_it() {
    let expected = "engine xdp; groups: 1 of 256; children: 1 of 1024; at most 1000000 copies/s\n\
        in-kernel: packets up to 3500 bytes, up to 64 egress interfaces, 256 children of a group \
        behind each\n\
        copies dropped at a full transmit ring count as sent: this kernel does not report \
        them (no tracepoint)\n\
        packets received on eth0 are processed by XDP\n\
        packets received on tun0 are passed to sockets: no native XDP\n\
        programs on this host send through relay0\n\
        video at 239.1.2.3:5000 by sendmmsg (it has no children): 10 packets, 640 bytes; refused: \
        source 3; dropped at the full socket buffer: 2; its interface is gone\n\
        \x20 192.0.2.2:5000: 4 copies, 256 bytes; dropped: too-large 3; its next hop \
        does not resolve\n\
        1 receive calls failed\n5 changes of the table were refused\n";
    assert_eq!(render_text(&listing()), expected);
}

#[test]
fn every_count_is_a_metric() {
    let text = metrics::render(&listing());
    for line in [
        "# TYPE horolog_relay_copies counter",
        "horolog_relay_copies_total{group=\"video\",child=\"192.0.2.2:5000\"} 4",
        "horolog_relay_copied_bytes_total{group=\"video\",child=\"192.0.2.2:5000\"} 256",
        "horolog_relay_dropped_total{group=\"video\",child=\"192.0.2.2:5000\",reason=\"too-large\"} 3",
        "horolog_relay_received_total{group=\"video\"} 10",
        "horolog_relay_received_bytes_total{group=\"video\"} 640",
        "horolog_relay_refused_total{group=\"video\",reason=\"source\"} 3",
        "horolog_relay_socket_dropped_total{group=\"video\"} 2",
        "horolog_relay_receive_errors_total 1",
        "horolog_relay_changes_refused_total 5",
        "# EOF",
    ] {
        assert!(text.lines().any(|l| l == line), "{line} is not there:\n{text}");
    }
    assert_eq!(metrics::respond("/", listing).code, 404);
    assert!(
        metrics::respond("/metrics", listing).media_type.starts_with("application/openmetrics")
    );
}
