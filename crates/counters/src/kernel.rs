//! Pure parsers of the kernel's counter files (`/proc/net/snmp`, `snmp6`, `softnet_stat`, `udp`,
//! `udp6`). An unknown format yields `None` or, in a table of sockets, no entry.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// UDP counts of a network namespace for one IP version (`Udp` in `/proc/net/snmp`, `Udp6` in
/// `snmp6`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct UdpCounts {
    /// Datagrams delivered to programs.
    pub in_datagrams: u64,
    /// Datagrams for ports without a socket.
    pub no_ports: u64,
    /// Datagrams that could not be delivered for any other reason, including full buffers.
    pub in_errors: u64,
    /// Datagrams sent.
    pub out_datagrams: u64,
    /// Received datagrams dropped because the socket's receive buffer was full.
    pub receive_buffer_errors: u64,
    /// Datagrams that could not be sent for lack of buffer space.
    pub send_buffer_errors: u64,
    /// Datagrams with a wrong checksum.
    pub checksum_errors: u64,
}

/// Packets through the receive backlogs of all CPUs (`/proc/net/softnet_stat`).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct SoftnetCounts {
    /// Packets processed: first column of the file.
    pub processed: u64,
    /// Packets dropped because the backlog of a CPU was full.
    pub dropped: u64,
    /// Number of times that a softirq poll ran out of time or budget before all packets were
    /// processed.
    pub squeezed: u64,
}

/// Counts of a UDP socket that accepts datagrams from any address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct UdpSocketCounts {
    /// Address to which the socket is bound.
    pub address: IpAddr,
    /// Port to which the socket is bound.
    pub port: u16,
    /// Memory used by waiting datagrams, in bytes.
    pub queued_bytes: u64,
    /// Received datagrams that the socket dropped.
    pub dropped: u64,
}

impl UdpCounts {
    /// Parses the counts of UDP over IPv4 in `/proc/net/snmp`: a line of names and a line of
    /// numbers for each protocol.
    #[must_use]
    pub fn parse_snmp(text: &str) -> Option<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix("Udp:"));
        let (names, numbers) = (lines.next()?, lines.next()?);
        Self::from_lookup(|wanted| {
            let mut pairs = names.split_whitespace().zip(numbers.split_whitespace());
            pairs.find(|(name, _)| *name == wanted)?.1.parse().ok()
        })
    }

    /// Parses the counts of UDP over IPv6 in `/proc/net/snmp6`: a name and a number on each line.
    #[must_use]
    pub fn parse_snmp6(text: &str) -> Option<Self> {
        Self::from_lookup(|wanted| {
            let mut pairs = text.lines().filter_map(|line| line.split_once(char::is_whitespace));
            let (_, number) =
                pairs.find(|(name, _)| name.strip_prefix("Udp6").is_some_and(|n| n == wanted))?;
            number.trim().parse().ok()
        })
    }

    /// Builds the counts by name; both files use the same names. Returns `None` without `NoPorts`
    /// or `RcvbufErrors`; any other missing count is 0.
    fn from_lookup(find: impl Fn(&str) -> Option<u64>) -> Option<Self> {
        let or_zero = |name| find(name).unwrap_or(0);
        Some(Self {
            in_datagrams: or_zero("InDatagrams"),
            no_ports: find("NoPorts")?,
            in_errors: or_zero("InErrors"),
            out_datagrams: or_zero("OutDatagrams"),
            receive_buffer_errors: find("RcvbufErrors")?,
            send_buffer_errors: or_zero("SndbufErrors"),
            checksum_errors: or_zero("InCsumErrors"),
        })
    }
}

impl SoftnetCounts {
    /// Parses `/proc/net/softnet_stat`, a line of hexadecimal numbers for each CPU, and sums all
    /// CPUs.
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
    /// Parses `/proc/net/udp` or `/proc/net/udp6`, without sockets that are connected to a peer.
    #[must_use]
    pub fn parse_table(text: &str) -> Vec<Self> {
        text.lines().skip(1).filter_map(Self::parse_line).collect()
    }

    fn parse_line(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace().skip(1);
        let (address, port) = parse_endpoint(words.next()?)?;
        let (remote_address, remote_port) = parse_endpoint(words.next()?)?;
        let (_, queued) = words.nth(1)?.split_once(':')?;
        let dropped = words.last()?;
        let is_unconnected = remote_address.is_unspecified() && remote_port == 0;
        Some(Self {
            address,
            port,
            queued_bytes: u64::from_str_radix(queued, 16).ok()?,
            dropped: dropped.parse().ok()?,
        })
        .filter(|_| is_unconnected)
    }
}

/// Parses an address and a port in hexadecimal. Each 32-bit word of the address is printed as a
/// number in the CPU's byte order.
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
        let v4 = UdpCounts {
            in_datagrams: 100,
            no_ports: 3,
            in_errors: 7,
            out_datagrams: 90,
            receive_buffer_errors: 5,
            send_buffer_errors: 2,
            checksum_errors: 0,
        };
        assert_eq!(UdpCounts::parse_snmp(SNMP), Some(v4));
        let v6 = UdpCounts { receive_buffer_errors: 9, no_ports: 4, ..UdpCounts::default() };
        assert_eq!(UdpCounts::parse_snmp6(SNMP6), Some(v6));
        assert_eq!(UdpCounts::parse_snmp("Udp: NoPorts\n"), None);
        assert_eq!(UdpCounts::parse_snmp6(""), None);
    }

    #[test]
    fn this_kernel_s_texts_are_read() {
        let read = |name| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
        assert!(UdpCounts::parse_snmp(&read("snmp").unwrap()).is_some());
        assert!(
            SoftnetCounts::parse(&read("softnet_stat").unwrap()).is_some_and(|s| s.processed > 0)
        );
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
        let sum = SoftnetCounts { processed: 26, dropped: 4, squeezed: 2 };
        assert_eq!(SoftnetCounts::parse(text), Some(sum));
        assert_eq!(SoftnetCounts::parse("1 2\n"), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "(Udp: NoPorts RcvbufErrors\n)?[0-9A-Fa-f:. \n]{0,300}") {
            let _ = UdpCounts::parse_snmp(&text);
            let _ = UdpCounts::parse_snmp6(&text);
            let _ = SoftnetCounts::parse(&text);
            let _ = UdpSocketCounts::parse_table(&text);
        }
    }
}
