//! TCP metrics of a route, shown by `ip route` as `rto_min`, `quickack` and `initcwnd`. Read only.

use std::net::IpAddr;
use std::time::Duration;

use horolog_wire::prefix::Prefix;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::route::{RouteAttribute, RouteHeader, RouteMessage, RouteMetric};

use super::route::route_message;
use super::{Netlink, NetlinkError};

/// TCP metrics of a route; `None` where the route has none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RouteMetrics {
    /// Smallest retransmission timeout, which also limits the delay of acknowledgements.
    pub rto_min: Option<Duration>,
    /// True if acknowledgements are not delayed.
    pub quick_ack: Option<bool>,
    /// Initial congestion window, in segments.
    pub initial_cwnd: Option<u32>,
}

impl Netlink {
    /// Returns the TCP metrics of the route of a packet to `destination`.
    pub fn route_metrics(&mut self, destination: IpAddr) -> Result<RouteMetrics, NetlinkError> {
        let action = format!("look up the route to {destination}");
        let mut request = route_message(Prefix::host(destination));
        request.header.table = RouteHeader::RT_TABLE_UNSPEC;
        match self.get(&action, RouteNetlinkMessage::GetRoute(request))? {
            Some(RouteNetlinkMessage::NewRoute(message)) => Ok(parse(&message)),
            _ => Err(NetlinkError::malformed(&action, "no route in the answer")),
        }
    }
}

fn parse(message: &RouteMessage) -> RouteMetrics {
    let mut found = RouteMetrics::default();
    let metrics = message.attributes.iter().filter_map(|attribute| match attribute {
        RouteAttribute::Metrics(metrics) => Some(metrics),
        _ => None,
    });
    for metric in metrics.flatten() {
        match metric {
            RouteMetric::RtoMin(ms) => found.rto_min = Some(Duration::from_millis((*ms).into())),
            RouteMetric::QuickAck(on) => found.quick_ack = Some(*on != 0),
            RouteMetric::InitCwnd(segments) => found.initial_cwnd = Some(*segments),
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_taken_from_a_route() {
        let mut message = RouteMessage::default();
        assert_eq!(parse(&message), RouteMetrics::default());
        let metrics =
            vec![RouteMetric::RtoMin(9), RouteMetric::QuickAck(1), RouteMetric::InitCwnd(3)];
        message.attributes.push(RouteAttribute::Metrics(metrics));
        let expected = RouteMetrics {
            rto_min: Some(Duration::from_millis(9)),
            quick_ack: Some(true),
            initial_cwnd: Some(3),
        };
        assert_eq!(parse(&message), expected);
    }

    #[test]
    fn loopback_has_a_route_without_attributes_or_with() {
        Netlink::open().unwrap().route_metrics("127.0.0.1".parse().unwrap()).unwrap();
    }
}
