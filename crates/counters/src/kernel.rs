//! Pure parsers of the kernel's counter texts (`/proc/net/snmp`, `snmp6`, `softnet_stat`, `udp`,
//! `udp6`). A text of another form yields nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// UDP counters of a network namespace.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct UdpCounters {
    /// Datagrams delivered to programs.
    pub in_datagrams: u64,
    /// Datagrams for ports without a socket.
    pub no_ports: u64,
    /// Datagrams that could not be delivered for any other reason, including full buffers.
    pub in_errors: u64,
    /// Datagrams sent.
    pub out_datagrams: u64,
    /// Datagrams for which a socket buffer had no space.
    pub receive_buffer_errors: u64,
    /// Datagrams that could not be sent for lack of buffer space.
    pub send_buffer_errors: u64,
    /// Datagrams with a wrong checksum.
    pub checksum_errors: u64,
}

/// Packets received through the queues between interfaces and the network stack, on all CPUs.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct Softnet {
    /// Packets processed.
    pub processed: u64,
    /// Packets dropped because a CPU's queue was full.
    pub dropped: u64,
    /// Number of times that the time or budget of one poll ended before the queue was empty.
    pub squeezed: u64,
}

/// A UDP socket that accepts datagrams from any address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UdpSocketCounts {
    /// The address to which it is bound.
    pub address: IpAddr,
    /// The port.
    pub port: u16,
    /// Memory used by waiting datagrams, in bytes.
    pub queued_bytes: u64,
    /// Datagrams that it dropped.
    pub dropped: u64,
}

impl UdpCounters {
    /// Reads IPv4's counters from the text of `/proc/net/snmp`: a line of names and a line of
    /// numbers for each protocol.
    #[must_use]
    pub fn parse_snmp(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
        let (names, numbers) = (lines.next()?, lines.next()?);
        Self::read(|wanted| {
            let mut pairs = names.split_whitespace().zip(numbers.split_whitespace());
            pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
        })
    }

    /// Reads IPv6's counters from the text of `/proc/net/snmp6`: a name and a number on each line.
    #[must_use]
    pub fn parse_snmp6(text: &str) -> Option<Self> {
        Self::read(|wanted| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
            let (_, number) =
                pairs.find(|(name, _)| name.strip_prefix("Udp6").is_some_and(|n| n == wanted))?;
            number.trim().parse().ok()
        })
    }

    /// Both texts use the same names. The two without which the others mean nothing are required.
    fn read(find: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let or_none = |name| find(name).unwrap_or(0);
        Some(Self {
            in_datagrams: or_none("InDatagrams"),
            no_ports: find("NoPorts")?,
            in_errors: or_none("InErrors"),
            out_datagrams: or_none("OutDatagrams"),
            receive_buffer_errors: find("RcvbufErrors")?,
            send_buffer_errors: or_none("SndbufErrors"),
            checksum_errors: or_none("InCsumErrors"),
        })
    }
}

impl Softnet {
    /// Reads the text of `/proc/net/softnet_stat`: a line of hexadecimal numbers for each CPU.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut sum = Self::default();
        for line in text.lines() {
            let mut numbers =
                line.split_whitespace().map(|word| u64::from_str_radix(word, 16).ok());
            sum.processed = sum.processed.checked_add(numbers.next()??)?;
            sum.dropped = sum.dropped.checked_add(numbers.next()??)?;
            sum.squeezed = sum.squeezed.checked_add(numbers.next()??)?;
        }
        (!text.is_empty()).then_some(sum)
    }
}

impl UdpSocketCounts {
    /// Reads the text of `/proc/net/udp` or `/proc/net/udp6`; sockets connected to one peer are
    /// left out.
    #[must_use]
    pub fn parse_table(text: &str) -> Vec<Self> {
        text.lines().skip(1).filter_map(Self::parse).collect()
    }

    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let (address, port) = parse_endpoint(words.next()?)?;
        let (remote_address, remote_port) = parse_endpoint(words.next()?)?;
        let (_, queued) = words.nth(1)?.split_once(':')?;
        let dropped = words.last()?;
        let serves_all = remote_address.is_unspecified() && remote_port == 0;
        Some(Self {
            address,
            port,
            queued_bytes: u64::from_str_radix(queued, 16).ok()?,
            dropped: dropped.parse().ok()?,
        })
        .filter(|_| serves_all)
    }
}

/// An address and a port in hexadecimal. The 32-bit words of an address are written as numbers in
/// the CPU's byte order.
fn parse_endpoint(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let number = u32::from_str_radix(address.get(8 * at..8 * at + 8)?, 16).ok()?;
        Some(number.to_ne_bytes())
    };
    let address: IpAddr = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            Ipv6Addr::from(bytes).into()
        }
        _ => return None,
    };
    Some((address, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL\nIp: 1 64\n\
        Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors\n\
        Udp: 100 3 7 90 5 2\nUdpLite: InDatagrams\nUdpLite: 0\n";
    const SNMP6: &str =
        "Ip6InReceives                   \t17\nUdp6NoPorts \t4\nUdp6RcvbufErrors   \t9\n";

    #[test]
    fn udp_is_read() {
        let v4 = UdpCounters {
            in_datagrams: 100,
            no_ports: 3,
            in_errors: 7,
            out_datagrams: 90,
            receive_buffer_errors: 5,
            send_buffer_errors: 2,
            checksum_errors: 0,
        };
        assert_eq!(UdpCounters::parse_snmp(SNMP), Some(v4));
        let v6 = UdpCounters { receive_buffer_errors: 9, no_ports: 4, ..UdpCounters::default() };
        assert_eq!(UdpCounters::parse_snmp6(SNMP6), Some(v6));
        assert_eq!(UdpCounters::parse_snmp("Udp: NoPorts\n"), None);
        assert_eq!(UdpCounters::parse_snmp6(""), None);
    }

    #[test]
    fn this_kernel_s_texts_are_read() {
        let read = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        assert!(UdpCounters::parse_snmp(&read("snmp").unwrap()).is_some());
        assert!(Softnet::parse(&read("softnet_stat").unwrap()).is_some_and(|s| s.processed > 0));
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let at = socket.local_addr().unwrap();
        let found = UdpSocketCounts::parse_table(&read("udp").unwrap());
        let found = found.iter().find(|found| found.port == at.port()).unwrap();
        assert_eq!((found.address, found.dropped), (at.ip(), 0));
        socket.connect("127.0.0.1:9").unwrap();
        let found = UdpSocketCounts::parse_table(&read("udp").unwrap());
        assert!(found.iter().all(|found| found.port != at.port()), "it serves one partner only");
    }

    #[test]
    fn processors_are_added_up() {
        let text = "0000000a 00000001 00000002 0 0\n00000010 00000003 00000000 0 0\n";
        let sum = Softnet { processed: 26, dropped: 4, squeezed: 2 };
        assert_eq!(Softnet::parse(text), Some(sum));
        assert_eq!(Softnet::parse("1 2\n"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(Udp: NoPorts RcvbufErrors\n)?[0-9A-Fa-f:. \n]{0,300}") {
            let _ = UdpCounters::parse_snmp(&text);
            let _ = UdpCounters::parse_snmp6(&text);
            let _ = Softnet::parse(&text);
            let _ = UdpSocketCounts::parse_table(&text);
        }
    }
}
