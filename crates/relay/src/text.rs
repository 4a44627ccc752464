//! State of a relay as text for a person: pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::{
    ChildListing, GroupListing, GroupSpec, LimitsListing, RelayListing, XdpInterfaceListing,
};

/// Renders the engine and limits, the interfaces, and a line for each group and, below it, for each
/// child.
#[must_use]
pub fn render_text(listing: &RelayListing) -> String {
    let RelayListing { engine, table, groups, receive_errors, changes_refused, .. } = listing;
    let LimitsListing { groups: groups_max, children: children_max, kernel } = &listing.limits;
    let children: usize = groups.iter().map(|group| group.children.len()).sum();
    // Writing to memory does not fail.
    let mut text = String::new();
    let _ = writeln!(
        text,
        "engine {engine}; groups: {} of {groups_max}; children: {children} of {children_max}; at most \
         {} copies/s",
        groups.len(),
        table.copy_rate
    );
    if let Some(limits) = kernel {
        let _ = writeln!(
            text,
            "in-kernel: packets up to {} bytes, up to {} egress interfaces, {} children of a group \
             behind each",
            limits.packet_bytes, limits.interfaces, limits.children_per_interface
        );
        if let Some(why) = &limits.uncounted_ring_drops {
            let _ = writeln!(text, "{}", ring_drops_text(why));
        }
    }
    for XdpInterfaceListing { name, refused } in &listing.interfaces {
        let _ = match refused {
            None => writeln!(text, "packets received on {name} are processed by XDP"),
            Some(why) => writeln!(text, "packets received on {name} are passed to sockets: {why}"),
        };
    }
    if let Some(name) = &listing.send_interface {
        let _ = writeln!(text, "programs on this host send through {name}");
    }
    for (spec, group) in table.groups.iter().zip(groups) {
        text.push_str(&group_line(spec, group));
        for child in &group.children {
            text.push_str(&child_line(child));
        }
    }
    if *receive_errors > 0 {
        let _ = writeln!(text, "{receive_errors} receive calls failed");
    }
    if *changes_refused > 0 {
        let _ = writeln!(text, "{changes_refused} changes of the table were refused");
    }
    text
}

/// Renders the notice that copies dropped at a full transmit ring count as sent, for this reason.
#[must_use]
pub fn ring_drops_text(why: &str) -> String {
    format!(
        "copies dropped at a full transmit ring count as sent: this kernel does not report them \
         ({why})"
    )
}

fn group_line(spec: &GroupSpec, group: &GroupListing) -> String {
    let on = spec.interface.as_ref().map(|name| format!(" on {name}")).unwrap_or_default();
    let why = group.xdp_unavailable.as_ref().map(|why| format!(" ({why})")).unwrap_or_default();
    let full = match group.socket_dropped {
        Some(dropped @ 1..) => format!("; dropped at the full socket buffer: {dropped}"),
        _ => String::new(),
    };
    let gone = if group.interface_missing { "; its interface is gone" } else { "" };
    format!(
        "{} at {}{on} by {}{why}: {} packets, {} bytes{}{full}{gone}\n",
        group.name,
        spec.listen,
        group.engine,
        group.packets,
        group.bytes,
        format_reasons("refused", &group.refused)
    )
}

fn child_line(child: &ChildListing) -> String {
    let unreachable = if child.unreachable { "; its next hop does not resolve" } else { "" };
    format!(
        "  {}: {} copies, {} bytes{}{unreachable}\n",
        child.address,
        child.packets,
        child.bytes,
        format_reasons("dropped", &child.dropped)
    )
}

fn format_reasons(what: &str, counts: &BTreeMap<String, u64>) -> String {
    if counts.is_empty() {
        return String::new();
    }
    let counts: Vec<_> = counts.iter().map(|(name, count)| format!("{name} {count}")).collect();
    format!("; {what}: {}", counts.join(", "))
}
